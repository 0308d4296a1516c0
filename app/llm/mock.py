"""The `mock` interpreter: it returns the same text for each turn and calls nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from app.llm.messages import ModelRequest, StreamPart, Text, TextDelta, TurnDone, Usage
from app.llm.pieces import split_text

DEFAULT_TEXT = "This is a mock response."


class MockProvider:
    """Returns `text` in each turn.

    `tokens` says how the text is streamed: the number of deltas of similar length, or the deltas themselves,
    whose concatenation then is the text. Without it, the text is split into pieces of a fixed size.
    """

    def __init__(self, text: str = DEFAULT_TEXT, *, tokens: int | Sequence[str] | None = None) -> None:
        if tokens is None:
            self._deltas = split_text(text)
        elif isinstance(tokens, int):
            self._deltas = split_text(text, count=tokens)
        else:
            self._deltas = tuple(token for token in tokens if token)
        self._text = "".join(self._deltas)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPart, None]:
        for delta in self._deltas:
            yield TextDelta(delta)
        blocks = (Text(self._text),) if self._text else ()
        yield TurnDone(blocks, "end_turn", Usage(), request.model)

    async def aclose(self) -> None:
        """Do nothing: there are no connections."""
