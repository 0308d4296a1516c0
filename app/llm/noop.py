"""The `noop` interpreter: it echoes the last user text in each turn and calls nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from app.llm.messages import ModelRequest, StreamPart, Text, TextDelta, TurnDone, Usage
from app.llm.pieces import message_text, prompt_index, split_text


class NoopProvider:
    """Echoes the prompt. A run without user text gets an empty turn."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPart, None]:
        at = prompt_index(request.messages)
        text = "" if at is None else message_text(request.messages[at])
        for piece in split_text(text):
            yield TextDelta(piece)
        yield TurnDone((Text(text),) if text else (), "end_turn", Usage(), request.model)

    async def aclose(self) -> None:
        """Do nothing: there are no connections."""
