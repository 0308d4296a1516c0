"""A server that answers with scripted bytes in the formats of the vendors.

For what aimock cannot be told to do: cut a stream at a given event, send malformed chunks, fall silent.
"""

from __future__ import annotations

import asyncio
import base64
import json
import struct
import zlib
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import botocore.session
from botocore.serialize import create_serializer
from botocore.validate import ParamValidator

from app.llm.messages import (
    Message,
    ModelRequest,
    StreamPart,
    Text,
    ToolDefinition,
    TurnDone,
)
from app.llm.provider import (
    Provider,
)
from app.llm.registry import build_provider
from app.llm.wire import merge_deltas

KEY = "sk-test-0123456789"
MODEL = "model-1"
CLAUDES = ("anthropic", "bedrock", "vertex")
VENDORS = (*CLAUDES, "openai")
PLACES = {"bedrock": {"region": "eu-west-3"}, "vertex": {"region": "europe-west1", "project": "my-project"}}
PATHS = {"vertex": "/v1", "openai": "/v1"}


@dataclass
class Answer:
    """`end`: "whole" ends the body as HTTP wants, "cut" closes without, "reset" resets, "hang" waits.

    To Bedrock's path an event that is text goes out in a frame of Amazon's; bytes go out as they are.
    """

    events: list[str | bytes] = field(default_factory=list)
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "text/event-stream"})
    end: str = "whole"


@dataclass
class Seen:
    """A request. `raw` is its body as it came, `body` what the JSON in it says."""

    path: str
    headers: dict[str, str]
    body: Any
    raw: bytes = b""


