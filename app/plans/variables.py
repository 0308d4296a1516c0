"""Variables in plans: what they stand for as the gate opens, which is what is approved, and as each action is sent.

A plan reads the documents as they were when its gate opened (they are kept by the work that opened it), and over them
what its own actions wrote, in the order of the log. What anybody else writes meanwhile changes nothing of it.
"""

from __future__ import annotations

import asyncio
import hashlib
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import orjson
from plangate.spec.variables import (
    MISSING,
    Expression,
    VariablePath,
    VariableUse,
    evaluate,
    parse,
    resolve_path,
)
from plangate.statuses import ActionStatus

from app.base.errors import FieldError, Invalid
from app.base.json.offload import loads, offload
from app.base.postgres.database import Tx
from app.documents.glimpses import glimpse_value
from app.documents.models import WriteRow
from app.documents.service import PreparedWrite
from app.documents.writing import DocumentWrite, WriteRejected, apply_write, json_type
from app.engine.query_run import QueryRun
from app.journal.models import Scope
from app.plans import artifacts, store
from app.plans import body as bodies
from app.plans.artifacts import ArtifactTexts, add_texts, artifact_root
from app.plans.body import Action
from app.plans.graph import (
    MAX_FLAWS,
    REF,
    STORED,
    PathIndex,
    PlanGraph,
    PlanStep,
    input_exclusion,
    parse_steps,
)
from app.plans.models import Plan
from app.references.service import Handle
from app.runtimes.models import Runtime
from app.tools.results import Outcome, ToolError
from app.variables.service import GatheredDocuments, VariableScope, VariableService, pick_output, picked_json
from app.variables.values import (
    ARTIFACT,
    FilledCall,
    OutputPath,
    VariableError,
    document_root,
    fill_call,
    is_text,
    lookup_in,
    missing_reason,
    preview,
)

Documents = Mapping[str, Any]
"""By kind: the document, or MISSING."""


class StoredDocuments(dict[str, bytes]):
    """The documents of a gate as they are stored, by kind. Pass `documents` if they are parsed already."""

    def __init__(self, bodies: Mapping[str, bytes], documents: Documents | None = None) -> None:
        super().__init__(bodies)
        self._documents = documents

    def documents(self) -> Documents:
        """Return the parsed documents, which nobody may change. Call it through `offload`."""
        if self._documents is None:
            self._documents = {kind: loads(body) for kind, body in self.items()}
        return self._documents

    @property
    def size(self) -> int:
        return sum(map(len, self.values()))


INPUT: Final = "input"
FOLDS_KEPT: Final = 32  # of each document that the actions write


# -- as a plan is stored


async def check_graph(
    tx: Tx,
    variables: VariableService,
    holder: VariableScope,
    runtime: Runtime,
    actions: Sequence[Action],
    work_id: str,
    size: int,
) -> tuple[list[FieldError], list[Handle]]:
    """Return the errors in the graph of a body that is to be stored, and, if there are none, the references that its
    variables lead to. `size` is the size of the body, for `offload`."""
    steps, flaws = await offload(parse_steps, actions, size=size)
    if flaws:
        return flaws[:MAX_FLAWS], []
    graph = await offload(PlanGraph, steps, size=size)
    roots = {artifact_root(root) for root in graph.roots() if root.kind != REF}
    gathered, _ = add_texts(await variables.gather(tx, holder, work_id, roots, used=False), graph, None)
    values = await parse_documents(gathered)
    lookup = lookup_in(values)

    def refusal(reference: VariablePath) -> str | None:
        if reference.kind == REF:  # whether it is there is seen as it is pinned
            return None
        if reference.kind == INPUT:
            return input_exclusion(runtime.spec.input_schema, reference)
        if lookup(reference) is MISSING:
            return missing_reason(reference, values, sorted(gathered.kinds), gathered.why)
        return None

    flaws = await offload(graph.flaws, refusal, size=max(size, gathered.size))
    return flaws, await offload(stored_values, steps, size=size)


