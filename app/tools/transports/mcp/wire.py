"""The connection below the MCP SDK: every request of a session passes here.

The SDK follows redirects within an origin, keeps a stream open for unsolicited messages, and reports many failures of
a call only as an error. So here a redirect ends the session, that stream is not opened, the bytes that a session
reads are bounded, and the failure of a call is preserved.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx2
import orjson

from app.base.egress_policy import EgressDenied
from app.tools.transports.mcp.tools import readable_text

LIST_BYTES: Final = 4 * 1024 * 1024
LIST_PARTS: Final = 100_000
RESULT_PARTS: Final = 1_000_000
"""Objects, arrays and their members, as far as bytes show them: each is work, and takes many times its text in memory."""

MAX_LINES: Final = 20_000
"""Of all streams of a session: a stream is read line by line, and every message of it is work."""

MAX_RESUMES: Final = 100
"""How often a session goes back to a server that ended the stream of an answer before it was complete."""

CLOSE_S: Final = 1.0
LAST_EVENT_ID: Final = "last-event-id"
STREAM: Final = "text/event-stream"


class SessionFailed(Exception):
    """A session failed. The message follows the name of the server."""


class DefinitionChanged(SessionFailed):
    """The server no longer has the tool, or defines it differently. The call was not sent."""


class RejectedByServer(SessionFailed):
    """The server answered the call with a JSON-RPC error, whose text is the message."""


@dataclass(frozen=True, slots=True)
class Server:
    """The address of a session, and its headers."""

    url: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A call of a tool, by its name and the digest of its definition."""

    name: str
    arguments: dict[str, Any]
    meta: dict[str, Any]
    digest: str | None


class WireFault(Exception):
    """A request of the session failed. The message follows the name of the server."""


class BrokenConnection(WireFault):
    """The connection could not be opened, or it broke."""


class ForbiddenAddress(WireFault):
    """The egress policy does not allow the address or the response."""

    def __init__(self, denied: EgressDenied) -> None:
        super().__init__(f"cannot be used: {denied}")
        self.denied = denied


class RedirectRefused(WireFault):
    """The server redirected the session."""


class ResponseTooLarge(WireFault):
    """The response exceeds what a session reads."""


class ResponseTimeout(WireFault):
    """The server accepted the call and returned no result for it."""


class DeadlinePassed(WireFault):
    """The right to send the call expired before its first byte left."""


class HttpErrorResponse(WireFault):
    """A request was answered with an error of HTTP."""

    def __init__(self, response: httpx2.Response) -> None:
        super().__init__(f"answered {response.status_code}: {_error_text(response)}")
        self.response = response


