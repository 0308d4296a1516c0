"""The commands `plans`: list plans, and settle actions whose outcome is unknown."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from plangate.cli.connection import SUCCESS, Remote, Target, print_json, print_lines, run
from plangate.cli.listing import format_minute, list_newest, print_table
from plangate.cli.options import DataDir, Json, KeyFile, Limit, Tenant, Url, parse_json
from plangate.cli.terminal_text import escape_text
from plangate.cli.work_tree import plan_state
from plangate.statuses import PlanStatus

plans = typer.Typer(no_args_is_help=True, help="Plans: list them, settle actions whose outcome is unknown.")

WIDTHS = [0, 40, 40, 0, 0]


class Outcome(StrEnum):
    """What somebody found out about an action whose outcome is unknown."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    RETRY = "retry"


@plans.command("list")
def list_plans(
    status: Annotated[PlanStatus | None, typer.Option(help="Only plans with this status.")] = None,
    thread: Annotated[str | None, typer.Option(help="Only those of this thread (thr_...).")] = None,
    spec: Annotated[str | None, typer.Option(help="Only those of this PlanSpec.")] = None,
    decision: Annotated[
        str | None,
        typer.Option(help="rejected or revised: only those whose current revision got this decision."),
    ] = None,
    limit: Limit = 50,
    url: Url = None,
    key_file: KeyFile = None,
    data_dir: DataDir = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """List plans, newest first."""

    async def listed(remote: Remote) -> int:
        filters = {"status": status, "threadId": thread, "specName": spec, "decision": decision}
        found = await list_newest(remote, limit, "plans", **filters)
        if as_json:
            print_json(found)
        else:
            rows = [
                [p["id"], plan_state(p), p["specName"], format_minute(p["updatedAt"]), p["queryId"] or ""]
                for p in found
            ]
            print_table(rows, WIDTHS, "plan")
        return SUCCESS

    run(Target.from_options(url, key_file, data_dir, tenant), listed)


@plans.command("settle")
def settle(
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
    url: Url = None,
    key_file: KeyFile = None,
    data_dir: DataDir = None,
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """Settle an action whose outcome is unknown, and with it those that were sent together with it.

    The key needs the scope plans:settle. The plan goes on from there.
    """

    async def settled(remote: Remote) -> int:
        body = {"outcome": outcome.value}
        if details is not None:
            body["details"] = parse_json("--details", details)
        answer = await remote.post(body, "plans", plan, "actions", str(action))
        if as_json:
            print_json(answer)
        else:
            what = f"Action {answer['index']} ({escape_text(answer['kind'])}) of {escape_text(plan)}"
            print_lines(f"{what} is {escape_text(answer['status'])}.")
        return SUCCESS

    run(Target.from_options(url, key_file, data_dir, tenant), settled)
