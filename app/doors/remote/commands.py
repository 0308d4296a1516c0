"""The commands `query`, `watch`, `work`, `artifacts` and `approvals`."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any

import typer
from plangate.errors import NotFound, PlangateError
from plangate.events import TERMINAL_TYPES
from plangate.journal import Journal

from app.doors.remote import worktree
from app.doors.remote.connection import DONE, NOT_SUCCEEDED, USAGE, Remote, Stop, Target, run, say, say_json
from app.doors.remote.text import as_json, cut, safe, safe_lines, table
from app.doors.remote.watching import ENDED_WELL, Watcher

approvals = typer.Typer(no_args_is_help=True, help="What waits for a person: list it and decide.")

Url = Annotated[str | None, typer.Option(help="The service; else PLANGATE_URL, else that of this machine.")]
KeyFile = Annotated[Path | None, typer.Option(help="A file with an API key; else PLANGATE_API_KEY.")]
DataDir = Annotated[Path | None, typer.Option(help="Where the service of this machine keeps its key.")]
Tenant = Annotated[str | None, typer.Option(help="The tenant, where the key is the operator's.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
QueryId = Annotated[str, typer.Argument(metavar="QUERY", help="The id of a query (qry_...).")]
ApprovalId = Annotated[str, typer.Argument(metavar="APPROVAL", help="The id of an approval (apr_...).")]
Feedback = Annotated[str | None, typer.Option(help="What the agent is told.")]
Limit = Annotated[int, typer.Option(min=1, max=10_000, help="How many at most.")]

NAMED = 50
WIDTH, HEIGHT = 100, 40  # where nobody says how large the screen is


def query(
    prompt: Annotated[str, typer.Argument(help="What is asked; - reads it from standard input.")],
    runtime: Annotated[str | None, typer.Option(help="The name of a runtime, or its id (rt_...).")] = None,
    agent: Annotated[str | None, typer.Option(help="The agent that answers; else the coordinator.")] = None,
    thread: Annotated[
        str | None, typer.Option(help="A thread: a key of your own, or its id (thr_...).")
    ] = None,
    inputs: Annotated[str | None, typer.Option(metavar="JSON", help="Inputs of the runtime.")] = None,
    limits: Annotated[
        str | None, typer.Option(metavar="JSON", help="What it may use, such as '{\"maxCostUsd\": 1}'.")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Start it, print its id, and leave.")] = False,
    url: Url = None,
    key_file: KeyFile = None,
    data_dir: DataDir = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Start a query and follow it to its end."""

    async def asked(remote: Remote) -> int:
        body: dict[str, Any] = {"prompt": sys.stdin.read() if prompt == "-" else prompt, "agent": agent}
        if runtime is not None:
            body["runtimeId" if runtime.startswith("rt_") else "runtime"] = runtime
        if thread is not None:
            body["threadId" if thread.startswith("thr_") else "threadKey"] = thread
        body |= {"inputs": _object("--inputs", inputs), "limits": _object("--limits", limits)}
        body = {name: value for name, value in body.items() if value is not None}
        if not detach:
            await remote.get("healthz")  # whether it is there is said at once
            return await _follow(remote, Journal(body), as_json)
        accepted = await remote.post(body, "queries")
        if as_json:
            say_json(accepted)
        else:
            say(safe(accepted["id"]))
        return DONE

    async def asked_of_one_that_is_there(remote: Remote) -> int:
        try:
            return await asked(remote)
        except NotFound as error:
            if not str(error).startswith("There is no runtime"):  # but no thread, or no agent
                raise
            raise Stop("\n  ".join([str(error), *await _runtimes(remote)])) from error

    run(Target.found(url, key_file, data_dir, tenant), asked_of_one_that_is_there)


async def _runtimes(remote: Remote) -> list[str]:
    """Which runtimes there are, for somebody who named none or a wrong one; nothing where that cannot be told."""
    try:
        found = await remote.listed(NAMED, "runtimes")
    except PlangateError:
        return []
    names = dict.fromkeys(safe(runtime["name"]) for runtime in found if not runtime["retiredAt"])
    return [f"--runtime takes one of: {', '.join(names)}"] if names else []


