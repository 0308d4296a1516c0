"""The adapter for OpenAI's chat completions and compatible servers.

Only this file imports the SDK (see registry.py). As in anthropic.py, the SDK says where a request goes, with which
headers, and what its error responses mean; the stream is read as plain JSON and checked here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import openai
from openai import AsyncOpenAI
from plangate.spec.vendors import VENDORS

from app.llm.client import ModelClient
from app.llm.messages import Message, ModelRequest, Text, ToolResultPart, ToolUse
from app.llm.openai_turn import OpenAITurn
from app.llm.provider import BrokenTurn, NotAuthorized, ProviderFault, RequestRejected, Unreachable
from app.llm.response_stream import ResponseStream, StreamError
from app.llm.sdk_requests import SdkRequests
from app.llm.sse import SseReader, loads_event
from app.llm.wire import VendorProvider, arguments_object, get_int, stream_timeout, validate_key

SDK_CLASS_FAULTS: Final[dict[str, type[ProviderFault] | None]] = {
    # Distinguished by status, by the codes in the body, or by their cause, not by class.
    "APIError": None,
    "APIStatusError": None,
    "InternalServerError": None,
    "APIConnectionError": None,
    "APITimeoutError": Unreachable,
    # Status 200 without a stream.
    "APIResponseValidationError": BrokenTurn,
    "StreamAlreadyConsumed": BrokenTurn,
    # The SDK's other sources of a key, which are not used: the key is always passed in.
    "OAuthError": NotAuthorized,
    "SubjectTokenProviderError": NotAuthorized,
    "MutuallyExclusiveAuthError": NotAuthorized,
    # Parts of the SDK that the adapter does not call.
    "LengthFinishReasonError": RequestRejected,
    "ContentFilterFinishReasonError": RequestRejected,
    "WebSocketConnectionClosedError": RequestRejected,
    "WebSocketQueueFullError": RequestRejected,
    "APIRemovedInV1": RequestRejected,
    "_AmbiguousModuleClientUsageError": RequestRejected,
    "MissingDependencyError": RequestRejected,
    "AgentFilePreparationError": RequestRejected,
    "AgentFileStagingError": RequestRejected,
    "AgentOutputParseError": RequestRejected,
    "AgentTurnResultError": RequestRejected,
}
"""See VendorProvider.class_faults; a test walks the SDK's exceptions."""


def build(
    *,
    api_key: str | None,
    base_url: str | None,
    http_client: ModelClient | None,
    idle_timeout_s: float | None = None,
) -> OpenAIProvider:
    """Build the provider for app.llm.registry.build_provider, which documents the arguments."""
    key = validate_key(api_key, is_required=base_url is None)
    return OpenAIProvider(key, base_url, http_client, idle_timeout_s)


class OpenAIProvider(VendorProvider):
    """Chat completions, without the SDK's retries."""

    sdk_error = openai.OpenAIError
    class_faults = SDK_CLASS_FAULTS

    def __init__(
        self,
        api_key: str,
        base_url: str | None,
        http_client: ModelClient | None,
        idle_timeout_s: float | None,
    ) -> None:
        super().__init__(http_client)
        # OpenAI's own models reject `max_tokens`; most compatible servers support nothing else.
        self._limit_name = "max_completion_tokens" if base_url is None else "max_tokens"
        self._client = AsyncOpenAI(
            api_key=api_key,
            base_url=base_url or f"https://{VENDORS['openai'].host}/v1",
            http_client=self._http_client,
            max_retries=0,
            timeout=stream_timeout(idle_timeout_s),
        )
        # OPENAI_ORG_ID, OPENAI_PROJECT_ID and OPENAI_CUSTOM_HEADERS would be sent to any host that a tenant chose.
        self._client.organization = self._client.project = self._client.admin_api_key = None
        self._client._custom_headers = {}
        timeout = stream_timeout(idle_timeout_s)
        self._requests = SdkRequests(self._client, "/chat/completions", self._http_client, timeout)

    def _turn(self, request: ModelRequest) -> OpenAITurn:
        return OpenAITurn(request.model)

    def _output_tokens(self, request: ModelRequest) -> int | None:
        limit = get_int(request.extra, "max_tokens") or get_int(request.extra, "max_completion_tokens")
        return limit or request.max_output_tokens

    async def _open(self, request: ModelRequest) -> ResponseStream:
        response = await self._requests.post({**request_body(request, self._limit_name), **request.extra})
        return ResponseStream(response, _EventReader(self._line_bytes).read)


class _EventReader:
    """Reads the chunks of a turn, which `[DONE]` ends."""

    def __init__(self, line_bytes: int) -> None:
        self._events = SseReader(line_bytes)
        self._is_done = False

    def read(self, data: bytes) -> Iterator[object]:
        """Yield the chunks that end in the data. Raise StreamError for one that reports an error."""
        for event in self._events.feed(data):
            self._is_done = self._is_done or event.data.startswith("[DONE]")
            if self._is_done:
                continue
            chunk = loads_event(event.data)
            if isinstance(chunk, dict) and (error := chunk.get("error")):
                raise StreamError("An error occurred during streaming", error)
            yield chunk


def request_body(request: ModelRequest, limit_name: str) -> dict[str, Any]:
    """Return the body of a request. Only `effort` of `thinking` has a counterpart here."""
    body: dict[str, Any] = {
        "model": request.model,
        "messages": list(_messages(request)),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.input_schema,
                },
            }
            for tool in request.tools
        ]
    if request.max_output_tokens is not None:
        body[limit_name] = request.max_output_tokens
    effort = (request.thinking or {}).get("effort")
    if effort is not None:
        body["reasoning_effort"] = effort
    return body


def _messages(request: ModelRequest) -> Iterator[dict[str, Any]]:
    if request.system:
        yield {"role": "system", "content": request.system}
    if request.notes:
        yield {"role": "system", "content": request.notes}
    for message in request.messages:
        yield from _assistant(message) if message.role == "assistant" else _user(message)


def _assistant(message: Message) -> Iterator[dict[str, Any]]:
    """Yield an assistant message. Thinking is not sent: no field for it works on all servers."""
    text = "".join(block.text for block in message.blocks if isinstance(block, Text))
    calls = [
        {"id": block.id, "type": "function", "function": {"name": block.name, "arguments": _arguments(block)}}
        for block in message.blocks
        if isinstance(block, ToolUse)
    ]
    rendered: dict[str, Any] = {"role": "assistant", "content": text or None}
    if calls:
        rendered["tool_calls"] = calls
    if text or calls:
        yield rendered


def _user(message: Message) -> Iterator[dict[str, Any]]:
    """Yield the results of calls as separate messages, right after the calls, then the text."""
    for block in message.blocks:
        if isinstance(block, ToolResultPart):
            yield {"role": "tool", "tool_call_id": block.tool_use_id, "content": block.content}
    text = "\n".join(block.text for block in message.blocks if isinstance(block, Text))
    if text:
        yield {"role": "user", "content": text}


def _arguments(call: ToolUse) -> str:
    """Return valid arguments byte for byte, others wrapped: servers that parse the history would fail on
    them."""
    wrapped = arguments_object(call.arguments)
    return json.dumps(wrapped, ensure_ascii=False) if "INVALID_JSON" in wrapped else call.arguments
