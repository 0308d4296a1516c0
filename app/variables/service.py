"""The toolkit `variables` at work: values in the place of variables before a call, its result at a path after it.

What a call was given is on record before it passes its gate, and a call writes once: after a crash it has the same
values, whatever the documents hold by then, and finds what it wrote.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
from plangate.events import StateWriteEvent
from plangate.spec.models import RuntimeSpec
from plangate.spec.variable_schemas import (
    LITERAL_PARAMETERS,
    META_PARAMETERS,
    OUTPUT_PATH,
    fixed_output_path,
    meta_schema,
)
from plangate.spec.variables import MISSING, VariablePath
from plangate.workspace.text import NotText, decode_text

from app.artifacts.models import Artifact
from app.artifacts.service import ArtifactNotFound, ArtifactService
from app.base.blobs.store import BlobLost, StoreUnavailable
from app.base.errors import TooLarge
from app.base.json import strict_json
from app.base.json.offload import loads, offload
from app.base.json.process_pool import JsonProcessPool
from app.base.postgres.database import Tx
from app.base.schema.checker import SchemaChecker
from app.documents import store
from app.documents.glimpses import truncate_text
from app.documents.models import (
    EMPTY,
    MEMORY,
    NOTHING,
    SHARED,
    STATE,
    Author,
    DocumentId,
    WriteRow,
)
from app.documents.service import DocumentService, PreparedWrite
from app.documents.writing import Method, WriteRejected, json_type
from app.engine.query_run import QueryRun
from app.journal import store as journal_store
from app.journal.models import Scope, event
from app.references.service import (
    MAX_HYDRATED_BYTES,
    ReferenceChanged,
    ReferenceExpired,
    ReferenceNotFound,
    ReferenceService,
)
from app.tools.results import Answer, Outcome, ToolError
from app.variables.prompt import memory_section, prompt_section
from app.variables.values import (
    ARTIFACT,
    MAX_REPLACED_BYTES,
    FilledCall,
    OutputPath,
    ParsedCall,
    VariableError,
    fill_call,
    fill_record,
    is_text,
    parse_call,
)

INPUT: Final = "input"
REASON_CHARS: Final = 400


@dataclass(frozen=True, slots=True)
class VariableScope:
    """Whose variables: the state of a thread, what a query came with by kind (or a runtime alone, where there is none
    yet), what it wrote, and the memory of the runtime's name."""

    thread_id: str
    query_id: str | None
    given: Mapping[str, Any]
    state_schema: Mapping[str, Any] | None
    runtime_name: str

    @classmethod
    def of(cls, run: QueryRun) -> VariableScope:
        spec, given = run.runtime.spec, query_documents(run.runtime.spec, run.query.request)
        return cls(run.query.thread_id, run.query.id, given, spec.state_schema, run.runtime.name)

    @classmethod
    def of_stored_values(cls, thread_id: str = "") -> VariableScope:
        """Return the scope of a reader that only reads references and artifacts."""
        return cls(thread_id, None, {}, None, "")

    def shared_document(self, kind: str) -> DocumentId:
        """Return the document of a kind that outlives the query."""
        if kind == MEMORY:
            return DocumentId.memory(self.runtime_name)
        return DocumentId.state(self.thread_id)


@dataclass(frozen=True, slots=True)
class GatheredDocuments:
    """The bytes that variables lead into, of one moment; and what became of references that are gone."""

    bodies: Mapping[VariablePath, bytes]
    why: Mapping[VariablePath, str]
    kinds: frozenset[str]

    @property
    def size(self) -> int:
        return sum(map(len, self.bodies.values()))

    def values(self) -> dict[VariablePath, Any]:
        """Parse the documents. Call it in a thread if `size` is large."""
        return {root: _parse_document(body) for root, body in self.bodies.items()}


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """A call as its model wrote it, in which parameters nothing is replaced, and the path that the tool itself says."""

    args: dict[str, Any]
    kept: tuple[str, ...]
    prescribed: str | None


@dataclass(frozen=True, slots=True)
class WriteTargetDocument:
    """A document that is written to: what it begins as, and the schema that holds for it."""

    document: DocumentId
    base: bytes
    schema: Mapping[str, Any] | None


