"""HTTP to the service: requests that are repeated through short outages, and server-sent events."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import random
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any, Final
from urllib.parse import quote, urlsplit

import httpx
from httpx_sse import EventSource, ServerSentEvent, SSEError

from plangate.errors import ApiError, PlangateError, ServiceUnavailable, WrongCell, api_error
from plangate.json_bytes import to_json

log = logging.getLogger("plangate")

CONNECT_TIMEOUT_S: Final = 5.0
READ_TIMEOUT_S: Final = 30.0
STREAM_TIMEOUT_S: Final = 45.0  # three heartbeats of a stream
REQUEST_PATIENCE_S: Final = 30.0
MAX_PAUSE_S: Final = 2.0
PAGE: Final = 500  # entries of a list in one answer

_TRANSIENT_STATUSES: Final = frozenset({429, 502, 503, 504})
_EVENT_STREAM: Final = "text/event-stream"
_JSON: Final = "application/json"


class Outage:
    """The time without an answer: pauses that grow, until patience ends."""

    def __init__(self, client: ServiceClient, patience_s: float) -> None:
        self._client = client
        self._patience_s = patience_s
        self.over()

    def over(self) -> None:
        """Note that the service makes progress again."""
        self.answered()
        self._pause_s = 0.05

    def answered(self) -> None:
        """Note that the service has answered; the answer may still be an error."""
        self._since: float | None = None

    async def wait(self, cause: Exception) -> None:
        """Pause if the same call may succeed later.

        Raises:
            ApiError: the cause itself, if it is a refusal.
            ServiceUnavailable: if there has been no answer for longer than the patience.
        """
        if not is_transient(cause):
            raise cause
        now = time.monotonic()
        if self._since is None:
            self._since = now
            if self._patience_s > 0:
                log.info("%s does not answer (%s); trying again", self._client.url, _reason(cause))
        requested_s = getattr(cause, "retry_after_s", None) or 0.0
        pause_s = max(requested_s, self._pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - spreads callers, no secret
        ended = self._client.ended()
        if ended is None and now - self._since + pause_s <= self._patience_s:
            self._pause_s = min(self._pause_s * 2, MAX_PAUSE_S)
            await asyncio.sleep(pause_s)
            return
        if isinstance(cause, ApiError) and cause.status not in (502, 503, 504):
            raise cause
        waited = f" for {round(now - self._since)} s" if now - self._since >= 1 else ""
        raise ServiceUnavailable(
            ended
            or f"{self._client.url} did not answer{waited} ({_reason(cause)}). Is the service running there? "
            "Look at its log, then make the same call again."
        ) from cause


class ServiceClient:
    """The service at an address, as one tenant. Belongs to the event loop that first uses it."""

    def __init__(
        self,
        url: str,
        api_key: str,
        tenant: str | None,
        *,
        cell_urls: Mapping[str, str] | None = None,
        ended: Callable[[], str | None] = lambda: None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Leave `tenant` None if the key names it. `cell_urls` has the addresses of cells by name: if the service answers
        that the tenant is in one of these cells, this and all further requests go there. `ended` returns why the service
        will not come back, if known."""
        self.url = url.rstrip("/")
        self._cell_urls = dict(cell_urls or {})
        self._ended = ended
        self._closed = False
        self._http = httpx.AsyncClient(
            base_url=self.url,
            headers={
                "Authorization": f"Bearer {api_key}",
                **({} if tenant is None else {"Plangate-Tenant": tenant}),
            },
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
            trust_env=not _is_loopback(self.url),
            transport=transport,
        )

    async def aclose(self) -> None:
        self._closed = True
        await self._http.aclose()

    def ended(self) -> str | None:
        """Return why no more responses will come, or None if no reason is known."""
        return (
            "The runtime was closed. Its queries go on; open it again to follow them."
            if self._closed
            else self._ended()
        )

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, Any] | None = None,
        once: bool = False,
        raw: bool = False,
        accept: str = _JSON,
        key: str | None = None,
        data: bytes | Callable[[], AsyncIterator[bytes]] | None = None,
        media_type: str | None = None,
        patience_s: float = REQUEST_PATIENCE_S,
        timeout_s: float = READ_TIMEOUT_S,
    ) -> Any:
        """Send a request and return the JSON of its response, or its text if another type is accepted.

        It is sent again, under the same Idempotency-Key, while the service cannot be reached or is not ready.

        Args:
            once: The service does not keep this answer for repetitions: no key is sent.
            raw: Gives the bytes of the answer as they came.
            accept: The media type of the answer.
            key: The Idempotency-Key; of a POST a new one by default.
            data: A body that is not JSON, of `media_type`; or a function that gives it in pieces, once for
                each attempt.
            patience_s: For how long it is sent again; 0 is never.
            timeout_s: How long one answer may take.

        Raises:
            ApiError: if the service refuses.
            ServiceUnavailable: if it does not answer.
            PlangateError: if something else answers.
            ValueError: if the body is no JSON.
        """
        headers = {"Accept": accept}
        if key is not None or (method == "POST" and not once):
            headers["Idempotency-Key"] = key or uuid.uuid4().hex
        if body is not None:
            media_type, data = _JSON, to_json(body)
        if media_type is not None:
            headers["Content-Type"] = media_type
        timeout = httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
        outage = Outage(self, patience_s)
        switched = False
        while True:
            self._check_open()
            try:
                answer = await self._http.request(
                    method,
                    path,
                    content=data() if callable(data) else data,
                    params=params,
                    headers=headers,
                    timeout=timeout,
                )
                if answer.is_success:
                    return answer.content if raw else _content(answer, accept)
                raise _error_from_response(answer)
            except (httpx.TransportError, ApiError) as error:
                if not switched and self._switch_cell(error):
                    switched = True
                else:
                    await outage.wait(error)

    def _switch_cell(self, error: Exception) -> bool:
        """Send further requests to the cell that the error names. Return False if its address is not configured."""
        url = self._cell_urls.get(error.cell) if isinstance(error, WrongCell) else None
        if url is None:
            return False
        self.url = url.rstrip("/")
        self._http.base_url = httpx.URL(self.url)
        return True

    def _check_open(self) -> None:
        if self._closed:
            raise ServiceUnavailable(self.ended())

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[tuple[httpx.Response, AsyncIterator[ServerSentEvent]]]:
        """Open one connection of server-sent events. Raise ApiError, or httpx.TransportError when it is lost."""
        self._check_open()
        request_headers = {**(headers or {}), "Accept": _EVENT_STREAM, "Cache-Control": "no-store"}
        if body is not None:
            request_headers["Content-Type"] = _JSON
        timeout = httpx.Timeout(STREAM_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        content = None if body is None else to_json(body)
        async with AsyncExitStack() as stack:

            async def connect() -> httpx.Response:
                response = await stack.enter_async_context(
                    self._http.stream(method, path, content=content, headers=request_headers, timeout=timeout)
                )
                if response.is_success:
                    return response
                await response.aread()
                raise _error_from_response(response)

            try:
                response = await connect()
            except WrongCell as error:
                if not self._switch_cell(error):
                    raise
                response = await connect()
            yield response, await stack.enter_async_context(aclosing(_events(response)))


class OpeningClient(ServiceClient):
    """What the methods of a runtime send their requests with. It has no connection of its own: `connect` returns that of
    the runtime, which is opened by the first request."""

    def __init__(self, connect: Callable[[], Awaitable[ServiceClient]]) -> None:
        self._connect = connect

    async def request(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        client = await self._connect()
        return await client.request(method, path, body, **options)

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, body: Any = None, **options: Any
    ) -> AsyncIterator[tuple[httpx.Response, AsyncIterator[ServerSentEvent]]]:
        client = await self._connect()
        async with client.stream(method, path, body, **options) as response:
            yield response


async def list_items(
    client: ServiceClient,
    where: str,
    filters: Mapping[str, Any],
    limit: int,
    patience_s: float = REQUEST_PATIENCE_S,
) -> list[dict[str, Any]]:
    """Return the newest items of a list, over as many pages as needed."""
    params = {key: value for key, value in filters.items() if value is not None}
    items: list[dict[str, Any]] = []
    while len(items) < limit:
        params["limit"] = min(limit - len(items), PAGE)
        page = await client.request("GET", where, params=params, patience_s=patience_s)
        items += page["items"]
        if page["nextCursor"] is None:
            break
        params["cursor"] = page["nextCursor"]
    return items


async def _events(response: httpx.Response) -> AsyncGenerator[ServerSentEvent, None]:
    try:
        async with aclosing(EventSource(response).aiter_sse()) as events:
            async for event in events:
                if event.data:
                    yield event
    except SSEError as error:  # a proxy that answers with a page of its own
        raise httpx.RemoteProtocolError(str(error)) from error


def path(*segments: str) -> str:
    """Return the path of segments, each quoted. Raise ValueError for an invalid segment."""
    return "".join(f"/{segment(text)}" for text in segments)


def segment(text: str | int) -> str:
    """Return a segment of a path, quoted. Raise ValueError if it cannot be one."""
    if not isinstance(text, str | int) or text in ("", ".", ".."):
        raise ValueError(f"{text!r} is not an id such as 'qry_...'")
    return quote(str(text), safe="")


def file_segments(path: str) -> str:
    """Return the path of a file of a workspace, quoted. Raise ValueError for an empty one."""
    if not isinstance(path, str) or not path.strip("/"):
        raise ValueError(f"{path!r} is not the path of a file, such as reports/today.md")
    return quote(path, safe="/")


def _content(answer: httpx.Response, accept: str) -> Any:
    if accept != _JSON:
        if not answer.headers.get("content-type", "").startswith(accept):
            raise PlangateError(_unexpected_response_message(answer))
        return answer.text
    try:
        return answer.json()
    except ValueError:
        raise PlangateError(_unexpected_response_message(answer)) from None


def _unexpected_response_message(answer: httpx.Response) -> str:
    """Return the message about a response that is not from a Plangate service; mostly the address is wrong."""
    where = f"{answer.url.scheme}://{answer.url.netloc.decode()}"
    if "location" in answer.headers:
        return f"{where} sends callers on to {answer.headers['location']}: give the address of the service itself as url."
    return f"{where} does not answer as a Plangate service does: is url the address of one?"


def _error_from_response(answer: httpx.Response) -> ApiError:
    try:
        problem = answer.json()
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        problem = {"type": "unknown", "detail": _unexpected_response_message(answer)}
    try:
        retry_after_s = float(answer.headers["retry-after"])
    except (KeyError, ValueError):
        retry_after_s = None
    return api_error(answer.status_code, problem, retry_after_s)


def is_transient(error: Exception) -> bool:
    """Return whether the same call may succeed later."""
    if isinstance(error, ApiError):
        return error.status in _TRANSIENT_STATUSES or error.type == "in_progress"
    return isinstance(error, httpx.TransportError) and not isinstance(error, httpx.UnsupportedProtocol)


def _reason(error: Exception) -> str:
    return getattr(error, "detail", "") or str(error) or type(error).__name__


def _is_loopback(url: str) -> bool:
    """Return whether the URL is of this machine, for which the proxies of the environment do not apply."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