async def load_graph(plan: Plan) -> PlanGraph:
    """Return the graph of a plan with variables."""
    return await PlanReader().graph(plan)


class PlanReader:
    """Reads the body of a plan once, however often it is asked for while the plan is the same."""

    def __init__(self) -> None:
        self._digest = b""
        self._body: dict[str, Any] = {}
        self._graph: PlanGraph | None = None

    async def body(self, plan: Plan) -> dict[str, Any]:
        """Return the body, which nobody may change."""
        if self._digest != plan.digest:
            self._body = await offload(loads, plan.body)
            self._digest, self._graph = plan.digest, None
        return self._body

    async def graph(self, plan: Plan) -> PlanGraph:
        """Return the graph of a plan with variables."""
        actions = bodies.parse_actions(await self.body(plan))
        if self._graph is None:
            size = bodies.offload_size(plan.body, len(actions))
            self._graph = await offload(PlanGraph.of, actions, size=size)
        return self._graph


def stored_values(steps: Sequence[PlanStep]) -> list[Handle]:
    """Return the references that variables of the actions lead into, once each, in order."""
    found = (
        root for step in steps for one in step.call.found for root in map(document_root, _with_document(one))
    )
    return list(dict.fromkeys(parse_handle(root) for root in found if root.kind == REF))


def parse_handle(root: VariablePath) -> Handle:
    return root.path[0].key, root.path[1].key


def _with_document(found: VariableUse) -> Iterable[VariablePath]:
    return found.expression.paths()


async def parse_documents(gathered: GatheredDocuments) -> dict[VariablePath, Any]:
    return await offload(gathered.values, size=gathered.size)


# -- as its gate opens


def effective_inputs(run: QueryRun, inputs: Any) -> dict[str, Any]:
    """Return the inputs of an execution: its own merged over the query's."""
    return {**(run.query.request.get("inputs") or {}), **(inputs or {})}


async def take_snapshot(
    tx: Tx,
    variables: VariableService,
    holder: VariableScope,
    graph: PlanGraph,
    work_id: str,
    texts: ArtifactTexts,
) -> StoredDocuments:
    """Store the parts of the documents that the plan names under the work that opens the gate. Every
    variable that no action provides must have a value now; else raise Invalid."""
    roots = {artifact_root(root) for root in graph.roots() if root.kind != REF}
    gathered, held = add_texts(await variables.gather(tx, holder, work_id, roots, used=False), graph, texts)
    gone = await _missing_stored_paths(tx, variables, holder, graph, work_id)

    def work() -> StoredDocuments:
        values = gathered.values()
        lookup, kinds = lookup_in(values), sorted(gathered.kinds)

        def missing(reference: VariablePath) -> str | None:
            if reference.kind == REF:
                return gone.get(reference)
            if graph.writers(reference) or lookup(reference) is not MISSING:
                return None
            return missing_reason(reference, values, kinds, gathered.why).rstrip(".")

        flaws = []
        for step in graph.steps:
            for found in step.call.found:
                told = [
                    next(filter(None, map(missing, refs)), None) for refs in found.expression.alternatives
                ]
                if None not in told:
                    text = f"{preview(found.text)} has no value: {'; '.join(filter(None, told))}"
                    flaws.append(FieldError(f"/body/actions/{step.index}{found.pointer}", text))
        if flaws:
            raise Invalid("A variable of the plan has no value.", flaws[:MAX_FLAWS])
        records = artifacts.records_in_snapshot(graph, values)
        documents = {**_snapshot_documents(graph, values), **artifacts.artifact_snapshot(records, held)}
        bodies = {kind: orjson.dumps(document) for kind, document in documents.items()}
        return StoredDocuments(bodies, documents)  # it all came through the gate

    kept = await offload(work, size=max(gathered.size, bodies.offload_size(b"", len(graph.steps))))
    await store.keep_snapshot(tx, work_id, kept)
    return kept


