"""The part of an agent's memory that goes into its prompt: all of it, until it outgrows the model's window. Pure.

Only the vendor knows how many tokens a text has. The estimate comes from earlier calls, whose records have the bytes
sent and the tokens that the vendor counted. It decides only which old turns to drop; whether a prompt is too large,
the vendor decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from app.llm.messages import Block, Message, Text, Thinking, ToolDefinition, ToolUse, Usage

TOKENS_PER_BYTE: Final = 1 / 3
"""Before the first measure: more than usual text has, so that a prompt is trimmed early rather than rejected."""

MIN_TOKENS_PER_BYTE, MAX_TOKENS_PER_BYTE = 0.1, 1.0
"""The bounds of a measure; outside of them the vendor counts more than the prompt."""

MEASURED_FROM: Final = 4_000
"""Tokens of the smallest prompt that is measured: in a smaller one most tokens are the vendor's own."""

ANSWER_TOKENS: Final = 16_384
"""Tokens of a window that are reserved for the answer if the agent's model names no limit."""

KEPT_SHARE: Final = 0.75
"""Share of the room that is used after trimming, so that later prompts begin alike and hit the vendors' caches."""


@dataclass(frozen=True, slots=True)
class PastTurn:
    """A finished run: its prompt and everything up to the next one. It is remembered completely or not at all."""

    work_id: str
    messages: tuple[Message, ...]
    size: int


@dataclass(frozen=True, slots=True)
class DroppedTurns:
    """The oldest turns that are not in the prompt: how many, of about how many tokens, and the newest of them."""

    turns: int = 0
    tokens: int = 0
    through: str | None = None


@dataclass(frozen=True, slots=True)
class PromptRecord:
    """The record of a model call about its prompt: its bytes, the dropped turns, the objection to the answer before
    and, in a run's first call, its notes."""

    size: int
    left_out: DroppedTurns = field(default_factory=DroppedTurns)
    objection: str | None = None
    notes: str = ""

    def dump(self) -> bytes:
        out: dict[str, Any] = {"promptBytes": self.size}
        if self.left_out.turns:
            dropped = self.left_out
            out["leftOut"] = {"turns": dropped.turns, "tokens": dropped.tokens, "through": dropped.through}
        if self.objection is not None:
            out["objection"] = self.objection
        if self.notes:
            out["notes"] = self.notes
        return orjson.dumps(out)

    @classmethod
    def load(cls, data: bytes) -> PromptRecord:
        """Parse what `dump` returned."""
        raw = orjson.loads(data)
        return cls(
            raw["promptBytes"],
            DroppedTurns(**raw.get("leftOut", {})),
            raw.get("objection"),
            raw.get("notes", ""),
        )


@dataclass(frozen=True, slots=True)
class PromptContext:
    """The messages before a run's own, and what is known about the room for them.

    `fixed_size`: bytes of the system prompt and the tools. `room`: tokens that a prompt may have, if the window is
    known. `announced`: how many dropped turns were dropped before or announced by an event.
    """

    past: tuple[PastTurn, ...] = ()
    left_out: DroppedTurns = field(default_factory=DroppedTurns)
    announced: int = 0
    fixed_size: int = 0
    room: int | None = None
    tokens_per_byte: float = TOKENS_PER_BYTE

    def prompt(self, own: tuple[Message, ...]) -> tuple[Message, ...]:
        """Return all messages of a call: the remembered ones, then the run's own."""
        return (*(m for turn in self.past for m in turn.messages), *own)

    def record(self, own: Iterable[Message], objection: str | None = None) -> PromptRecord:
        return PromptRecord(self._size(own), self.left_out, objection)

    def measured(self, size: int, usage: Usage) -> PromptContext:
        """Return the context with the tokens that the vendor counted for a prompt of `size` bytes."""
        tokens = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        if tokens < MEASURED_FROM:
            return self
        return replace(
            self, tokens_per_byte=min(max(tokens / max(size, 1), MIN_TOKENS_PER_BYTE), MAX_TOKENS_PER_BYTE)
        )

    def fit(self, own: Iterable[Message]) -> PromptContext:
        """Return the context without the oldest turns, if the prompt is estimated to exceed its room."""
        if self.room is None or not self.past:
            return self
        size = self._size(own)
        if self._tokens(size) <= self.room:
            return self
        dropped = 0
        while dropped < len(self.past) and self._tokens(size) > self.room * KEPT_SHARE:
            size -= self.past[dropped].size
            dropped += 1
        return self._without(dropped)

    def smaller(self) -> PromptContext | None:
        """Return the context with at most half of the memory, for a prompt that the vendor found too large; None if
        there is no memory."""
        if not self.past:
            return None
        size = sum(turn.size for turn in self.past)
        left, dropped = size - self.past[0].size, 1
        while left > size / 2:
            left -= self.past[dropped].size
            dropped += 1
        return self._without(dropped)

    def without(self, dropped: Iterable[tuple[str, int]]) -> PromptContext:
        """Return the context after dropping turns older than all of `past`: (work id, bytes) of each, oldest first."""
        left_out = self.left_out
        for work_id, size in dropped:
            left_out = DroppedTurns(left_out.turns + 1, left_out.tokens + self._tokens(size), work_id)
        return replace(self, left_out=left_out)

    def with_trim_announced(self) -> PromptContext:
        """Mark the dropped turns as announced by an event."""
        return replace(self, announced=self.left_out.turns)

    def _without(self, dropped: int) -> PromptContext:
        left = replace(self, past=self.past[dropped:])
        return left.without((turn.work_id, turn.size) for turn in self.past[:dropped])

    def _size(self, own: Iterable[Message]) -> int:
        return self.fixed_size + sum(turn.size for turn in self.past) + messages_size(own)

    def _tokens(self, size: int) -> int:
        return math.ceil(size * self.tokens_per_byte)


def prompt_tokens(
    window: int | None, max_output_tokens: int | None, thinking: dict[str, Any] | None
) -> int | None:
    """Return how many tokens of a window are left for the prompt: at least half of them."""
    if window is None:
        return None
    budget = (thinking or {}).get("budget_tokens")
    answer = max_output_tokens or ANSWER_TOKENS + (budget if isinstance(budget, int) else 0)
    return window - min(answer, window // 2)


def messages_size(messages: Iterable[Message]) -> int:
    """Return the size of the messages' contents in UTF-8 bytes."""
    return sum(_block_size(block) for message in messages for block in message.blocks)


def fixed_size(system: str, tools: Iterable[ToolDefinition]) -> int:
    """Return the size in bytes of what precedes all messages."""
    sizes = (_bytes(t.name) + _bytes(t.description) + len(orjson.dumps(t.input_schema)) for t in tools)
    return _bytes(system) + sum(sizes)


def _block_size(block: Block) -> int:
    match block:
        case Text(text) | Thinking(text, _):
            return _bytes(text)
        case ToolUse(id, name, arguments):
            return _bytes(id) + _bytes(name) + _bytes(arguments)
    return _bytes(block.tool_use_id) + _bytes(block.content)


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
