"""Helpers of the interpreters without a model: finding the prompt of a run, and splitting a text into deltas.
Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from app.llm.messages import Message, Text, ToolResultPart

MAX_PIECE_CHARS = 256
"""Maximum characters of one delta."""


def split_text(text: str, *, count: int | None = None) -> tuple[str, ...]:
    """Split `text` into `count` parts of similar length, or into parts of MAX_PIECE_CHARS.

    There are never more parts than characters, no part is empty, and their concatenation is the text.
    """
    if not text:
        return ()
    if count is None:
        return tuple(text[at : at + MAX_PIECE_CHARS] for at in range(0, len(text), MAX_PIECE_CHARS))
    parts = max(1, min(count, len(text)))
    edges = [len(text) * part // parts for part in range(parts + 1)]
    return tuple(text[start:end] for start, end in pairwise(edges))


def prompt_index(messages: Sequence[Message]) -> int | None:
    """Return the index of this run's prompt: the last user message with text and without a tool result."""
    for at in range(len(messages) - 1, -1, -1):
        message = messages[at]
        if message.role != "user" or any(isinstance(block, ToolResultPart) for block in message.blocks):
            continue
        if any(isinstance(block, Text) for block in message.blocks):
            return at
    return None


def message_text(message: Message) -> str:
    """Return the text blocks of a message, one per line."""
    return "\n".join(block.text for block in message.blocks if isinstance(block, Text))