async def _missing_stored_paths(
    tx: Tx, variables: VariableService, holder: VariableScope, graph: PlanGraph, work_id: str
) -> dict[VariablePath, str]:
    """Return the paths into stored values that lead nowhere, and why. Values are read one at a time:
    together they may not fit into memory."""
    into: dict[VariablePath, list[VariablePath]] = {}
    for reference in graph.stored():
        root = document_root(reference)
        if reference != root:  # a whole value is there: what is pinned is described
            into.setdefault(root, []).append(reference)
    gone = {}
    for root, references in into.items():
        gathered = await variables.gather(tx, holder, work_id, [root])
        values = await parse_documents(gathered)
        lookup = lookup_in(values)
        for reference in references:
            if lookup(reference) is MISSING:
                gone[reference] = missing_reason(
                    reference, values, sorted(gathered.kinds), gathered.why
                ).rstrip(".")
    return gone


def _snapshot_documents(graph: PlanGraph, values: Mapping[VariablePath, Any]) -> dict[str, Any]:
    """Of each document the top-level fields that the plan reads or writes."""
    named: dict[str, set[str] | None] = {}
    for step in graph.steps:
        for path in (*step.reads(), *step.writes()):
            if path.kind in STORED:
                continue
            first = path.path[0].key if path.path else None
            fields = named.setdefault(path.kind, set())
            if first is None:
                named[path.kind] = None
            elif fields is not None:
                fields.add(first)
    kept = {}
    for kind, fields in named.items():
        held = values.get(VariablePath(kind), MISSING)
        if held is MISSING:
            continue
        if fields is not None and isinstance(held, Mapping):
            held = {key: held[key] for key in held if key in fields}
        kept[kind] = held
    return kept


async def describe_reads(graph: PlanGraph, kept: StoredDocuments) -> list[dict[str, Any]]:
    """Return what the approved bytes say about each path that is read: the digest and a glimpse of its
    current value, and the actions whose result it is. If those replace the whole value, only they are
    named."""
    size = max(kept.size, bodies.offload_size(b"", len(graph.steps)))
    return await offload(_describe_reads, graph, kept, size=size)


def _describe_reads(graph: PlanGraph, kept: StoredDocuments) -> list[dict[str, Any]]:
    documents = kept.documents()
    seen: dict[int, dict[str, Any]] = {}  # a value that several paths lead to is looked at once
    told = []
    for reference in dict.fromkeys(read for step in graph.steps for read in step.reads()):
        one: dict[str, Any] = {"variable": str(reference)}
        text = artifacts.approved_text(reference, documents)
        if text is not None:
            told.append(one | text)
            continue
        value = resolve_path(documents.get(reference.kind, MISSING), reference.path)
        if value is not MISSING and not graph.is_overwritten(reference):
            one |= seen.get(id(value)) or seen.setdefault(id(value), _describe_value(value))
        producers = graph.producers(reference)
        if producers:
            one["resultOf"] = producers
        told.append(one)
    return told


def _describe_value(value: Any) -> dict[str, Any]:
    data = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)  # canonical: it came through the gate
    return {
        "digest": hashlib.sha256(data).hexdigest(),
        "type": json_type(value),
        "sizeBytes": len(data),
        "glimpse": glimpse_value(value),
    }


# -- as its actions run


async def deliver_result(
    tx: Tx,
    variables: VariableService,
    holder: VariableScope,
    scope: Scope,
    output: OutputPath,
    outcome: Outcome,
    epoch: int | None = None,
    made: PreparedWrite | None = None,
    data: bytes | None = None,
) -> list[WriteRow]:
    """Write the result of an action to its path, or its error to the error path; write nothing if it has no such path.
    `made` and `data` are the results of `ahead`. Return the writes with their values. Raises WriteRefused if nothing was
    written."""
    picked = pick_output(output, outcome)
    if isinstance(picked, ToolError):
        return []
    paths, value = picked
    failed = isinstance(outcome, ToolError)
    if data is None:
        data = await picked_json(outcome, value)
    rows = await variables.write(
        tx, holder, scope, paths, output.method, value, failed=failed, epoch=epoch, made=made, data=data
    )
    return [replace(row, value=data) for row in rows]


