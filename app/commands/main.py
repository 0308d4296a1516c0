"""The operator commands of the service, which `plangate` loads by an entry point."""

from __future__ import annotations

import asyncio
import json
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from plangate.cli.connection import print_json
from plangate.cli.listing import drop_excess, format_minute, print_table
from plangate.cli.main import CommandPlugin, build_cli, run_cli
from plangate.cli.options import Json, Limit
from plangate.cli.terminal_text import escape_text
from plangate.lazy_import import lazy_module

from app.backup.errors import BackupError
from app.base.embedded_postgres.faults import EmbeddedPostgresError
from app.base.errors import Invalid, PlangateError
from app.tenancy.models import DEFAULT_LIMITS, LOCAL_TENANT
from app.transfer.errors import TransferError

if TYPE_CHECKING:
    import pydantic

    from app import settings as configuration
    from app.api import process
    from app.base import embedded_postgres
    from app.base.postgres import database
    from app.commands import admin, backups, transfers
    from app.tenancy import floor
else:  # the service takes seconds to load, and most commands only talk to one
    pydantic = lazy_module("pydantic")
    configuration = lazy_module("app.settings")
    database = lazy_module("app.base.postgres.database")
    embedded_postgres = lazy_module("app.base.embedded_postgres")
    admin = lazy_module("app.commands.admin")
    backups = lazy_module("app.commands.backups")
    transfers = lazy_module("app.commands.transfers")
    process = lazy_module("app.api.process")
    floor = lazy_module("app.tenancy.floor")

commands = typer.Typer()
tenants = typer.Typer(no_args_is_help=True, help="Tenants.")
keys = typer.Typer(no_args_is_help=True, help="API keys of tenants, in the database itself.")
commands.add_typer(tenants, name="tenants")
commands.add_typer(keys, name="keys")
sources = typer.Typer(no_args_is_help=True, help="Data sources of tenants that read files.")
commands.add_typer(sources, name="sources")


def print_versions(is_set: bool) -> None:
    """Print the versions of the service and of the Postgres that it brings along."""
    if is_set:
        typer.echo(f"plangate {metadata.version('plangate-server')}")
        typer.echo(embedded_postgres.describe())
        raise typer.Exit


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


def settings(**options: object) -> configuration.Settings:
    """Return the settings of the environment, overridden by the options that are given."""
    base = configuration.Settings()
    values = {k: v.expanduser() if isinstance(v, Path) else v for k, v in options.items() if v is not None}
    return base.model_copy(update=values)


@commands.command()
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
    process.serve(settings(host=host, port=port, data_dir=data_dir), with_worker=not no_worker)


@commands.command()
def worker(data_dir: DataDir = None) -> None:
    """Work on queries, without an API."""
    process.run_worker(settings(data_dir=data_dir))


@commands.command()
def migrate(data_dir: DataDir = None) -> None:
    """Bring the database's schema up to date."""
    process.migrate_only(settings(data_dir=data_dir))
    typer.echo("The schema is up to date.")


@tenants.command("create")
def create_tenant(
    tenant: str, data_dir: DataDir = None, limits: TenantLimits = None, approval_floor: ApprovalFloor = None
) -> None:
    """Make a tenant."""
    created = asyncio.run(
        admin.create_tenant(
            settings(data_dir=data_dir), tenant, parse_limits(limits), parse_floor(approval_floor)
        )
    )
    exists = "exists already. Nothing was changed; `plangate tenants set` changes it."
    typer.echo(f"Tenant {tenant} {'made.' if created else exists}")


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


TenantFile = Annotated[Path, typer.Argument(metavar="FILE", help="The file of the tenant.")]
PassphraseFile = Annotated[
    Path | None,
    typer.Option(help="A file whose first line is the passphrase; without it, you are prompted."),
]
WithoutSecrets = Annotated[
    bool, typer.Option("--without-secrets", help="Leave out keys, secrets and sessions.")
]


@tenants.command("export")
def export_tenant(
    tenant: str,
    file: TenantFile,
    passphrase_file: PassphraseFile = None,
    without_secrets: WithoutSecrets = False,
    park: Annotated[
        bool,
        typer.Option(
            "--park", help="Park the tenant first, for a move: its requests get a 503, and its queries wait."
        ),
    ] = False,
    data_dir: DataDir = None,
) -> None:
    """Write everything of a tenant into a new encrypted file, also while the service runs."""
    passphrase = read_passphrase(passphrase_file, confirm=True)
    report = asyncio.run(
        transfers.export(
            settings(data_dir=data_dir),
            tenant,
            file.absolute(),
            passphrase,
            with_secrets=not without_secrets,
            park=park,
        )
    )
    for line in report.lines:
        typer.echo(line)
    if report.lost:
        typer.echo(f"Lost bodies, not in the file: {len(report.lost)}, such as {report.lost[0]}.", err=True)
        raise typer.Exit(1)