class VendorServer:
    """Answers the requests in order with what the test put in `answers`; remembers what it saw."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.seen: list[Seen] = []
        self.asked, self.gone = asyncio.Event(), asyncio.Event()
        self.connections = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    async def stop(self) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while (head := await reader.readuntil(b"\r\n\r\n")) is not None:
                await self._answer(head.decode("latin-1"), reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.gone.set()
            writer.close()

    async def _answer(self, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, *lines = head.rstrip().split("\r\n")
        headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.seen.append(Seen(first.split(" ")[1], headers, json.loads(body or b"null"), body))
        self.asked.set()
        answer = self.answers.pop(0)
        lines = [f"HTTP/1.1 {answer.status} Said so", "transfer-encoding: chunked"]
        lines += [f"{name}: {value}" for name, value in answer.headers.items()]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        framed = answer.status == 200 and self.seen[-1].path.startswith("/model/")
        for event in answer.events:
            data = event if isinstance(event, bytes) else framed_event(event) if framed else event.encode()
            writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            await writer.drain()
            await asyncio.sleep(0)  # what has no end is sent as fast as it is read, no faster
        if answer.end == "whole":
            writer.write(b"0\r\n\r\n")
        elif answer.end == "hang":
            await reader.read()
            raise ConnectionResetError
        elif answer.end == "reset":
            await asyncio.sleep(0.05)
            writer.transport.abort()
            raise ConnectionResetError
        else:
            await writer.drain()
            raise ConnectionResetError
        await writer.drain()


def provider_for(
    kind: str, server: VendorServer, *, api_key: str | None = KEY, http_client: Any = None, **options: Any
) -> Provider:
    return build_provider(
        kind,
        api_key=api_key,
        base_url=server.url + PATHS.get(kind, ""),
        http_client=http_client,
        options={**PLACES.get(kind, {}), **options},
    )


TOOLS = (
    ToolDefinition("first", "The first tool", {"type": "object"}),
    ToolDefinition("second", "The second tool", {"type": "object"}),
)


def request(*messages: Message, **settings: Any) -> ModelRequest:
    said = messages or (Message("user", (Text("Hello"),)),)
    return ModelRequest(settings.pop("model", MODEL), "Be brief.", TOOLS, said, **settings)


async def parts_of(provider: Provider, asked: ModelRequest | None = None) -> list[StreamPart]:
    """Return the turn, with adjacent deltas merged: how much text arrives together varies."""
    try:
        return list(merge_deltas([part async for part in provider.stream(asked or request())]))
    finally:
        await provider.aclose()


async def turn_of(provider: Provider, asked: ModelRequest | None = None) -> TurnDone:
    last = (await parts_of(provider, asked))[-1]
    assert isinstance(last, TurnDone)
    return last


# --- What the vendors write ---


def sse(kind: str, **data: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n"


def a_start(**usage: int) -> str:
    counts = {"input_tokens": 10, "output_tokens": 1, **usage}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "model-1-exact", "content": []}
    return sse("message_start", message={**message, "stop_reason": None, "usage": counts})


def a_block(index: int, block: dict[str, Any], *deltas: dict[str, Any], stop: bool = True) -> list[str]:
    events = [sse("content_block_start", index=index, content_block=block)]
    events += [sse("content_block_delta", index=index, delta=delta) for delta in deltas]
    return [*events, sse("content_block_stop", index=index)] if stop else events


def a_text(index: int, *texts: str) -> list[str]:
    return a_block(index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": t} for t in texts))


def a_tool(index: int, id_: str, name: str, *pieces: str, stop: bool = True) -> list[str]:
    block = {"type": "tool_use", "id": id_, "name": name, "input": {}}
    deltas = ({"type": "input_json_delta", "partial_json": piece} for piece in pieces)
    return a_block(index, block, *deltas, stop=stop)


def a_end(stop_reason: str | None = "end_turn", **usage: Any) -> list[str]:
    delta = {"stop_reason": stop_reason, "stop_sequence": None}
    return [sse("message_delta", delta=delta, usage={"output_tokens": 7, **usage}), sse("message_stop")]


def frame(headers: dict[str, str], payload: bytes) -> bytes:
    """A frame of `application/vnd.amazon.eventstream`."""
    written = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        for name, value in headers.items()
    )
    lengths = struct.pack(">II", 16 + len(written) + len(payload), len(written))
    body = lengths + struct.pack(">I", zlib.crc32(lengths)) + written + payload
    return body + struct.pack(">I", zlib.crc32(body))


def b_chunk(data: str) -> bytes:
    """The frame in which Bedrock sends one event of Anthropic's, with the padding that hides its length."""
    payload = {"bytes": base64.b64encode(data.encode()).decode(), "p": "abcdefgh"}
    headers = {":event-type": "chunk", ":content-type": "application/json", ":message-type": "event"}
    return frame(headers, json.dumps(payload).encode())


def b_exception(kind: str, message: str) -> bytes:
    headers = {
        ":exception-type": kind,
        ":content-type": "application/json",
        ":message-type": "exception",
    }
    return frame(headers, json.dumps({"message": message}).encode())


@cache
def converse_stream() -> Any:
    """The model of ConverseStream that botocore ships. Nothing is asked for it."""
    return botocore.session.Session().get_service_model("bedrock-runtime").operation_model("ConverseStream")


def assert_enums(value: Any, shape: Any) -> None:
    """Check that texts of an enumeration are among its values, which botocore does not."""
    if shape.type_name == "structure" and not shape.is_document_type:
        for name, part in value.items():
            assert_enums(part, shape.members[name])
    elif shape.type_name == "map":
        for part in value.values():
            assert_enums(part, shape.value)
    elif shape.type_name == "list":
        for part in value:
            assert_enums(part, shape.member)
    elif getattr(shape, "enum", None):
        assert value in shape.enum, f"{value!r} is not a {shape.name}"


def c_event(kind: str, payload: Any) -> Any:
    """The JSON of an event, written by botocore's serializer. Fail for one that botocore's model of the API does not
    have."""
    shape = converse_stream().output_shape.members["stream"].members[kind]
    report = ParamValidator().validate(payload, shape)
    assert not report.has_errors(), report.generate_report()
    assert_enums(payload, shape)
    written: dict[str, Any] = {}
    create_serializer("rest-json", include_validation=False)._serialize(written, payload, shape, kind)
    return written[kind]


