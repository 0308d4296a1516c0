"""Text files as models read them: a window of lines, long ones cut, with a note about the rest. Pure."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from typing import Final

from plangate.workspace.regex import Pattern

MAX_LINES: Final = 2000
MAX_LINE_CHARS: Final = 2000
MAX_TEXT_BYTES: Final = 40_000
"""Maximum of one window, except for a single line; in bytes, like the size of prompts."""

EDITED_BYTES: Final = 4 * 1024 * 1024
"""Maximum size of a file that is edited: it is in memory as a whole."""

SEARCHED_BYTES: Final = 4 * 1024 * 1024
"""Maximum size of one file that is searched."""

SEARCHED_ALL_BYTES: Final = 64 * 1024 * 1024
LISTED: Final = 500
"""Entries or paths that one answer shows."""

MATCHES: Final = 200
MATCH_CHARS: Final = 300
SNIFF_BYTES: Final = 8192
_MAX_PARTIAL_BYTES: Final = 4 * MAX_LINE_CHARS + 4


class NotText(ValueError):
    """The file is not UTF-8 text."""


def is_text(start: bytes) -> bool:
    """Return whether a body with this start may be UTF-8 text. NUL is rejected: Postgres cannot store it."""
    if b"\0" in start:
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start[:SNIFF_BYTES])
    except UnicodeDecodeError:
        return False
    return True


def decode_text(data: bytes) -> str:
    """Return a whole body as text. Raise NotText."""
    if b"\0" in data:
        raise NotText
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise NotText from error


class LineWindow:
    """A window of lines of a body that arrives in pieces. Memory stays small, however long the lines are."""

    def __init__(self, offset: int = 1, limit: int = MAX_LINES) -> None:
        """Set the first line, counted from 1, and the maximum number of lines."""
        self._offset = offset
        self._skip = offset - 1
        self._limit = min(limit, MAX_LINES)
        self._lines: list[str] = []
        self._bytes = 0
        self._line = bytearray()
        self._size = 0  # of the open line
        self._is_sniffed = False
        self._has_more = False

    def feed(self, piece: bytes) -> bool:
        """Process a piece; return whether enough has been read. Raise NotText."""
        if b"\0" in piece or not (self._is_sniffed or is_text(piece)):
            raise NotText
        self._is_sniffed = True
        at = self._skip_lines(piece)
        while at < len(piece):
            if self.is_full:
                self._has_more = True
                return True
            end = piece.find(b"\n", at)
            self._append(piece[at : len(piece) if end < 0 else end])
            if end < 0:
                return False
            self._close()
            at = end + 1
        return False

    def _skip_lines(self, piece: bytes) -> int:
        """Return the offset in the piece where the requested lines begin."""
        if self._skip and (lines := piece.count(b"\n")) < self._skip:
            self._skip -= lines
            return len(piece)
        at = 0
        while self._skip:
            at = piece.find(b"\n", at) + 1
            self._skip -= 1
        return at

    @property
    def is_full(self) -> bool:
        return len(self._lines) >= self._limit or self._bytes >= MAX_TEXT_BYTES

    def _append(self, part: bytes) -> None:
        self._line += part[: max(0, _MAX_PARTIAL_BYTES - len(self._line))]
        self._size += len(part)

    def _close(self) -> None:
        text = bytes(self._line).decode("utf-8", "replace").removesuffix("\r")
        if len(text) > MAX_LINE_CHARS:
            text = f"{text[:MAX_LINE_CHARS]} [line truncated: it has {self._size} bytes]"
        self._lines.append(text)
        self._bytes += len(text.encode()) + 1
        self._line.clear()
        self._size = 0

    def text(self) -> str:
        """Return the text to read, after the last piece."""
        if self._size:
            self._close()
        if not self._lines:
            return (
                "[The file is empty.]"
                if self._offset == 1
                else f"[The file has fewer than {self._offset} lines.]"
            )
        page = "\n".join(self._lines)
        if not self._has_more:
            return page
        last = self._offset + len(self._lines) - 1
        return f"{page}\n[Lines {self._offset} to {last} of more; continue with offset {last + 1}.]"


def count_fitting_lines(lines: Sequence[str], most: int) -> int:
    """Return how many of the first lines fit into one window: at most `most`, at least one."""
    size = 0
    for n, line in enumerate(lines[:most]):
        size += len(line.encode()) + 1
        if size > MAX_TEXT_BYTES and n:
            return n
    return min(len(lines), most)


def replace_once(text: str, old: str, new: str) -> str | int:
    """Return the text with `old` replaced by `new`, or the number of occurrences if `old` does not occur
    exactly once.

    Overlapping ones count: `aaa` has two `aa`.
    """
    count = text.count(old)
    if count != 1:
        return count
    # An occurrence that overlaps the first one counts too. More are not counted: that could take hours.
    return 2 if text.find(old, text.find(old) + 1) >= 0 else text.replace(old, new)


def match_count_error(path: str, count: int) -> str:
    """Return the error for a model whose old text does not occur exactly once."""
    if count == 0:
        return f"The old text does not occur in {path}: read it, and give the text exactly as it is there."
    return f"The old text occurs {count} times in {path}: give more of what stands around the one you mean."


def truncate_lines(lines: Iterable[str], most: int) -> str:
    """Return the first lines, and a note about the rest."""
    fitting_lines = list(lines)
    if (fit := count_fitting_lines(fitting_lines, most)) < len(fitting_lines):
        fitting_lines[fit:] = [f"[{len(fitting_lines) - fit} more: name a directory, or a narrower pattern.]"]
    return "\n".join(fitting_lines)


def matching_lines(pattern: Pattern, path: str, data: bytes, most: int) -> list[str]:
    """Return at most `most` lines of a file that match, each with its path and number."""
    if not is_text(data):
        return []
    matches: list[str] = []
    for number, line in enumerate(data.decode("utf-8", "replace").split("\n"), 1):
        text = line.removesuffix("\r")
        if pattern.matches(text):
            matches.append(
                f"{path}:{number}: {text if len(text) <= MATCH_CHARS else text[:MATCH_CHARS] + '…'}"
            )
            if len(matches) == most:
                break
    return matches
