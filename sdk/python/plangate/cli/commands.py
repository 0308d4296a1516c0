"""Register commands that talk to a service: the options of the connection, and what all of them print."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import typer

from plangate.cli.connection import SUCCESS, Remote, Target, print_json, run
from plangate.cli.listing import list_newest, print_table
from plangate.cli.options import DataDir, Json, KeyFile, Tenant, Url

Command = Callable[..., Awaitable[int | None]]


def _shared_options(
    url: Url = None,
    key_file: KeyFile = None,
    data_dir: DataDir = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Declare the options that follow those of each command."""


def remote_command(app: typer.Typer, name: str | None = None) -> Callable[[Command], Command]:
    """Register an asynchronous function as a command of `app`, with the options of the connection.

    The function gets a `Remote` and its own options. It returns an exit code, or None for success.
    """

    def register(command: Command) -> Command:
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        shared = list(inspect.signature(_shared_options, eval_str=True).parameters.values())

        @functools.wraps(command)
        def invoke(
            *, url: Any, key_file: Any, data_dir: Any, tenant: Any, as_json: bool, **values: Any
        ) -> None:
            async def call(remote: Remote) -> int:
                return await command(remote, **values) or SUCCESS

            run(Target.from_options(url, key_file, data_dir, tenant), call, wants_json=as_json)

        invoke.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
        invoke.__annotations__ = {option.name: option.annotation for option in (*own, *shared)}
        app.command(name)(invoke)
        return command

    return register


async def print_newest(
    remote: Remote,
    limit: int,
    segment: str,
    row: Callable[[dict[str, Any]], list[str]],
    widths: Sequence[int],
    **filters: Any,
) -> None:
    """Print the newest entries of the list at `segment`, such as "plans": as JSON, or a table with a row for each."""
    entries = await list_newest(remote, limit, segment, **filters)
    print_entries(remote, entries, row, widths, segment.removesuffix("s"))


def print_entries(
    remote: Remote,
    entries: list[dict[str, Any]],
    row: Callable[[dict[str, Any]], list[str]],
    widths: Sequence[int],
    noun: str,
) -> None:
    """Print the entries of a list: as JSON, or a table with a row for each."""
    if remote.wants_json:
        print_json(entries)
    else:
        print_table([row(entry) for entry in entries], widths, noun)