async def prepare_large_write(
    variables: VariableService, run: QueryRun, scope: Scope, output: OutputPath, outcome: Outcome
) -> tuple[PreparedWrite | None, bytes | None]:
    """Compute what a large write makes of its document, and the value as JSON, while no transaction is open. Raises
    WriteRefused."""
    picked = pick_output(output, outcome)
    if isinstance(picked, ToolError):
        return None, None
    paths, value = picked
    data = await picked_json(outcome, value)
    return await variables.ahead(run, scope, paths, output.method, value, data), data


class ExecutionView:
    """What the actions of one execution read: the snapshot, and over it what they wrote themselves. Built and read with
    `offload`."""

    def __init__(self, kept: StoredDocuments) -> None:
        self.size = kept.size
        """Bytes of JSON of all that is in it."""
        self._base = kept.documents()
        self._writes: dict[str, dict[int, DocumentWrite]] = {}
        self._numbers: dict[str, list[int]] = {}  # of the writes, sorted
        # After which write a document was what, the newest last: actions that run at the same time are taken up in
        # another order than that of the log.
        self._folded: dict[str, deque[tuple[int, Any]]] = {}

    def add(self, row: WriteRow, value: Any) -> VariablePath:
        """Apply a write of an action, with its value, and return its path."""
        parsed = parse(row.path)
        if not isinstance(parsed, Expression):
            raise TypeError(f"{row.path!r} is not a path")
        (path,) = parsed.paths()
        writes = self._writes.setdefault(row.kind, {})
        if row.n not in writes:
            insort(self._numbers.setdefault(row.kind, []), row.n)
        self.size += row.size_bytes
        writes[row.n] = DocumentWrite(path.path, row.method, value)
        folded = self._folded.get(row.kind)
        while folded and folded[-1][0] >= row.n:
            folded.pop()
        return path

    def kept(self, kind: str) -> Mapping[str, Any]:
        """Return what was stored by id when the gate opened."""
        held: Mapping[str, Any] = self._base.get(kind, {})
        return held

    def document(self, kind: str) -> Any:
        """Return the document as the plan sees it, or MISSING. Raise VariableError if a write does not fit
        the snapshot."""
        folded = self._folded.setdefault(kind, deque(maxlen=FOLDS_KEPT))
        head, held = folded[-1] if folded else (0, self._base.get(kind, MISSING))
        writes, numbers = self._writes.get(kind, {}), self._numbers.get(kind, [])
        for n in numbers[bisect_right(numbers, head) :]:
            try:
                held = apply_write(held, writes[n])
            except WriteRejected as refused:
                raise VariableError(
                    f"{preview('†' + kind)} was written to since the plan was approved, and what this plan wrote does not "
                    f"fit what was approved: {refused}."
                ) from refused
            folded.append((n, held))
        return held


