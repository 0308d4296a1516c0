"""A model server on loopback that streams 50 tokens, one every 20 ms, in the protocols of OpenAI and Anthropic.

The first token leaves with the head of the response, so the time to the first token of a run is the service's own. With
a number of seconds as its argument, the server waits that long and then sends all tokens at once.
It runs as a process of its own, as cheap as possible: one asyncio protocol, frames that are made once, no JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any, cast

import uvloop

TOKENS = 50
PAUSE_S = 0.020
TEXTS = [f"token{n:02d} " for n in range(TOKENS)]
HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
)
HEAD_END = b"\r\n\r\n"
LENGTH = b"content-length:"
OPENAI_PATH, ANTHROPIC_PATH = "/v1/chat/completions", "/v1/messages"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _openai_event(delta: dict[str, Any] | None, finish_reason: str | None = None, **more: Any) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish_reason}]
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": choices,
    }
    return b"data: " + json.dumps(body | more).encode() + b"\n\n"


def _openai() -> Iterator[bytes]:
    """Yield what is sent at each token."""
    usage = {"prompt_tokens": 10, "completion_tokens": TOKENS, "total_tokens": 10 + TOKENS}
    for n, text in enumerate(TEXTS):
        data = _openai_event({"content": text})
        if n == 0:
            data = _openai_event({"role": "assistant", "content": ""}) + data
        if n == TOKENS - 1:
            data += _openai_event({}, "stop") + _openai_event(None, usage=usage) + b"data: [DONE]\n\n"
        yield data


def _anthropic_event(kind: str, **body: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind} | body)}\n\n".encode()


def _anthropic() -> Iterator[bytes]:
    """Yield what is sent at each token."""
    usage = {"input_tokens": 10, "output_tokens": 1}
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": "m",
        "usage": usage,
    }
    block = {"type": "text", "text": ""}
    for n, text in enumerate(TEXTS):
        data = _anthropic_event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})
        if n == 0:
            start = _anthropic_event("message_start", message=message)
            data = start + _anthropic_event("content_block_start", index=0, content_block=block) + data
        if n == TOKENS - 1:
            delta = {"stop_reason": "end_turn", "stop_sequence": None}
            data += _anthropic_event("content_block_stop", index=0)
            data += _anthropic_event("message_delta", delta=delta, usage={"output_tokens": TOKENS})
            data += _anthropic_event("message_stop")
        yield data


def _frames(events: Iterator[bytes]) -> list[bytes]:
    first, *middle, last = (_chunk(data) for data in events)
    return [HEAD + first, *middle, last + b"0\r\n\r\n"]


class _Connection(asyncio.Protocol):
    """A kept-alive connection. It reads a request to its end, then streams the response of its path."""

    def __init__(self, answers: dict[bytes, list[bytes]], wait_s: float = 0.0) -> None:
        self._answers = answers
        self._wait_s = wait_s
        self._loop = asyncio.get_running_loop()
        self._request = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one by its methods only

    def data_received(self, data: bytes) -> None:
        self._request += data
        head, end, body = self._request.partition(HEAD_END)
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(LENGTH)]
        if not end or len(body) < int(lengths[0].removeprefix(LENGTH)):
            return
        path, self._request = head.split(b" ", 2)[1], b""
        if self._wait_s:
            self._loop.call_later(self._wait_s, self._send, [b"".join(self._answers[path])], 0, 0.0)
        else:
            self._send(self._answers[path], 0, self._loop.time())

    def _send(self, frames: Sequence[bytes], number: int, began: float) -> None:
        if self._transport is None:
            return
        self._transport.write(frames[number])
        if number + 1 < len(frames):
            self._loop.call_at(began + (number + 1) * PAUSE_S, self._send, frames, number + 1, began)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None


async def serve(wait_s: float) -> None:
    """Print the port, then serve until the process is stopped."""
    answers = {OPENAI_PATH.encode(): _frames(_openai()), ANTHROPIC_PATH.encode(): _frames(_anthropic())}
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(answers, wait_s), "127.0.0.1", 0, backlog=1024)
    print(f"The model listens on http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(float(sys.argv[1]) if len(sys.argv) > 1 else 0.0))
