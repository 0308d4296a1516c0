"""The commands `approvals`: what waits for a person, shown to the last character, and decided."""

from __future__ import annotations

import hashlib
import signal
import sys
from typing import Annotated, Any

import typer

from plangate.cli.commands import print_newest, remote_command
from plangate.cli.connection import USAGE, CommandError, Remote, print_lines
from plangate.cli.listing import format_minute
from plangate.cli.options import ApprovalId, Feedback, Limit, parse_json
from plangate.cli.terminal_text import escape_text, printable_json, truncate

approvals = typer.Typer(no_args_is_help=True, help="Approvals: list and decide them.")

WIDTHS = [0, 10, 60, 20, 0, 30]


@remote_command(approvals, "list")
async def list_approvals(
    remote: Remote,
    status: Annotated[
        str, typer.Option(help="pending, approved, rejected, revised, expired, cancelled or all.")
    ] = "pending",
    query: Annotated[str | None, typer.Option(help="Only those of this query.")] = None,
    for_me: Annotated[bool, typer.Option("--for-me", help="Only those that this key can decide.")] = False,
    limit: Limit = 50,
) -> None:
    """List approvals, newest first."""
    status_filter = None if status == "all" else status
    can_decide = "true" if for_me else None
    await print_newest(
        remote, limit, "approvals", _row, WIDTHS, status=status_filter, queryId=query, canDecide=can_decide
    )


def _row(approval: dict[str, Any]) -> list[str]:
    label = approval.get("label")
    what = f"{approval['kind']} {approval['target']}" + (f" ({label})" if label else "")
    until = f"until {format_minute(approval['expiresAt'])}" if approval["status"] == "pending" else ""
    return [approval["id"], approval["status"], what, approval["agent"] or "-", approval["queryId"], until]


@remote_command(approvals, "approve")
async def approve(
    remote: Remote,
    approval: ApprovalId,
    digest: Annotated[
        str | None, typer.Option(help="Approve if the subject has this digest; ask nobody.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Approve what is shown without asking.")] = False,
    feedback: Feedback = None,
) -> None:
    """Approve the exact bytes that are shown."""
    record = await remote.get("approvals", approval)
    # With a digest, it may be the same decision again.
    if digest is None and record["status"] != "pending":
        by = f" by {truncate(record['decidedBy'], 60)}" if record["decidedBy"] else ""
        raise CommandError(f"There is nothing to decide: {approval} is {escape_text(record['status'])}{by}.")
    subject = await remote.get_bytes("approvals", approval, "subject")
    subject_digest = hashlib.sha256(subject).hexdigest()
    if digest is not None and digest.lower() != subject_digest:
        raise CommandError(
            f"{approval} is about something else than {digest}: its subject has the digest {subject_digest}."
        )
    if not remote.wants_json:
        print_lines(*_subject_lines(record, subject, subject_digest))
    if digest is None and remote.wants_json:
        raise CommandError("--json shows no subject: pass --digest (the digest you reviewed).", USAGE)
    if digest is None and not yes:
        if not sys.stdin.isatty():
            raise CommandError("Not a terminal: pass --digest (the digest you reviewed) or --yes.", USAGE)
        if not _confirm():
            raise CommandError("Nothing was decided.")
    await _decide(remote, approval, "approve", digest=subject_digest, feedback=feedback)


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


@remote_command(approvals, "reject")
async def reject(remote: Remote, approval: ApprovalId, feedback: Feedback = None) -> None:
    """Reject the call or plan; it is not carried out."""
    await _decide(remote, approval, "reject", feedback=feedback)


@remote_command(approvals, "revise")
async def revise(
    remote: Remote,
    approval: ApprovalId,
    feedback: Annotated[str, typer.Option(help="What is to be different.")],
    partial: Annotated[str | None, typer.Option(metavar="JSON", help="What may stay.")] = None,
) -> None:
    """Ask for another plan."""
    partial_result = None if partial is None else parse_json("--partial", partial)
    await _decide(remote, approval, "revise", feedback=feedback, partial=partial_result)


def _subject_lines(approval: dict[str, Any], subject: bytes, digest: str) -> list[str]:
    by_agent = f" by {escape_text(approval['agent'])}" if approval["agent"] else ""
    what = f"{escape_text(approval['kind'])} {truncate(approval['target'], 80)}"
    lines = [f"{escape_text(approval['id'])}: {what}{by_agent} in {escape_text(approval['queryId'])}"]
    text = subject.decode(errors="surrogateescape")  # bytes that are no text are written out, each by itself
    return [*lines, *(f"  {line}" for line in printable_json(text)), f"digest: {digest}"]


async def _decide(remote: Remote, approval: str, decision: str, **parts: Any) -> None:
    body = {name: value for name, value in parts.items() if value is not None}
    answer = await remote.post({"decision": decision, **body}, "approvals", approval)
    by = f" by {truncate(answer['decidedBy'], 60)}" if answer.get("decidedBy") else ""
    votes = f", {len(answer['votes'])} of its votes are in" if answer["status"] == "pending" else ""
    text = f"{escape_text(answer['id'])} is {escape_text(answer['status'])}{by}{votes}."
    remote.print_answer(answer, text)
