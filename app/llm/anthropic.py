"""The adapter for Anthropic's messages API and servers compatible with it.

The only file that imports the SDK, which takes a second: see registry.py. The SDK does HTTP and SSE; the
stream is read as plain JSON and checked here, because the SDK's typed events are built without validation,
its parsed tool input hides invalid JSON behind `{}`, and a stream that was cut raises nothing.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final

import anthropic
import httpx2
from anthropic import AsyncAnthropic, AsyncStream

from app.llm.anthropic_turn import AnthropicTurn
from app.llm.faults import (
    CHUNK_ERRORS,
    CONNECTION_ERRORS,
    STATUS_FAULTS,
    broken_chunk,
    clipped,
    fault_of_connection,
    fault_of_status,
    words_of,
)
from app.llm.messages import (
    Block,
    Message,
    ModelRequest,
    StreamPart,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    Usage,
)
from app.llm.provider import BrokenTurn, NotAuthorized, ProviderFault, Refused, ServerFault, Unreachable
from app.llm.wire import END, IDLE_TIMEOUT_S, object_of, open_client, tail, timeouts, usable_key

BASE_URL: Final = "https://api.anthropic.com"
MAX_OUTPUT_TOKENS: Final = 16_384
"""The API wants a limit for every turn; where there is a thinking budget, it comes on top."""

_BREAKPOINT: Final = {"type": "ephemeral"}

CLASS_FAULTS: Final[dict[str, type[ProviderFault] | None]] = {
    # Told apart by their status, by the words of their body, or by their cause; not by the class.
    "APIError": None,
    "APIStatusError": None,
    "InternalServerError": None,
    "APIConnectionError": None,
    "APITimeoutError": Unreachable,
    # 200 with something else than a stream.
    "APIResponseValidationError": BrokenTurn,
    "StreamAlreadyConsumed": BrokenTurn,
    # The SDK's own reading of credentials, which is not used: the key is always handed in.
    "CredentialsError": NotAuthorized,
    "IdentityTokenFileError": NotAuthorized,
    "WorkloadIdentityError": NotAuthorized,
    "MutuallyExclusiveAuthError": NotAuthorized,
    "RetryableError": ServerFault,
    # Parts of the SDK that the adapter does not call.
    "APIWebhookValidationError": Refused,
    "MissingDependencyError": Refused,
    "ToolsetUsageError": Refused,
    "ToolsetClosedError": Refused,
    "ToolsetConfigError": Refused,
    "ToolsetContractError": Refused,
    "ToolsetsFixedError": Refused,
    "AsyncOnSyncToolsetError": Refused,
    "SyncOnAsyncToolsetError": Refused,
    "NestedCallError": Refused,
    "BrowserStateError": Refused,
}
"""Every exception of the SDK that has no status of its own; a test walks them. None: see fault_of."""


def build(
    *,
    api_key: str | None,
    base_url: str | None,
    http_client: httpx2.AsyncClient | None,
    idle_timeout_s: float | None = None,
) -> AnthropicProvider:
    """The provider behind app.llm.registry.build_provider, which says what the arguments mean."""
    key = usable_key(api_key, needed=base_url is None)
    return AnthropicProvider(
        key, base_url or BASE_URL, http_client, idle_timeout_s=idle_timeout_s or IDLE_TIMEOUT_S
    )


class AnthropicProvider:
    """One attempt a turn: the SDK's retries are off. So are its spans, as the service makes its own."""

    def __init__(
        self,
        api_key: str,
        base_url: str,
        http_client: httpx2.AsyncClient | None,
        *,
        idle_timeout_s: float,
    ) -> None:
        self._own_client = open_client() if http_client is None else None
        self._client = AsyncAnthropic(
            api_key=api_key,
            base_url=base_url,
            http_client=http_client or self._own_client,
            max_retries=0,
            timeout=timeouts(idle_timeout_s),
            open_telemetry=False,
        )
        # ANTHROPIC_CUSTOM_HEADERS would send the operator's headers to whatever host a tenant chose.
        self._client._custom_headers = {}

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPart, None]:
        turn = AnthropicTurn(request.model)
        try:
            async with await self._open(request) as stream:
                while not turn.complete and (event := await anext(stream, END)) is not END:
                    for part in turn.take(event):
                        yield part
                await tail(stream, anthropic.AnthropicError)
        except anthropic.AnthropicError as error:
            raise fault_of(error, turn.usage) from error
        except CHUNK_ERRORS as error:
            raise broken_chunk(error, turn.usage) from error
        except CONNECTION_ERRORS as error:
            raise fault_of_connection(error, turn.usage) from error
        yield turn.done()

    async def _open(self, request: ModelRequest) -> AsyncStream[object]:
        # `messages.create` would build typed events and warn of models that it finds old.
        return await self._client.post(
            "/v1/messages",
            cast_to=object,
            body=body_of(request),
            options={"extra_json": request.extra},
            stream=True,
            stream_cls=AsyncStream[object],
        )

    async def aclose(self) -> None:
        """Close the connections, unless they are the caller's."""
        if self._own_client is not None:
            await self._own_client.aclose()


