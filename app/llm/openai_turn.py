"""Assemble one turn from the chunks of a chat-completions stream. Pure: no SDK, no I/O.

Compatible servers may omit usage, ids and indexes of calls, or `[DONE]`. All of that is accepted; a turn
without a `finish_reason` is not.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from pydantic import BaseModel, Field

from app.llm.messages import (
    StopReason,
    StreamPart,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolUse,
    TurnDone,
    Usage,
)
from app.llm.provider import BrokenTurn, RequestRejected
from app.llm.turns import ended_itself, stop_reason_of

MAX_CALLS_PER_TURN: Final = 1000
"""Limits the cost of matching each piece of a call with earlier calls."""

_STOP_REASONS: Final[dict[str, StopReason]] = {
    "stop": "end_turn",
    "eos": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}


class _PromptDetails(BaseModel):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _CompletionDetails(BaseModel):
    reasoning_tokens: int | None = None


class _Usage(BaseModel):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None


class _Function(BaseModel):
    name: str | None = None
    arguments: str | None = None


class _CallDelta(BaseModel):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _ChoiceDelta(BaseModel):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_CallDelta] | None = None
    function_call: _Function | None = None

    @property
    def has_content(self) -> bool:
        return bool(self.content or self.refusal or self.tool_calls or self.function_call)


class _Choice(BaseModel):
    index: int = 0
    delta: _ChoiceDelta | None = None
    finish_reason: str | None = None


class _Chunk(BaseModel):
    model: str | None = None
    choices: list[_Choice] = Field(default_factory=list)
    usage: _Usage | None = None


@dataclass(slots=True)
class _PartialCall:
    """A call that is still growing. `json` is its arguments exactly as received."""

    index: int | None
    id: str = ""
    name: str = ""
    json: list[str] = field(default_factory=list)


class OpenAITurn:
    """Takes chunks and yields deltas; returns the turn once the server gave a finish reason."""

    def __init__(self, model: str) -> None:
        self.usage = Usage()
        self._model = model
        self._finish_reason: str | None = None
        self._has_refusal = False
        self._has_trailing_content = False
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._calls: list[_PartialCall] = []

    @property
    def is_complete(self) -> bool:
        """Return whether the server gave a finish reason; its usage may still follow."""
        return self._finish_reason is not None

    def feed(self, chunk: object) -> Iterator[StreamPart]:
        """Yield the deltas of one chunk. Raise pydantic.ValidationError or a ProviderFault for a malformed
        one."""
        parsed = _Chunk.model_validate(chunk)
        self._model = parsed.model or self._model
        self._update_usage(parsed.usage)
        for choice in parsed.choices:
            if choice.index != 0:
                continue
            if choice.delta is not None:
                yield from self._apply_delta(choice.delta)
            self._finish_reason = choice.finish_reason or self._finish_reason

    def feed_trailing(self, chunk: object) -> None:
        """Read a chunk after the end, usually the usage. One that continues the turn invalidates it."""
        parsed = _Chunk.model_validate(chunk)
        self._update_usage(parsed.usage)
        if any(choice.delta is not None and choice.delta.has_content for choice in parsed.choices):
            self._has_trailing_content = True

    def result(self) -> TurnDone:
        """Return the whole turn. Raise BrokenTurn if the stream ended early."""
        if self._finish_reason is None:
            raise BrokenTurn("The provider's stream ended in the middle of the turn.", usage=self.usage)
        if self._has_trailing_content:
            raise BrokenTurn("The provider's stream continued after its end.", usage=self.usage)
        stop_reason = stop_reason_of(_STOP_REASONS, self._finish_reason, self.usage)
        is_whole = ended_itself(stop_reason)
        calls = tuple(self._tool_use(call, is_whole) for call in self._calls)
        if is_whole:
            stop_reason = "refusal" if self._has_refusal else "tool_use" if calls else "end_turn"
        thinking, text = "".join(self._thinking), "".join(self._text)
        return TurnDone(
            (*((Thinking(thinking),) if thinking else ()), *((Text(text),) if text else ()), *calls),
            stop_reason,
            self.usage,
            self._model,
        )

    def _apply_delta(self, delta: _ChoiceDelta) -> Iterator[StreamPart]:
        if delta.function_call is not None:
            raise RequestRejected(
                "The server uses the deprecated `function_call`; it must support `tool_calls`."
            )
        thinking = delta.reasoning_content or delta.reasoning
        if thinking:
            self._thinking.append(thinking)
            yield ThinkingDelta(thinking)
        for text in (delta.content, delta.refusal):
            if text:
                self._text.append(text)
                yield TextDelta(text)
        self._has_refusal = self._has_refusal or bool(delta.refusal)
        for piece in delta.tool_calls or ():
            self._apply_call_delta(piece)

    def _apply_call_delta(self, piece: _CallDelta) -> None:
        call = self._call_for(piece)
        call.id = call.id or piece.id or ""
        if piece.function is not None:
            call.name = call.name or piece.function.name or ""
            call.json.append(piece.function.arguments or "")

    def _call_for(self, piece: _CallDelta) -> _PartialCall:
        """Return the call that a piece belongs to: the one with its index, unless another id shows a new
        call.

        Some servers omit the index, and some give all parallel calls the index 0.
        """
        same = [call for call in self._calls if piece.index is None or call.index == piece.index][-1:]
        if same and not (piece.id and same[0].id and piece.id != same[0].id):
            return same[0]
        if len(self._calls) >= MAX_CALLS_PER_TURN:
            raise BrokenTurn(
                f"The model requested more than {MAX_CALLS_PER_TURN} calls in one turn.", usage=self.usage
            )
        self._calls.append(_PartialCall(piece.index))
        return self._calls[-1]

    def _tool_use(self, call: _PartialCall, is_whole: bool) -> ToolUse:
        """Return a complete call. Empty arguments mean `{}`, but stay invalid JSON in a turn that was
        truncated."""
        if not call.name:
            raise BrokenTurn("The provider sent a tool call without a name.", usage=self.usage)
        text = "".join(call.json)
        arguments = "{}" if is_whole and not text else text
        return ToolUse(call.id or f"call_{uuid.uuid4().hex}", call.name, arguments)

    def _update_usage(self, usage: _Usage | None) -> None:
        if usage is None:
            return
        prompt, output = usage.prompt_tokens_details, usage.completion_tokens_details
        read = (prompt.cached_tokens or 0) if prompt is not None else 0
        cache_writes = (prompt.cache_write_tokens or 0) if prompt is not None else 0
        self.usage = Usage.from_server(
            input_tokens=usage.prompt_tokens - read - cache_writes,
            output_tokens=usage.completion_tokens,
            cache_read_tokens=read,
            cache_write_tokens=cache_writes,
            reasoning_tokens=(output.reasoning_tokens or 0) if output is not None else 0,
        )
