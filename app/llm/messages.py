"""Messages that are the same for all vendors. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Thinking:
    """A vendor's reasoning. `opaque` must be sent back unchanged (a signature, redacted data)."""

    text: str
    opaque: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A call that the model requests. `arguments` is the JSON text exactly as the model wrote it, valid or
    not."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolResultPart:
    """The result of a ToolUse, as the text that the model reads."""

    tool_use_id: str
    content: str
    is_error: bool = False
    on_record: str | None = None  # what is kept of it, if the content must not be in records and events


Block = Text | Thinking | ToolUse | ToolResultPart


@dataclass(frozen=True, slots=True)
class Message:
    role: Literal["user", "assistant"]
    blocks: tuple[Block, ...]


MAX_TOKENS_PER_CALL: Final = 10**12
"""Maximum token count of one call, so that sums still fit into the database."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call or the sum of several.

    `input_tokens` excludes tokens that were read from or written to a cache; the whole prompt is the sum of
    the three. `reasoning_tokens` are part of `output_tokens`.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0

    @classmethod
    def from_server(cls, **counts: int) -> Usage:
        """Return the counts of a server, limited to a valid range: a tenant's own server may report
        anything."""
        return cls(**{name: min(max(count, 0), MAX_TOKENS_PER_CALL) for name, count in counts.items()})

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
        )


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool as it is described to the model."""

    name: str
    description: str
    input_schema: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """Everything that one model turn needs.

    `notes` follow the system prompt and are not part of it: they differ between runs, and so the system
    prompt stays in the vendor's cache. `model` is the vendor's id. `thinking` and `extra` are added to the
    vendor's request body unchanged. The last user message in `messages` that is text and has no tool result
    is the prompt of this run.
    """

    model: str
    system: str
    tools: tuple[ToolDefinition, ...]
    messages: tuple[Message, ...]
    max_output_tokens: int | None = None
    thinking: dict[str, Any] | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    notes: str = ""


StopReason = Literal["end_turn", "tool_use", "max_tokens", "refusal"]


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    text: str


@dataclass(frozen=True, slots=True)
class TurnDone:
    """The whole turn: the last item of a stream, yielded only if the vendor reported that it is complete."""

    blocks: tuple[Text | Thinking | ToolUse, ...]
    stop_reason: StopReason
    usage: Usage
    model: str


StreamPart = TextDelta | ThinkingDelta | TurnDone