class ExecutionFlow:
    """Where the actions of one execution stand, as far as others depend on it."""

    def __init__(self, graph: PlanGraph, view: ExecutionView) -> None:
        self.graph = graph
        self.view = view
        self._status: dict[int, ActionStatus] = {}
        self._delivered = PathIndex()
        self._silent = 0  # those that failed and wrote nothing, as bits
        self.turn = asyncio.Lock()
        """Held by whoever reads or changes the view: large values are put in by a thread."""

    async def ended(self, n: int, status: ActionStatus, rows: Sequence[WriteRow]) -> None:
        """Mark an action as over. `rows` are its writes."""
        values = [await offload(loads, row.value or b"null") for row in rows]
        async with self.turn:
            self._apply_writes(n, status, rows, values)

    def _apply_writes(
        self, n: int, status: ActionStatus, rows: Sequence[WriteRow], values: Sequence[Any]
    ) -> None:
        self._status[n] = status
        paths = [self.view.add(row, value) for row, value in zip(rows, values, strict=True)]
        for path in paths:
            self._delivered.add(path, n)
        if status == "failed" and not paths:
            self._silent |= 1 << n

    def is_usable(self, reference: VariablePath) -> bool:
        """Return whether a path has a usable value: every action that should write it has done so. A value
        from before the plan does not count then, and neither does one with a part missing because its
        action failed."""
        writers = self.graph.writers(reference)
        return not writers or bool(self._delivered.overlapping(reference) and not writers & self._silent)

    def skip_reason(self, n: int) -> str | None:
        """Why an action is not to run, if so: those that it waited for gave it nothing."""
        for found in self.graph.steps[n].call.found:
            lacking = [
                next((r for r in refs if not self.is_usable(r)), None)
                for refs in found.expression.alternatives
            ]
            if None not in lacking:
                return f"{preview(found.text)} has no value: {self._writers_outcome(r for r in lacking if r is not None)}."
        return None

    def missing_alternatives_reason(self, n: int, references: Mapping[VariablePath, Any]) -> str | None:
        """Return why an action cannot run if several alternatives were written and none has a value where
        it reads, else None. For a single path this is an error instead. `references` are the stored
        values that it reads."""
        stored = lookup_in(references)

        def lookup(reference: VariablePath) -> Any:
            if reference.kind in STORED:
                return stored(reference)
            if not self.is_usable(reference):
                return MISSING
            return resolve_path(self.view.document(reference.kind), reference.path)

        for found in self.graph.steps[n].call.found:
            several = len(found.expression.alternatives) > 1 and self.graph.depends_on_action(found)
            if several and evaluate(found.expression, lookup) is MISSING:
                return f"{preview(found.text)} has no value, and those that could write one are over."
        return None

    def _writers_outcome(self, references: Iterable[VariablePath]) -> str:
        """Return what happened to the actions that should have written these paths."""
        told = []
        for reference in references:
            gave = self._delivered.overlapping(reference)
            silent = [p for p in self.graph.producers(reference) if p in self._status and not gave >> p & 1]
            told += [f"action {p} {self._end_reason(p)}" for p in silent[:3]]
        return ", ".join(dict.fromkeys(told))

    def _end_reason(self, n: int) -> str:
        status = self._status[n]
        return "wrote to another path" if status == "succeeded" else f"is {status}"

    def records(self, n: int) -> dict[VariablePath, Any]:
        """Return the artifact records that an action reads, as of the opening of the gate."""
        held = self.view.kept(ARTIFACT)
        roots = self.graph.steps[n].call.roots()
        return {
            r: held[r.path[0].key]
            for r in roots
            if r.kind == ARTIFACT and not is_text(r) and r.path[0].key in held
        }

    def texts(self, n: int) -> list[VariablePath]:
        """Return the artifact texts that an action reads."""
        return sorted(filter(is_text, self.graph.steps[n].call.roots()), key=str)

    def fill(
        self, n: int, references: Mapping[VariablePath, Any], why: Mapping[VariablePath, str]
    ) -> FilledCall:
        """Return the action with its variables replaced. `references` are the stored values that it reads,
        `why` the reasons for missing ones. Raise VariableError."""
        call = self.graph.steps[n].call
        values: dict[VariablePath, Any] = dict(references)
        for root in call.roots():
            if root.kind not in STORED:
                values[root] = self.view.document(root.kind)
        kinds = sorted(root.kind for root, value in values.items() if value is not MISSING)
        return fill_call(call, values, kinds, why, self.is_usable)
