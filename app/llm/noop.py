"""The `noop` interpreter: every turn echoes the last text of the user, nothing is ever called."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from app.llm.messages import ModelRequest, StreamPart, Text, TextDelta, TurnDone, Usage
from app.llm.pieces import message_text, prompt_index, split_text


class NoopProvider:
    """Echoes. A run without any text of the user is answered with an empty turn."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPart, None]:
        at = prompt_index(request.messages)
        text = "" if at is None else message_text(request.messages[at])
        for piece in split_text(text):
            yield TextDelta(piece)
        yield TurnDone((Text(text),) if text else (), "end_turn", Usage(), request.model)

    async def aclose(self) -> None:
        """Nothing is held."""
