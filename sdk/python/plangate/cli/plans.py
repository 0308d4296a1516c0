"""The commands `plans`: list plans, and settle actions whose outcome is unknown."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, get_args

import typer

from plangate.cli.commands import print_newest, remote_command
from plangate.cli.connection import Remote
from plangate.cli.listing import format_minute
from plangate.cli.options import Limit, parse_json
from plangate.cli.terminal_text import escape_text
from plangate.cli.work_tree import plan_state
from plangate.statuses import PlanStatus, UnapprovedStatus

plans = typer.Typer(no_args_is_help=True, help="Plans: list them, settle actions whose outcome is unknown.")

DECISIONS = " or ".join(get_args(UnapprovedStatus))
WIDTHS = [0, 40, 40, 0, 0]


class Outcome(StrEnum):
    """The outcome that a person found for an action."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    RETRY = "retry"


@remote_command(plans, "list")
async def list_plans(
    remote: Remote,
    status: Annotated[PlanStatus | None, typer.Option(help="Only plans with this status.")] = None,
    thread: Annotated[str | None, typer.Option(help="Only those of this thread (thr_...).")] = None,
    spec: Annotated[str | None, typer.Option(help="Only those of this PlanSpec.")] = None,
    decision: Annotated[
        str | None,
        typer.Option(help=f"{DECISIONS}: only those whose current revision got this decision."),
    ] = None,
    limit: Limit = 50,
) -> None:
    """List plans, newest first."""
    filters = {"status": status, "threadId": thread, "specName": spec, "decision": decision}
    await print_newest(remote, limit, "plans", _row, WIDTHS, **filters)


def _row(plan: dict[str, Any]) -> list[str]:
    state, updated = plan_state(plan), format_minute(plan["updatedAt"])
    return [plan["id"], state, plan["specName"], updated, plan["queryId"] or ""]


@remote_command(plans, "settle")
async def settle(
    remote: Remote,
    plan: Annotated[str, typer.Argument(metavar="PLAN", help="The id of a plan (pln_...).")],
    action: Annotated[int, typer.Argument(metavar="ACTION", min=0, help="The index of one of its actions.")],
    outcome: Annotated[
        Outcome,
        typer.Argument(
            metavar="OUTCOME", help="succeeded, failed, or retry: it is sent again under its key."
        ),
    ],
    details: Annotated[
        str | None, typer.Option(metavar="JSON", help="What is kept with it: its result, or why it failed.")
    ] = None,
) -> None:
    """Settle an action whose outcome is unknown, and with it those that were sent together with it.

    The key needs the scope plans:settle. The plan goes on from there.
    """
    body = {"outcome": outcome.value}
    if details is not None:
        body["details"] = parse_json("--details", details)
    answer = await remote.post(body, "plans", plan, "actions", str(action))
    what = f"Action {answer['index']} ({escape_text(answer['kind'])}) of {escape_text(plan)}"
    remote.print_answer(answer, f"{what} is {escape_text(answer['status'])}.")
