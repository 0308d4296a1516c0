"""Lists for people: the newest of a list, a line each, and word of what is not shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from plangate.cli.connection import Remote, print_lines
from plangate.cli.terminal_text import escape_text, table


async def list_newest(remote: Remote, limit: int, *segments: str, **filters: Any) -> list[dict[str, Any]]:
    """At most so many entries, newest first."""
    return drop_excess(await remote.list_items(limit + 1, *segments, **filters), limit)


def drop_excess(found: list[dict[str, Any]], limit: int) -> list[dict[str, Any]]:
    """The first of what was found by looking for one more. That there are more is said where no program reads it."""
    if len(found) > limit:
        typer.echo(f"There are more than {limit}: --limit shows more of them.", err=True)
    return found[:limit]


def print_table(rows: Sequence[Sequence[str]], widths: Sequence[int], of: str) -> None:
    """The lines of a list. That there are none is said where no program reads it."""
    if not rows:
        typer.echo(f"Nothing to list: there is no {of} like that.", err=True)
    print_lines(*table([[escape_text(cell) for cell in row] for row in rows], widths))


def format_minute(at: str) -> str:
    """A time of the API, to the minute."""
    return f"{at[:16].replace('T', ' ')} UTC"
