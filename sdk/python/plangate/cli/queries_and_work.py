"""The commands `query`, `watch`, `work` and `artifacts`."""

from __future__ import annotations

import shutil
import sys
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plangate.cli import work_tree
from plangate.cli.commands import remote_command
from plangate.cli.connection import (
    NOT_SUCCEEDED,
    SUCCESS,
    CommandError,
    Remote,
    print_json,
    print_lines,
    print_outages,
)
from plangate.cli.listing import list_newest
from plangate.cli.options import Limit, QueryId, parse_object
from plangate.cli.terminal_text import as_json, escape_text
from plangate.cli.watch import SUCCESS_TYPE, UNKNOWN, Watcher
from plangate.errors import NotFound, PlangateError
from plangate.lazy_import import lazy_module

if TYPE_CHECKING:
    from plangate import event_types
    from plangate import journal as journals
else:  # the models of events, for commands that follow a query
    event_types = lazy_module("plangate.event_types")
    journals = lazy_module("plangate.journal")

commands = typer.Typer()

MAX_LISTED_RUNTIMES = 50
MAX_ARTIFACTS = 20_000  # of a query: as many as its tree has records
WIDTH, HEIGHT = 100, 40  # where nobody says how large the screen is


@remote_command(commands)
async def query(
    remote: Remote,
    prompt: Annotated[str, typer.Argument(help="What is asked; - reads it from standard input.")],
    runtime: Annotated[
        str | None,
        typer.Option(help="The name of a runtime, or its id (rt_...); not needed if there is only one."),
    ] = None,
    agent: Annotated[str | None, typer.Option(help="The agent that answers; else the coordinator.")] = None,
    thread: Annotated[
        str | None, typer.Option(help="A thread: a key of your own, or its id (thr_...).")
    ] = None,
    inputs: Annotated[str | None, typer.Option(metavar="JSON", help="Inputs of the runtime.")] = None,
    limits: Annotated[
        str | None, typer.Option(metavar="JSON", help="What it may use, such as '{\"maxCostUsd\": 1}'.")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Start it, print its id, and leave.")] = False,
) -> int:
    """Start a query and follow it to its end."""
    text = sys.stdin.read() if prompt == "-" else prompt
    body: dict[str, Any] = {
        "prompt": text,
        "agent": agent,
        "inputs": parse_object("--inputs", inputs),
        "limits": parse_object("--limits", limits),
    }
    if thread is not None:
        body["threadId" if thread.startswith("thr_") else "threadKey"] = thread
    body = {name: value for name, value in body.items() if value is not None}
    try:
        return await _submit(remote, body, runtime, detach=detach)
    except NotFound as error:
        if not str(error).startswith("There is no runtime"):  # but no thread, or no agent
            raise
        names = await _runtimes(remote)
        if runtime is not None or len(names) != 1:
            hints = [f"--runtime takes one of: {', '.join(map(escape_text, names))}"] if names else []
            raise CommandError("\n  ".join([str(error), *hints])) from error
    return await _submit(remote, body, names[0], detach=detach)


async def _submit(remote: Remote, body: dict[str, Any], runtime: str | None, *, detach: bool) -> int:
    """Submit a query, and follow it unless `detach`. Return the exit code."""
    if runtime is not None:
        body = {**body, "runtimeId" if runtime.startswith("rt_") else "runtime": runtime}
    if not detach:
        await remote.get("healthz")  # fail at once if the service cannot be reached
        return await _follow(remote, journals.Journal(body))
    accepted = await remote.post(body, "queries")
    remote.print_answer(accepted, escape_text(accepted["id"]))
    return SUCCESS


async def _runtimes(remote: Remote) -> list[str]:
    """Return the names of the runtimes for an error about a missing or unknown one; none if they cannot be listed."""
    try:
        rows = await remote.list_items(MAX_LISTED_RUNTIMES, "runtimes")
    except PlangateError:
        return []
    return list(dict.fromkeys(runtime["name"] for runtime in rows if not runtime["retiredAt"]))


@remote_command(commands)
async def watch(
    remote: Remote,
    query: QueryId,
) -> int:
    """Follow a query from its beginning to its end."""
    await remote.get("queries", query)  # fail at once if there is no such query
    return await _follow(remote, journals.Journal(query_id=query))


async def _follow(remote: Remote, journal: journals.Journal) -> int:
    """Print a query as it runs; as JSON, one event a line. Return the exit code."""
    watcher = Watcher()
    last = ""
    with print_outages():
        async with aclosing(journal.events(remote.client)) as events:
            async for event in events:
                if not last and not remote.wants_json:
                    print_lines(f"{escape_text(event['queryId'])} in {escape_text(event['threadId'])}")
                last = event["type"]
                if remote.wants_json:
                    print_lines(as_json(event, indent=None))
                else:
                    print_lines(*watcher.lines(event))
                sys.stdout.flush()
                if last in event_types.TERMINAL_TYPES:
                    break
    return SUCCESS if last == SUCCESS_TYPE else NOT_SUCCEEDED


@remote_command(commands)
async def work(
    remote: Remote,
    query: QueryId,
    everything: Annotated[bool, typer.Option("--all", help="The whole tree, however long.")] = False,
) -> None:
    """Show what a query did, what it produced and what it cost."""
    record = await remote.get("queries", query)
    top = await remote.get("work-records", "wrk_" + query.removeprefix("qry_"), tree="true")
    artifacts = await list_artifacts(remote, query)
    changes = await list_events(remote, query, "plan-status-change,action-status-change")
    plans = [await remote.get("plans", id) for id in dict.fromkeys(e["data"]["planId"] for e in changes)]
    if remote.wants_json:
        print_json({"query": record, "work": top, "plans": plans, "artifacts": artifacts})
        return
    width, height = shutil.get_terminal_size((WIDTH, HEIGHT))
    limit = await _limit(remote, query) if record["reason"] == "limit_reached" else None
    calls = await _calls(remote, query) if record["reason"] == "client_call" else []
    fits = None if everything else height - 1  # the prompt of the shell has a line too
    print_lines(
        *work_tree.render_work(
            record,
            top,
            artifacts,
            limit,
            plans=plans,
            calls=calls,
            actions=_actions(changes),
            unknown=_unknown(changes) if record["status"] == "waiting" else [],
            height=fits,
            width=width,
        )
    )


async def _limit(remote: Remote, query: str) -> str | None:
    """Return the limit at which a query waits, from its journal."""
    events = await list_events(remote, query, "query-status")
    limits = [event.get("limit") for event in events if event["to"] == "waiting"]
    return limits[-1] if limits else None


async def _calls(remote: Remote, query: str) -> list[dict[str, Any]]:
    """Return the query's calls for client processes, or none if the key may not see them."""
    try:
        return await remote.list_items(100, "tool-calls", queryId=query)
    except PlangateError:
        return []


def _actions(changes: list[dict[str, Any]]) -> dict[str, list[work_tree.Action]]:
    """Return the actions of plans by the work record that carries them out."""
    by_work: dict[str, dict[work_tree.Action, None]] = {}
    for event in changes:
        if event["type"] == "action-status-change":
            data = event["data"]
            by_work.setdefault(event["workId"], {})[data["index"], str(data["kind"])] = None
    return {work: list(actions) for work, actions in by_work.items()}


def _unknown(changes: list[dict[str, Any]]) -> list[tuple[str, list[work_tree.Action]]]:
    """Return the actions whose outcome is still unknown, by plan and dispatch."""
    last = {
        (event["data"]["planId"], event["data"]["index"]): event
        for event in changes
        if event["type"] == "action-status-change"
    }
    by_plan: dict[tuple[str, str], list[work_tree.Action]] = {}
    for (plan, index), event in sorted(last.items()):
        if event["data"]["to"] == UNKNOWN:
            by_plan.setdefault((plan, event["workId"]), []).append((index, str(event["data"]["kind"])))
    return [(plan, actions) for (plan, _), actions in by_plan.items()]


async def list_events(remote: Remote, query: str, types: str) -> list[dict[str, Any]]:
    """Return all events of these types that the journal has so far."""
    events: list[dict[str, Any]] = []
    after = None
    while True:
        page = await remote.get("queries", query, "events", types=types, limit=500, after=after)
        events += page["events"]
        if page["done"] or not page["events"]:
            return events
        after = page["nextCursor"]


async def list_artifacts(remote: Remote, query: str) -> list[dict[str, Any]]:
    """Return the artifacts that a query published, superseded and withdrawn ones included, newest first."""
    try:
        return await remote.list_items(MAX_ARTIFACTS, "artifacts", queryId=query, includeSuperseded="true")
    except NotFound:  # the query is there, so it is the route that is not: a service without artifacts
        return []


@remote_command(commands)
async def artifacts(
    remote: Remote,
    query: Annotated[str | None, typer.Option(help="Only those of this query.")] = None,
    thread: Annotated[str | None, typer.Option(help="Only those of this thread (thr_...).")] = None,
    channel: Annotated[str | None, typer.Option(help="Only those of this channel.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only those that this agent published.")] = None,
    plan: Annotated[
        str | None, typer.Option(help="Only those that the actions of this plan (pln_...) published.")
    ] = None,
    action: Annotated[int | None, typer.Option(min=0, help="With --plan: only those of this action.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only those with this tag.")] = None,
    superseded: Annotated[
        bool, typer.Option("--superseded", help="Also those that were replaced or withdrawn.")
    ] = False,
    limit: Limit = 50,
) -> None:
    """List what was published, newest first."""
    filters = {
        "queryId": query,
        "threadId": thread,
        "channel": channel,
        "agent": agent,
        "planId": plan,
        "actionIndex": action,
        "tag": tag,
    }
    more = {"includeSuperseded": "true"} if superseded else {}
    artifacts = await list_newest(remote, limit, "artifacts", **filters, **more)
    if remote.wants_json:
        print_json(artifacts)
    elif artifacts:
        print_lines(*(work_tree.artifact_line(a) for a in artifacts))
    else:
        filtered = any(value is not None for value in filters.values())
        typer.echo("No artifacts match." if filtered else "No artifacts yet.", err=True)
