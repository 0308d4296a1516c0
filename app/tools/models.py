"""Calls for processes of the user: what is offered, and what came back."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Literal

from plangate.spec.models import ToolSpec

from app.base.jsongate import canonical

CLAIM_WITHIN_MS = 3_600_000
DEFAULT_TIMEOUT_MS = 600_000
MAX_RESULT_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ClientCall:
    """A call as it is offered. `request` is the JSON that the claimant gets; its bytes are the intent."""

    work_id: str
    query_id: str
    purpose: Literal["tool", "action"]
    name: str
    definition_digest: str
    request: bytes
    replay: Literal["safe", "never"]
    timeout_ms: int
    claim_within_ms: int = CLAIM_WITHIN_MS


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """How an offered call ended: `done` has an output or an error."""

    status: Literal["done", "unknown", "withdrawn"]
    output: Any = None
    error: str | None = None


def definition_digest(tool: ToolSpec) -> str:
    """Names the exact definition of a tool: a process that serves another one must not get its calls."""
    return hashlib.sha256(
        canonical(
            {
                "name": tool.name,
                "description": tool.description or "",
                "inputSchema": tool.input_schema,
                "outputSchema": tool.output_schema,
            }
        )
    ).hexdigest()