def c_frame(kind: str, payload: Any) -> bytes:
    """The frame in which Bedrock's ConverseStream sends an event of its service model."""
    headers = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    return frame(headers, json.dumps(c_event(kind, payload)).encode())


def c_whole(tools: int = 0) -> list[tuple[str, Any]]:
    """The events of a turn that says "Hello there", and of calls of `look`: the first with an argument, others without."""
    events: list[tuple[str, Any]] = [
        ("messageStart", {"role": "assistant"}),
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "Hello "}}),
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "there"}}),
        ("contentBlockStop", {"contentBlockIndex": 0}),
    ]
    for n in range(1, tools + 1):
        start = {"toolUse": {"toolUseId": f"t{n}", "name": "look"}}
        events.append(("contentBlockStart", {"contentBlockIndex": n, "start": start}))
        for piece in ('{"a"', ": 1}") if n == 1 else ():
            delta = {"toolUse": {"input": piece}}
            events.append(("contentBlockDelta", {"contentBlockIndex": n, "delta": delta}))
        events.append(("contentBlockStop", {"contentBlockIndex": n}))
    usage = {"inputTokens": 10, "outputTokens": 7, "totalTokens": 17}
    return [
        *events,
        ("messageStop", {"stopReason": "tool_use" if tools else "end_turn"}),
        ("metadata", {"usage": usage, "metrics": {"latencyMs": 900}}),
    ]


def framed_event(event: str) -> bytes:
    """What Bedrock sends where Anthropic sends this event; what is no event becomes a frame of another kind."""
    data = event.partition("data: ")[2].strip()
    if data:
        return b_chunk(data)
    return frame({":event-type": "other", ":message-type": "event"}, event.encode())


def o_chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> str:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    chunk = {"id": "c", "object": "chat.completion.chunk", "model": "model-1-exact", "choices": choices}
    return f"data: {json.dumps({**chunk, **more})}\n\n"


def o_call(index: int | None, id_: str | None, name: str | None, arguments: str) -> str:
    call: dict[str, Any] = {"function": {"arguments": arguments, **({"name": name} if name else {})}}
    call |= {"index": index} if index is not None else {}
    call |= {"id": id_, "type": "function"} if id_ else {}
    return o_chunk({"tool_calls": [call]})


O_DONE = "data: [DONE]\n\n"
O_USAGE = {
    "prompt_tokens": 30,
    "completion_tokens": 7,
    "prompt_tokens_details": {"cached_tokens": 20},
    "completion_tokens_details": {"reasoning_tokens": 3},
}


def whole(kind: str) -> list[str]:
    """A turn that says "Hello there"."""
    if kind in CLAUDES:
        return [a_start(), *a_text(0, "Hello", " there"), *a_end()]
    return [
        o_chunk({"role": "assistant", "content": "Hello"}),
        o_chunk({"content": " there"}),
        o_chunk({}, "stop"),
        o_chunk(usage=O_USAGE),
        O_DONE,
    ]


def calling(kind: str, arguments: str, *, end: str = "tool") -> list[str]:
    """A turn that calls `first` with these words as arguments, in two pieces."""
    pieces = (arguments[:3], arguments[3:])
    if kind in CLAUDES:
        reason = {"tool": "tool_use", "length": "max_tokens"}[end]
        return [a_start(), *a_tool(0, "t1", "first", *pieces, stop=end == "tool"), *a_end(reason)]
    first, second = o_call(0, "t1", "first", pieces[0]), o_call(0, None, None, pieces[1])
    return [first, second, o_chunk({}, {"tool": "tool_calls", "length": "length"}[end]), O_DONE]


def refusal(status: int, body: Any, **headers: str) -> Answer:
    text = body if isinstance(body, str) else json.dumps(body)
    return Answer([text], status, {"content-type": "application/json", **headers})
