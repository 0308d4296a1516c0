"""The progress of an execution: what its actions wrote, and which actions that provides with values."""

from __future__ import annotations

import asyncio
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Final

from plangate.spec.variables import (
    MISSING,
    Expression,
    VariablePath,
    evaluate,
    parse,
    resolve_path,
)
from plangate.statuses import ActionStatus

from app.base.json.offload import loads, offload
from app.documents.models import WriteRow
from app.documents.writing import DocumentWrite, Method, WriteRejected, apply_write
from app.plans.graph import (
    STORED,
    PathIndex,
    PlanGraph,
)
from app.plans.snapshot import StoredDocuments
from app.variables.service import ResultWrite
from app.variables.values import (
    ARTIFACT,
    FilledCall,
    VariableError,
    fill_call,
    is_text,
    lookup_in,
    preview,
)

MAX_VERSIONS: Final = 32  # of each document that the actions write
UNRECORDED: Final = 2**62  # above the number of every recorded write


class ExecutionView:
    """The documents that the actions of one execution read: the snapshot with their own writes. Create and read it through
    `offload`."""

    def __init__(self, snapshot: StoredDocuments) -> None:
        self.size = snapshot.size
        """The size of the snapshot and the writes as JSON."""
        self._base = snapshot.documents()
        self._writes: dict[str, dict[int, DocumentWrite]] = {}
        self._numbers: dict[str, list[int]] = {}  # of the writes, sorted
        # The last versions of each document, by the number of a write: parallel actions may end in another order than
        # that of the log.
        self._versions: dict[str, deque[tuple[int, Any]]] = {}

    def add(self, row: WriteRow, value: Any) -> VariablePath:
        """Apply a write of an action, with its value, and return its path."""
        parsed = parse(row.path)
        if not isinstance(parsed, Expression):
            raise TypeError(f"{row.path!r} is not a path")
        (path,) = parsed.paths()
        self.size += row.size_bytes
        self._insert(row.n, path, row.method, value)
        return path

    def _insert(self, n: int, path: VariablePath, method: Method, value: Any) -> None:
        writes = self._writes.setdefault(path.kind, {})
        if n not in writes:
            insort(self._numbers.setdefault(path.kind, []), n)
        writes[n] = DocumentWrite(path.path, method, value)
        self._drop_versions(path.kind, n)

    def _drop_versions(self, kind: str, n: int) -> None:
        versions = self._versions.get(kind)
        while versions and versions[-1][0] >= n:
            versions.pop()

    @contextmanager
    def assume(self, write: ResultWrite) -> Iterator[None]:
        """Apply a write that is not recorded yet, as the last one, within the block."""
        numbered = list(enumerate(write.paths, UNRECORDED))
        for n, path in numbered:
            self._insert(n, path, write.method, write.value)
        try:
            yield
        finally:
            for n, path in numbered:
                self._numbers[path.kind].remove(n)
                del self._writes[path.kind][n]
                self._drop_versions(path.kind, n)

    def documents_by_id(self, kind: str) -> Mapping[str, Any]:
        """Return what was stored by id when the plan reached its gate."""
        documents: Mapping[str, Any] = self._base.get(kind, {})
        return documents

    def document(self, kind: str) -> Any:
        """Return the document as the plan sees it, or MISSING. Raise VariableError if a write does not fit
        the snapshot."""
        versions = self._versions.setdefault(kind, deque(maxlen=MAX_VERSIONS))
        head, document = versions[-1] if versions else (0, self._base.get(kind, MISSING))
        writes, numbers = self._writes.get(kind, {}), self._numbers.get(kind, [])
        for n in numbers[bisect_right(numbers, head) :]:
            try:
                document = apply_write(document, writes[n])
            except WriteRejected as error:
                raise VariableError(
                    f"{preview('†' + kind)} was written to since the plan was approved, and what this plan wrote does not "
                    f"fit what was approved: {error}."
                ) from error
            versions.append((n, document))
        return document


