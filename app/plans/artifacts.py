"""Artifacts that variables of a plan lead to: their records and their texts.

Some fields of a record are derived when it is read, so the snapshot of the plan has the record as of the gate. A text never
changes: its digest is approved, and it is read again and compared when its action is sent.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson
from plangate.spec.variables import VariablePath

from app.documents.glimpses import glimpse_value
from app.engine.query_run import QueryRun
from app.plans.graph import PlanGraph
from app.variables.service import GatheredDocuments, VariableService
from app.variables.values import ARTIFACT, VariableError, document_root, is_text

TEXTS: Final = "artifact.content"
"""The name of the document of approved texts in a snapshot: other documents have no dot in their names."""

CHANGED: Final = "the plan changed meanwhile: execute it again"


def artifact_root(root: VariablePath) -> VariablePath:
    """Return the path of the record that describes a text."""
    return VariablePath(ARTIFACT, root.path[:1]) if is_text(root) else root


@dataclass(frozen=True, slots=True)
class ArtifactTexts:
    """Descriptions of texts at the gate, by their roots, and why others cannot be read."""

    records: Mapping[VariablePath, dict[str, Any]]
    why: Mapping[VariablePath, str]


async def load_texts(run: QueryRun, variables: VariableService, graph: PlanGraph) -> ArtifactTexts:
    """Read every text that the plan names, action by action, while no transaction is open."""
    records: dict[VariablePath, dict[str, Any]] = {}
    why: dict[VariablePath, str] = {}
    for step in graph.steps:
        roots = [
            root for root in step.call.roots() if is_text(root) and root not in records and root not in why
        ]
        try:
            gathered = await variables.texts(run, sorted(roots, key=str))
        except VariableError as error:
            why |= dict.fromkeys(roots, str(error))
            continue
        why |= gathered.why
        for root, body in gathered.bodies.items():
            records[root] = await asyncio.to_thread(_describe_text, body)
    return ArtifactTexts(records, why)


def _text_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _describe_text(body: bytes) -> dict[str, Any]:
    text = orjson.loads(body)
    return {
        "digest": _text_digest(text),
        "type": "a string",
        "sizeBytes": len(text.encode()),
        "glimpse": glimpse_value(text),
    }


def add_texts(
    gathered: GatheredDocuments, graph: PlanGraph, texts: ArtifactTexts | None
) -> tuple[GatheredDocuments, dict[str, Any]]:
    """Add a value for each text that can be read, and return the descriptions of the texts. If `texts` is None, nothing
    was read yet, and a text counts as present if its record is."""
    bodies, why = dict(gathered.bodies), dict(gathered.why)
    records: dict[str, Any] = {}
    for root in filter(is_text, graph.roots()):
        described_by = artifact_root(root)
        if described_by in why:
            why[root] = why[described_by]
        elif texts is None or root in texts.records:
            bodies[root] = b'""'
            if texts is not None:
                records[root.path[0].key] = texts.records[root]
        else:
            why[root] = texts.why.get(root, CHANGED)
    return GatheredDocuments(bodies, why, gathered.kinds), records


def records_in_snapshot(graph: PlanGraph, values: Mapping[VariablePath, Any]) -> dict[str, Any]:
    """Return the artifact records that the plan reads, by id."""
    records = (root for root in graph.roots() if root.kind == ARTIFACT and not is_text(root))
    return {root.path[0].key: values[root] for root in records if root in values}


def artifact_snapshot(records: Mapping[str, Any], texts: Mapping[str, Any]) -> dict[str, Any]:
    return {kind: documents for kind, documents in ((ARTIFACT, records), (TEXTS, texts)) if documents}


def approved_text(path: VariablePath, documents: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the approved record of the artifact text at a path, or None if the path is not an artifact text."""
    root = document_root(path)
    if not is_text(root):
        return None
    record: dict[str, Any] = documents.get(TEXTS, {}).get(root.path[0].key, {})
    return record


def check_texts(gathered: GatheredDocuments, approved: Mapping[str, Any]) -> GatheredDocuments:
    """Return the documents without the texts that are not what was approved, and the reason for each of these. Call it
    in a thread."""
    bodies: dict[VariablePath, bytes] = {}
    why = dict(gathered.why)
    for root, body in gathered.bodies.items():
        id = root.path[0].key
        if is_text(root) and _text_digest(orjson.loads(body)) != approved.get(id, {}).get("digest"):
            why[root] = f"The text of the artifact {id!r} is not what was approved."
        else:
            bodies[root] = body
    return GatheredDocuments(bodies, why, gathered.kinds)
