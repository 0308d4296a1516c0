"""Variables of calls and of plans: gather the documents, fill in their values, deliver results to paths.

The filled arguments of a call are recorded before its gate, and a call writes once. After a crash it has the same
values, even if the documents have changed since, and finds what it wrote.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson
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
from app.base.json.limits import LIMITS
from app.base.json.offload import loads, offload
from app.base.json.process_pool import JsonProcessPool
from app.base.postgres.database import Tx
from app.base.schema.checker import SchemaChecker
from app.documents import call_records
from app.documents.glimpses import truncate_text
from app.documents.models import (
    EMPTY,
    MEMORY,
    NOTHING,
    SHARED,
    STATE,
    Author,
    DocumentId,
    WriteRequest,
    WriteRow,
)
from app.documents.service import DocumentService, PreparedWrite
from app.documents.writing import Method, WriteRejected, json_type
from app.engine.query_run import QueryRun
from app.events import StateWriteEvent
from app.journal.models import Event, Scope, event
from app.journal.service import append_events
from app.references.service import (
    MAX_HYDRATED_BYTES,
    ReferenceChanged,
    ReferenceExpired,
    ReferenceNotFound,
    ReferenceService,
)
from app.runtimes.models import Runtime
from app.tools.results import Answer, ToolError, ToolResult
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
    lookup_in,
    missing_reason,
    parse_call,
)

INPUT: Final = "input"
REASON_CHARS: Final = 400


@dataclass(frozen=True, slots=True)
class VariableScope:
    """The documents that variables lead into: the state of a thread, the data objects and inputs of a query, of which
    `initial` has the first values by kind, and the memory of the runtime's name."""

    thread_id: str
    query_id: str | None
    initial: Mapping[str, Any]
    state_schema: Mapping[str, Any] | None
    runtime_name: str

    @classmethod
    def of(cls, run: QueryRun) -> VariableScope:
        return cls.of_request(run.runtime, run.query.request, run.query.thread_id, run.query.id)

    @classmethod
    def of_request(
        cls,
        runtime: Runtime,
        request: Mapping[str, Any],
        thread_id: str,
        query_id: str | None = None,
    ) -> VariableScope:
        """Return the scope of a query, or of a plan that is stored without one: then the request is empty."""
        initial = query_documents(runtime.spec, request)
        return cls(thread_id, query_id, initial, runtime.spec.state_schema, runtime.name)

    @classmethod
    def of_stored_values(cls, thread_id: str = "") -> VariableScope:
        """Return a scope that only has references and artifacts."""
        return cls(thread_id, None, {}, None, "")

    def shared_document(self, kind: str) -> DocumentId:
        """Return the document of a kind that outlives the query."""
        if kind == MEMORY:
            return DocumentId.memory(self.runtime_name)
        return DocumentId.state(self.thread_id)


@dataclass(frozen=True, slots=True)
class GatheredDocuments:
    """The documents that variables lead into, as of one moment. `why` says why others are missing."""

    bodies: Mapping[VariablePath, bytes]
    why: Mapping[VariablePath, str]
    kinds: frozenset[str]

    @property
    def size(self) -> int:
        return sum(map(len, self.bodies.values()))

    def values(self) -> dict[VariablePath, Any]:
        """Parse the documents. Call it through `offload`."""
        return {root: loads(body) if body else MISSING for root, body in self.bodies.items()}

    def reasons(self, values: Mapping[VariablePath, Any]) -> Callable[[VariablePath], str | None]:
        """Return a function from a path to the reason why it has no value, or None if it has one. `values` are the
        parsed documents."""
        lookup, kinds = lookup_in(values), sorted(self.kinds)

        def reason_of(path: VariablePath) -> str | None:
            if lookup(path) is not MISSING:
                return None
            return missing_reason(path, values, kinds, self.why).rstrip(".")

        return reason_of

    def merged(self, other: GatheredDocuments) -> GatheredDocuments:
        """Return the documents of both."""
        bodies, why = {**self.bodies, **other.bodies}, {**self.why, **other.why}
        return GatheredDocuments(bodies, why, self.kinds | other.kinds)


