"""The commands `queries`: which there are, and what ends one or has it go on."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from plangate.cli.connection import SUCCESS, USAGE, CommandError, Remote, Target, print_json, print_lines, run
from plangate.cli.listing import drop_excess, format_minute, print_table
from plangate.cli.options import DataDir, Json, KeyFile, Limit, QueryId, Tenant, Url
from plangate.cli.terminal_text import escape_text

queries = typer.Typer(no_args_is_help=True, help="Queries: list, cancel or resume them.")

WIDTHS = [0, 26, 16, 0, 40]


@queries.command("list")
def list_queries(
    status: Annotated[
        str | None, typer.Option(help="queued, running, waiting, succeeded, failed or cancelled; else all.")
    ] = None,
    runtime: Annotated[
        str | None, typer.Option(help="Only those of this runtime: a name, or the id of a version (rt_...).")
    ] = None,
    thread: Annotated[str | None, typer.Option(help="Only those of this thread (thr_...).")] = None,
    agent: Annotated[str | None, typer.Option(help="Only those that this agent answers.")] = None,
    limit: Limit = 50,
    url: Url = None,
    key_file: KeyFile = None,
    data_dir: DataDir = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """List queries, newest first."""

    async def listed(remote: Remote) -> int:
        given = {"status": status, "threadId": thread, "agent": agent}
        found: list[dict[str, Any]] = []
        for version in await _versions(remote, runtime):
            found += await remote.list_items(limit + 1, "queries", runtimeId=version, **given)
        found.sort(key=lambda query: str(query["id"]), reverse=True)  # ids begin with the time
        found = drop_excess(found, limit)
        if as_json:
            print_json(found)
        else:
            print_table([_row(query) for query in found], WIDTHS, "query")
        return SUCCESS

    run(Target.from_options(url, key_file, data_dir, tenant), listed)


async def _versions(remote: Remote, runtime: str | None) -> list[str | None]:
    """Return the versions of a runtime, newest first, or `[None]` if no runtime is named."""
    if runtime is None or runtime.startswith("rt_"):
        return [runtime]
    found = await remote.list_items(500, "runtimes", name=runtime)
    if not found:
        raise CommandError(f"There is no runtime named {runtime!r}: list them with `plangate runtimes list`.")
    return [version["id"] for version in found]


def _row(query: dict[str, Any]) -> list[str]:
    status, reason = query["status"], query["reason"]
    why = f" ({reason})" if reason and reason != status else ""
    asked = query["prompt"] or query["planId"] or ""
    return [query["id"], f"{status}{why}", query["agent"] or "-", format_minute(query["createdAt"]), asked]


@queries.command("cancel")
def cancel(
    query: QueryId,
    url: Url = None,
    key_file: KeyFile = None,
    data_dir: DataDir = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Cancel a query at once; what it has dispatched already may still be carried out."""
    target = Target.from_options(url, key_file, data_dir, tenant)
    run(target, lambda remote: _post_and_print(remote, as_json, None, query, "cancel"))


@queries.command("resume")
def resume(
    query: QueryId,
    max_turns: Annotated[int | None, typer.Option(help="Turns of its models, all in all.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Tokens in and out, all in all.")] = None,
    max_cost_usd: Annotated[float | None, typer.Option(help="US dollars, all in all.")] = None,
    max_duration_ms: Annotated[
        int | None, typer.Option(help="Milliseconds of work, all in all; waiting is free.")
    ] = None,
    url: Url = None,
    key_file: KeyFile = None,
    data_dir: DataDir = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Raise limits of a query that waits at one, and resume it."""
    given = {
        "maxTurns": max_turns,
        "maxTokens": max_tokens,
        "maxCostUsd": max_cost_usd,
        "maxDurationMs": max_duration_ms,
    }
    limits = {name: value for name, value in given.items() if value is not None}
    if not limits:
        raise CommandError(
            f"Give the limit that is to be higher, such as --max-turns: `plangate work {query}` says at which it waits.",
            USAGE,
        )
    target = Target.from_options(url, key_file, data_dir, tenant)
    run(target, lambda remote: _post_and_print(remote, as_json, {"limits": limits}, query, "resume"))


async def _post_and_print(remote: Remote, printed_as_json: bool, body: Any, query: str, verb: str) -> int:
    """Send the request and print the status of the query that results."""
    answer = await remote.post(body, "queries", query, verb)
    if printed_as_json:
        print_json(answer)
    else:
        print_lines(f"{escape_text(answer['id'])} is {escape_text(answer['status'])}.")
    return SUCCESS
