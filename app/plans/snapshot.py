"""The documents that a plan reads, as of the moment when it reaches its gate: what is approved."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import orjson
from plangate.spec.variables import (
    MISSING,
    VariablePath,
    resolve_path,
)

from app.base.errors import FieldError, Invalid
from app.base.json.offload import loads, offload
from app.base.postgres.database import Tx
from app.documents.glimpses import glimpse_value
from app.documents.writing import json_type
from app.engine.query_run import QueryRun
from app.plans import artifacts, store
from app.plans import body as bodies
from app.plans.artifacts import ArtifactTexts, add_texts, artifact_root
from app.plans.graph import (
    MAX_ERRORS,
    REF,
    STORED,
    PlanGraph,
    PlanStep,
)
from app.references.models import Handle
from app.variables.service import GatheredDocuments, VariableScope, VariableService
from app.variables.values import (
    document_root,
    preview,
)

Documents = Mapping[str, Any]
"""The documents by kind, or MISSING."""


class StoredDocuments(dict[str, bytes]):
    """The documents of a gate as stored JSON, by kind. Pass `documents` if they are parsed already."""

    def __init__(self, bodies: Mapping[str, bytes], documents: Documents | None = None) -> None:
        super().__init__(bodies)
        self._documents = documents

    def documents(self) -> Documents:
        """Return the parsed documents, which callers must not change. Call it through `offload`."""
        if self._documents is None:
            self._documents = {kind: loads(body) for kind, body in self.items()}
        return self._documents

    @property
    def size(self) -> int:
        return sum(map(len, self.values()))


def effective_inputs(run: QueryRun, inputs: Any) -> dict[str, Any]:
    """Return the inputs of an execution: its own merged over the query's."""
    return {**(run.query.request.get("inputs") or {}), **(inputs or {})}


async def take_snapshot(
    tx: Tx,
    variables: VariableService,
    variable_scope: VariableScope,
    graph: PlanGraph,
    work_id: str,
    texts: ArtifactTexts,
) -> StoredDocuments:
    """Store the parts of the documents that the plan names under the work that brings it to its gate. Raise Invalid if
    a variable that no action provides has no value."""
    gathered, text_records = await gather_documents(tx, variables, variable_scope, graph, texts)
    missing_stored = await _missing_stored_paths(tx, variables, variable_scope, graph)

    def work() -> StoredDocuments:
        values = gathered.values()
        reason_of = gathered.reasons(values)
        errors = [
            FieldError(f"/body{pointer}", f"{preview(use.text)} has no value: {why}")
            for pointer, use, why in graph.unprovided(
                lambda path: missing_stored.get(path) if path.kind == REF else reason_of(path)
            )
        ]
        if errors:
            raise Invalid("A variable of the plan has no value.", errors[:MAX_ERRORS])
        records = artifacts.records_in_snapshot(graph, values)
        documents = {
            **_snapshot_documents(graph, values),
            **artifacts.artifact_snapshot(records, text_records),
        }
        bodies = {kind: orjson.dumps(document) for kind, document in documents.items()}
        return StoredDocuments(bodies, documents)  # the strict parser accepted all values

    snapshot = await offload(work, size=max(gathered.size, bodies.offload_size(b"", len(graph.steps))))
    await store.insert_snapshot(tx, work_id=work_id, documents=snapshot)
    return snapshot


async def gather_documents(
    tx: Tx,
    variables: VariableService,
    variable_scope: VariableScope,
    graph: PlanGraph,
    texts: ArtifactTexts | None,
) -> tuple[GatheredDocuments, dict[str, Any]]:
    """Return the documents that the plan names, except stored values, and what was read of its texts. `texts` is None
    before they are read."""
    roots = {artifact_root(root) for root in graph.roots() if root.kind != REF}
    return add_texts(await variables.gather(tx, variable_scope, None, roots), graph, texts)


async def _missing_stored_paths(
    tx: Tx, variables: VariableService, variable_scope: VariableScope, graph: PlanGraph
) -> dict[VariablePath, str]:
    """Return the paths into stored values that lead nowhere, and why. Values are read one at a time, since
    together they may not fit into memory. The dispatch uses them, not the gate."""
    paths_by_root: dict[VariablePath, list[VariablePath]] = {}
    for path in graph.stored_references():
        root = document_root(path)
        if path != root:  # a whole value exists: its pin was described
            paths_by_root.setdefault(root, []).append(path)
    missing: dict[VariablePath, str] = {}
    for root, paths in paths_by_root.items():
        gathered = await variables.gather(tx, variable_scope, None, [root])
        reason_of = gathered.reasons(await offload(gathered.values, size=gathered.size))
        missing |= {path: reason for path in paths if (reason := reason_of(path)) is not None}
    return missing


def _snapshot_documents(graph: PlanGraph, values: Mapping[VariablePath, Any]) -> dict[str, Any]:
    """Return the top-level fields of each document that the plan reads or writes."""
    names_by_kind: dict[str, set[str] | None] = {}
    for step in graph.steps:
        for path in (*step.reads(), *step.writes()):
            if path.kind in STORED:
                continue
            first = path.path[0].key if path.path else None
            fields = names_by_kind.setdefault(path.kind, set())
            if first is None:
                names_by_kind[path.kind] = None
            elif fields is not None:
                fields.add(first)
    documents = {}
    for kind, fields in names_by_kind.items():
        document = values.get(VariablePath(kind), MISSING)
        if document is MISSING:
            continue
        if fields is not None and isinstance(document, Mapping):
            document = {key: document[key] for key in document if key in fields}
        documents[kind] = document
    return documents


async def describe_reads(graph: PlanGraph, snapshot: StoredDocuments) -> list[dict[str, Any]]:
    """Return what the approved bytes say about each path that is read: the digest and a glimpse of its
    current value, and the actions whose result it is. If those replace the whole value, only they are
    named."""
    size = max(snapshot.size, bodies.offload_size(b"", len(graph.steps)))
    return await offload(_describe_reads, graph, snapshot, size=size)


def _describe_reads(graph: PlanGraph, snapshot: StoredDocuments) -> list[dict[str, Any]]:
    documents = snapshot.documents()
    descriptions: dict[int, dict[str, Any]] = {}  # a value that several paths lead to is described once
    reads = []
    for path in dict.fromkeys(read for step in graph.steps for read in step.reads()):
        read: dict[str, Any] = {"variable": str(path)}
        text = artifacts.approved_text(path, documents)
        if text is not None:
            reads.append(read | text)
            continue
        value = resolve_path(documents.get(path.kind, MISSING), path.path)
        if value is not MISSING and not graph.is_overwritten(path):
            read |= descriptions.get(id(value)) or descriptions.setdefault(id(value), _describe_value(value))
        producers = graph.producers(path)
        if producers:
            read["resultOf"] = producers
        reads.append(read)
    return reads


def _describe_value(value: Any) -> dict[str, Any]:
    data = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)  # canonical: the strict parser accepted it
    return {
        "digest": hashlib.sha256(data).hexdigest(),
        "type": json_type(value),
        "sizeBytes": len(data),
        "glimpse": glimpse_value(value),
    }


def stored_values(steps: Iterable[PlanStep]) -> list[Handle]:
    """Return the references that variables of the actions lead into, once each, in order."""
    paths = (path for step in steps for use in step.call.uses for path in use.expression.paths())
    return list(dict.fromkeys(handle for path in paths if (handle := reference_of(path)) is not None))


def reference_of(path: VariablePath) -> Handle | None:
    """Return the reference that a path leads into, or None."""
    if path.kind != REF:
        return None
    root = document_root(path)
    return root.path[0].key, root.path[1].key
