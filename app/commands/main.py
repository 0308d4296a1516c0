"""The command `plangate`."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from plangate.cli import queries_and_work as remote
from plangate.cli.approvals import approvals
from plangate.cli.connection import CommandError, fail, print_json, silence_stdout
from plangate.cli.listing import drop_excess, format_minute, print_table
from plangate.cli.options import Json, Limit
from plangate.cli.plans import plans
from plangate.cli.queries import queries
from plangate.cli.runtimes import runtimes
from plangate.cli.terminal_text import escape_text
from pydantic import ValidationError

from app.backup.errors import BackupError
from app.base.embedded_postgres.faults import EmbeddedPostgresError
from app.base.errors import Invalid, PlangateError
from app.base.lazy_import import lazy_module
from app.tenancy.models import DEFAULT_LIMITS

if TYPE_CHECKING:
    from app import settings as configuration
    from app.api import serving
    from app.base import embedded_postgres
    from app.base.postgres import database
    from app.commands import admin, backups
    from app.tenancy import floor
else:  # the service takes seconds to load, and most commands only talk to one
    configuration = lazy_module("app.settings")
    database = lazy_module("app.base.postgres.database")
    embedded_postgres = lazy_module("app.base.embedded_postgres")
    admin = lazy_module("app.commands.admin")
    backups = lazy_module("app.commands.backups")
    serving = lazy_module("app.api.serving")
    floor = lazy_module("app.tenancy.floor")

cli = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # a defect is a trace as Python writes it, and no value of a variable in it
    help="Plangate: an agent runtime as an HTTP service.",
)
tenants = typer.Typer(no_args_is_help=True, help="Tenants.")
keys = typer.Typer(no_args_is_help=True, help="API keys of tenants, in the database itself.")
cli.add_typer(tenants, name="tenants")
cli.add_typer(keys, name="keys")
cli.add_typer(approvals, name="approvals")
cli.add_typer(plans, name="plans")
cli.add_typer(queries, name="queries")
cli.add_typer(runtimes, name="runtimes")
for command in (remote.query, remote.watch, remote.work, remote.artifacts):
    cli.command()(command)


def print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"plangate {metadata.version('plangate-server')}")
        raise typer.Exit


def print_versions(wanted: bool) -> None:
    """Print the versions of the service and of the Postgres that it brings along."""
    if wanted:
        typer.echo(f"plangate {metadata.version('plangate-server')}")
        typer.echo(embedded_postgres.describe())
        raise typer.Exit


@cli.callback()
def common(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=print_version, help="Print the version and exit."),
    ] = False,
) -> None:
    """Plangate: an agent runtime as an HTTP service."""


DataDir = Annotated[
    Path | None, typer.Option(help="Where the embedded Postgres and the operator's key live.")
]
TenantLimits = Annotated[
    str | None, typer.Option(help="JSON, such as '{\"runningQueries\": 50}'; {} is none.", metavar="JSON")
]
ApprovalFloor = Annotated[
    str | None,
    typer.Option(
        help='JSON, such as \'{"tools": {"kind": "always"}}\': what no spec of the tenant may undercut; {} is none.',
        metavar="JSON",
    ),
]


def settings(**given: object) -> configuration.Settings:
    """The environment's settings, with what the command line says laid over them."""
    found = configuration.Settings()
    said = {k: v.expanduser() if isinstance(v, Path) else v for k, v in given.items() if v is not None}
    return found.model_copy(update=said)


