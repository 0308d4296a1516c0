"""What of an agent's memory goes into its prompt: all of it, until it outgrows the model's window. Pure.

How many tokens a text has only its vendor knows. The estimate comes from what earlier calls measured: the bytes
that were sent and the tokens that the vendor counted stand on the same record. It decides nothing but which old
turns are left out; whether a prompt is too large the vendor says.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from app.llm.messages import Block, Message, Text, Thinking, ToolDefinition, ToolUse, Usage

TOKENS_PER_BYTE: Final = 1 / 3
"""Where nothing was measured: more than usual text has, so that a prompt is rather cut too early than refused."""

LEAST_PER_BYTE, MOST_PER_BYTE = 0.1, 1.0
"""What a measure may say; outside of it the vendor counts something else than the prompt."""

MEASURED_FROM: Final = 4_000
"""Tokens of a prompt that says something: in a small one most is the vendor's own."""

ANSWER_TOKENS: Final = 16_384
"""What of a window is left to the answer where the agent's model names no limit."""

KEPT_SHARE: Final = 0.75
"""Of the room, when something must leave: the prompt then begins alike for a while, as the vendors' caches want."""


@dataclass(frozen=True, slots=True)
class PastTurn:
    """A finished run: its prompt and everything up to the next one. It is remembered whole or not at all."""

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
    """What the record of a model call says of its prompt: its bytes, what was left out of it, what was said to the
    answer before, if that was not accepted, and, in a run's first call, its notes."""

    size: int
    left_out: DroppedTurns = field(default_factory=DroppedTurns)
    objection: str | None = None
    notes: str = ""

    def dump(self) -> bytes:
        out: dict[str, Any] = {"promptBytes": self.size}
        if self.left_out.turns:
            gone = self.left_out
            out["leftOut"] = {"turns": gone.turns, "tokens": gone.tokens, "through": gone.through}
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
    """What stands in front of a run's own messages, and what is known about the room for it.

    `fixed_size`: bytes of the system prompt and the tools. `room`: tokens that a prompt may have, where the window
    is known. `told`: turns that were left out before, or that an event told of.
    """

    past: tuple[PastTurn, ...] = ()
    left_out: DroppedTurns = field(default_factory=DroppedTurns)
    told: int = 0
    fixed_size: int = 0
    room: int | None = None
    tokens_per_byte: float = TOKENS_PER_BYTE

    def prompt(self, own: tuple[Message, ...]) -> tuple[Message, ...]:
        """All messages of a call: what is remembered, then the run's own."""
        return (*(m for turn in self.past for m in turn.messages), *own)

    def given(self, own: Iterable[Message], objection: str | None = None) -> PromptRecord:
        return PromptRecord(self._size(own), self.left_out, objection)

    def measured(self, size: int, usage: Usage) -> PromptContext:
        """Knows what the vendor counted for a prompt of so many bytes."""
        tokens = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        if tokens < MEASURED_FROM:
            return self
        return replace(self, tokens_per_byte=min(max(tokens / max(size, 1), LEAST_PER_BYTE), MOST_PER_BYTE))

    def fit(self, own: Iterable[Message]) -> PromptContext:
        """Without the oldest turns, where the prompt is estimated to have no room."""
        if self.room is None or not self.past:
            return self
        size = self._size(own)
        if self._tokens(size) <= self.room:
            return self
        gone = 0
        while gone < len(self.past) and self._tokens(size) > self.room * KEPT_SHARE:
            size -= self.past[gone].size
            gone += 1
        return self._without(gone)

    def smaller(self) -> PromptContext | None:
        """For a prompt that the vendor found too large: with half of the memory at most; None if there is none."""
        if not self.past:
            return None
        size = sum(turn.size for turn in self.past)
        left, gone = size - self.past[0].size, 1
        while left > size / 2:
            left -= self.past[gone].size
            gone += 1
        return self._without(gone)

    def without(self, gone: Iterable[tuple[str, int]]) -> PromptContext:
        """Says that turns older than all of `past` are left out: (work id, bytes) of each, oldest first."""
        left_out = self.left_out
        for work_id, size in gone:
            left_out = DroppedTurns(left_out.turns + 1, left_out.tokens + self._tokens(size), work_id)
        return replace(self, left_out=left_out)

    def with_trim_announced(self) -> PromptContext:
        """Mark the dropped turns as announced by an event."""
        return replace(self, told=self.left_out.turns)

    def _without(self, gone: int) -> PromptContext:
        left = replace(self, past=self.past[gone:])
        return left.without((turn.work_id, turn.size) for turn in self.past[:gone])

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
    told = (_bytes(t.name) + _bytes(t.description) + len(orjson.dumps(t.input_schema)) for t in tools)
    return _bytes(system) + sum(told)


def _block_size(block: Block) -> int:
    match block:
        case Text(text) | Thinking(text, _):
            return _bytes(text)
        case ToolUse(id, name, arguments):
            return _bytes(id) + _bytes(name) + _bytes(arguments)
    return _bytes(block.tool_use_id) + _bytes(block.content)


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
