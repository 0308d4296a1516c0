"""The adapter for models on Amazon Bedrock other than Claude: the Converse API, which is the same for all of them.

No SDK: one POST, and the frames of its response. botocore would be slower to import, reads AWS files, and blocks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final
from urllib.parse import quote

import httpx2

from app.llm.client import ModelClient
from app.llm.converse_turn import REDACTED, SIGNATURE, ConverseTurn
from app.llm.eventstream import Frame, FrameReader, InvalidFrame
from app.llm.messages import Block, Message, ModelRequest, Text, Thinking, ToolResultPart, ToolUse
from app.llm.provider import ProviderFault
from app.llm.response_stream import ResponseStream
from app.llm.sse import loads_event
from app.llm.wire import VendorProvider, arguments_object, get_int, stream_timeout

NO_TEXT: Final = "(empty)"
"""In the place of a text that is empty or blank, which the API rejects."""


class ConverseError(Exception):
    """An error response, or an exception in the stream. The attributes are those that `fault_from_sdk` reads."""

    def __init__(self, status: int | None, body: object, response: httpx2.Response | None = None) -> None:
        super().__init__("The Converse API returned an error.")
        self.status_code = status
        self.body = body
        self.response = response


class ConverseProvider(VendorProvider):
    """Models of any vendor on Bedrock. `auth` adds what authenticates a request; `secrets` are never in a message."""

    sdk_error = ConverseError
    class_faults: ClassVar[Mapping[str, type[ProviderFault] | None]] = {}

    def __init__(
        self,
        http_client: ModelClient,
        base_url: str,
        auth: httpx2.Auth,
        secrets: tuple[str, ...],
        idle_timeout_s: float | None,
    ) -> None:
        super().__init__(http_client)
        self._base_url = base_url.rstrip("/")
        self._auth = auth
        self._secrets = secrets
        self._timeout = stream_timeout(idle_timeout_s)

    def _turn(self, request: ModelRequest) -> ConverseTurn:
        return ConverseTurn(request.model)

    def _output_tokens(self, request: ModelRequest) -> int | None:
        return get_int(request_body(request).get("inferenceConfig", {}), "maxTokens")

    async def _open(self, request: ModelRequest) -> ResponseStream:
        url = f"{self._base_url}/model/{quote(request.model, safe='')}/converse-stream"
        http_request = self._http_client.build_request(
            "POST", url, json=request_body(request), headers={"accept": "*/*"}, timeout=self._timeout
        )
        response = await self._http_client.send(http_request, stream=True, auth=self._auth)
        if response.status_code != 200:
            try:
                raise ConverseError(response.status_code, _body(await response.aread()), response)
            finally:
                await response.aclose()
        frames = FrameReader(self._line_bytes)
        return ResponseStream(
            response, lambda data: (event for frame in frames.feed(data) for event in _events(frame))
        )


class BearerKey(httpx2.Auth):
    """Sends a Bedrock API key."""

    def __init__(self, key: str) -> None:
        self._key = key

    def auth_flow(self, request: httpx2.Request) -> Any:
        request.headers["authorization"] = f"Bearer {self._key}"
        yield request


def _events(frame: Frame) -> Iterator[tuple[str, Any]]:
    """Yield the event of a frame, or nothing for an event without a payload that can be used. Raise ConverseError for
    an exception."""
    headers = frame.headers
    kind = headers.get(":message-type")
    if kind == "event":
        yield headers.get(":event-type", ""), loads_event(frame.payload.decode())
    elif kind == "exception":
        _, message = _error_parts(_body(frame.payload))
        raise ConverseError(None, {"type": headers.get(":exception-type"), "message": message})
    elif kind == "error":
        message = headers.get(":error-message") or "no message"
        raise ConverseError(None, {"type": headers.get(":error-code"), "message": message})
    else:
        raise InvalidFrame("it has no known message type")


def _body(data: bytes) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return data.decode(errors="replace")


def _error_parts(body: object) -> tuple[None, str]:
    message = body.get("message", body.get("Message")) if isinstance(body, dict) else None
    return None, message if isinstance(message, str) and message else "no message"


def request_body(request: ModelRequest) -> dict[str, Any]:
    """Return the body of a request. `thinking` goes where each vendor's own fields go; `extra` replaces fields, and adds
    to `inferenceConfig`."""
    body: dict[str, Any] = {"messages": _messages(request)}
    system = [{"text": text} for text in (request.system, request.notes) if text.strip()]
    if system:
        body["system"] = system
    if request.tools:
        body["toolConfig"] = {"tools": [{"toolSpec": _tool(tool)} for tool in request.tools]}
    if request.thinking is not None:
        body["additionalModelRequestFields"] = request.thinking
    limit = {} if request.max_output_tokens is None else {"maxTokens": request.max_output_tokens}
    more = request.extra.get("inferenceConfig")
    inference = {**limit, **(more if isinstance(more, dict) else {})}
    return {**body, **request.extra, **({"inferenceConfig": inference} if inference else {})}


def _tool(tool: Any) -> dict[str, Any]:
    described = {"description": tool.description} if tool.description.strip() else {}
    return {"name": tool.name, **described, "inputSchema": {"json": tool.input_schema}}


def _messages(request: ModelRequest) -> list[dict[str, Any]]:
    """Return the messages with alternating roles, as the API requires."""
    merged: list[dict[str, Any]] = []
    for message in request.messages:
        content = _content(message, with_tools=bool(request.tools))
        if merged and merged[-1]["role"] == message.role:
            merged[-1]["content"] += content
        elif content:
            merged.append({"role": message.role, "content": content})
    return merged


def _content(message: Message, *, with_tools: bool) -> list[dict[str, Any]]:
    """Return the blocks of a message, results of tools first."""
    blocks = sorted(message.blocks, key=lambda block: not isinstance(block, ToolResultPart))
    return [part for block in blocks if (part := _part(block, with_tools=with_tools)) is not None]


def _part(block: Block, *, with_tools: bool) -> dict[str, Any] | None:
    """Return a block as the API expects it. Without tools, it rejects calls and their results, so they become text."""
    if isinstance(block, Text):
        return {"text": block.text} if block.text.strip() else None
    if isinstance(block, Thinking):
        return _reasoning(block)
    if isinstance(block, ToolUse):
        if not with_tools:
            return {"text": f"[Call of {block.name}: {block.arguments}]"}
        return {
            "toolUse": {"toolUseId": block.id, "name": block.name, "input": arguments_object(block.arguments)}
        }
    text = block.content if block.content.strip() else NO_TEXT
    if not with_tools:
        return {"text": f"[Result: {text}]"}
    status = {"status": "error"} if block.is_error else {}
    return {"toolResult": {"toolUseId": block.tool_use_id, "content": [{"text": text}], **status}}


def _reasoning(block: Thinking) -> dict[str, Any] | None:
    """Return reasoning that this API signed. Other reasoning is not sent back."""
    if REDACTED in block.opaque:
        return {"reasoningContent": {"redactedContent": block.opaque[REDACTED]}}
    if SIGNATURE in block.opaque:
        text = {"text": block.text, "signature": block.opaque[SIGNATURE]}
        return {"reasoningContent": {"reasoningText": text}}
    return None
