"""The options that commands share, and JSON that an option holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from plangate.cli.connection import USAGE, CommandError

Url = Annotated[str | None, typer.Option(help="The service; else PLANGATE_URL, else that of this machine.")]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        help="A file with an API key; else PLANGATE_API_KEY, else the operator's key of this machine."
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(help="Where the service of this machine keeps the operator's key, which is then used."),
]
Tenant = Annotated[str | None, typer.Option(help="The tenant, where the key is the operator's; else local.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
QueryId = Annotated[str, typer.Argument(metavar="QUERY", help="The id of a query (qry_...).")]
ApprovalId = Annotated[str, typer.Argument(metavar="APPROVAL", help="The id of an approval (apr_...).")]
Feedback = Annotated[str | None, typer.Option(help="The feedback that the agent receives.")]
Limit = Annotated[int, typer.Option(min=1, max=10_000, help="How many at most.")]


def parse_json(option: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise CommandError(f"{option} is not JSON: {error}.", USAGE) from error


def parse_object(option: str, text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    value = parse_json(option, text)
    if not isinstance(value, dict):
        raise CommandError(f"{option} must be a JSON object.", USAGE)
    return value
