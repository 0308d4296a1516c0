"""Assemble one turn from the events of Anthropic's stream. Pure: no SDK, no I/O.

Each event is validated before it is used: an unexpected one raises, and a turn without `message_stop` is
never returned.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from pydantic import BaseModel

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
from app.llm.provider import BrokenTurn, ContextOverflow, RequestRejected
from app.llm.turns import stop_reason_of, turn_of_blocks

_T = TypeVar("_T")

_STOP_REASONS: Final[dict[str, StopReason]] = {
    "end_turn": "end_turn",
    "stop_sequence": "end_turn",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "refusal": "refusal",
}


class _ThinkingDetails(BaseModel):
    thinking_tokens: int = 0


class _TokenCounts(BaseModel):
    """Token counts. Those of `message_delta` are running totals: the last value of each counts."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: _ThinkingDetails | None = None


class _MessageStart(BaseModel):
    model: str | None = None
    usage: _TokenCounts | None = None


class _ContentBlock(BaseModel):
    type: str
    text: str = ""
    thinking: str = ""
    signature: str = ""
    data: str = ""
    id: str = ""
    name: str = ""
    input: dict[str, Any] | None = None


class _BlockDelta(BaseModel):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _TurnEvent(BaseModel):
    type: str
    index: int = -1
    message: _MessageStart | None = None
    content_block: _ContentBlock | None = None
    delta: _BlockDelta | None = None
    usage: _TokenCounts | None = None


@dataclass(slots=True)
class _PartialBlock:
    """A content block that is still growing. `json` is the tool JSON exactly as received."""

    start: _ContentBlock
    text: list[str] = field(default_factory=list)
    json: list[str] = field(default_factory=list)
    signature: list[str] = field(default_factory=list)
    closed: bool = False


