"""Calls that leave the service: what is offered or sent, and what came back."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import orjson
from plangate.spec.models import ToolSpec
from plangate.spec.transports import Transport

from app.base import jsongate
from app.base.errors import Malformed

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
    def claim_within_ms(self) -> float | None:
        """How long it waits for a claim; None: it needs none, so it does not lapse while no process is there."""
        if self.sender == "service":
            return None
        return float(getattr(self.transport, "claim_within_ms", None) or CLAIM_WITHIN_MS)


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """How a call ended: `done` has an output or an error, `unknown` may say in `error` what is known."""

    status: Literal["done", "unknown", "withdrawn"]
    output: Any = None
    error: str | None = None

    def wire(self) -> dict[str, Any]:
        return {"output": self.output} if self.error is None else {"error": self.error}


def returned(name: str, output: Any) -> CallOutcome:
    """The outcome of code that returned this, if it can be kept."""
    try:
        data = jsongate.dumps(output)
        if len(data) > MAX_RESULT_BYTES:
            raise jsongate.NotJson(f"it has {len(data)} bytes, and the most is {MAX_RESULT_BYTES}.")
        jsongate.parse(data)
    except (jsongate.NotJson, Malformed) as error:
        return CallOutcome("done", error=f"{name} ran, but its result cannot be kept: {error}")
    return CallOutcome("done", output=output)


class ResolvedRefs(dict[str, dict[str, orjson.Fragment]]):
    """The values behind references by kind and id. Written as JSON they are the bytes that are stored, which nobody
    parses on the way."""

    def __init__(self, stored: Mapping[str, Mapping[str, bytes]]) -> None:
        super().__init__(
            {kind: {id: orjson.Fragment(data) for id, data in held.items()} for kind, held in stored.items()}
        )
        self._stored = stored

    @property
    def size(self) -> int:
        """Bytes of all values."""
        return sum(len(data) for held in self._stored.values() for data in held.values())

    def parsed(self) -> dict[str, dict[str, Any]]:
        """The values themselves, for code in this process."""
        return {k: {id: orjson.loads(data) for id, data in held.items()} for k, held in self._stored.items()}


async def parsed(request: dict[str, Any]) -> dict[str, Any]:
    """A request with the values themselves, where it has them as they are stored."""
    refs = request.get("resolvedRefs")
    if not isinstance(refs, ResolvedRefs) or not refs:
        return request
    return {**request, "resolvedRefs": await asyncio.to_thread(refs.parsed)}


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


def definition_digest(tool: ToolSpec) -> str:
    """Names the exact definition of a tool: a process that serves another one must not get its calls."""
    return hashlib.sha256(
        jsongate.canonical(
            {
                "name": tool.name,
                "description": tool.description or "",
                "inputSchema": tool.input_schema,
                "outputSchema": tool.output_schema,
            }
        )
    ).hexdigest()