@tenants.command("import")
def import_tenant(
    file: TenantFile,
    passphrase_file: PassphraseFile = None,
    without_secrets: WithoutSecrets = False,
    data_dir: DataDir = None,
) -> None:
    """Create a tenant from the file of an export, also while the service runs."""
    passphrase = read_passphrase(passphrase_file, confirm=False)
    lines = asyncio.run(
        transfers.import_file(settings(data_dir=data_dir), file, passphrase, with_secrets=not without_secrets)
    )
    for line in lines:
        typer.echo(line)


@tenants.command("redirect")
def redirect_tenant(
    tenant: str,
    cell: Annotated[str, typer.Argument(help="The name of the cell that imported the tenant.")],
    data_dir: DataDir = None,
) -> None:
    """Answer requests of a parked tenant with a 421 that names the cell where it is now."""
    asyncio.run(transfers.redirect(settings(data_dir=data_dir), tenant, cell))
    typer.echo(f"Requests of the tenant {tenant} are sent to the cell {cell}.")


@tenants.command("resume")
def resume_tenant(tenant: str, data_dir: DataDir = None) -> None:
    """Let a parked tenant continue here. Never do this after another cell imported it."""
    asyncio.run(transfers.resume(settings(data_dir=data_dir), tenant))
    typer.echo(f"The tenant {tenant} continues here.")


