"""The commands `queries list`, `cancel` and `resume`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from plangate.cli.commands import print_entries, remote_command
from plangate.cli.connection import USAGE, CommandError, Remote
from plangate.cli.listing import drop_excess, format_minute
from plangate.cli.options import Limit, QueryId
from plangate.cli.terminal_text import escape_text

queries = typer.Typer(no_args_is_help=True, help="Queries: list, cancel or resume them.")

WIDTHS = [0, 26, 16, 0, 40]


@remote_command(queries, "list")
async def list_queries(
    remote: Remote,
    status: Annotated[
        str | None, typer.Option(help="queued, running, waiting, succeeded, failed or cancelled; else all.")
    ] = None,
    runtime: Annotated[
        str | None, typer.Option(help="Only those of this runtime: a name, or the id of a version (rt_...).")
    ] = None,
    thread: Annotated[str | None, typer.Option(help="Only those of this thread (thr_...).")] = None,
    agent: Annotated[str | None, typer.Option(help="Only those that this agent answers.")] = None,
    limit: Limit = 50,
) -> None:
    """List queries, newest first."""
    filters = {"status": status, "threadId": thread, "agent": agent}
    rows: list[dict[str, Any]] = []
    for version in await _versions(remote, runtime):
        rows += await remote.list_items(limit + 1, "queries", runtimeId=version, **filters)
    rows.sort(key=lambda query: str(query["id"]), reverse=True)  # ids begin with the time
    print_entries(remote, drop_excess(rows, limit), _row, WIDTHS, "query")


async def _versions(remote: Remote, runtime: str | None) -> list[str | None]:
    """Return the versions of a runtime, newest first, or `[None]` if no runtime is named."""
    if runtime is None or runtime.startswith("rt_"):
        return [runtime]
    rows = await remote.list_items(500, "runtimes", name=runtime)
    if not rows:
        raise CommandError(f"There is no runtime named {runtime!r}: list them with `plangate runtimes list`.")
    return [version["id"] for version in rows]


def _row(query: dict[str, Any]) -> list[str]:
    status, reason = query["status"], query["reason"]
    why = f" ({reason})" if reason and reason != status else ""
    prompt = query["prompt"] or query["planId"] or ""
    return [query["id"], f"{status}{why}", query["agent"] or "-", format_minute(query["createdAt"]), prompt]


@remote_command(queries, "cancel")
async def cancel(remote: Remote, query: QueryId) -> None:
    """Cancel a query at once; what it has dispatched already may still be carried out."""
    await _post_and_print(remote, None, query, "cancel")


@remote_command(queries, "resume")
async def resume(
    remote: Remote,
    query: QueryId,
    max_turns: Annotated[int | None, typer.Option(help="Turns of its models, all in all.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Tokens in and out, all in all.")] = None,
    max_cost_usd: Annotated[float | None, typer.Option(help="US dollars, all in all.")] = None,
    max_duration_ms: Annotated[
        int | None, typer.Option(help="Milliseconds of work, all in all; waiting is free.")
    ] = None,
) -> None:
    """Raise limits of a query that waits at one, and resume it."""
    options = {
        "maxTurns": max_turns,
        "maxTokens": max_tokens,
        "maxCostUsd": max_cost_usd,
        "maxDurationMs": max_duration_ms,
    }
    limits = {name: value for name, value in options.items() if value is not None}
    if not limits:
        raise CommandError(
            f"Give the limit that is to be higher, such as --max-turns: `plangate work {query}` says at which it waits.",
            USAGE,
        )
    await _post_and_print(remote, {"limits": limits}, query, "resume")


async def _post_and_print(remote: Remote, body: Any, query: str, verb: str) -> None:
    """Send the request and print the status of the query that results."""
    answer = await remote.post(body, "queries", query, verb)
    remote.print_answer(answer, f"{escape_text(answer['id'])} is {escape_text(answer['status'])}.")
