"""Shared code of the vendor adapters: connections, keys, tool JSON, and the course of a turn."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any, ClassVar, Final, Protocol

import httpx2
import orjson

from app.llm.client import ModelClient, ModelTraffic, open_client
from app.llm.faults import (
    CHUNK_ERRORS,
    CONNECTION_ERRORS,
    fault_from_chunk,
    fault_from_connection,
    fault_from_sdk,
)
from app.llm.messages import ModelRequest, StreamPart, TextDelta, ThinkingDelta, TurnDone, Usage
from app.llm.provider import ProviderFault, ProviderNotBuilt, RequestRejected, TooMuchSent
from app.llm.response_stream import ResponseStream, StreamError

IDLE_TIMEOUT_S: Final = 120.0
CONNECT_TIMEOUT_S: Final = 10.0
MAX_TAIL_S: Final = 2.0
"""How long to wait for the end of a body after a complete turn, so that the connection can be reused."""

NO_KEY: Final = "none"
"""Placeholder for a tenant's own server that needs no key."""


class VendorTurn(Protocol):
    """A turn that is assembled from a vendor's events, each of them validated."""

    @property
    def usage(self) -> Usage: ...

    @property
    def is_complete(self) -> bool:
        """Return whether the vendor reported the end of the turn."""

    def feed(self, event: object) -> Iterator[StreamPart]: ...

    def feed_trailing(self, event: object) -> None:
        """Process an event after the end."""

    def result(self) -> TurnDone: ...


class VendorProvider(ABC):
    """One attempt per turn through the SDK of a vendor, which does HTTP and splits the stream into JSON
    events.

    `http_client` belongs to the caller; without one, the provider opens its own for the vendor's address. The
    client and the decoder of the stream limit what a provider sends.
    """

    sdk_error: ClassVar[type[Exception]]
    """The root of the SDK's exceptions."""

    _secrets: tuple[str, ...] | None = None
    """What must not appear in a message; None: the key of the SDK's client."""

    class_faults: ClassVar[Mapping[str, type[ProviderFault] | None]]
    """All SDK exceptions without a status of their own; for None see faults.fault_from_sdk."""

    def __init__(self, http_client: ModelClient | None) -> None:
        self._owns_client = http_client is None
        self._http_client = http_client or open_client(ModelTraffic())

    @abstractmethod
    def _turn(self, request: ModelRequest) -> VendorTurn: ...

    @abstractmethod
    def _output_tokens(self, request: ModelRequest) -> int | None:
        """Return the maximum tokens that the request asks for; None if it has no limit."""

    @abstractmethod
    async def _open(self, request: ModelRequest) -> ResponseStream: ...

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPart, None]:
        turn = self._turn(request)
        traffic = self._http_client.traffic
        try:
            async with traffic.stream_slot(), await self._open_stream(request) as stream:
                while not turn.is_complete and await stream.wait_for_data():
                    parts, error = _feed_arrived(turn, stream)
                    for part in parts:
                        yield part
                    if error is not None:
                        raise error
                await self._drain(stream, turn)
        except TooMuchSent as error:
            traffic.metrics.model_streams_ended.labels(error.bound).inc()
            raise RequestRejected(str(error), usage=turn.usage) from error
        except (self.sdk_error, StreamError) as error:
            raise self._redact_key(fault_from_sdk(error, self.class_faults, turn.usage)) from error
        except CHUNK_ERRORS as error:
            raise fault_from_chunk(error, turn.usage) from error
        except CONNECTION_ERRORS as error:
            raise fault_from_connection(error, turn.usage) from error
        yield turn.result()

    async def _open_stream(self, request: ModelRequest) -> ResponseStream:
        with self._http_client.bound_response(self._output_tokens(request)):
            return await self._open(request)

    @property
    def _line_bytes(self) -> int:
        """Return the maximum bytes of a line, an event or a frame of a stream."""
        return self._http_client.traffic.bounds.line_bytes

    def _redact_key(self, fault: ProviderFault) -> ProviderFault:
        """Remove the key from the fault's message: some servers repeat the key that they reject."""
        for key in self._secret_texts():
            if key != NO_KEY:
                fault.message = fault.message.replace(key, "(withheld)")
        fault.args = (fault.message,)
        return fault

    def _secret_texts(self) -> Sequence[str]:
        """Return what must not appear in a message."""
        if self._secrets is not None:
            return self._secrets
        client = getattr(self, "_client", None)
        keys = (getattr(client, name, None) for name in ("api_key", "access_token"))
        return [key for key in keys if isinstance(key, str)]

    async def _drain(self, stream: ResponseStream, turn: VendorTurn) -> None:
        """Read a stream to its end after a complete turn, ignoring errors."""
        with suppress(
            TimeoutError, TooMuchSent, self.sdk_error, StreamError, *CONNECTION_ERRORS, *CHUNK_ERRORS
        ):
            async with asyncio.timeout(MAX_TAIL_S):
                while await stream.wait_for_data():
                    for event in stream.read_available():
                        turn.feed_trailing(event)

    async def aclose(self) -> None:
        """Close the connections, unless they are the caller's."""
        if self._owns_client:
            await self._http_client.aclose()


def _feed_arrived(turn: VendorTurn, stream: ResponseStream) -> tuple[Iterator[StreamPart], Exception | None]:
    """Feed the turn what has arrived. Return the deltas, and the error that ended the turn after them, if there was one."""
    parts: list[StreamPart] = []
    try:
        for event in stream.read_available():
            for part in turn.feed(event):
                parts.append(part)
            if turn.is_complete:
                break
    except Exception as error:  # noqa: BLE001 - the caller raises it
        return merge_deltas(parts), error
    return merge_deltas(parts), None


def merge_deltas(parts: Iterable[StreamPart]) -> Iterator[StreamPart]:
    """Merge adjacent deltas of the same type."""
    for kind, group in groupby(parts, type):
        if kind is TextDelta:
            yield TextDelta("".join(part.text for part in group if isinstance(part, TextDelta)))
        elif kind is ThinkingDelta:
            yield ThinkingDelta("".join(part.text for part in group if isinstance(part, ThinkingDelta)))
        else:
            yield from group


def validate_key(api_key: str | None, *, is_required: bool) -> str:
    """Return the key to send. `is_required`: the vendor's own address needs one. Raise ProviderNotBuilt."""
    if not api_key:
        if is_required:
            raise ProviderNotBuilt('The provider has no key: set apiKey to {"secret": name}, or apiKeyEnv.')
        return NO_KEY
    if not api_key.isascii() or not api_key.isprintable() or " " in api_key:
        raise ProviderNotBuilt("The provider's key contains spaces or invalid characters; store it again.")
    return api_key


def stream_timeout(idle_s: float | None) -> httpx2.Timeout:
    """Return timeouts with `idle_s` seconds as the longest silence between two reads of a stream."""
    idle_s = idle_s or IDLE_TIMEOUT_S
    return httpx2.Timeout(idle_s, connect=min(CONNECT_TIMEOUT_S, idle_s))


def arguments_object(arguments: str) -> dict[str, Any]:
    """Return tool arguments as the object that a vendor expects in the history.

    Malformed arguments are wrapped as Anthropic recommends, so that the model sees its own text next to the
    error. NaN, infinities and lone surrogates are malformed: no vendor takes them.
    """
    try:
        orjson.loads(arguments)
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return {"INVALID_JSON": arguments}
    return value if isinstance(value, dict) else {"INVALID_JSON": arguments}


def get_int(parts: Mapping[str, Any], name: str) -> int | None:
    """Return the integer of this name, or None."""
    value = parts.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
