"""Calls that leave the service: what is offered or sent, and what came back."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

import orjson
from plangate.spec.models import ToolSpec
from plangate.spec.transports import Transport

from app.base.errors import Malformed
from app.base.json import low_memory, strict_json
from app.base.json.limits import LIMITS
from app.base.json.offload import loads, offload

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
class ClaimFilter:
    """What calls a claim is restricted to; None is no restriction."""

    query_id: str | None = None
    thread_id: str | None = None
    runtime_id: str | None = None
    purpose: Literal["tool", "action"] | None = None


NO_FILTER: Final = ClaimFilter()


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """How a call ended: `done` has an output or an error, `unknown` may say in `error` what is known. `took_nothing`: the error
    says that this attempt did nothing, and so nothing of one before it."""

    status: Literal["done", "unknown", "withdrawn"]
    output: Any = None
    error: str | None = None
    took_nothing: bool = False
    text: bytes | None = field(default=None, compare=False)
    """The output as JSON, where it is large and on record."""

    def wire(self) -> dict[str, Any]:
        return {"output": self.output} if self.error is None else {"error": self.error}


def outcome_from_value(name: str, output: Any) -> CallOutcome:
    """Return the outcome of code that returned `output`, if that can be stored."""
    try:
        data = strict_json.dumps(output)
        if len(data) > MAX_RESULT_BYTES:
            raise strict_json.NotJson(f"it has {len(data)} bytes, and the most is {MAX_RESULT_BYTES}.")
        (low_memory.parse_cooperative if len(data) > LIMITS.process_bytes else strict_json.parse)(data)
    except (strict_json.NotJson, Malformed) as error:
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
        """Return the values, for code in this process."""
        return {k: {id: loads(data) for id, data in held.items()} for k, held in self._stored.items()}


class LargeRequest(dict[str, Any]):
    """The request of a tool call. Written as JSON its arguments are the bytes that are stored."""

    def __init__(self, context: dict[str, Any], text: bytes) -> None:
        super().__init__(args=orjson.Fragment(text), context=context)
        self.text = text


_CONTEXT: Final = b'{"context":'
_ARGS: Final = b',"args":'


def tool_request(context: Mapping[str, Any], args: Mapping[str, Any], text: bytes | None = None) -> bytes:
    """Return the request of a tool call. `text` are its arguments as JSON, if available."""
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


class NotDelivered(Exception):
    """Nothing took effect: nothing left, or the other side said that it took nothing. It may be tried again."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class OutcomeUnknown(Exception):
    """The call may have taken effect: it left, and no answer says what became of it."""


class Sender(Protocol):
    """Brings a call to code outside and gives its answer: the transports `http`, `mcp` and `python`."""

    async def send(self, attempt: Attempt) -> CallOutcome:
        """Send the call and return a `done` outcome. Raise NotDelivered or OutcomeUnknown."""
        ...

    async def aclose(self) -> None: ...


def definition_digest(tool: ToolSpec) -> str:
    """Names the exact definition of a tool: a process that serves another one must not get its calls."""
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
