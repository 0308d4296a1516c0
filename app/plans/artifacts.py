"""Artifacts that variables of a plan lead to: their records as they were when the gate opened, and the texts that they
were published with.

A record that is read derives some fields from what there is at the time, so the plan keeps it. A text never changes: its
digest is what is approved, and it is read again, and compared, as the action that it is for is sent.
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
"""Where what is approved of texts is kept, beside the documents: no document has a name with a dot."""

CHANGED: Final = "the plan changed meanwhile: execute it again"


def artifact_root(root: VariablePath) -> VariablePath:
    """Return the path of the record that describes a text."""
    return VariablePath(ARTIFACT, root.path[:1]) if is_text(root) else root


@dataclass(frozen=True, slots=True)
class ArtifactTexts:
    """What is told of texts at the gate, by their roots, and why others cannot be read."""

    told: Mapping[VariablePath, dict[str, Any]]
    why: Mapping[VariablePath, str]


async def load_texts(run: QueryRun, variables: VariableService, graph: PlanGraph) -> ArtifactTexts:
    """Read every text that the plan names, one action's at a time, while no transaction is open."""
    told: dict[VariablePath, dict[str, Any]] = {}
    why: dict[VariablePath, str] = {}
    for step in graph.steps:
        roots = [root for root in step.call.roots() if is_text(root) and root not in told and root not in why]
        try:
            gathered = await variables.texts(run, sorted(roots, key=str))
        except VariableError as error:
            why |= dict.fromkeys(roots, str(error))
            continue
        why |= gathered.why
        for root, body in gathered.bodies.items():
            told[root] = await asyncio.to_thread(_describe_text, body)
    return ArtifactTexts(told, why)


def _describe_text(body: bytes) -> dict[str, Any]:
    text = orjson.loads(body)
    data = text.encode()
    return {
        "digest": hashlib.sha256(data).hexdigest(),
        "type": "a string",
        "sizeBytes": len(data),
        "glimpse": glimpse_value(text),
    }


def add_texts(
    gathered: GatheredDocuments, graph: PlanGraph, texts: ArtifactTexts | None
) -> tuple[GatheredDocuments, dict[str, Any]]:
    """Add a value for each text that can be read, and return what is kept of them. With `None` nothing was
    read yet, and a text counts as present if its record is."""
    bodies, why = dict(gathered.bodies), dict(gathered.why)
    kept: dict[str, Any] = {}
    for root in filter(is_text, graph.roots()):
        record = artifact_root(root)
        if record in why:
            why[root] = why[record]
        elif texts is None or root in texts.told:
            bodies[root] = b'""'
            if texts is not None:
                kept[root.path[0].key] = texts.told[root]
        else:
            why[root] = texts.why.get(root, CHANGED)
    return GatheredDocuments(bodies, why, gathered.kinds), kept


def records_in_snapshot(graph: PlanGraph, values: Mapping[VariablePath, Any]) -> dict[str, Any]:
    """Return the artifact records that the plan reads, by id."""
    records = (root for root in graph.roots() if root.kind == ARTIFACT and not is_text(root))
    return {root.path[0].key: values[root] for root in records if root in values}


def artifact_snapshot(records: Mapping[str, Any], texts: Mapping[str, Any]) -> dict[str, Any]:
    return {kind: held for kind, held in ((ARTIFACT, records), (TEXTS, texts)) if held}


def approved_text(reference: VariablePath, documents: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what the approved bytes say about a text, or None if the path leads to no text."""
    root = document_root(reference)
    if not is_text(root):
        return None
    told: dict[str, Any] = documents.get(TEXTS, {}).get(root.path[0].key, {})
    return told


def check_texts(texts: GatheredDocuments, kept: Mapping[str, Any]) -> GatheredDocuments:
    """Return the texts that match what was approved, and for the rest the reason why they are not used.
    Call it in a thread if they are large."""
    bodies: dict[VariablePath, bytes] = {}
    why = dict(texts.why)
    for root, body in texts.bodies.items():
        id = root.path[0].key
        if hashlib.sha256(orjson.loads(body).encode()).hexdigest() == kept.get(id, {}).get("digest"):
            bodies[root] = body
        else:
            why[root] = f"The text of the artifact {id!r} is not what was approved."
    return GatheredDocuments(bodies, why, texts.kinds)