class McpWire(httpx2.AsyncBaseTransport):
    """The transport of one session, over the shared transport that checks addresses.

    `left`: the first byte of the request that calls a tool has left. `fault`: what ended the session. `refusal`: the
    last response, if it was an HTTP error.
    """

    def __init__(self, checked: httpx2.AsyncBaseTransport, may_send: Callable[[], bool]) -> None:
        self._checked = checked
        self._may_send = may_send
        self._bytes_left = LIST_BYTES
        self._parts_left = LIST_PARTS
        self._lines_left = MAX_LINES
        self._resumes_left = MAX_RESUMES
        self.left = False
        self.fault: WireFault | None = None
        self.refusal: HttpErrorResponse | None = None

    def allow(self, size: int) -> None:
        """Allow `size` bytes of responses from now on: the result of the call follows."""
        self._bytes_left = size
        self._parts_left = RESULT_PARTS

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. After a fault, return an HTTP error for it and for every later request: an exception would
        tear down the SDK's session before it says goodbye to the server."""
        if request.method == "DELETE":
            return await self._closing(request)
        if request.method == "GET":
            return await self._rest(request)
        if self.fault is None:
            try:
                return await self._post(request)
            except WireFault as fault:
                self.fault = fault
            except EgressDenied as error:
                self.fault = ForbiddenAddress(error)
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                self.fault = BrokenConnection("cannot be reached")
            except httpx2.HTTPError:
                self.fault = BrokenConnection("broke the connection")
        return _stand_in(500, request)

    async def _answer(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._checked.handle_async_request(request)
        response.stream = _CountedBody(self, response)
        return response

    async def _post(self, request: httpx2.Request) -> httpx2.Response:
        calls = _calls_a_tool(request.content)
        if calls:
            request.extensions = {**request.extensions, "trace": self._leaving}
        response = await self._answer(request)
        status, kind = response.status_code, _kind(response)
        if kind != STREAM or not 200 <= status < 300:
            await response.aread()
        if 300 <= status < 400:
            where = readable_text(response.headers.get("location", "nowhere"))[:200]
            raise RedirectRefused(f"answered {status}, a redirect to {where}; redirects are not followed")
        self.refusal = HttpErrorResponse(response) if status >= 400 else None
        if calls and self.refusal is not None:
            raise self.refusal
        if calls and status == 202:
            raise ResponseTimeout("answered 202 without an answer")
        if calls and kind not in ("application/json", STREAM):
            raise ResponseTimeout(f"answered {status} with the content type {readable_text(kind)[:80]!r}")
        return response

    async def _rest(self, request: httpx2.Request) -> httpx2.Response:
        """Answer a GET. The SDK needs one only to fetch the rest of a response."""
        self._resumes_left -= 1
        if self.fault is not None or LAST_EVENT_ID not in request.headers or self._resumes_left < 0:
            return _stand_in(405, request)
        response = await self._answer(request)
        if not response.is_redirect:
            return response
        await response.aclose()
        return _stand_in(405, request)

    async def _leaving(self, event: str, _info: dict[str, Any]) -> None:
        if event.endswith(".send_request_headers.started"):
            if not self._may_send():
                raise DeadlinePassed("was not asked in time")
            self.left = True

    def count(self, chunk: bytes, lines: bool) -> None:
        """Count received bytes. Raise ResponseTooLarge."""
        self._bytes_left -= len(chunk)
        self._parts_left -= chunk.count(b"[") + chunk.count(b"{") + chunk.count(b":")
        if lines:
            self._lines_left -= chunk.count(b"\n") + chunk.count(b"\r")
        if min(self._bytes_left, self._parts_left, self._lines_left) < 0:
            self.fault = ResponseTooLarge("answered more than the service reads")
            raise self.fault

    async def _closing(self, request: httpx2.Request) -> httpx2.Response:
        """End the session with a DELETE, without waiting long."""
        with contextlib.suppress(TimeoutError, httpx2.HTTPError, EgressDenied, OSError):
            async with asyncio.timeout(CLOSE_S):
                response = await self._checked.handle_async_request(request)
                await response.aclose()
        return _stand_in(204, request)


class _CountedBody(httpx2.AsyncByteStream):
    """The body of a response, counted as a session reads it."""

    def __init__(self, wire: McpWire, response: httpx2.Response) -> None:
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        self._wire = wire
        self._inner = response.stream
        self._lines = _kind(response) == STREAM

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            self._wire.count(chunk, self._lines)
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


def _stand_in(status: int, request: httpx2.Request) -> httpx2.Response:
    """Return a response that only the SDK sees."""
    return httpx2.Response(status, request=request)


def _kind(response: httpx2.Response) -> str:
    kind: str = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind


def _calls_a_tool(body: bytes) -> bool:
    message = orjson.loads(body)
    return isinstance(message, dict) and message.get("method") == "tools/call"


def _error_text(response: httpx2.Response) -> str:
    """Return the message of an HTTP error: that of a JSON-RPC error, or the beginning of the body."""
    try:
        parsed = orjson.loads(response.content)
    except orjson.JSONDecodeError:
        parsed = None
    error = parsed.get("error") if isinstance(parsed, dict) else None
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        return readable_text(error["message"])
    return readable_text(response.content[:8_000].decode("utf-8", "replace")) or "without a word"