def fault_of(error: anthropic.AnthropicError, usage: Usage | None = None) -> ProviderFault:
    """The fault of an exception of the SDK."""
    if isinstance(error, anthropic.APIStatusError):
        kind, code, message = words_of(error.body)
        return fault_of_status(
            error.status_code,
            kind=kind,
            code=code,
            message=message or str(error),
            headers=error.response.headers,
            usage=usage,
        )
    fault = CLASS_FAULTS.get(type(error).__name__)
    if fault is None or fault is Unreachable:
        return fault_of_connection(error, usage)
    return fault(clipped(str(error)), usage=usage)


def explicitly_mapped(kind: type[anthropic.AnthropicError]) -> bool:
    """Whether an exception class of the SDK has a place in the tables, which a test asks for all of them."""
    return kind.__name__ in CLASS_FAULTS or getattr(kind, "status_code", None) in STATUS_FAULTS


def body_of(request: ModelRequest) -> dict[str, Any]:
    """The body of a request, with breakpoints of the prompt cache after the tools and after the system."""
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": _max_tokens(request),
        "messages": [rendered for message in request.messages if (rendered := _message(message))],
        "stream": True,
    }
    if request.system:
        body["system"] = [{"type": "text", "text": request.system, "cache_control": _BREAKPOINT}]
    if request.tools:
        tools: list[dict[str, Any]] = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
            for tool in request.tools
        ]
        tools[-1]["cache_control"] = _BREAKPOINT
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
    """A message without content is left out: the API refuses it. Tool results go first, as it demands."""
    blocks: Sequence[Block] = sorted(message.blocks, key=lambda block: not isinstance(block, ToolResult))
    content = [rendered for block in blocks if (rendered := _block(block)) is not None]
    return {"role": message.role, "content": content} if content else None


def _block(block: Block) -> dict[str, Any] | None:
    if isinstance(block, Text):
        return {"type": "text", "text": block.text} if block.text else None
    if isinstance(block, Thinking):
        return _thinking(block)
    if isinstance(block, ToolUse):
        return {"type": "tool_use", "id": block.id, "name": block.name, "input": object_of(block.arguments)}
    content = block.content or ("(no message)" if block.is_error else "")
    result = {"type": "tool_result", "tool_use_id": block.tool_use_id, "content": content}
    return {**result, "is_error": True} if block.is_error else result


def _thinking(block: Thinking) -> dict[str, Any] | None:
    """Thinking goes back as it came. What has no signature, such as another vendor's, stays here."""
    if "redacted" in block.opaque:
        return {"type": "redacted_thinking", "data": block.opaque["redacted"]}
    if "signature" in block.opaque:
        return {"type": "thinking", "thinking": block.text, "signature": block.opaque["signature"]}
    return None