NO_DOCUMENTS: Final = GatheredDocuments({}, {}, frozenset())


@dataclass(frozen=True, slots=True)
class ResultWrite:
    """A value that a call writes, and to which paths: its result or, if it `failed`, its error. `data` is the value as
    JSON."""

    paths: tuple[VariablePath, ...]
    method: Method
    value: Any
    data: bytes
    failed: bool = False
    prepared: PreparedWrite | None = None
    only_small: bool = False
    """The document's size was not read: if it turns out to be large, raise PreparationNeeded instead of writing."""


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

    # -- filling ---------------------------------------------------------------------------------------------

    async def fill(
        self, run: QueryRun, scope: Scope, tool: str, schema: Mapping[str, Any], args: dict[str, Any]
    ) -> FilledCall | ToolError:
        """Return the call with its variables replaced, from its record if there is one, so that a repetition has the same
        values."""
        prescribed = fixed_output_path(schema)
        try:
            call = parse_call(args, LITERAL_PARAMETERS.get(tool, ()), prescribed)
            await self._check_output_path(schema, args, prescribed)
            if not call.uses:
                return fill_call(call, {}, (), {})
            recorded = await run.read(lambda tx: call_records.load_filled_call(tx, work_id=scope.work_id))
            if recorded is not None:
                return await _load_filled(recorded, call.output)
            gathered = await self.gather_all(run, VariableScope.of(run), scope.work_id, call.roots())
            filled_args, filled = record = await self._fill(call, gathered)
            await run.in_fenced_transaction(
                lambda tx: call_records.save_filled_call(
                    tx, work_id=scope.work_id, query_id=run.query.id, args=filled_args, filled=filled
                )
            )
            return await _load_filled(record, call.output)
        except VariableError as error:
            return ToolError(f"The call was not made. {error}", "variable_error")

    async def value_at(self, run: QueryRun, path: VariablePath, work_id: str) -> Any:
        """Return the current value at a path. Raise VariableError, which describes what exists instead."""
        call = parse_call({"value": str(path)}, (), None)
        gathered = await run.read(lambda tx: self.gather(tx, VariableScope.of(run), work_id, call.roots()))
        filled = await _load_filled(await self._fill(call, gathered), None)
        return filled.args["value"]

    async def memory_notes(self, run: QueryRun) -> str:
        """Return the section about the memory in the prompt of an agent with the toolkit `memory`."""
        document = DocumentId.memory(run.runtime.name)
        body = (await run.read(lambda tx: self._documents.read(tx, document))).body
        return await offload(memory_section, body, size=len(body), processes=self._processes)

    async def _check_output_path(
        self, schema: Mapping[str, Any], args: Mapping[str, Any], prescribed: str | None
    ) -> None:
        """Raise VariableError unless the output path of the call fits the tool's own schema."""
        required = meta_schema(schema)
        if required is None:
            return
        parameters = {name: args[name] for name in META_PARAMETERS if name in args}
        if prescribed is not None:
            parameters[OUTPUT_PATH] = prescribed
        errors = await offload(self._schemas.errors, required, parameters)
        if errors:
            raise VariableError("; ".join(f"{e.pointer or '/'}: {e.message}" for e in errors) + ".")

    async def _fill(self, call: ParsedCall, gathered: GatheredDocuments) -> tuple[bytes, bytes]:
        """Return the record of the call with its values. Raise VariableError."""
        parts = (call, gathered.bodies, gathered.kinds, gathered.why)
        try:
            return await offload(fill_record, *parts, size=gathered.size, processes=self._processes)
        except TooLarge as error:
            raise VariableError(
                "The values of its variables exceed the processing limit for one call: pass references by their handles."
            ) from error

    # -- gathering -------------------------------------------------------------------------------------------

    async def gather_all(
        self, run: QueryRun, variable_scope: VariableScope, work_id: str, roots: Collection[VariablePath]
    ) -> GatheredDocuments:
        """Return the documents that variables lead into, and the texts of artifacts. Raise VariableError."""
        gathered = await run.read(lambda tx: self.gather(tx, variable_scope, work_id, roots))
        texts = sorted(filter(is_text, roots), key=str)
        return gathered.merged(await self.texts(run, texts, work_id)) if texts else gathered

    async def gather(
        self,
        tx: Tx,
        variable_scope: VariableScope,
        work_id: str | None,
        roots: Iterable[VariablePath],
    ) -> GatheredDocuments:
        """Return the documents that variables lead into, except texts of artifacts, as of now. Record which references
        and artifacts `work_id`, if given, used. Raise VariableError."""
        bodies: dict[VariablePath, bytes] = {}
        why: dict[VariablePath, str] = {}
        initial, query_id = variable_scope.initial, variable_scope.query_id
        own = await call_records.objects_of_query(tx, query_id=query_id) if query_id else []
        hydrated = 0
        for root in roots:
            if root.kind == "ref":
                kind, id = (segment.key for segment in root.path)
                try:
                    hydrated += (await self._references.glimpse(tx, kind, id)).size_bytes
                    if hydrated > MAX_HYDRATED_BYTES:
                        raise VariableError(f"One call may use {MAX_HYDRATED_BYTES} bytes of references.")
                    values = await self._references.hydrate(tx, [(kind, id)], work_id)
                    bodies[root] = values[kind][id]
                except (ReferenceChanged, ReferenceExpired, ReferenceNotFound) as error:
                    why[root] = truncate_text(error.detail, REASON_CHARS)
            elif is_text(root):
                continue  # `texts` reads it from the blob store
            elif root.kind == ARTIFACT:
                try:
                    artifact = await self._artifacts.read(tx, root.path[0].key)
                    bodies[root] = strict_json.dumps(artifact.wire())
                    if work_id is not None:
                        await self._artifacts.note(tx, work_id, [(artifact, 0)])
                except ArtifactNotFound as error:
                    why[root] = truncate_text(error.detail, REASON_CHARS)
            elif root.kind in SHARED:
                document = variable_scope.shared_document(root.kind)
                bodies[root] = (await self._documents.read(tx, document)).body
            elif query_id and root.kind in own:
                bodies[root] = await call_records.load_object(tx, query_id=query_id, name=root.kind)
            elif root.kind in initial:
                bodies[root] = strict_json.dumps(initial[root.kind])
        return GatheredDocuments(bodies, why, frozenset({*initial, *own, *SHARED, "ref", ARTIFACT}))

    async def texts(
        self, run: QueryRun, roots: Sequence[VariablePath], work_id: str | None = None
    ) -> GatheredDocuments:
        """Return the texts of published artifact files, and record that `work_id` used them. Raise VariableError."""
        bodies: dict[VariablePath, bytes] = {}
        why: dict[VariablePath, str] = {}
        total = 0
        used: list[tuple[Artifact, int]] = []
        for root in roots:
            id = root.path[0].key
            try:
                artifact = await run.read(lambda tx, id=id: self._artifacts.read(tx, id))  # type: ignore[misc]
            except ArtifactNotFound as error:
                why[root] = error.detail
                continue
            total += artifact.body_bytes
            if total > MAX_REPLACED_BYTES:
                raise VariableError(
                    f"With {id} the artifacts of this call have {total} bytes, more than {MAX_REPLACED_BYTES}: pass their "
                    "ids, or paths."
                )
            try:
                text = await self._artifacts.text(run.lease.tenant, artifact)
                bodies[root] = await asyncio.to_thread(_as_json, text)
                used.append((artifact, 0))
            except NotText:
                why[root] = f"The artifact {id!r} is not text."
            except (BlobLost, StoreUnavailable) as error:
                why[root] = error.detail
        if used and work_id is not None:
            await run.in_fenced_transaction(lambda tx: self._artifacts.note(tx, work_id, used))
        return GatheredDocuments(bodies, why, frozenset())

    # -- delivering ------------------------------------------------------------------------------------------

    async def deliver(
        self, run: QueryRun, scope: Scope, output: OutputPath, result: ToolResult
    ) -> ToolResult:
        """Write the result to its path and return a receipt for the model. An error goes to the second
        alternative, if there is one. Raise WriteRejected if nothing was written."""
        rows = await run.read(lambda tx: call_records.writes_of_call(tx, work_id=scope.work_id))
        if not rows:
            write = await self.prepare_write(run, scope, output, result)
            if write is None:
                return result
            rows = await run.in_fenced_transaction(
                lambda tx: self.write(tx, VariableScope.of(run), scope, write, run.lease.epoch)
            )
            value = write.value
        else:
            value = await offload(loads, rows[0].value or b"null")
        first = rows[0]
        if first.failed:
            paths = ", ".join(row.path for row in rows)
            return ToolError(f"{value['message']} (This error was written to {paths}.)", value["code"])
        recorded = result.record if isinstance(result, Answer) else None
        return Answer(
            {
                "written": [row.change() for row in rows],
                "type": json_type(value),
                "sizeBytes": first.size_bytes,
                # A glimpse of the value written would show more of a reference than the reference's own glimpse.
                "glimpse": first.glimpse if recorded is None else recorded["glimpse"],
            }
        )

    async def prepare_write(
        self,
        run: QueryRun,
        scope: Scope,
        output: OutputPath,
        result: ToolResult,
        *,
        known_bytes: int | None = None,
    ) -> ResultWrite | None:
        """Return the write of a result, or None for an error that goes to no path. Compile the schema of its document and,
        if that or the value is large, compute the new document here, while no transaction is open. `known_bytes`: the
        caller's upper estimate of the document's size; if that is small, its size is not read, and `write` raises
        PreparationNeeded for a large document. Raise WriteRejected."""
        write = await result_write(output, result)
        if write is None:
            return None
        requests = list(self._requests(VariableScope.of(run), scope, write))
        if len(requests) == 1:
            if known_bytes is not None and known_bytes + len(write.data) <= LIMITS.process_bytes:
                await self._documents.compile_schema(requests[0])
                return replace(write, only_small=True)
            return replace(write, prepared=await self._documents.prepare_large(run.read, requests[0]))
        for request in requests:
            await self._documents.compile_schema(request)
        return write

    def _requests(
        self, variable_scope: VariableScope, scope: Scope, write: ResultWrite
    ) -> Iterator[WriteRequest]:
        """Yield a write to the document of each path."""
        for path in write.paths:
            base, schema = EMPTY, None
            if path.kind in SHARED:
                document = variable_scope.shared_document(path.kind)
                schema = variable_scope.state_schema if path.kind == STATE else None
            else:
                document = DocumentId(scope.query_id, path.kind, variable_scope.thread_id)
                initial = variable_scope.initial
                base = strict_json.dumps(initial[path.kind]) if path.kind in initial else NOTHING
            yield WriteRequest(document, path, write.method, write.value, base, schema, write.data)

    async def write(
        self,
        tx: Tx,
        variable_scope: VariableScope,
        scope: Scope,
        write: ResultWrite,
        epoch: int | None = None,
    ) -> list[WriteRow]:
        """Write to all paths of a call, or to none, with their events; once per call, however often it is repeated. Return
        the writes with their values. Raise WriteRejected."""
        rows = await call_records.writes_of_call(tx, work_id=scope.work_id)
        if rows:  # the response to an earlier commit was lost
            return rows
        rows, events = await self.write_once(tx, variable_scope, scope, write)
        await append_events(tx, query_id=scope.query_id, events=events, epoch=epoch)
        return rows

    async def write_once(
        self, tx: Tx, variable_scope: VariableScope, scope: Scope, write: ResultWrite
    ) -> tuple[list[WriteRow], list[Event]]:
        """Write to all paths of a call that has written nothing yet. Return the writes with their values, and their events,
        which the caller appends. Raise WriteRejected, or PreparationNeeded as `prepare_write` says."""
        rows = []
        for part, request in enumerate(self._requests(variable_scope, scope, write)):
            author = Author(scope.work_id, scope.query_id, scope.agent, part, write.failed)
            row = await self._documents.write(
                tx, request, author, write.prepared, only_small=write.only_small
            )
            rows.append(replace(row, value=write.data))
        return rows, [event(scope, StateWriteEvent, data=row.change()) for row in rows]

    # -- in the prompt ---------------------------------------------------------------------------------------

    async def notes(self, run: QueryRun) -> str:
        """Return the section about variables in the prompt of a run."""
        variable_scope = VariableScope.of(run)

        async def load(tx: Tx) -> tuple[dict[str, bytes], dict[str, bytes]]:
            documents = {kind: variable_scope.shared_document(kind) for kind in SHARED}
            shared = {kind: (await self._documents.read(tx, id)).body for kind, id in documents.items()}
            query_id = run.query.id
            own = await call_records.objects_of_query(tx, query_id=query_id)
            return shared, {
                kind: await call_records.load_object(tx, query_id=query_id, name=kind) for kind in own
            }

        shared, own = await run.read(load)
        initial, references = dict(variable_scope.initial), sorted(run.runtime.references)
        inputs = initial.pop(INPUT)
        objects = own | {kind: orjson.dumps(value) for kind, value in initial.items() if kind not in own}
        bodies = {INPUT: orjson.dumps(inputs), **shared, **dict(sorted(objects.items()))}
        size = sum(map(len, bodies.values()))
        return await offload(prompt_section, bodies, references, size=size, processes=self._processes)