class ExecutionFlow:
    """The progress of the actions of one execution, as far as others depend on it."""

    def __init__(self, graph: PlanGraph, view: ExecutionView) -> None:
        self.graph = graph
        self.view = view
        self._status: dict[int, ActionStatus] = {}
        self._delivered = PathIndex()
        self._silent = 0  # actions that failed and wrote nothing, as bits
        self.turn = asyncio.Lock()
        """Acquire it to read or change the view: threads fill in large values."""

    async def ended(self, n: int, status: ActionStatus, rows: Sequence[WriteRow]) -> None:
        """Mark an action as over. `rows` are its writes."""
        values = [await offload(loads, row.value or b"null") for row in rows]
        async with self.turn:
            self._apply_writes(n, status, rows, values)

    def _apply_writes(
        self, n: int, status: ActionStatus, rows: Sequence[WriteRow], values: Sequence[Any]
    ) -> None:
        paths = [self.view.add(row, value) for row, value in zip(rows, values, strict=True)]
        self._mark(n, status, paths)

    def _mark(self, n: int, status: ActionStatus, paths: Iterable[VariablePath]) -> None:
        self._status[n] = status
        is_silent = status == "failed"
        for path in paths:
            is_silent = False
            self._delivered.add(path, n)
        if is_silent:
            self._silent |= 1 << n

    @contextmanager
    def assume_ended(self, n: int, status: ActionStatus, write: ResultWrite | None) -> Iterator[None]:
        """Treat an action as over within the block, before that is recorded. The caller checks that `turn` is free, and does
        not await in the block."""
        paths = () if write is None else write.paths
        with nullcontext() if write is None else self.view.assume(write):
            self._mark(n, status, paths)
            try:
                yield
            finally:
                del self._status[n]
                self._silent &= ~(1 << n)
                self._delivered.discard(paths, n)

    def is_usable(self, path: VariablePath) -> bool:
        """Return whether a path has a usable value: every action that should write it has done so. A value
        from before the plan does not count then, and neither does one with a part missing because its
        action failed."""
        writers = self.graph.writers(path)
        return not writers or bool(self._delivered.overlapping(path) and not writers & self._silent)

    def skip_reason(self, n: int) -> str | None:
        """Return why an action cannot run, if the actions that it waited for provided nothing; else None."""
        for use in self.graph.steps[n].call.uses:
            missing = [
                next((path for path in paths if not self.is_usable(path)), None)
                for paths in use.expression.alternatives
            ]
            if None not in missing:
                return f"{preview(use.text)} has no value: {self._writers_outcome(path for path in missing if path is not None)}."
        return None

    def missing_alternatives_reason(self, n: int, values: Mapping[VariablePath, Any]) -> str | None:
        """Return why an action cannot run if several alternatives were written and none has a value where
        it reads, else None. For a single path this is an error instead. `values` are the stored
        values that it reads."""
        lookup_stored = lookup_in(values)

        def lookup(path: VariablePath) -> Any:
            if path.kind in STORED:
                return lookup_stored(path)
            if not self.is_usable(path):
                return MISSING
            return resolve_path(self.view.document(path.kind), path.path)

        for use in self.graph.steps[n].call.uses:
            several = len(use.expression.alternatives) > 1 and self.graph.depends_on_action(use)
            if several and evaluate(use.expression, lookup) is MISSING:
                return f"{preview(use.text)} has no value, and those that could write one are over."
        return None

    def _writers_outcome(self, paths: Iterable[VariablePath]) -> str:
        """Return what happened to the actions that should have written these paths."""
        reasons = []
        for path in paths:
            delivered = self._delivered.overlapping(path)
            silent = [p for p in self.graph.producers(path) if p in self._status and not delivered >> p & 1]
            reasons += [f"action {p} {self._end_reason(p)}" for p in silent[:3]]
        return ", ".join(dict.fromkeys(reasons))

    def _end_reason(self, n: int) -> str:
        status = self._status[n]
        return "wrote to another path" if status == "succeeded" else f"is {status}"

    def records(self, n: int) -> dict[VariablePath, Any]:
        """Return the artifact records that an action reads, as of when the plan reached its gate."""
        records = self.view.documents_by_id(ARTIFACT)
        roots = self.graph.steps[n].call.roots()
        return {
            root: records[root.path[0].key]
            for root in roots
            if root.kind == ARTIFACT and not is_text(root) and root.path[0].key in records
        }

    def texts(self, n: int) -> list[VariablePath]:
        """Return the artifact texts that an action reads."""
        return sorted(filter(is_text, self.graph.steps[n].call.roots()), key=str)

    def fill(
        self, n: int, stored_values: Mapping[VariablePath, Any], why: Mapping[VariablePath, str]
    ) -> FilledCall:
        """Return the action with its variables replaced. `stored_values` are the stored values that it reads,
        `why` the reasons for missing ones. Raise VariableError."""
        call = self.graph.steps[n].call
        values: dict[VariablePath, Any] = dict(stored_values)
        for root in call.roots():
            if root.kind not in STORED:
                values[root] = self.view.document(root.kind)
        kinds = sorted(root.kind for root, value in values.items() if value is not MISSING)
        return fill_call(call, values, kinds, why, self.is_usable)
