"""The commands `approvals`: what waits for a person, shown to the last character, and decided."""

from __future__ import annotations

import hashlib
import signal
import sys
from typing import Annotated, Any

import typer

from plangate.cli.connection import SUCCESS, USAGE, CommandError, Remote, Target, print_json, print_lines, run
from plangate.cli.listing import format_minute, list_newest, print_table
from plangate.cli.options import ApprovalId, DataDir, Feedback, Json, KeyFile, Limit, Tenant, Url, parse_json
from plangate.cli.terminal_text import escape_text, printable_json, truncate

approvals = typer.Typer(no_args_is_help=True, help="Approvals: list and decide them.")

WIDTHS = [0, 10, 60, 20, 0, 30]


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
        found = await list_newest(remote, limit, "approvals", status=wanted, queryId=query)
        if as_json:
            print_json(found)
        else:
            print_table([_row(approval) for approval in found], WIDTHS, "approval")
        return SUCCESS

    run(Target.from_options(url, key_file, data_dir, tenant), listed)


def _row(approval: dict[str, Any]) -> list[str]:
    label = approval.get("label")
    what = f"{approval['kind']} {approval['target']}" + (f" ({label})" if label else "")
    until = f"until {format_minute(approval['expiresAt'])}" if approval["status"] == "pending" else ""
    return [approval["id"], approval["status"], what, approval["agent"] or "-", approval["queryId"], until]


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
            by = f" by {truncate(found['decidedBy'], 60)}" if found["decidedBy"] else ""
            raise CommandError(
                f"There is nothing to decide: {approval} is {escape_text(found['status'])}{by}."
            )
        subject = await remote.get_bytes("approvals", approval, "subject")
        seen = hashlib.sha256(subject).hexdigest()
        if digest is not None and digest.lower() != seen:
            raise CommandError(
                f"{approval} is about something else than {digest}: its subject has the digest {seen}."
            )
        if not as_json:
            print_lines(*_print_subject(found, subject, seen))
        if digest is None and as_json:
            raise CommandError("--json shows no subject: pass --digest (the digest you reviewed).", USAGE)
        if digest is None and not yes:
            if not sys.stdin.isatty():
                raise CommandError("Not a terminal: pass --digest (the digest you reviewed) or --yes.", USAGE)
            if not _confirm():
                raise CommandError("Nothing was decided.")
        return await _decide(remote, approval, "approve", as_json, digest=seen, feedback=feedback)

    run(Target.from_options(url, key_file, data_dir, tenant), approved)


def _confirm() -> bool:
    """Ask the user at the terminal. An interrupt is a no, at once: asyncio would handle it only after the answer."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return typer.confirm("Approve exactly this?")
    except typer.Abort:  # interrupted, or the input has ended
        print_lines("")
        return False
    finally:
        signal.signal(signal.SIGINT, before)


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
    """Reject the call or plan; it is not carried out."""
    target = Target.from_options(url, key_file, data_dir, tenant)
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
        kept = None if partial is None else parse_json("--partial", partial)
        return await _decide(remote, approval, "revise", as_json, feedback=feedback, partial=kept)

    run(Target.from_options(url, key_file, data_dir, tenant), revised)


def _print_subject(found: dict[str, Any], subject: bytes, digest: str) -> list[str]:
    who = f" by {escape_text(found['agent'])}" if found["agent"] else ""
    what = f"{escape_text(found['kind'])} {truncate(found['target'], 80)}"
    lines = [f"{escape_text(found['id'])}: {what}{who} in {escape_text(found['queryId'])}"]
    text = subject.decode(errors="surrogateescape")  # bytes that are no text are written out, each by itself
    return [*lines, *(f"  {line}" for line in printable_json(text)), f"digest: {digest}"]


async def _decide(remote: Remote, approval: str, decision: str, printed_as_json: bool, **parts: Any) -> int:
    said = {name: value for name, value in parts.items() if value is not None}
    answer = await remote.post({"decision": decision, **said}, "approvals", approval)
    if printed_as_json:
        print_json(answer)
        return SUCCESS
    by = f" by {truncate(answer['decidedBy'], 60)}" if answer.get("decidedBy") else ""
    votes = f", {len(answer['votes'])} of its votes are in" if answer["status"] == "pending" else ""
    print_lines(f"{escape_text(answer['id'])} is {escape_text(answer['status'])}{by}{votes}.")
    return SUCCESS