@cli.command()
def serve(
    host: Annotated[str | None, typer.Option(help="The address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = None,
    data_dir: DataDir = None,
    no_worker: Annotated[
        bool, typer.Option("--no-worker", help="Accept queries, leave the work to workers.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=print_versions,
            help="Print the versions of Plangate and its Postgres, and exit.",
        ),
    ] = False,
) -> None:
    """Serve the API, and work on queries."""
    serving.serve(settings(host=host, port=port, data_dir=data_dir), with_worker=not no_worker)


@cli.command()
def worker(data_dir: DataDir = None) -> None:
    """Work on queries, without an API."""
    serving.run_worker(settings(data_dir=data_dir))


@cli.command()
def migrate(data_dir: DataDir = None) -> None:
    """Bring the database's schema up to date."""
    serving.migrate_only(settings(data_dir=data_dir))
    typer.echo("The schema is up to date.")


@tenants.command("create")
def create_tenant(
    tenant: str, data_dir: DataDir = None, limits: TenantLimits = None, approval_floor: ApprovalFloor = None
) -> None:
    """Make a tenant."""
    made = asyncio.run(
        admin.create_tenant(
            settings(data_dir=data_dir), tenant, parse_limits(limits), parse_floor(approval_floor)
        )
    )
    exists = "exists already. Nothing was changed; `plangate tenants set` changes it."
    typer.echo(f"Tenant {tenant} {'made.' if made else exists}")


@tenants.command("set")
def set_tenant(
    tenant: str, data_dir: DataDir = None, limits: TenantLimits = None, approval_floor: ApprovalFloor = None
) -> None:
    """Replace a tenant's limits, its approval floor, or both; what is not given stays."""
    if limits is None and approval_floor is None:
        raise Invalid("Nothing to set: give --limits, --approval-floor, or both.")
    asyncio.run(
        admin.set_tenant(
            settings(data_dir=data_dir), tenant, parse_limits(limits), parse_floor(approval_floor)
        )
    )
    typer.echo(f"Tenant {tenant} set.")


def parse_limits(text: str | None) -> dict[str, Any] | None:
    """The limits of an option, each a known one: a slip would take a limit away."""
    if text is None:
        return None
    limits = parse_json("--limits", text)
    known = ", ".join(DEFAULT_LIMITS)
    for name, value in limits.items():
        if name not in DEFAULT_LIMITS:
            raise Invalid(f"--limits: there is no limit {name!r}; there are: {known}.")
        if type(value) is not int or value < 1:
            raise Invalid(f"--limits: {name} must be a whole number from 1; leave it out for no limit.")
    return limits


def parse_floor(text: str | None) -> dict[str, Any] | None:
    return None if text is None else floor.checked_floor(parse_json("--approval-floor", text))


def parse_json(option: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise Invalid(f"{option} is not JSON: {error}.") from error
    if not isinstance(value, dict):
        raise Invalid(f"{option} must be a JSON object.")
    return value


@keys.command("create")
def create_key(
    tenant: str,
    principal: Annotated[str, typer.Option(help="The person or program behind the key.")],
    scope: Annotated[
        list[str],
        typer.Option(
            help="A scope, such as read or queries:write (docs/security.md has all); may be given several times."
        ),
    ],
    tool: Annotated[
        list[str] | None, typer.Option(help="A tool that it may serve; may be given several times; else all.")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Make an API key; it is printed this once."""
    typer.echo(asyncio.run(admin.create_key(settings(data_dir=data_dir), tenant, principal, scope, tool)))


@keys.command("list")
def list_keys(tenant: str, limit: Limit = 50, data_dir: DataDir = None, as_json: Json = False) -> None:
    """List the keys of a tenant, newest first; never their text."""
    found = asyncio.run(admin.list_keys(settings(data_dir=data_dir), tenant, limit + 1))
    shown = drop_excess(found, limit)
    if as_json:
        print_json(shown)
    else:
        print_table([key_row(key) for key in shown], [0, 40, 60, 0, 0], "key")


def key_row(key: dict[str, Any]) -> list[str]:
    scopes = ",".join(key["scopes"]) + (f" for {','.join(key['tools'])}" if key["tools"] is not None else "")
    ends = [
        f"{what} {format_minute(key[at])}"
        for what, at in (("revoked", "revokedAt"), ("until", "expiresAt"))
        if key[at]
    ]
    return [key["id"], key["principal"], scopes, format_minute(key["createdAt"]), *(ends or [""])[:1]]


@keys.command("revoke")
def revoke_key(
    tenant: str,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The id of a key (key_...), not its text.")],
    data_dir: DataDir = None,
) -> None:
    """Revoke a key: it stops working within five seconds, and its streams end."""
    asyncio.run(admin.revoke_key(settings(data_dir=data_dir), tenant, key))
    typer.echo(f"Key {escape_text(key)} is revoked.")


@cli.command()
def verify(
    export: Annotated[
        Path | None, typer.Option(help="Write where every chain ends to this file, to be kept elsewhere.")
    ] = None,
    against: Annotated[
        Path | None, typer.Option(help="A file that --export wrote: shows records that were cut off since.")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Look for records of artifacts that were changed, inserted or removed behind the service's back."""
    found = asyncio.run(admin.verify(settings(data_dir=data_dir), export, against))
    for tenant, problem in found.problems:
        typer.echo(
            escape_text(f"{tenant}: {problem}")
        )  # ids that somebody wrote into the database may be anything
    chains = f"{found.chains} chain{'' if found.chains == 1 else 's'}"
    if found.problems:
        more = "" if export is None else " Nothing was exported."
        typer.echo(f"Problems: {len(found.problems)}, in {chains}.{more}")
        raise typer.Exit(1)
    if found.chains:
        typer.echo(f"Verified {chains}: every record is as the service wrote it.")
    else:
        typer.echo("Nothing to verify: this database has no records of artifacts.")
    if export is not None:
        typer.echo(
            f"Where they end is in {export}. Keep it where those who can write to the database cannot."
        )


@cli.command()
def backup(
    to: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", help="Where the backup is created; it must not exist.")
    ],
    data_dir: DataDir = None,
) -> None:
    """Save the database and the local bodies of files, also while the service runs."""
    saved = asyncio.run(backups.save(settings(data_dir=data_dir), to.absolute()))
    for line in saved.lines:
        typer.echo(line)
    if saved.lost:
        typer.echo(f"Lost bodies, not in the backup: {len(saved.lost)}, such as {saved.lost[0]}.", err=True)
        raise typer.Exit(1)


@cli.command()
def restore(
    directory: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", help="The directory that `plangate backup` created.")
    ],
    data_dir: DataDir = None,
) -> None:
    """Restore a backup into an empty database. Stop the service first."""
    for line in asyncio.run(backups.restore(settings(data_dir=data_dir), directory)):
        typer.echo(line)


@cli.command()
def openapi() -> None:
    """Print the OpenAPI document."""
    sys.stdout.write(admin.openapi_text())


def setting_variable(field: int | str) -> str:
    """The environment variable of a setting, by which whoever set it knows it."""
    name = str(field)
    return name if name.isupper() else f"PLANGATE_{name.upper()}"


def main() -> None:
    """Runs the command. What a person can act on is a line, not a trace."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started the command: nobody listens
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - until the process ends
    try:
        cli()
    except (PlangateError, EmbeddedPostgresError, BackupError) as error:
        flaws = [f"{flaw.pointer}: {flaw.message}" for flaw in getattr(error, "errors", ())]
        raise SystemExit("\n  ".join([f"plangate: {error}", *flaws])) from error
    except CommandError as error:
        raise SystemExit(fail(str(error), error.code)) from error
    except ValidationError as error:
        found = "; ".join(
            f"{'.'.join(map(setting_variable, e['loc']))}: {e['msg'].removeprefix('Value error, ')}"
            for e in error.errors(include_input=False)
        )
        raise SystemExit(f"plangate: a setting is not valid: {found}") from error
    except Exception as error:
        if isinstance(error, OSError) and error.filename:  # a file, not the database
            raise SystemExit(f"plangate: {error.filename} cannot be used: {error.strerror}.") from error
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            silence_stdout()
            raise SystemExit(f"plangate: nothing more can be written: {error.strerror}.") from error
        said = database.driver_error(error)
        if isinstance(said, database.ACCESS_ERRORS):
            raise SystemExit(
                f"plangate: the database of DATABASE_URL does not let this process in: {said}."
            ) from error
        if not database.is_outage(error):
            raise
        raise SystemExit(f"plangate: the database cannot be reached: {said}") from error
