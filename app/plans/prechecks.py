"""Checks of a plan before it runs: its graph when it is stored, its known actions when it reaches its gate.

An action is known if none of its values comes from another action. It is filled from the snapshot that is approved, as it
will be at dispatch. So nobody is asked to approve an action that could not be sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final

from plangate.spec.action_schemas import REFERENCES
from plangate.spec.models import PlanSpec
from plangate.spec.variables import (
    VariablePath,
)

from app.base.errors import FieldError
from app.base.json.offload import offload, weight
from app.base.postgres.database import Tx
from app.base.schema.checker import SchemaChecker
from app.plans import body as bodies
from app.plans.body import Action
from app.plans.graph import (
    MAX_ERRORS,
    REF,
    PlanGraph,
    input_exclusion,
    parse_steps,
)
from app.plans.progress import ExecutionFlow, ExecutionView
from app.plans.snapshot import StoredDocuments, gather_documents, reference_of, stored_values
from app.references.models import Handle
from app.references.service import ReferenceExpired, ReferenceNotFound
from app.runtimes.models import Runtime
from app.variables.service import INPUT, NO_DOCUMENTS, GatheredDocuments, VariableScope, VariableService
from app.variables.values import (
    FilledCall,
    VariableError,
    describe_errors,
    is_text,
)

KNOWN_BYTES: Final = 16 * 1024 * 1024
"""About how many bytes of values are checked here: actions beyond are checked at dispatch. So are actions that read texts
of artifacts, which are in the blob store."""


async def check_graph(
    tx: Tx,
    variables: VariableService,
    variable_scope: VariableScope,
    runtime: Runtime,
    actions: Sequence[Action],
    size: int,
) -> tuple[list[FieldError], list[Handle]]:
    """Return the errors in the graph of a body that is to be stored, and, if there are none, the references that its
    variables lead to. `size` is the size of the body, for `offload`."""
    steps, errors = await offload(parse_steps, actions, size=size)
    if errors:
        return errors[:MAX_ERRORS], []
    graph = await offload(PlanGraph, steps, size=size)
    gathered, _ = await gather_documents(tx, variables, variable_scope, graph, None)

    def work() -> tuple[list[FieldError], list[Handle]]:
        absence = gathered.reasons(gathered.values())

        def reason_of(path: VariablePath) -> str | None:
            if path.kind == REF:  # pinning a reference fails if it does not exist
                return None
            if path.kind == INPUT:
                return input_exclusion(runtime.spec.input_schema, path)
            return absence(path)

        return graph.errors(reason_of), stored_values(steps)

    return await offload(work, size=max(size, gathered.size))


def reference_places(actions: Sequence[Action], handle: Handle, variables: bool) -> list[str]:
    """Return the pointers into the plan at which actions name a reference, beside their fields and, in a plan with
    variables, in them. Call it through `offload`."""
    named = [
        f"/actions/{n}/{REFERENCES}/{index}"
        for n, action in enumerate(actions)
        for index, reference in enumerate(action.references)
        if reference == handle
    ]
    steps = parse_steps(actions)[0] if variables else []
    read = [
        f"/actions/{step.index}{use.pointer}"
        for step in steps
        for use in step.call.uses
        if any(reference_of(path) == handle for path in use.expression.paths())
    ]
    return [*named, *read][:MAX_ERRORS]


async def name_places(
    error: ReferenceExpired | ReferenceNotFound, actions: Sequence[Action], variables: bool, size: int
) -> ReferenceExpired | ReferenceNotFound:
    """Return an error about a reference with the places in the body at which the actions name it. `size` is the weight of
    the actions, in bytes."""
    places = await offload(reference_places, actions, error.handle, variables, size=size)
    message = error.detail.rstrip(".")
    return type(error)(error.handle, [FieldError(f"/body{place}", message) for place in places])


async def validate_known_actions(
    tx: Tx,
    variables: VariableService,
    schemas: SchemaChecker,
    spec: PlanSpec,
    body: Mapping[str, Any],
    graph: PlanGraph,
    snapshot: StoredDocuments,
) -> list[FieldError]:
    """Return the errors of known actions that do not match the plan's schema; pointers lead into the plan."""
    stored_by_action: dict[int, GatheredDocuments] = {}
    remaining_bytes = KNOWN_BYTES
    for n in _known_actions(graph):
        if remaining_bytes <= 0:
            break
        roots = {root for root in graph.steps[n].call.roots() if root.kind == REF}
        gathered = NO_DOCUMENTS
        try:
            if roots:
                gathered = await variables.gather(tx, VariableScope.of_stored_values(), None, roots)
        except VariableError:
            continue  # more than a dispatch may carry: the subject is rejected for it
        stored_by_action[n] = gathered
        remaining_bytes -= gathered.size

    def work() -> list[FieldError]:
        filled, errors = _resolve_actions(ExecutionFlow(graph, ExecutionView(snapshot)), stored_by_action)
        return list(islice(chain(errors, _schema_mismatches(schemas, spec, body, filled)), MAX_ERRORS))

    size = KNOWN_BYTES - remaining_bytes + snapshot.size
    size = max(size, len(stored_by_action) * bodies.ACTION_SIZE_ESTIMATE_BYTES, weight(spec.schema_))
    return await offload(work, size=size)


def _known_actions(graph: PlanGraph) -> Iterable[int]:
    for step in graph.steps:
        if not any(map(graph.depends_on_action, step.call.uses)) and not any(map(is_text, step.call.roots())):
            yield step.index


def _resolve_actions(
    flow: ExecutionFlow, stored_by_action: Mapping[int, GatheredDocuments]
) -> tuple[dict[int, FilledCall], list[FieldError]]:
    filled: dict[int, FilledCall] = {}
    errors = []
    remaining_bytes = KNOWN_BYTES
    for n, gathered in stored_by_action.items():
        if remaining_bytes <= 0:
            break
        try:
            filled[n] = flow.fill(n, {**flow.records(n), **gathered.values()}, gathered.why)
        except VariableError as error:
            errors.append(FieldError(f"/body/actions/{n}", str(error).rstrip(".")))
        else:
            remaining_bytes -= sum(source.size_bytes for source in filled[n].sources)
    return filled, errors


def _schema_mismatches(
    schemas: SchemaChecker, spec: PlanSpec, body: Mapping[str, Any], filled: Mapping[int, FilledCall]
) -> Iterator[FieldError]:
    """Yield the errors of the plan with these actions filled. Actions that it names are checked alone, as they would be
    sent; if none of them fails alone, a rule about several actions is broken, and its errors are yielded as they are."""
    errors = bodies.resolved_errors(spec, body, {n: call.args for n, call in filled.items()}, schemas)
    indexes = {int(error.pointer.split("/")[2]) for error in errors if error.pointer.startswith("/actions/")}
    own_errors = {
        n: bodies.action_errors(spec, body, n, filled[n].args, schemas)
        for n in sorted(indexes & filled.keys())
    }
    for n, action_errors in own_errors.items():
        if action_errors:
            listed, _ = describe_errors(action_errors, filled[n].sources)
            yield FieldError(f"/body/actions/{n}", f"the action does not match its schema: {listed}")
    if not any(own_errors.values()):
        yield from (FieldError(f"/body{error.pointer}", error.message) for error in errors)
