"""The commands `runtimes`: which versions of which systems are registered."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from plangate.cli.connection import SUCCESS, Remote, Target, print_json, run
from plangate.cli.listing import format_minute, list_newest, print_table
from plangate.cli.options import DataDir, Json, KeyFile, Limit, Tenant, Url

runtimes = typer.Typer(no_args_is_help=True, help="Registered runtimes.")

WIDTHS = [0, 40, 20, 0, 0]


@runtimes.command("list")
def list_runtimes(
    name: Annotated[str | None, typer.Option(help="Only the versions of this name.")] = None,
    limit: Limit = 50,
    url: Url = None,
    key_file: KeyFile = None,
    data_dir: DataDir = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """List registered versions of runtimes, newest first."""

    async def listed(remote: Remote) -> int:
        found = await list_newest(remote, limit, "runtimes", name=name)
        if as_json:
            print_json(found)
        else:
            print_table([_row(version) for version in found], WIDTHS, "runtime")
        return SUCCESS

    run(Target.from_options(url, key_file, data_dir, tenant), listed)


def _row(version: dict[str, Any]) -> list[str]:
    retired = f"retired {format_minute(version['retiredAt'])}" if version["retiredAt"] else ""
    told = f"version {version['version']}"
    return [version["id"], version["name"], told, format_minute(version["createdAt"]), retired]
