"""Calls that leave the service: what is offered or sent, and what came back."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from plangate.spec.models import ToolSpec
from plangate.spec.transports import HttpTransport, McpTransport, PythonTransport, Transport

from app.base.jsongate import canonical

CLAIM_WITHIN_MS = 3_600_000
DEFAULT_TIMEOUT_MS = 600_000
MAX_RESULT_BYTES = 16 * 1024 * 1024

Purpose = Literal["tool", "action", "predicate"]


@dataclass(frozen=True, slots=True)
class OutgoingCall:
    """A call as it is offered or sent. The bytes of `request` are the intent. `idempotency_key` is the same for every
    attempt at it and different for anything else."""

    work_id: str
    query_id: str
    purpose: Purpose
    name: str
    definition_digest: str
    request: bytes
    replay: Literal["safe", "never"]
    timeout_ms: int
    transport: Transport
    idempotency_key: str

    @property
    def sender(self) -> Literal["client", "service"]:
        """Who brings it to its code: a process of the user that claims it, or the service itself."""
        return "client" if self.transport.kind == "client" else "service"

    @property
    def claim_within_ms(self) -> int:
        return getattr(self.transport, "claim_within_ms", None) or CLAIM_WITHIN_MS


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """How a call ended: `done` has an output or an error, `unknown` may say in `error` what is known."""

    status: Literal["done", "unknown", "withdrawn"]
    output: Any = None
    error: str | None = None

    def wire(self) -> dict[str, Any]:
        return {"output": self.output} if self.error is None else {"error": self.error}


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of the service at a call; `may_send` is asked right before the first byte leaves."""

    tenant: str
    runtime_name: str
    call: OutgoingCall
    request: dict[str, Any]
    number: int
    may_send: Callable[[], bool]

    @property
    def timeout_s(self) -> float:
        return self.call.timeout_ms / 1000


class NotSent(Exception):
    """Nothing took effect: nothing left, or the other side said that it took nothing. It may be tried again."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Uncertain(Exception):
    """The call may have taken effect: it left, and no answer says what became of it."""


class Sender(Protocol):
    """Brings a call to code outside and gives its answer: the transports `http`, `mcp` and `python`."""

    async def send(self, attempt: Attempt) -> CallOutcome:
        """A `done` outcome. Raises NotSent or Uncertain."""
        ...

    async def aclose(self) -> None: ...


ServiceTransport = HttpTransport | McpTransport | PythonTransport


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
