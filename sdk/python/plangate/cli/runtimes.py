"""The commands `runtimes`: which versions of which systems are registered."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from plangate.cli.commands import print_newest, remote_command
from plangate.cli.connection import Remote
from plangate.cli.listing import format_minute
from plangate.cli.options import Limit

runtimes = typer.Typer(no_args_is_help=True, help="Registered runtimes.")

WIDTHS = [0, 40, 20, 0, 0]


@remote_command(runtimes, "list")
async def list_runtimes(
    remote: Remote,
    name: Annotated[str | None, typer.Option(help="Only the versions of this name.")] = None,
    limit: Limit = 50,
) -> None:
    """List registered versions of runtimes, newest first."""
    await print_newest(remote, limit, "runtimes", _row, WIDTHS, name=name)


def _row(version: dict[str, Any]) -> list[str]:
    retired = f"retired {format_minute(version['retiredAt'])}" if version["retiredAt"] else ""
    text = f"version {version['version']}"
    return [version["id"], version["name"], text, format_minute(version["createdAt"]), retired]
