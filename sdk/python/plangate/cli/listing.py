"""Lists for people: the newest of a list, a line each, and word of what is not shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from plangate.cli.connection import Remote, print_lines
from plangate.cli.terminal_text import escape_text, table


async def list_newest(remote: Remote, limit: int, *segments: str, **filters: Any) -> list[dict[str, Any]]:
    """Return the newest entries, at most `limit`."""
    return drop_excess(await remote.list_items(limit + 1, *segments, **filters), limit)


def drop_excess(rows: list[dict[str, Any]], limit: int) -> list[dict[str, Any]]:
    """Return the first `limit` items. Note on stderr, where no program reads it, that there are more."""
    if len(rows) > limit:
        typer.echo(f"There are more than {limit}: --limit shows more of them.", err=True)
    return rows[:limit]


def print_table(rows: Sequence[Sequence[str]], widths: Sequence[int], of: str) -> None:
    """Print the lines of a list. Note on stderr, where no program reads it, that it is empty."""
    if not rows:
        typer.echo(f"No {of} matches.", err=True)
    print_lines(*table([[escape_text(cell) for cell in row] for row in rows], widths))


def format_minute(at: str) -> str:
    """Format a time of the API to the minute."""
    return f"{at[:16].replace('T', ' ')} UTC"
