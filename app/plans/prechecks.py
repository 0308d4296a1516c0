"""What is known of a plan as its gate opens, against its schema: nobody is asked about an action that could not be sent.

An action is known if none of its values comes from another action. It is filled from what was kept for the approval, as
it will be when it is sent, so what is wrong with it now would be wrong then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, Final

from plangate.spec.models import PlanSpec

from app.base.errors import FieldError
from app.base.json.offload import offload
from app.base.postgres.database import Tx
from app.base.schema.checker import SchemaChecker
from app.plans import body as bodies
from app.plans.graph import MAX_FLAWS, REF, PlanGraph
from app.plans.variables import ExecutionFlow, ExecutionView, StoredDocuments
from app.variables.service import GatheredDocuments, VariableScope, VariableService
from app.variables.values import FilledCall, VariableError, describe_errors, is_text

KNOWN_BYTES: Final = 16 * 1024 * 1024
"""Of values that are looked at here, about: an action whose own come after these is checked as it is sent. Texts of
artifacts are too, since they are in the blob store."""

NOTHING_STORED: Final = GatheredDocuments({}, {}, frozenset())


async def validate_known_actions(
    tx: Tx,
    variables: VariableService,
    schemas: SchemaChecker,
    spec: PlanSpec,
    body: Mapping[str, Any],
    graph: PlanGraph,
    kept: StoredDocuments,
    work_id: str,
) -> list[FieldError]:
    """Of each known action that does not fit, why; pointers lead into the plan. `kept` are the documents of the gate."""
    stored: dict[int, GatheredDocuments] = {}
    left = KNOWN_BYTES
    for n in _known_actions(graph):
        if left <= 0:
            break
        roots = {root for root in graph.steps[n].call.roots() if root.kind == REF}
        read = NOTHING_STORED
        try:
            if roots:
                read = await variables.gather(tx, VariableScope.of_stored_values(), work_id, roots)
        except VariableError:
            continue  # more than one dispatch carries: that is what the subject is refused for
        stored[n] = read
        left -= read.size

    def work() -> list[FieldError]:
        made, flaws = _resolve_actions(ExecutionFlow(graph, ExecutionView(kept)), stored)
        return list(islice(chain(flaws, _schema_mismatches(schemas, spec, body, made)), MAX_FLAWS))

    size = KNOWN_BYTES - left + kept.size
    return await offload(work, size=max(size, len(stored) * bodies.ACTION_WEIGHS_BYTES))


def _known_actions(graph: PlanGraph) -> Iterable[int]:
    for step in graph.steps:
        if not any(map(graph.depends_on_action, step.call.found)) and not any(
            map(is_text, step.call.roots())
        ):
            yield step.index


def _resolve_actions(
    flow: ExecutionFlow, stored: Mapping[int, GatheredDocuments]
) -> tuple[dict[int, FilledCall], list[FieldError]]:
    made: dict[int, FilledCall] = {}
    flaws = []
    left = KNOWN_BYTES
    for n, read in stored.items():
        if left <= 0:
            break
        try:
            made[n] = flow.fill(n, {**flow.records(n), **read.values()}, read.why)
        except VariableError as error:
            flaws.append(FieldError(f"/body/actions/{n}", str(error).rstrip(".")))
        else:
            left -= sum(source.size_bytes for source in made[n].sources)
    return made, flaws


def _schema_mismatches(
    schemas: SchemaChecker, spec: PlanSpec, body: Mapping[str, Any], made: Mapping[int, FilledCall]
) -> Iterator[FieldError]:
    """One look at the plan with all of them, then at those that it names, each as it would be sent. Where it names none that
    does not fit alone, a rule about several of them is broken: that is told as it is."""
    found = bodies.resolved_errors(spec, body, {n: filled.args for n, filled in made.items()}, schemas)
    named = {int(f.pointer.split("/")[2]) for f in found if f.pointer.startswith("/actions/")}
    alone = {
        n: bodies.action_errors(spec, body, n, made[n].args, schemas) for n in sorted(named & made.keys())
    }
    for n, flaws in alone.items():
        if flaws:
            listed, _ = describe_errors(flaws, made[n].sources)
            yield FieldError(f"/body/actions/{n}", f"the action does not match its schema: {listed}")
    if not any(alone.values()):
        yield from (FieldError(f"/body{f.pointer}", f.message) for f in found)