def _as_json(text: bytes) -> bytes:
    """Return the text as JSON. Raise NotText."""
    return strict_json.dumps(decode_text(text))


async def _load_filled(record: tuple[bytes, bytes], output: OutputPath | None) -> FilledCall:
    """Parse a recorded call."""
    return await offload(FilledCall.load, *record, output, size=len(record[0]))


def query_documents(spec: RuntimeSpec, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the documents that a query was submitted with, by kind: its inputs, and its own data objects
    over those of the runtime."""
    return {**spec.data, **(request.get("data") or {}), INPUT: request.get("inputs") or {}}


async def result_write(output: OutputPath, result: ToolResult) -> ResultWrite | None:
    """Return the write of a result, or None for an error that goes to no path. Raise WriteRejected."""
    errors_to = output.alternatives[1:]
    if isinstance(result, ToolError):
        if not errors_to or result.status == "unknown":
            return None
        error = {"code": result.code, "message": result.message}
        return ResultWrite(errors_to[0], output.method, error, orjson.dumps(error), failed=True)
    paths, value = _chosen_paths(output, result.value)
    if result.text is not None and value is result.value:
        data = result.text
    else:
        data = await offload(orjson.dumps, value)
    return ResultWrite(paths, output.method, value, data)


def _chosen_paths(output: OutputPath, value: Any) -> tuple[tuple[VariablePath, ...], Any]:
    """Return the paths to write and the value to write there. A tool may choose one of several alternatives by
    returning `_output`. Raise WriteRejected."""
    chooses = output.picks and isinstance(value, dict) and "_output" in value
    if not chooses or len(output.alternatives) == 1:
        return output.alternatives[0], value
    paths = output.alternative(value["_output"])
    if paths is None or "value" not in value:
        known = ", ".join(" && ".join(map(str, a)) for a in output.alternatives)
        raise WriteRejected(f"the tool's `_output` must name one of: {known}")
    return paths, value["value"]
