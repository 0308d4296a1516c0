"""The command `plangate`."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from app.base.database import is_outage
from app.base.embedded_postgres import EmbeddedPostgresError
from app.base.errors import PlangateError
from app.doors import admin, serving
from app.settings import Settings

cli = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Plangate: an agent runtime as an HTTP service."
)
tenants = typer.Typer(no_args_is_help=True, help="Tenants.")
keys = typer.Typer(no_args_is_help=True, help="API keys.")
cli.add_typer(tenants, name="tenants")
cli.add_typer(keys, name="keys")

DataDir = Annotated[Path | None, typer.Option(help="Where the embedded Postgres and the local key live.")]


def settings(**given: object) -> Settings:
    """The environment's settings, with what the command line says laid over them."""
    found = Settings()
    return found.model_copy(update={k: v for k, v in given.items() if v is not None})


@cli.command()
def serve(
    host: Annotated[str | None, typer.Option(help="The address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="The port; 0 takes a free one.")] = None,
    data_dir: DataDir = None,
    no_worker: Annotated[
        bool, typer.Option("--no-worker", help="Accept queries, leave the work to workers.")
    ] = False,
) -> None:
    """Serve the API, and work on queries."""
    serving.serve(settings(host=host, port=port, data_dir=data_dir), with_worker=not no_worker)


@cli.command()
def worker(data_dir: DataDir = None) -> None:
    """Work on queries, without an API."""
    serving.work(settings(data_dir=data_dir))


@cli.command()
def migrate(data_dir: DataDir = None) -> None:
    """Bring the database's schema up to date."""
    serving.migrate_only(settings(data_dir=data_dir))
    typer.echo("The schema is up to date.")


@tenants.command("create")
def create_tenant(
    tenant: str,
    data_dir: DataDir = None,
    limits: Annotated[
        str | None, typer.Option(help="JSON, such as '{\"runningQueries\": 50}'; {} is none.")
    ] = None,
) -> None:
    """Make a tenant."""
    chosen = None if limits is None else json.loads(limits)
    made = asyncio.run(admin.create_tenant(settings(data_dir=data_dir), tenant, chosen))
    typer.echo(f"Tenant {tenant} {'made' if made else 'exists already'}.")


@keys.command("create")
def create_key(
    tenant: str,
    principal: Annotated[str, typer.Option(help="The person or program behind the key.")],
    scope: Annotated[list[str], typer.Option(help="A scope; may be given several times.")],
    tool: Annotated[list[str] | None, typer.Option(help="The only names it may serve.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Make an API key; it is printed this once."""
    typer.echo(asyncio.run(admin.create_key(settings(data_dir=data_dir), tenant, principal, scope, tool)))


@cli.command()
def openapi() -> None:
    """Print the OpenAPI document."""
    sys.stdout.write(admin.openapi_text())


def main() -> None:
    """Runs the command. What a person can act on is a line, not a trace."""
    try:
        cli()
    except (PlangateError, EmbeddedPostgresError) as error:
        raise SystemExit(f"plangate: {error}") from error
    except ValidationError as error:
        found = "; ".join(
            f"{'.'.join(str(p) for p in e['loc'])}: {e['msg']}" for e in error.errors(include_input=False)
        )
        raise SystemExit(f"plangate: a setting is not valid: {found}") from error
    except Exception as error:
        if not is_outage(error):
            raise
        raise SystemExit(f"plangate: the database cannot be reached: {error}") from error