class VariableService:
    def __init__(
        self,
        references: ReferenceService,
        documents: DocumentService,
        schemas: SchemaChecker,
        artifacts: ArtifactService,
        processes: JsonProcessPool,
    ) -> None:
        self._artifacts = artifacts
        self._references = references
        self._documents = documents
        self._schemas = schemas
        self._processes = processes

    # -- before a call ---------------------------------------------------------------------------------------

    async def fill(
        self, run: QueryRun, scope: Scope, tool: str, schema: Mapping[str, Any], args: dict[str, Any]
    ) -> FilledCall | ToolError:
        """Return the call with its variables replaced, from its record if there is one: the result never
        changes."""
        asked = WrittenCall(args, LITERAL_PARAMETERS.get(tool, ()), fixed_output_path(schema))
        try:
            call = parse_call(asked.args, asked.kept, asked.prescribed)
            self._check_output_path(schema, asked)
            if not call.found:
                return fill_call(call, {}, (), {})
            kept = await run.look(lambda tx: store.kept_call(tx, scope.work_id))
            if kept is not None:
                return await _load_filled(kept, call.output)
            roots = call.roots()
            gathered = await run.look(lambda tx: self.gather(tx, VariableScope.of(run), scope.work_id, roots))
            texts = await self.texts(run, list(filter(is_text, roots)), scope.work_id)
            bodies, why = {**gathered.bodies, **texts.bodies}, {**gathered.why, **texts.why}
            gathered = GatheredDocuments(bodies, why, gathered.kinds)
            record = await self._fill(call, gathered)
            await run.in_fenced_transaction(
                lambda tx: store.keep_call(tx, scope.work_id, run.query.id, *record)
            )
            return await _load_filled(record, call.output)
        except VariableError as error:
            return ToolError(f"The call was not made. {error}", "variable_error")

    async def value_at(self, run: QueryRun, path: VariablePath, work_id: str) -> Any:
        """Return the value at a path, as it is now. Raise VariableError, which says what is there instead."""
        asked = WrittenCall({"value": str(path)}, (), None)
        call = parse_call(asked.args, asked.kept, asked.prescribed)
        gathered = await run.look(lambda tx: self.gather(tx, VariableScope.of(run), work_id, call.roots()))
        filled = await _load_filled(await self._fill(call, gathered), None)
        return filled.args["value"]

    async def memory_notes(self, run: QueryRun) -> str:
        """Return what an agent with the toolkit `memory` is told about the memory when its run begins."""
        document = DocumentId.memory(run.runtime.name)
        body = (await run.look(lambda tx: self._documents.read(tx, document))).body
        return await offload(memory_section, body, size=len(body), processes=self._processes)

    def _check_output_path(self, schema: Mapping[str, Any], asked: WrittenCall) -> None:
        """Check the output path of the call against the tool's own. Raise VariableError."""
        wanted = meta_schema(schema)
        if wanted is None:
            return
        said = {name: asked.args[name] for name in META_PARAMETERS if name in asked.args}
        if asked.prescribed is not None:
            said[OUTPUT_PATH] = asked.prescribed
        flaws = self._schemas.compile(wanted).errors(said)
        if flaws:
            raise VariableError("; ".join(f"{flaw.pointer or '/'}: {flaw.message}" for flaw in flaws) + ".")

    async def _fill(self, call: ParsedCall, gathered: GatheredDocuments) -> tuple[bytes, bytes]:
        """Return the record of the call with its values. Raise VariableError."""
        parts = (call, gathered.bodies, gathered.kinds, gathered.why)
        try:
            return await offload(fill_record, *parts, size=gathered.size, processes=self._processes)
        except TooLarge as error:
            raise VariableError(
                "The values of its variables exceed the processing limit for one call: pass references by their handles."
            ) from error

    async def gather(
        self, tx: Tx, holder: VariableScope, work_id: str, roots: Iterable[VariablePath], *, used: bool = True
    ) -> GatheredDocuments:
        """Return the documents that variables lead into, as they are now. The work record says which
        references and artifacts were read; artifacts only if they are `used` rather than just looked at."""
        bodies: dict[VariablePath, bytes] = {}
        why: dict[VariablePath, str] = {}
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
                    why[root] = truncate_text(gone.detail, REASON_CHARS)
            elif is_text(root):
                continue  # it is in the blob store
            elif root.kind == ARTIFACT:
                try:
                    found_one = await self._artifacts.read(tx, root.path[0].key)
                    bodies[root] = strict_json.dumps(found_one.wire())
                    if used:
                        await self._artifacts.note(tx, work_id, [(found_one, 0)])
                except ArtifactNotFound as gone:
                    why[root] = truncate_text(gone.detail, REASON_CHARS)
            elif root.kind in SHARED:
                held = await self._documents.read(tx, holder.shared_document(root.kind))
                bodies[root] = held.body
            elif query_id and root.kind in own:
                bodies[root] = await store.body_of_query(tx, query_id, root.kind)
            elif root.kind in given:
                bodies[root] = strict_json.dumps(given[root.kind])
        return GatheredDocuments(bodies, why, frozenset({*given, *own, *SHARED, "ref", ARTIFACT}))

    async def texts(
        self, run: QueryRun, roots: Sequence[VariablePath], work_id: str | None = None
    ) -> GatheredDocuments:
        """Return the texts of published artifact files. `work_id` is the work that uses them."""
        bodies: dict[VariablePath, bytes] = {}
        why: dict[VariablePath, str] = {}
        total = 0
        used: list[tuple[Artifact, int]] = []
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
                text = await self._artifacts.text(run.lease.tenant, found)
                bodies[root] = await asyncio.to_thread(_as_json, text)
                used.append((found, 0))
            except NotText:
                why[root] = f"The artifact {id!r} is not text."
            except (BlobLost, StoreUnavailable) as error:
                why[root] = error.detail
        if used and work_id is not None:
            await run.in_fenced_transaction(lambda tx: self._artifacts.note(tx, work_id, used))
        return GatheredDocuments(bodies, why, frozenset())

    # -- after it --------------------------------------------------------------------------------------------

    async def deliver(self, run: QueryRun, scope: Scope, output: OutputPath, outcome: Outcome) -> Outcome:
        """Write the result to its path and return a receipt for the model. A failure goes to the second
        alternative, if there is one. Raise WriteRejected if nothing was written."""
        rows = await run.look(lambda tx: store.of_call(tx, scope.work_id))
        if not rows:
            picked = pick_output(output, outcome)
            if isinstance(picked, ToolError):
                return picked
            paths, value = picked
            data = await picked_json(outcome, value)
            made = await self.ahead(run, scope, paths, output.method, value, data)
            failed = isinstance(outcome, ToolError)
            rows = await run.in_fenced_transaction(
                lambda tx: self.write(
                    tx,
                    VariableScope.of(run),
                    scope,
                    paths,
                    output.method,
                    value,
                    failed=failed,
                    epoch=run.lease.epoch,
                    made=made,
                    data=data,
                )
            )
        else:
            value = await offload(loads, rows[0].value or b"null")
        if rows[0].failed:
            where = ", ".join(row.path for row in rows)
            return ToolError(f"{value['message']} (This error was written to {where}.)", value["code"])
        written_to = [row.change() for row in rows]
        first = rows[0]
        return Answer(
            {
                "written": written_to,
                "type": json_type(value),
                "sizeBytes": first.size_bytes,
                "glimpse": first.glimpse,
            }
        )

    async def ahead(
        self,
        run: QueryRun,
        scope: Scope,
        paths: Sequence[VariablePath],
        method: Method,
        value: Any,
        data: bytes,
    ) -> PreparedWrite | None:
        """Compute the result of a large write, or of a write to a large document, while no transaction is open. `data` is
        the value as JSON."""
        if len(paths) != 1:
            return None
        target = self._target(VariableScope.of(run), scope, paths[0])
        return await self._documents.prepare_large(
            run.look,
            target.document,
            paths[0],
            method,
            value,
            base=target.base,
            schema=target.schema,
            data=data,
        )

    def _target(self, holder: VariableScope, scope: Scope, path: VariablePath) -> WriteTargetDocument:
        """Return the document that a path leads into."""
        if path.kind in SHARED:
            schema = holder.state_schema if path.kind == STATE else None
            return WriteTargetDocument(holder.shared_document(path.kind), EMPTY, schema)
        given = holder.given
        base = strict_json.dumps(given[path.kind]) if path.kind in given else NOTHING
        return WriteTargetDocument(DocumentId(scope.query_id, path.kind, holder.thread_id), base, None)

    async def write(
        self,
        tx: Tx,
        holder: VariableScope,
        scope: Scope,
        paths: Iterable[VariablePath],
        method: Method,
        value: Any,
        *,
        failed: bool,
        epoch: int | None = None,
        made: PreparedWrite | None = None,
        data: bytes | None = None,
    ) -> list[WriteRow]:
        """All of the writes of a call, or none, with their events; once, however often it is asked for. Raises
        WriteRefused."""
        rows = await store.of_call(tx, scope.work_id)
        if rows:  # the answer to its commit was lost
            return rows
        for part, path in enumerate(paths):
            target = self._target(holder, scope, path)
            author = Author(scope.work_id, scope.query_id, scope.agent, part, failed)
            row = await self._documents.write(
                tx,
                target.document,
                path,
                method,
                value,
                author,
                base=target.base,
                schema=target.schema,
                made=made,
                data=data,
            )
            rows.append(row)
        told = [event(scope, StateWriteEvent, data=row.change()) for row in rows]
        await journal_store.append(tx, scope.query_id, told, epoch)
        return rows

    # -- in the prompt ---------------------------------------------------------------------------------------

    async def notes(self, run: QueryRun) -> str:
        """Return what an agent's run is told about its variables when it begins."""

        holder = VariableScope.of(run)

        async def look(tx: Tx) -> tuple[dict[str, bytes], dict[str, bytes]]:
            documents = {kind: holder.shared_document(kind) for kind in SHARED}
            shared = {kind: (await self._documents.read(tx, id)).body for kind, id in documents.items()}
            own = await store.of_query(tx, run.query.id)
            return shared, {kind: await store.body_of_query(tx, run.query.id, kind) for kind in own}

        shared, own = await run.look(look)
        given = query_documents(run.runtime.spec, run.query.request)
        inputs, references = given.pop(INPUT), sorted(run.runtime.references)
        named = own | {kind: orjson.dumps(held) for kind, held in given.items() if kind not in own}
        bodies = {INPUT: orjson.dumps(inputs), **shared, **dict(sorted(named.items()))}
        size = sum(map(len, bodies.values()))
        return await offload(prompt_section, bodies, references, size=size, processes=self._processes)


