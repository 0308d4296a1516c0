"""The adapter for Anthropic's messages API and compatible servers.

Only this file and the adapters of platforms with the same API (bedrock.py, vertex.py) import the SDK, which
takes a second (see registry.py). The SDK says where a request goes, with which headers, and what its error responses
mean; on the platforms, it also sends the request. The stream is read as plain JSON and checked here, because the SDK
builds its typed events without validation, hides invalid tool input behind `{}`, and raises nothing for a truncated
stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import anthropic
import httpx2
from anthropic import AsyncAnthropic, AsyncAnthropicBedrock, AsyncAnthropicVertex, AsyncStream
from plangate.spec.vendors import VENDORS

from app.llm.anthropic_turn import AnthropicTurn
from app.llm.client import ModelClient
from app.llm.messages import Block, Message, ModelRequest, Text, Thinking, ToolResultPart, ToolUse
from app.llm.provider import (
    BrokenTurn,
    NotAuthorized,
    ProviderFault,
    RequestRejected,
    ServerFault,
    Unreachable,
)
from app.llm.response_stream import ResponseStream, StreamError
from app.llm.sdk_requests import SdkRequests
from app.llm.sse import SseEvent, SseReader, loads_event
from app.llm.wire import VendorProvider, arguments_object, get_int, stream_timeout, validate_key

AnthropicClient = AsyncAnthropic | AsyncAnthropicBedrock | AsyncAnthropicVertex

MAX_OUTPUT_TOKENS: Final = 16_384
"""The API requires a limit for each turn. A thinking budget is added to it."""

PATH: Final = "/v1/messages"

_CACHE_BREAKPOINT: Final = {"type": "ephemeral"}

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
    # The SDK's own search for credentials, which is not used: the key is always passed in.
    "CredentialsError": NotAuthorized,
    "IdentityTokenFileError": NotAuthorized,
    "WorkloadIdentityError": NotAuthorized,
    "MutuallyExclusiveAuthError": NotAuthorized,
    "RetryableError": ServerFault,
    # Parts of the SDK that the adapter does not call.
    "APIWebhookValidationError": RequestRejected,
    "MissingDependencyError": RequestRejected,
    "ToolsetUsageError": RequestRejected,
    "ToolsetClosedError": RequestRejected,
    "ToolsetConfigError": RequestRejected,
    "ToolsetContractError": RequestRejected,
    "ToolsetsFixedError": RequestRejected,
    "AsyncOnSyncToolsetError": RequestRejected,
    "SyncOnAsyncToolsetError": RequestRejected,
    "NestedCallError": RequestRejected,
    "BrowserStateError": RequestRejected,
}
"""See VendorProvider.class_faults; a test walks the SDK's exceptions."""


def build(
    *,
    api_key: str | None,
    base_url: str | None,
    http_client: ModelClient | None,
    idle_timeout_s: float | None = None,
) -> DirectAnthropicProvider:
    """Build the provider for app.llm.registry.build_provider, which documents the arguments."""
    return DirectAnthropicProvider(
        AsyncAnthropic,
        http_client,
        idle_timeout_s,
        api_key=validate_key(api_key, is_required=base_url is None),
        base_url=base_url or f"https://{VENDORS['anthropic'].host}",
    )


class AnthropicProvider(VendorProvider):
    """Anthropic's messages API, through any client of its SDK: the platforms differ in address, credentials
    and framing only.

    The SDK's retries and spans are off: the service has its own. Credentials and address are always passed
    in, so that the SDK does not look for them in the environment.
    """

    sdk_error = anthropic.AnthropicError
    class_faults = SDK_CLASS_FAULTS
    _client: AnthropicClient

    def __init__(
        self,
        sdk: Callable[..., AnthropicClient],
        http_client: ModelClient | None,
        idle_timeout_s: float | None,
        **address: str,
    ) -> None:
        super().__init__(http_client)
        self._client = sdk(
            **address,
            http_client=self._http_client,
            max_retries=0,
            timeout=stream_timeout(idle_timeout_s),
            open_telemetry=False,
        )
        # ANTHROPIC_CUSTOM_HEADERS would send the operator's headers to any host that a tenant chose.
        self._client._custom_headers = {}
        self._client._make_sse_decoder = lambda: None  # type: ignore[method-assign,assignment,return-value]

    def _turn(self, request: ModelRequest) -> AnthropicTurn:
        return AnthropicTurn(request.model)

    def _output_tokens(self, request: ModelRequest) -> int:
        return get_int(request.extra, "max_tokens") or _max_tokens(request)

    def _sse_events(self) -> Callable[[bytes], Iterable[SseEvent]]:
        """Return a function that takes what has arrived and yields the events that end in it."""
        return SseReader(self._line_bytes).feed

    async def _open(self, request: ModelRequest) -> ResponseStream:
        response, sse_events = await self._post(request), self._sse_events()
        return ResponseStream(response, lambda data: _turn_events(sse_events(data), response))

    async def _post(self, request: ModelRequest) -> httpx2.Response:
        """Send the request through the SDK, which signs it, or puts the model into its path."""
        # `messages.create` would build typed events and warn about models that it considers old.
        stream = await self._client.post(
            PATH,
            cast_to=object,
            body=request_body(request),
            options={"extra_json": request.extra},
            stream=True,
            stream_cls=AsyncStream[object],
        )
        return stream.response


