"""The command `plangate`: the commands of a client, and those that installed packages add."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Annotated, Final

import typer

from plangate.cli import console, queries_and_work
from plangate.cli.approvals import approvals
from plangate.cli.connection import CommandError, fail, silence_stdout
from plangate.cli.plans import plans
from plangate.cli.queries import queries
from plangate.cli.runtimes import runtimes

PLUGIN_GROUP: Final = "plangate.commands"
"""The entry point group of `CommandPlugin` objects; the service adds `serve`, `worker`, `tenants` and others."""


@dataclass(frozen=True, slots=True)
class CommandPlugin:
    """Commands of another package.

    `describe_error` returns the message for an error that the user can act on, or None for any other error.
    """

    commands: typer.Typer
    describe_error: Callable[[Exception], str | None]


def print_version(is_set: bool) -> None:
    """Print the version of the library and exit, if wanted."""
    if is_set:
        typer.echo(f"plangate {version('plangate')}")
        raise typer.Exit


def root(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=print_version, help="Print the version and exit."),
    ] = False,
) -> None:
    """Plangate: an agent runtime as an HTTP service."""


def build_cli(plugins: Sequence[CommandPlugin]) -> typer.Typer:
    """Return the command line with the commands of the client and of the plugins."""
    cli = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,  # rich takes longer to load than the rest of `plangate --help`
        pretty_exceptions_enable=False,  # print a defect as a plain trace, without the values of variables
        help="Plangate: an agent runtime as an HTTP service.",
    )
    cli.callback()(root)
    cli.add_typer(queries_and_work.commands)
    cli.add_typer(console.commands)
    cli.add_typer(approvals, name="approvals")
    cli.add_typer(plans, name="plans")
    cli.add_typer(queries, name="queries")
    cli.add_typer(runtimes, name="runtimes")
    for plugin in plugins:
        cli.add_typer(plugin.commands)
    return cli


def load_plugins() -> list[CommandPlugin]:
    """Return the plugins that installed packages register."""
    return [point.load() for point in entry_points(group=PLUGIN_GROUP)]


def main() -> None:
    """Run the command line with the plugins that are installed."""
    plugins = load_plugins()
    run_cli(build_cli(plugins), plugins)


def run_cli(cli: typer.Typer, plugins: Sequence[CommandPlugin]) -> None:
    """Run the command line. Print an error that the user can act on as one message, any other as a trace."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the process that started the command
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - until the process ends
    try:
        cli()
    except CommandError as error:
        raise SystemExit(fail(str(error), error.code)) from error
    except Exception as error:
        message = _describe_file_error(error)
        if message is None:
            described = (plugin.describe_error(error) for plugin in plugins)
            message = next((text for text in described if text is not None), None)
        if message is None:
            raise
        raise SystemExit(f"plangate: {message}") from error


def _describe_file_error(error: Exception) -> str | None:
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename} cannot be used: {error.strerror}."
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        silence_stdout()
        return f"nothing more can be written: {error.strerror}."
    return None
