"""Text of a service made safe for a terminal. Pure.

Names, prompts and results are somebody else's: nothing of them may reach a terminal as a control character, an escape
sequence or a change of writing direction, and nothing of them may begin a line that looks like one of ours.
"""

from __future__ import annotations

import io
import json
import re
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from plangate.lazy_import import lazy_module
from plangate.printable import BLANK_LETTERS, escape_invisible, to_printable, to_printable_json

if TYPE_CHECKING:
    from rich import console as rich_console
    from rich import table as rich_table
    from rich import text as rich_text
else:  # for commands that print a table
    rich_console = lazy_module("rich.console")
    rich_table = lazy_module("rich.table")
    rich_text = lazy_module("rich.text")

ELLIPSIS = "..."
MAX_TABLE_WIDTH = 10_000  # in characters: a column bounds its cells, never the width of the terminal
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[][{}:,]|[^][{}:,"\s]+')


def escape_text(text: object) -> str:
    """Return one line with white space as spaces and invisible characters escaped (`\\x1b`, `\\u202e`).

    Different texts may look the same; where a person decides about a text, use `printable_json`.
    """
    return _escape_invisible(" ".join(str(text).split()))


def _escape_invisible(line: str) -> str:
    return escape_invisible(line, lambda c: c.isprintable() and c not in BLANK_LETTERS, _escape_char)


def _escape_char(char: str) -> str:
    code = ord(char)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def escape_lines(text: str) -> list[str]:
    """Return the lines of a text, each escaped, with its blanks."""
    lines = text.replace("\r\n", "\n").split("\n")
    return [_escape_invisible(re.sub(r"\s", " ", line.expandtabs(4))).rstrip() for line in lines]


def printable_json(text: str) -> list[str]:
    """Return a JSON text in lines, for a person who decides about it.

    Strings and numbers stay as they are written; characters that cannot be seen become JSON escapes. The
    lines together are JSON with the same meaning. A text that is not JSON is one line.
    """
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return [to_printable(text)]
    lines, depth = [""], 0
    parts = TOKEN.findall(to_printable_json(text))
    for before, part in zip(["", *parts], parts, strict=False):
        depth -= part in ("}", "]")
        if before and (before in "[{," or part in ("}", "]")) and before + part not in ("{}", "[]"):
            lines.append("  " * depth)
        lines[-1] += ": " if part == ":" else part
        depth += part in ("{", "[")
    return lines


def truncate(text: object, width: int) -> str:
    """Return one escaped line of at most `width` characters."""
    return _fit(escape_text(text), width)


def wrap(text: object, width: int, most: int) -> list[str]:
    """Return safe lines of bounded width (at least 20) and number; the last one is truncated."""
    width = max(width, 20)
    lines = textwrap.wrap(escape_text(text), width, break_on_hyphens=False)
    return [*lines[: most - 1], _fit(" ".join(lines[most - 1 :]), width)] if len(lines) > most else lines


def as_json(value: Any, *, indent: int | None = 2) -> str:
    """JSON in ASCII: nothing in it is a control character, however it is printed."""
    return json.dumps(value, indent=indent).replace("\x7f", "\\u007f")


def format_duration(ms: float | None) -> str:
    """Return a duration such as `850 ms`, `12.3 s`, `4 min 05 s`, `2 h 03 min`; empty if it is unknown."""
    if ms is None:
        return ""
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 59_950:
        return f"{ms / 1000:.1f} s"
    minutes, seconds = divmod(round(ms / 1000), 60)
    if minutes < 60:
        return f"{minutes} min {seconds:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def format_money(usd: float | None) -> str:
    """Format dollars with enough digits that a nonzero amount never looks like zero; empty if the price is unknown."""
    if usd is None:
        return ""
    if 0 < usd < 0.0001:
        return "<$0.0001"
    return f"${usd:.2f}" if usd >= 1 or usd == 0 else f"${usd:.4f}"


def format_size(count: int) -> str:
    """`512 B`, `1.5 kB`, `20.0 MB`."""
    if count < 1000:
        return f"{count} B"
    for unit in ("kB", "MB", "GB"):
        count_in = count / 1000 ** (("kB", "MB", "GB").index(unit) + 1)
        if count_in < 1000 or unit == "GB":
            return f"{count_in:.1f} {unit}"
    raise AssertionError


def total_tokens(usage: dict[str, int]) -> int:
    """Return the input and output tokens. Reasoning tokens are part of the output."""
    return sum(count for name, count in usage.items() if name != "reasoningTokens")


def plural(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def table(rows: Sequence[Sequence[str]], widths: Sequence[int]) -> list[str]:
    """Return the lines of a table of escaped cells, two spaces between columns.

    A column is as wide as its widest cell, at most as wide as its entry of `widths`, in characters; 0 is no bound.
    """
    grid = rich_table.Table.grid(padding=(0, 2), pad_edge=False)
    for _ in widths:
        grid.add_column(no_wrap=True)
    for row in rows:
        grid.add_row(*(rich_text.Text(_fit(cell, width)) for cell, width in zip(row, widths, strict=True)))
    console = rich_console.Console(
        file=io.StringIO(), width=MAX_TABLE_WIDTH, color_system=None, legacy_windows=False
    )
    with console.capture() as printed:
        console.print(grid)
    return [line.rstrip(" ") for line in printed.get().split("\n")[: len(rows)]]


def _fit(line: str, width: int) -> str:
    return line if not width or len(line) <= width else line[: max(width - len(ELLIPSIS), 0)] + ELLIPSIS
