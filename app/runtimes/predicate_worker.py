"""The process that evaluates one approval predicate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.base.json import low_memory
from app.base.json.worker import Answer, Verb
from app.runtimes.predicates import evaluate


def verbs() -> Mapping[str, Verb]:
    """Return the handlers of this process."""
    return {"required": _requires_approval}


def _requires_approval(head: Mapping[str, Any], data: bytearray) -> Answer:
    """Return whether this call needs an approval. `data` is its arguments as JSON."""
    return {"required": evaluate(head["expression"], low_memory.loads_trusted(data), head["ctx"])}, b""