@tenants.command("remove")
def remove_tenant(
    tenant: str,
    keep_bodies: Annotated[
        bool,
        typer.Option(
            "--keep-bodies",
            help="Delete no bodies of files: the other cell keeps its bodies in the same place.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete what is shown without asking.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Delete everything of a tenant that was moved to another cell, its keys included."""
    configured = settings(data_dir=data_dir)
    for line in transfers.describe_removal(configured, tenant, keep_bodies=keep_bodies):
        typer.echo(line)
    if not yes:
        if not sys.stdin.isatty():
            raise Invalid("Not a terminal: pass --yes to delete what is shown.")
        typer.confirm("Delete this?", abort=True)
    asyncio.run(transfers.remove(configured, tenant, keep_bodies=keep_bodies))
    typer.echo(f"The tenant {tenant} is removed.")


def read_passphrase(file: Path | None, *, confirm: bool) -> str:
    """Return the passphrase of a file, or what is typed at the terminal. Raise Invalid if there is neither."""
    if file is not None:
        try:
            return file.read_text("utf-8").split("\n", 1)[0].rstrip("\r")
        except (OSError, UnicodeDecodeError) as error:
            raise Invalid(f"--passphrase-file {file} cannot be read: {error}.") from error
    if not sys.stdin.isatty():
        raise Invalid("Not a terminal: give the passphrase with --passphrase-file.")
    text: str = typer.prompt("Passphrase", hide_input=True, confirmation_prompt=confirm)
    return text


def parse_limits(text: str | None) -> dict[str, Any] | None:
    """Return the limits of an option. Raise Invalid for an unknown name: a typo would remove a limit."""
    if text is None:
        return None
    limits = parse_json("--limits", text)
    known = ", ".join(DEFAULT_LIMITS)
    for name, value in limits.items():
        if name not in DEFAULT_LIMITS:
            raise Invalid(f"--limits: unknown limit {name!r}; expected one of: {known}.")
        if type(value) is not int or value < 1:
            raise Invalid(f"--limits: {name} must be a whole number from 1; leave it out for no limit.")
    return limits


def parse_floor(text: str | None) -> dict[str, Any] | None:
    return None if text is None else floor.validate_floor(parse_json("--approval-floor", text))


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
    rows = asyncio.run(admin.list_keys(settings(data_dir=data_dir), tenant, limit + 1))
    page = drop_excess(rows, limit)
    if as_json:
        print_json(page)
    else:
        print_table([key_row(key) for key in page], [0, 40, 60, 0, 0], "key")


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


@commands.command()
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
    report = asyncio.run(admin.verify(settings(data_dir=data_dir), export, against))
    for tenant, problem in report.problems:
        typer.echo(
            escape_text(f"{tenant}: {problem}")
        )  # ids that somebody wrote into the database may be anything
    chains = f"{report.chains} chain{'' if report.chains == 1 else 's'}"
    if report.problems:
        more = "" if export is None else " Nothing was exported."
        typer.echo(f"Problems: {len(report.problems)}, in {chains}.{more}")
        raise typer.Exit(1)
    if report.chains:
        typer.echo(f"Verified {chains}: every record is as the service wrote it.")
    else:
        typer.echo("Nothing to verify: this database has no records of artifacts.")
    if export is not None:
        typer.echo(
            f"Where they end is in {export}. Keep it where those who can write to the database cannot."
        )


@sources.command("add")
def add_source(
    name: str,
    files: Annotated[
        Path, typer.Option(metavar="PATH...", help="Files, and directories that stand for the files in them.")
    ],
    more: Annotated[list[Path] | None, typer.Argument(metavar="PATH", hidden=True)] = None,
    tenant: Annotated[str, typer.Option(help="Whose agents may read them.")] = LOCAL_TENANT,
    immutable: Annotated[
        bool, typer.Option("--immutable", help="A SQLite file that does not change while it is read.")
    ] = False,
    data_dir: DataDir = None,
) -> None:
    """Declare a source that reads these files; its kind is that of the files."""
    paths = [str(path.expanduser().absolute()) for path in (files, *(more or ()))]
    files_read = asyncio.run(admin.add_source(settings(data_dir=data_dir), tenant, name, paths, immutable))
    typer.echo(
        f"The source {name} of the tenant {tenant} reads {files_read} file{'' if files_read == 1 else 's'}."
    )


@sources.command("remove")
def remove_source(
    name: str,
    tenant: Annotated[str, typer.Option(help="Whose source it is.")] = LOCAL_TENANT,
    data_dir: DataDir = None,
) -> None:
    """Delete a source, and what its profiles found."""
    asyncio.run(admin.remove_source(settings(data_dir=data_dir), tenant, name))
    typer.echo(f"The source {name} of the tenant {tenant} is deleted.")


@commands.command()
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


@commands.command()
def restore(
    directory: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", help="The directory that `plangate backup` created.")
    ],
    data_dir: DataDir = None,
) -> None:
    """Restore a backup into an empty database. Stop the service first."""
    for line in asyncio.run(backups.restore(settings(data_dir=data_dir), directory)):
        typer.echo(line)


@commands.command()
def recover(
    nothing_lost: Annotated[
        bool,
        typer.Option("--nothing-lost", help="Mark nothing. Use it only if the promotion lost no commit."),
    ] = False,
    data_dir: DataDir = None,
) -> None:
    """Resume work after the promotion of a standby that may have lost commits.

    Every action and tool call of an unfinished query becomes `unknown`, unless its `replay` is safe.
    """
    report = asyncio.run(admin.recover(settings(data_dir=data_dir), nothing_lost=nothing_lost))
    if report is None:
        typer.echo("No promotion has stopped the work: nothing was changed.")
        return
    typer.echo(
        f"Work has resumed. Unknown outcomes: {report.actions} actions and {report.calls} tool calls in {report.queries} queries."
    )
    if report.actions:
        typer.echo("Settle the actions: `plangate queries list --status waiting` shows their queries.")


@commands.command()
def openapi() -> None:
    """Print the OpenAPI document."""
    sys.stdout.write(admin.openapi_text())


def setting_variable(field: int | str) -> str:
    """Return the environment variable of a setting, for messages."""
    name = str(field)
    return name if name.isupper() else f"PLANGATE_{name.upper()}"


def describe_error(error: Exception) -> str | None:
    """Return the message for an error that the operator can act on, or None for any other error."""
    if isinstance(error, PlangateError | EmbeddedPostgresError | BackupError | TransferError):
        details = [f"{item.pointer}: {item.message}" for item in getattr(error, "errors", ())]
        return "\n  ".join([str(error), *details])
    if isinstance(error, pydantic.ValidationError):
        details = [
            f"{'.'.join(map(setting_variable, e['loc']))}: {e['msg'].removeprefix('Value error, ')}"
            for e in error.errors(include_input=False)
        ]
        return f"a setting is not valid: {'; '.join(details)}"
    if isinstance(error, database.ACCESS_ERRORS):
        return f"the database of DATABASE_URL rejected this process: {error}."
    return f"the database cannot be reached: {error}" if database.is_outage(error) else None


plugin = CommandPlugin(commands, describe_error)
cli = build_cli([plugin])


def main() -> None:
    """Run the command line with the operator commands, whether or not their entry point is installed."""
    run_cli(cli, [plugin])