def watch(
    query: QueryId,
    url: Url = None,
    key_file: KeyFile = None,
    data_dir: DataDir = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Follow a query from its beginning to its end."""

    async def watched(remote: Remote) -> int:
        await remote.get("queries", query)  # a query that there is not is said at once
        return await _follow(remote, Journal(query_id=query), as_json)

    run(Target.found(url, key_file, data_dir, tenant), watched)


async def _follow(remote: Remote, journal: Journal, as_events: bool) -> int:
    """Prints a query as it happens; one JSON object a line where that is wanted."""
    watcher = Watcher()
    last = ""
    async with aclosing(journal.events(remote.client)) as events:
        async for event in events:
            if not last and not as_events:
                say(f"{safe(event['queryId'])} in {safe(event['threadId'])}")
            last = event["type"]
            if as_events:
                say(as_json(event, indent=None))
            else:
                say(*watcher.lines(event))
            sys.stdout.flush()
            if last in TERMINAL_TYPES:
                break
    return DONE if last == ENDED_WELL else NOT_SUCCEEDED


def work(
    query: QueryId,
    everything: Annotated[bool, typer.Option("--all", help="The whole tree, however long.")] = False,
    url: Url = None,
    key_file: KeyFile = None,
    data_dir: DataDir = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Show what a query did, what it produced and what it cost."""

    async def shown(remote: Remote) -> int:
        found = await remote.get("queries", query)
        top = await remote.get("work-records", "wrk_" + query.removeprefix("qry_"), tree="true")
        artifacts = await _published(remote, query)
        plans = await _plans(remote, query)
        if as_json:
            say_json({"query": found, "work": top, "plans": plans, "artifacts": artifacts})
            return DONE
        width, height = shutil.get_terminal_size((WIDTH, HEIGHT))
        limit = await _limit(remote, query) if found["reason"] == "limit_reached" else None
        calls = await _calls(remote, query) if found["reason"] == "client_call" else []
        fits = None if everything else height - 1  # the prompt of the shell has a line too
        say(
            *worktree.screen(found, top, artifacts, limit, plans=plans, calls=calls, height=fits, width=width)
        )
        return DONE

    run(Target.found(url, key_file, data_dir, tenant), shown)


async def _limit(remote: Remote, query: str) -> str | None:
    """The limit at which a query stands, as its journal says."""
    events = await events_of(remote, query, "query-status")
    limits = [event.get("limit") for event in events if event["to"] == "waiting"]
    return limits[-1] if limits else None


async def _calls(remote: Remote, query: str) -> list[dict[str, Any]]:
    """The calls for processes of users; none where the key may not see them."""
    try:
        return await remote.listed(100, "tool-calls", queryId=query)
    except PlangateError:
        return []


async def _plans(remote: Remote, query: str) -> list[dict[str, Any]]:
    """The plans that the query stored or executed, as they are now."""
    events = await events_of(remote, query, "plan-status-change")
    ids = dict.fromkeys(event["data"]["planId"] for event in events)
    return [await remote.get("plans", id) for id in ids]


async def events_of(remote: Remote, query: str, type_: str) -> list[dict[str, Any]]:
    """All events of a type that the journal has by now."""
    found: list[dict[str, Any]] = []
    after = None
    while True:
        page = await remote.get("queries", query, "events", types=type_, limit=500, after=after)
        found += page["events"]
        if page["done"] or not page["events"]:
            return found
        after = page["nextCursor"]


async def _published(remote: Remote, query: str) -> list[dict[str, Any]]:
    try:
        return await _artifacts(remote, 500, queryId=query, includeSuperseded="true")
    except NotFound:  # the query is there, so it is the route that is not: a service without artifacts
        return []


async def _artifacts(remote: Remote, limit: int, **filters: Any) -> list[dict[str, Any]]:
    return await remote.listed(limit, "artifacts", **filters)


def artifacts(
    query: Annotated[str | None, typer.Option(help="Only those of this query.")] = None,
    thread: Annotated[str | None, typer.Option(help="Only those of this thread (thr_...).")] = None,
    channel: Annotated[str | None, typer.Option(help="Only those of this channel.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only those that this agent published.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only those with this tag.")] = None,
    superseded: Annotated[bool, typer.Option("--superseded", help="Also those that were replaced.")] = False,
    limit: Limit = 50,
    url: Url = None,
    key_file: KeyFile = None,
    data_dir: DataDir = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """List what was published, newest first."""

    async def listed(remote: Remote) -> int:
        given = {"queryId": query, "threadId": thread, "channel": channel, "agent": agent, "tag": tag}
        more = {"includeSuperseded": "true"} if superseded else {}
        found = await _artifacts(remote, limit, **given, **more)
        if as_json:
            say_json(found)
            return DONE
        say(*(worktree.artifact_line(a) for a in found))
        return DONE

    run(Target.found(url, key_file, data_dir, tenant), listed)


@approvals.command("list")
def list_approvals(
    status: Annotated[
        str, typer.Option(help="pending, approved, rejected, revised, expired, cancelled or all.")
    ] = "pending",
    query: Annotated[str | None, typer.Option(help="Only those of this query.")] = None,
    limit: Limit = 50,
    url: Url = None,
    key_file: KeyFile = None,
    data_dir: DataDir = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """List approvals, newest first."""

    async def listed(remote: Remote) -> int:
        wanted = None if status == "all" else status
        found = await remote.listed(limit, "approvals", status=wanted, queryId=query)
        if as_json:
            say_json(found)
            return DONE
        rows = [
            [
                a["id"],
                a["status"],
                f"{a['kind']} {a['target']}",
                a["agent"] or "-",
                a["queryId"],
                f"until {str(a['expiresAt'])[:16].replace('T', ' ')} UTC" if a["status"] == "pending" else "",
            ]
            for a in found
        ]
        say(*table([[safe(cell) for cell in row] for row in rows], [0, 10, 40, 20, 0, 30]))
        return DONE

    run(Target.found(url, key_file, data_dir, tenant), listed)


@approvals.command("approve")
def approve(
    approval: ApprovalId,
    digest: Annotated[
        str | None, typer.Option(help="Approve if the subject has this digest; ask nobody.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Approve what is shown without asking.")] = False,
    feedback: Feedback = None,
    url: Url = None,
    key_file: KeyFile = None,
    data_dir: DataDir = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Approve the exact bytes that are shown."""

    async def approved(remote: Remote) -> int:
        found = await remote.get("approvals", approval)
        if digest is None and found["status"] != "pending":  # with a digest it may be the same decision again
            by = f" by {cut(found['decidedBy'], 60)}" if found["decidedBy"] else ""
            raise Stop(f"There is nothing to decide: {approval} is {safe(found['status'])}{by}.")
        subject = await remote.bytes_of("approvals", approval, "subject")
        seen = hashlib.sha256(subject).hexdigest()
        if digest is not None and digest.lower() != seen:
            raise Stop(
                f"{approval} is about something else than {digest}: its subject has the digest {seen}."
            )
        if not as_json:
            say(*_shown(found, subject, seen))
        if digest is None and not yes:
            if as_json or not sys.stdin.isatty():
                raise Stop("There is nobody to ask: give --digest of what was read, or --yes.", USAGE)
            if not typer.confirm("Approve exactly this?"):
                raise Stop("Nothing was decided.")
        return await _decide(remote, approval, "approve", as_json, digest=seen, feedback=feedback)

    run(Target.found(url, key_file, data_dir, tenant), approved)


@approvals.command("reject")
def reject(
    approval: ApprovalId,
    feedback: Feedback = None,
    url: Url = None,
    key_file: KeyFile = None,
    data_dir: DataDir = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Reject: what was asked for is not done."""
    target = Target.found(url, key_file, data_dir, tenant)
    run(target, lambda remote: _decide(remote, approval, "reject", as_json, feedback=feedback))


@approvals.command("revise")
def revise(
    approval: ApprovalId,
    feedback: Annotated[str, typer.Option(help="What is to be different.")],
    partial: Annotated[str | None, typer.Option(metavar="JSON", help="What may stay.")] = None,
    url: Url = None,
    key_file: KeyFile = None,
    data_dir: DataDir = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Ask for another plan."""

    async def revised(remote: Remote) -> int:
        kept = None if partial is None else _json("--partial", partial)
        return await _decide(remote, approval, "revise", as_json, feedback=feedback, partial=kept)

    run(Target.found(url, key_file, data_dir, tenant), revised)


def _shown(found: dict[str, Any], subject: bytes, digest: str) -> list[str]:
    who = f" by {safe(found['agent'])}" if found["agent"] else ""
    lines = [
        f"{safe(found['id'])}: {safe(found['kind'])} {cut(found['target'], 80)}{who} in {safe(found['queryId'])}"
    ]
    try:
        text = json.dumps(json.loads(subject), indent=2, ensure_ascii=False)
    except ValueError:
        text = subject.decode(errors="backslashreplace")
    return [*lines, *(f"  {line}" for line in safe_lines(text)), f"digest: {digest}"]


async def _decide(remote: Remote, approval: str, decision: str, printed_as_json: bool, **parts: Any) -> int:
    said = {name: value for name, value in parts.items() if value is not None}
    answer = await remote.post({"decision": decision, **said}, "approvals", approval)
    if printed_as_json:
        say_json(answer)
        return DONE
    by = f" by {cut(answer['decidedBy'], 60)}" if answer.get("decidedBy") else ""
    votes = f", {len(answer['votes'])} of its votes are in" if answer["status"] == "pending" else ""
    say(f"{safe(answer['id'])} is {safe(answer['status'])}{by}{votes}.")
    return DONE


def _json(option: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise Stop(f"{option} is not JSON: {error}.", USAGE) from error


def _object(option: str, text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    value = _json(option, text)
    if not isinstance(value, dict):
        raise Stop(f"{option} must be a JSON object.", USAGE)
    return value
