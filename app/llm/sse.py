"""Parse server-sent events with size limits. Pure: bytes in, events out.

The SDKs' decoders limit neither lines nor events, and one of them copies the partial event with each line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from app.llm.provider import TooMuchSent

_BOM: Final = b"\xef\xbb\xbf"


def loads_event(data: str) -> Any:
    """Parse the JSON of an event. Raise JSONDecodeError, also for an integer with too many digits for
    Python.

    Half characters and numbers that orjson rejects are left to `json`: what becomes of them is decided later.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(data)
    except json.JSONDecodeError:
        raise
    except ValueError as error:
        raise json.JSONDecodeError("an integer has too many digits", "", 0) from error


@dataclass(frozen=True, slots=True)
class SseEvent:
    """A server-sent event. `type` is None if the stream does not name one."""

    type: str | None
    data: str


@dataclass(slots=True)
class SseReader:
    """Takes the bytes of a stream in chunks and yields complete events.

    `limit` is the maximum bytes of one line, and of the data of one event.
    """

    limit: int
    _line: list[bytes] = field(default_factory=list)  # pieces of an incomplete line
    _line_bytes: int = 0
    _type: str | None = None
    _data: list[str] = field(default_factory=list)
    _data_bytes: int = 0
    _after_cr: bool = False
    _is_started: bool = False

    def feed(self, chunk: bytes) -> Iterator[SseEvent]:
        """Yield the events that end in this chunk. Raise TooMuchSent, and UnicodeDecodeError for a line that
        is not UTF-8."""
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._after_cr = False
        for piece in chunk.splitlines(keepends=True):
            text = piece.rstrip(b"\r\n")
            self._line_bytes += len(text)
            if self._line_bytes > self.limit:
                raise TooMuchSent(
                    "line", f"a line of more than {self.limit} bytes", "PLANGATE_MODEL_LINE_BYTES"
                )
            if len(text) == len(piece):
                self._line.append(text)
                continue
            line = text
            if self._line:
                line = b"".join((*self._line, text))
                self._line.clear()
            self._line_bytes = 0
            if not self._is_started:
                self._is_started = True
                line = line.removeprefix(_BOM)
            event = self._add_line(line)
            if event is not None:
                yield event
        if chunk:
            self._after_cr = chunk.endswith(b"\r")

    def _add_line(self, line: bytes) -> SseEvent | None:
        if not line:
            return self._finish_event()
        if line.startswith(b":"):
            return None
        name, _, value = line.decode().partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._type = value
        elif name == "data":
            self._data.append(value)
            self._data_bytes += len(line)
            if self._data_bytes > self.limit:
                raise TooMuchSent(
                    "line", f"an event of more than {self.limit} bytes", "PLANGATE_MODEL_LINE_BYTES"
                )
        return None

    def _finish_event(self) -> SseEvent | None:
        if self._type is None and not self._data:
            return None
        event = SseEvent(self._type or None, "\n".join(self._data))
        self._type = None
        self._data.clear()
        self._data_bytes = 0
        return event