def _as_json(text: bytes) -> bytes:
    """Return the text as JSON. Raise NotText."""
    return strict_json.dumps(decode_text(text))


def _parse_document(body: bytes) -> Any:
    return loads(body) if body else MISSING


async def _load_filled(record: tuple[bytes, bytes], output: OutputPath | None) -> FilledCall:
    """Parse a recorded call."""
    return await offload(FilledCall.load, *record, output, size=len(record[0]))


async def picked_json(outcome: Outcome, value: Any) -> bytes:
    """Return a value that was picked from an outcome as JSON."""
    if isinstance(outcome, Answer) and outcome.text is not None and value is outcome.value:
        return outcome.text
    return await offload(orjson.dumps, value)


def query_documents(spec: RuntimeSpec, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the documents that a query was submitted with, by kind: its inputs, and its own data objects
    over those of the runtime."""
    return {**spec.data, **(request.get("data") or {}), INPUT: request.get("inputs") or {}}


def pick_output(output: OutputPath, outcome: Outcome) -> tuple[tuple[VariablePath, ...], Any] | ToolError:
    """Return the paths that receive a value, and the value; or the error that goes to the model unchanged."""
    several = output.alternatives[1:]
    if isinstance(outcome, ToolError):
        if not several or outcome.code == "outcome_unknown":
            return outcome
        return several[0], {"code": outcome.code, "message": outcome.message}
    value = outcome.value
    picked = output.picks and isinstance(value, dict) and "_output" in value
    if not several or not picked:
        return output.alternatives[0], value
    named = output.named(value["_output"])
    if named is None or "value" not in value:
        known = ", ".join(" && ".join(map(str, a)) for a in output.alternatives)
        raise WriteRejected(f"the tool's `_output` must name one of: {known}")
    return named, value["value"]