class DirectAnthropicProvider(AnthropicProvider):
    """Anthropic's own address, or a compatible server: its requests differ in their bodies only."""

    def __init__(
        self,
        sdk: Callable[..., AnthropicClient],
        http_client: ModelClient | None,
        idle_timeout_s: float | None,
        **address: str,
    ) -> None:
        super().__init__(sdk, http_client, idle_timeout_s, **address)
        self._requests = SdkRequests(self._client, PATH, self._http_client, stream_timeout(idle_timeout_s))

    async def _post(self, request: ModelRequest) -> httpx2.Response:
        return await self._requests.post({**request_body(request), **request.extra})


def _turn_events(events: Iterable[SseEvent], response: httpx2.Response) -> Iterator[object]:
    """Yield the events of the turn. Raise StreamError for one that reports an error."""
    for event in events:
        if event.type == "error":
            raise StreamError(
                event.data, _error_body(event.data), status=response.status_code, response=response
            )
        if event.type is not None and event.type != "ping" and event.data:
            yield loads_event(event.data)


def _error_body(data: str) -> object:
    try:
        return loads_event(data)
    except (ValueError, RecursionError):
        return data


def request_body(request: ModelRequest) -> dict[str, Any]:
    """Return the body of a request, with prompt cache breakpoints after the tools and after the system
    prompt."""
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": _max_tokens(request),
        "messages": [rendered for message in request.messages if (rendered := _message(message))],
        "stream": True,
    }
    if request.system:
        body["system"] = [{"type": "text", "text": request.system, "cache_control": _CACHE_BREAKPOINT}]
    if request.notes:
        body.setdefault("system", []).append({"type": "text", "text": request.notes})
    if request.tools:
        tools: list[dict[str, Any]] = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
            for tool in request.tools
        ]
        tools[-1]["cache_control"] = _CACHE_BREAKPOINT
        body["tools"] = tools
    if request.thinking is not None:
        body["thinking"] = request.thinking
    return body


def _max_tokens(request: ModelRequest) -> int:
    if request.max_output_tokens is not None:
        return request.max_output_tokens
    budget = (request.thinking or {}).get("budget_tokens")
    return MAX_OUTPUT_TOKENS + (budget if isinstance(budget, int) else 0)


def _message(message: Message) -> dict[str, Any] | None:
    """Return a message as the API expects it, tool results first, or None if it is empty: the API rejects
    empty messages."""
    blocks: Sequence[Block] = sorted(message.blocks, key=lambda block: not isinstance(block, ToolResultPart))
    content = [rendered for block in blocks if (rendered := _block(block)) is not None]
    return {"role": message.role, "content": content} if content else None


def _block(block: Block) -> dict[str, Any] | None:
    if isinstance(block, Text):
        return {"type": "text", "text": block.text} if block.text else None
    if isinstance(block, Thinking):
        return _thinking(block)
    if isinstance(block, ToolUse):
        return {
            "type": "tool_use",
            "id": block.id,
            "name": block.name,
            "input": arguments_object(block.arguments),
        }
    content = block.content or ("(no message)" if block.is_error else "")
    result = {"type": "tool_result", "tool_use_id": block.tool_use_id, "content": content}
    return {**result, "is_error": True} if block.is_error else result


def _thinking(block: Thinking) -> dict[str, Any] | None:
    """Return thinking as it was received. Thinking without a signature, such as another vendor's, is not
    sent."""
    if "redacted" in block.opaque:
        return {"type": "redacted_thinking", "data": block.opaque["redacted"]}
    if "signature" in block.opaque:
        return {"type": "thinking", "thinking": block.text, "signature": block.opaque["signature"]}
    return None
