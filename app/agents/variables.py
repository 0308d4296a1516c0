"""The toolkit `variables` at work: values in the place of variables before a call, its result at a path after it.

What a call was given is on record before it passes its gate, and a call writes once: after a crash it has the same
values, whatever the documents hold by then, and finds what it wrote.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson
from plangate.spec.models import RuntimeSpec
from plangate.spec.variable_schemas import KEPT_AS_WRITTEN, prescribed_path
from plangate.spec.variables import MISSING, Reference

from app.agents.run import QueryRun
from app.agents.toolkit import Answer, Outcome, ToolError
from app.agents.variable_prompt import section
from app.agents.variable_values import (
    MAX_REPLACED_BYTES,
    Filled,
    Output,
    VariableError,
    Written,
    filled,
    written,
)
from app.artifacts.service import ArtifactNotFound, Artifacts
from app.base import jsongate
from app.base.blobs import BlobLost, StoreUnavailable
from app.base.database import Tx
from app.base.schemacheck import SchemaChecker
from app.journal import store as journal_store
from app.journal.models import Scope, event
from app.references.service import (
    MAX_HYDRATED_BYTES,
    ReferenceChanged,
    ReferenceExpired,
    ReferenceNotFound,
    References,
)
from app.state import service as documents
from app.state import store
from app.state.models import EMPTY, NOTHING, STATE, Author, DocumentId, WriteRow
from app.state.writing import Method, WriteRefused, kind_of

INPUT: Final = "input"
AT_ONCE_BYTES: Final = 256 * 1024  # of documents that are parsed between the events of other queries


@dataclass(frozen=True, slots=True)
class Holder:
    """Whose variables: the state of a thread, what a query came with by kind (or a runtime alone, where there is none
    yet), and what it wrote."""

    thread_id: str
    query_id: str | None
    given: Mapping[str, Any]
    state_schema: Mapping[str, Any] | None

    @classmethod
    def of(cls, run: QueryRun) -> Holder:
        spec, given = run.runtime.spec, given_of(run.runtime.spec, run.query.request)
        return cls(run.query.thread_id, run.query.id, given, spec.state_schema)


@dataclass(frozen=True, slots=True)
class Gathered:
    """The bytes that variables lead into, of one moment; and what became of references that are gone."""

    bodies: Mapping[Reference, bytes]
    why: Mapping[Reference, str]
    kinds: frozenset[str]

    def values(self) -> dict[Reference, Any]:
        return {root: orjson.loads(body) if body else MISSING for root, body in self.bodies.items()}


class Variables:
    def __init__(self, references: References, schemas: SchemaChecker, artifacts: Artifacts) -> None:
        self._artifacts = artifacts
        self._references = references
        self._schemas = schemas

    # -- before a call ---------------------------------------------------------------------------------------

    async def fill(
        self, run: QueryRun, scope: Scope, tool: str, schema: Mapping[str, Any], args: dict[str, Any]
    ) -> Filled | ToolError:
        """The call with values in the place of its variables, as on record: the same whenever it is asked for."""
        try:
            call = written(args, KEPT_AS_WRITTEN.get(tool, ()), prescribed_path(schema))
            if not call.found:
                return filled(call, {}, (), {})
            kept = await run.look(lambda tx: store.kept_call(tx, scope.work_id))
            if kept is not None:
                return Filled.load(*kept, call.output)
            return await self._keep(run, scope, call)
        except VariableError as error:
            return ToolError(f"The call was not made. {error}", "variable_error")

    async def _keep(self, run: QueryRun, scope: Scope, call: Written) -> Filled:
        roots = call.roots()
        gathered = await run.look(lambda tx: self.gather(tx, Holder.of(run), scope.work_id, roots))
        texts = await self._texts(
            run, [root for root in roots if root.kind == "artifact" and len(root.path) > 1]
        )
        gathered = replace(
            gathered, bodies={**gathered.bodies, **texts.bodies}, why={**gathered.why, **texts.why}
        )

        def work() -> tuple[Filled, tuple[bytes, bytes]]:
            made = filled(call, gathered.values(), gathered.kinds, gathered.why)
            return made, made.dump()

        large = sum(map(len, gathered.bodies.values())) > AT_ONCE_BYTES
        made, record = await asyncio.to_thread(work) if large else work()
        await run.durably(lambda tx: store.keep_call(tx, scope.work_id, run.query.id, *record))
        return made

    async def gather(self, tx: Tx, holder: Holder, work_id: str, roots: Iterable[Reference]) -> Gathered:
        """What variables lead into, as it is now; the record of the work says which references that were."""
        bodies: dict[Reference, bytes] = {}
        why: dict[Reference, str] = {}
        given, query_id = holder.given, holder.query_id
        own = await store.of_query(tx, query_id) if query_id else []
        hydrated = 0
        for root in roots:
            if root.kind == "ref":
                kind, id = (segment.key for segment in root.path)
                try:
                    hydrated += (await self._references.glimpse(tx, kind, id)).size_bytes
                    if hydrated > MAX_HYDRATED_BYTES:
                        raise VariableError(f"One call may use {MAX_HYDRATED_BYTES} bytes of references.")
                    found = await self._references.hydrate(tx, [(kind, id)], work_id)
                    bodies[root] = found[kind][id]
                except (ReferenceChanged, ReferenceExpired, ReferenceNotFound) as gone:
                    why[root] = gone.detail
            elif root.kind == "artifact":
                if len(root.path) > 1:
                    continue  # its text is in the blob store
                try:
                    found_one = await self._artifacts.read(tx, root.path[0].key)
                    bodies[root] = jsongate.dumps(found_one.wire())
                except ArtifactNotFound as gone:
                    why[root] = gone.detail
            elif root.kind == STATE:
                held = await documents.read(tx, DocumentId.state(holder.thread_id))
                bodies[root] = held.body
            elif query_id and root.kind in own:
                bodies[root] = await store.body_of_query(tx, query_id, root.kind)
            elif root.kind in given:
                bodies[root] = jsongate.dumps(given[root.kind])
        return Gathered(bodies, why, frozenset({*given, *own, STATE, "ref", "artifact"}))

    async def _texts(self, run: QueryRun, roots: Sequence[Reference]) -> Gathered:
        """The texts of the files that artifacts are, as they were published."""
        bodies: dict[Reference, bytes] = {}
        why: dict[Reference, str] = {}
        total = 0
        for root in roots:
            id = root.path[0].key
            try:
                found = await run.look(lambda tx, id=id: self._artifacts.read(tx, id))  # type: ignore[misc]
            except ArtifactNotFound as gone:
                why[root] = gone.detail
                continue
            total += found.body_bytes
            if total > MAX_REPLACED_BYTES:
                raise VariableError(
                    f"With {id} the artifacts of this call have {total} bytes, more than {MAX_REPLACED_BYTES}: pass their "
                    "ids, or paths."
                )
            try:
                bodies[root] = jsongate.dumps((await self._artifacts.text(run.lease.tenant, found)).decode())
            except UnicodeDecodeError:
                why[root] = f"The artifact {id!r} is not text."
            except (BlobLost, StoreUnavailable) as error:
                why[root] = error.detail
        return Gathered(bodies, why, frozenset())

    # -- after it --------------------------------------------------------------------------------------------

    async def deliver(self, run: QueryRun, scope: Scope, output: Output, outcome: Outcome) -> Outcome:
        """The result at its path, and a receipt for the model. A failure goes to the second alternative, if there is
        one. Raises WriteRefused, and nothing was written."""
        rows = await run.look(lambda tx: store.of_call(tx, scope.work_id))
        if not rows:
            picked = picked_of(output, outcome)
            if isinstance(picked, ToolError):
                return picked
            paths, value = picked
            failed = isinstance(outcome, ToolError)
            rows = await run.durably(
                lambda tx: self.write(
                    tx,
                    Holder.of(run),
                    scope,
                    paths,
                    output.method,
                    value,
                    failed=failed,
                    epoch=run.lease.epoch,
                )
            )
        else:
            value = orjson.loads(rows[0].value or b"null")
        if rows[0].failed:
            where = ", ".join(row.path for row in rows)
            return ToolError(f"{value['message']} (This error was written to {where}.)", value["code"])
        written_to = [row.change() for row in rows]
        first = rows[0]
        return Answer(
            {
                "written": written_to,
                "type": kind_of(value),
                "sizeBytes": first.size_bytes,
                "glimpse": first.glimpse,
            }
        )

    async def write(
        self,
        tx: Tx,
        holder: Holder,
        scope: Scope,
        paths: Iterable[Reference],
        method: Method,
        value: Any,
        *,
        failed: bool,
        epoch: int | None = None,
    ) -> list[WriteRow]:
        """All of the writes of a call, or none, with their events. Raises WriteRefused."""
        rows = []
        for part, path in enumerate(paths):
            document, base, schema = DocumentId.state(holder.thread_id), EMPTY, None
            if path.kind != STATE:
                document = DocumentId(scope.query_id, path.kind, holder.thread_id)
                given = holder.given
                base = jsongate.dumps(given[path.kind]) if path.kind in given else NOTHING
            elif holder.state_schema is not None:
                schema = self._schemas.compile(holder.state_schema)
            author = Author(scope.work_id, scope.query_id, scope.agent, part, failed)
            rows.append(
                await documents.write(tx, document, path, method, value, author, base=base, schema=schema)
            )
        told = [event(scope, "state-write", data=row.change()) for row in rows]
        await journal_store.append(tx, scope.query_id, told, epoch)
        return rows

    # -- in the prompt ---------------------------------------------------------------------------------------

    async def notes(self, run: QueryRun) -> str:
        """What an agent's run is told of its variables when it begins."""

        async def look(tx: Tx) -> tuple[bytes, dict[str, bytes]]:
            state = await documents.read(tx, DocumentId.state(run.query.thread_id))
            own = await store.of_query(tx, run.query.id)
            return state.body, {kind: await store.body_of_query(tx, run.query.id, kind) for kind in own}

        state, own = await run.look(look)

        def work() -> str:
            given = given_of(run.runtime.spec, run.query.request)
            shown = {INPUT: given.pop(INPUT), STATE: orjson.loads(state)}
            named = {**given, **{kind: orjson.loads(body) for kind, body in own.items()}}
            return section(
                {**shown, **{kind: named[kind] for kind in sorted(named)}}, sorted(run.runtime.references)
            )

        large = len(state) + sum(map(len, own.values())) > AT_ONCE_BYTES
        return await asyncio.to_thread(work) if large else work()


def given_of(spec: RuntimeSpec, request: Mapping[str, Any]) -> dict[str, Any]:
    """What a query came with, by kind: its inputs, and the data objects of the runtime under those of its own."""
    return {**spec.data, **(request.get("data") or {}), INPUT: request.get("inputs") or {}}


def picked_of(output: Output, outcome: Outcome) -> tuple[tuple[Reference, ...], Any] | ToolError:
    """The paths that get something, and what; or the error that goes to the model as it is."""
    several = output.alternatives[1:]
    if isinstance(outcome, ToolError):
        if not several or outcome.code == "outcome_unknown":
            return outcome
        return several[0], {"code": outcome.code, "message": outcome.message}
    value = outcome.value
    if not several or not isinstance(value, dict) or "_output" not in value:
        return output.alternatives[0], value
    named = output.named(value["_output"])
    if named is None or "value" not in value:
        known = ", ".join(" && ".join(map(str, a)) for a in output.alternatives)
        raise WriteRefused(
            f"the tool picked no path of the call with `_output` and `value`; there are: {known}"
        )
    return named, value["value"]