class AnthropicTurn:
    """Takes events and yields deltas; returns the turn once the vendor reported its end.

    With `keep_requested_name`, the turn has the requested model's name, not the stream's.
    """

    def __init__(self, model: str, *, keep_requested_name: bool = False) -> None:
        self.is_complete = False
        self.usage = Usage()
        self._model = model
        self._keep_requested_name = keep_requested_name
        self._has_started = False
        self._stop_reason: str | None = None
        self._parts: dict[int, _PartialBlock] = {}

    def feed(self, event: object) -> Iterator[StreamPart]:
        """Yield the deltas of one event. Raise pydantic.ValidationError or a ProviderFault for a malformed
        one."""
        parsed = _TurnEvent.model_validate(event)
        if parsed.type == "message_start":
            self._has_started = True
            message = _require(parsed.message, "message", self.usage)
            if not self._keep_requested_name:
                self._model = message.model or self._model
            self._update_usage(message.usage)
        elif parsed.type == "content_block_start":
            yield from self._open_block(
                parsed.index, _require(parsed.content_block, "content_block", self.usage)
            )
        elif parsed.type == "content_block_delta":
            yield from self._apply_delta(
                self._partial_block(parsed.index), _require(parsed.delta, "delta", self.usage)
            )
        elif parsed.type == "content_block_stop":
            self._partial_block(parsed.index).closed = True
        elif parsed.type == "message_delta":
            delta = _require(parsed.delta, "delta", self.usage)
            self._stop_reason = delta.stop_reason or self._stop_reason
            self._update_usage(parsed.usage)
        elif parsed.type == "message_stop":
            self.is_complete = True

    def feed_trailing(self, event: object) -> None:
        """Ignore an event after `message_stop`: it is not part of the turn."""

    def result(self) -> TurnDone:
        """Return the whole turn. Raise BrokenTurn if the stream ended early."""
        if not (self.is_complete and self._has_started and self._stop_reason):
            raise BrokenTurn("The provider's stream ended in the middle of the turn.", usage=self.usage)
        if self._stop_reason == "model_context_window_exceeded":
            raise ContextOverflow("The turn filled the model's window before it ended.", usage=self.usage)
        if self._stop_reason == "pause_turn":
            raise RequestRejected(
                "The turn paused for a tool that runs at the provider, which is not supported; remove it "
                "from the model's `extra`.",
                usage=self.usage,
            )
        stop_reason = stop_reason_of(_STOP_REASONS, self._stop_reason, self.usage)
        return turn_of_blocks(self._parts, _block, stop_reason, self.usage, self._model)

    def _open_block(self, index: int, content: _ContentBlock) -> Iterator[StreamPart]:
        if index in self._parts or index < 0:
            raise BrokenTurn("The provider numbers the blocks of the turn wrongly.", usage=self.usage)
        if content.type not in ("text", "thinking", "redacted_thinking", "tool_use"):
            raise RequestRejected(
                f"The turn holds a block of the type {content.type!r}, which is not supported; remove what "
                "asks for it from the model's `extra`.",
                usage=self.usage,
            )
        if content.type == "tool_use" and not (content.id and content.name):
            raise BrokenTurn("The provider sent a tool call without its id or name.", usage=self.usage)
        part = self._parts[index] = _PartialBlock(content, signature=[content.signature])
        first = content.text or content.thinking
        if first:
            part.text.append(first)
            yield TextDelta(first) if content.type == "text" else ThinkingDelta(first)

    def _apply_delta(self, part: _PartialBlock, delta: _BlockDelta) -> Iterator[StreamPart]:
        if delta.type == "text_delta":
            text = _require(delta.text, "text", self.usage)
            part.text.append(text)
            yield TextDelta(text)
        elif delta.type == "thinking_delta":
            thinking = _require(delta.thinking, "thinking", self.usage)
            part.text.append(thinking)
            yield ThinkingDelta(thinking)
        elif delta.type == "signature_delta":
            part.signature.append(_require(delta.signature, "signature", self.usage))
        elif delta.type == "input_json_delta":
            part.json.append(_require(delta.partial_json, "partial_json", self.usage))

    def _partial_block(self, index: int) -> _PartialBlock:
        part = self._parts.get(index)
        if part is None or part.closed:
            raise BrokenTurn(
                "The provider sent a delta for a content block that has not started or has already ended.",
                usage=self.usage,
            )
        return part

    def _update_usage(self, counts: _TokenCounts | None) -> None:
        if counts is None:
            return
        details, now = counts.output_tokens_details, self.usage
        self.usage = Usage.from_server(
            input_tokens=_latest(counts.input_tokens, now.input_tokens),
            output_tokens=_latest(counts.output_tokens, now.output_tokens),
            cache_read_tokens=_latest(counts.cache_read_input_tokens, now.cache_read_tokens),
            cache_write_tokens=_latest(counts.cache_creation_input_tokens, now.cache_write_tokens),
            reasoning_tokens=now.reasoning_tokens if details is None else details.thinking_tokens,
        )


def _block(part: _PartialBlock, is_whole: bool) -> Text | Thinking | ToolUse | None:
    start, text = part.start, "".join(part.text)
    if start.type == "text":
        return Text(text) if text else None
    if start.type == "redacted_thinking":
        return Thinking("", {"redacted": start.data})
    if start.type == "thinking":
        signature = "".join(part.signature)
        return Thinking(text, {"signature": signature} if signature else {})
    return ToolUse(start.id, start.name, _arguments(part, is_whole))


def _arguments(part: _PartialBlock, is_whole: bool) -> str:
    """Return the tool JSON as received.

    The API sends nothing for a call without arguments, which is valid only if the turn is complete: in a
    truncated turn the text stays empty, which is invalid JSON and so never dispatched. Some servers send the
    whole input in the block's start.
    """
    text = "".join(part.json)
    if text or not is_whole:
        return text
    return json.dumps(part.start.input or {}, ensure_ascii=False)


def _latest(new: int | None, old: int) -> int:
    return old if new is None else new


def _require(value: _T | None, name: str, usage: Usage) -> _T:
    if value is None:
        raise BrokenTurn(f"A chunk of the provider's stream is malformed: {name} is missing.", usage=usage)
    return value
