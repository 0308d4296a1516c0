"""A service on loopback with scripted responses that records requests."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl

import plangate
import uvicorn

PATIENCE_S = 20.0
Json = Any


class FakeService:
    """Registers any runtime and hands out the calls that a test offers.

    registered: What an answer of `POST /runtimes` has beside id, version and spec.
    answers: By `(method, path)`, a function of the body that gives status and JSON in place of what is built in.
    texts: By `(method, path)`, status, body and headers of an answer that is no JSON.
    streams: By `(method, path)`, the connections to come: each a list of events, then the connection ends.
    asked: Every request: method, path, headers, body.
    searched: Every request: what its query string says.
    held: By `(method, path)`, an event that an answer waits for once it has been made.
    """

    def __init__(self) -> None:
        self.url = ""
        self.registered: dict[str, Json] = {}
        self.answers: dict[tuple[str, str], Callable[[Json], tuple[int, Json]]] = {}
        self.texts: dict[tuple[str, str], tuple[int, str, dict[str, str]]] = {}
        self.streams: dict[tuple[str, str], list[list[dict[str, Json]]]] = {}
        self.asked: list[tuple[str, str, dict[str, str], Json]] = []
        self.searched: list[dict[str, str]] = []
        self.held: dict[tuple[str, str], asyncio.Event] = {}
        self._open: list[dict[str, Json]] = []
        self._results: dict[str, asyncio.Future[Json]] = {}
        self._hint = asyncio.Event()
        self._ending = asyncio.Event()

    # -- what a test does ------------------------------------------------------------------------------------

    def runtime(self, spec: Any, **parts: Any) -> plangate.Runtime:
        return plangate.create_runtime(spec, url=self.url, api_key="key", **parts)

    async def outcome(self, call: Mapping[str, Json]) -> Json:
        """Offers a call, and gives the `{"output"}` or `{"error"}` that is posted for it."""
        work_id = f"wrk_{len(self._results)}"
        posted = self._results[work_id] = asyncio.get_running_loop().create_future()
        self._open.append({"workId": work_id, "queryId": "qry_1", "purpose": "tool", **call})
        self._hint.set()
        async with asyncio.timeout(PATIENCE_S):
            return await posted

    def bodies(self, method: str, path: str) -> list[Json]:
        return [body for asked, where, _, body in self.asked if (asked, where) == (method, path)]

    def headers(self, method: str, path: str) -> list[dict[str, str]]:
        return [headers for asked, where, headers, _ in self.asked if (asked, where) == (method, path)]

    # -- what the library asks -------------------------------------------------------------------------------

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        where = scope["method"], scope["path"]
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        body = await _body(receive, headers.get("content-type") == "application/json")
        self.asked.append((*where, headers, body))
        self.searched.append(dict(parse_qsl(scope["query_string"].decode())))
        if where in self.streams:
            await _stream(send, self.streams[where].pop(0))
        elif where in self.texts:
            await _text(send, *self.texts[where])
        elif where == ("GET", "/tool-calls/stream"):
            await self._hints(send)
        else:
            status, answer = self.answers.get(where, lambda body: self._built_in(*where, body))(body)
            if where in self.held:
                await self.held[where].wait()
            await _answer(send, status, answer)

    def _built_in(self, method: str, path: str, body: Json) -> tuple[int, Json]:
        match path.strip("/").split("/"):
            case ["runtimes"]:
                return 201, {"id": "rt_1", "name": "default", "version": 1, "spec": body, **self.registered}
            case ["tool-calls", "claim"]:
                return 200, {"calls": self._claimed(body)}
            case ["tool-calls", work_id, "result"]:
                said = {key: body[key] for key in ("output", "error") if key in body}
                self._results[work_id].set_result(said)
                return 200, {"adopted": True}
            case ["tool-calls", *_]:
                return 200, {}
        return 404, {"type": "not_found", "detail": f"There is no {method} {path} here."}

    def _claimed(self, body: Json) -> list[Json]:
        served = [(one["name"], one["definitionDigest"]) for one in body["tools"]]
        taken = [call for call in self._open if (call["name"], call["definitionDigest"]) in served]
        self._open = [call for call in self._open if call not in taken]
        return [{**call, "claimToken": body["claimToken"]} for call in taken]

    async def _hints(self, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _EVENT_STREAM})
        while not self._ending.is_set():
            await self._hint.wait()
            self._hint.clear()
            await send({"type": "http.response.body", "body": b"data: {}\n\n", "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    def end(self) -> None:
        self._ending.set()
        self._hint.set()


_EVENT_STREAM = [(b"content-type", b"text/event-stream")]


async def _body(receive: Any, is_json: bool) -> Json:
    """What JSON says, or the bytes of another body."""
    whole = b""
    while True:
        message = await receive()
        whole += message.get("body", b"")
        if not message.get("more_body"):
            return (json.loads(whole) if is_json else whole) if whole else None


async def _answer(send: Any, status: int, answer: Json) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(answer).encode()})


async def _text(send: Any, status: int, text: str, headers: Mapping[str, str]) -> None:
    sent = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": sent})
    await send({"type": "http.response.body", "body": text.encode()})


async def _stream(send: Any, events: list[dict[str, Json]]) -> None:
    headers = [*_EVENT_STREAM, *([(b"location", b"/queries/qry_1")] if events else [])]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for event in events:
        frame = f"id: cursor-{event['seq']}\ndata: {json.dumps(event)}\n\n"
        await send({"type": "http.response.body", "body": frame.encode(), "more_body": True})
    await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def fake_service() -> AsyncIterator[FakeService]:
    """Serves on a free port of loopback, in this event loop."""
    service = FakeService()
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(service, lifespan="off", log_config=None, timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    service.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    serving = asyncio.create_task(server._serve([listening]))
    try:
        yield service
    finally:
        service.end()
        server.should_exit = True
        await serving
        listening.close()
