"""Calls that leave the service: requests, attempts and the protocol of the transports."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

import orjson
from plangate.spec.models import ToolSpec
from plangate.spec.transports import Transport

from app.base.errors import Malformed
from app.base.json import low_memory, strict_json
from app.base.json.limits import LIMITS
from app.base.json.offload import loads, offload
from app.runtimes.models import SealedSigningSecret
from app.tools.results import Answer, ToolError, ToolResult

CLAIM_WITHIN_MS = 3_600_000
DEFAULT_TIMEOUT_MS = 600_000
MAX_RESULT_BYTES = 16 * 1024 * 1024
MAX_ERROR_CHARS = 20_000
"""Of the message of an error that a client process returns."""

Purpose = Literal["tool", "action", "predicate"]


@dataclass(frozen=True, slots=True)
class OutgoingCall:
    """A call that is offered or sent. The bytes of `request` are the intent. Every attempt at the call has the same
    `idempotency_key`, and no other call has it."""

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
        """Return who sends the call to its code: a client process that claims it, or the service itself."""
        return "client" if self.transport.kind == "client" else "service"

    @property
    def is_signed(self) -> bool:
        """Return whether the service signs the call, so that its receiver can verify the sender."""
        return self.transport.kind == "http"

    @property
    def claim_within_ms(self) -> float | None:
        """Return how long the call waits for a claim; None if the service sends it, so that it never lapses."""
        if self.sender == "service":
            return None
        return float(getattr(self.transport, "claim_within_ms", None) or CLAIM_WITHIN_MS)


@dataclass(frozen=True, slots=True)
class ClaimFilter:
    """A restriction of a claim; a field that is None restricts nothing."""

    query_id: str | None = None
    thread_id: str | None = None
    runtime_id: str | None = None
    purpose: Literal["tool", "action"] | None = None


NO_FILTER: Final = ClaimFilter()


@dataclass(frozen=True, slots=True)
class ClaimableTool:
    """A tool that a claimant serves. With a digest, only calls of exactly that definition match."""

    name: str
    definition_digest: str | None = None


def result_from_value(name: str, output: Any) -> ToolResult:
    """Return the result of code that returned `output`, or an error if it cannot be stored."""
    try:
        data = strict_json.dumps(output)
        if len(data) > MAX_RESULT_BYTES:
            raise strict_json.NotJson(f"it has {len(data)} bytes, and the most is {MAX_RESULT_BYTES}.")
        (low_memory.parse_cooperative if len(data) > LIMITS.process_bytes else strict_json.parse)(data)
    except (strict_json.NotJson, Malformed) as error:
        return ToolError(f"{name} ran, but its result cannot be kept: {error}")
    return Answer(output)


class ResolvedRefs(dict[str, dict[str, orjson.Fragment]]):
    """The values behind references, by kind and id. They are written as the stored bytes, without parsing."""

    def __init__(self, values_by_kind: Mapping[str, Mapping[str, bytes]]) -> None:
        super().__init__(
            {
                kind: {id: orjson.Fragment(data) for id, data in values.items()}
                for kind, values in values_by_kind.items()
            }
        )
        self._values = values_by_kind

    @property
    def size(self) -> int:
        """Return the bytes of all values."""
        return sum(len(data) for values in self._values.values() for data in values.values())

    def parsed(self) -> dict[str, dict[str, Any]]:
        """Return the values, for code in this process."""
        return {k: {id: loads(data) for id, data in values.items()} for k, values in self._values.items()}


class LargeRequest(dict[str, Any]):
    """The request of a tool call with large arguments, which are written as the stored bytes."""

    def __init__(self, context: dict[str, Any], text: bytes) -> None:
        super().__init__(args=orjson.Fragment(text), context=context)
        self.text = text


_CONTEXT: Final = b'{"context":'
_ARGS: Final = b',"args":'


def tool_request(context: Mapping[str, Any], args: Mapping[str, Any], text: bytes | None = None) -> bytes:
    """Return the request of a tool call. `text` is its arguments as JSON, if available."""
    return _CONTEXT + strict_json.dumps(context) + _ARGS + (text or strict_json.dumps(args)) + b"}"


def load_request(data: bytes) -> dict[str, Any]:
    """Return a stored request in the form in which it is sent. Large arguments of a tool are sent as stored, without
    parsing. Call it through `offload`, because the actions of a plan are parsed."""
    if len(data) <= LIMITS.process_bytes or not data.startswith(_CONTEXT):
        request: dict[str, Any] = loads(data)
        return request
    end = data.index(_ARGS)
    return LargeRequest(orjson.loads(data[len(_CONTEXT) : end]), data[end + len(_ARGS) : -1])


async def parse_request(request: dict[str, Any]) -> dict[str, Any]:
    """Parse a request, including values that it holds as stored JSON."""
    if isinstance(request, LargeRequest):
        return {**request, "args": await offload(loads, request.text)}
    refs = request.get("resolvedRefs")
    if not isinstance(refs, ResolvedRefs) or not refs:
        return request
    return {**request, "resolvedRefs": await asyncio.to_thread(refs.parsed)}


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of the service at a call. A transport calls `may_send` right before the first byte leaves. `secret` signs a
    call over HTTP."""

    tenant: str
    runtime_name: str
    call: OutgoingCall
    request: dict[str, Any]
    number: int
    may_send: Callable[[], bool]
    secret: SealedSigningSecret | None = None

    @property
    def timeout_s(self) -> float:
        return self.call.timeout_ms / 1000


class NotDelivered(Exception):
    """The call took no effect: it never left, or the receiver said that it did nothing. It may be sent again."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class OutcomeUnknown(Exception):
    """The call may have taken effect: it left, and no response says what happened."""


class Sender(Protocol):
    """A transport that the service sends calls through: `http`, `mcp` or `python`."""

    async def send(self, attempt: Attempt) -> ToolResult:
        """Send the call and return its answer or its error. Raise NotDelivered or OutcomeUnknown."""
        ...

    async def aclose(self) -> None: ...


def definition_digest(tool: ToolSpec) -> str:
    """Return the digest of the exact definition of a tool: a process that serves another definition gets no calls."""
    return hashlib.sha256(
        strict_json.canonical(
            {
                "name": tool.name,
                "description": tool.description or "",
                "inputSchema": tool.input_schema,
                "outputSchema": tool.output_schema,
            }
        )
    ).hexdigest()
