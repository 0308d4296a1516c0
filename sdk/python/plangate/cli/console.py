"""The command `console`: open the console of a service in the browser, signed in."""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer

from plangate.cli.connection import SUCCESS, Remote, Target, run
from plangate.cli.options import DataDir, KeyFile, Tenant, Url

commands = typer.Typer()


@commands.command()
def console(
    print_only: Annotated[
        bool, typer.Option("--print", help="Print the link and open no browser, for a browser elsewhere.")
    ] = False,
    url: Url = None,
    key_file: KeyFile = None,
    data_dir: DataDir = None,
    tenant: Tenant = None,
) -> None:
    """Open the console in the browser, with a link that signs in once within five minutes."""

    async def open_console(remote: Remote) -> int:
        ticket = await remote.post({}, "session", "tickets")
        if print_only or not webbrowser.open(ticket["url"]):
            typer.echo(ticket["url"])
        else:
            typer.echo("The console opens in your browser.")
        return SUCCESS

    run(Target.from_options(url, key_file, data_dir, tenant), open_console, wants_json=False)
