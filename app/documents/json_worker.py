"""What a helper process does with one large document: a write to it, or what it was after some writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.base.json import low_memory
from app.base.json.worker import Answer, Verb, pieces
from app.base.schema.checker import SchemaChecker
from app.documents.bodies import Change, apply_change, apply_changes
from app.documents.glimpses import glimpse_value
from app.documents.writing import WriteRejected


def verbs() -> Mapping[str, Verb]:
    """Return the requests that this worker answers."""
    return {"write": _write, "fold": _fold, "glimpse": _glimpse}


def _write(head: Mapping[str, Any], data: bytearray) -> Answer:
    """Return the document after a write, or the reason why the write is rejected."""
    body, value = pieces(data, head["sizes"])
    schema = None if head["schema"] is None else SchemaChecker(capacity=1).compile(head["schema"])
    change = Change(head["path"], head["method"], value)
    try:
        return {}, apply_change(body, head["kind"], change, schema, low_memory.loads_trusted)
    except WriteRejected as refused:
        return {"refused": str(refused)}, b""


def _fold(head: Mapping[str, Any], data: bytearray) -> Answer:
    """Return the document after some writes."""
    body, *values = pieces(data, head["sizes"])
    written = zip(head["writes"], values, strict=True)
    changes = [Change(path, method, value) for (path, method), value in written]
    return {}, apply_changes(body, changes, low_memory.loads_trusted)


def _glimpse(_head: Mapping[str, Any], data: bytearray) -> Answer:
    """Return the glimpse of the document."""
    return {"glimpse": glimpse_value(low_memory.loads_trusted(data))}, b""
