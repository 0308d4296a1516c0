"""The prompt of a query: text for a model, or the script that replaces one.

A script is JSON: the calls that an agent makes, one after the other. `{"$result": ...}` puts a value from the
results of the agent's earlier calls into the next one. The scripts of the two other agents stand inside the
coordinator's: the planner's as text, because its `$result`s are its own; the executor's as an object.
"""

from __future__ import annotations

import json
import re
from datetime import date
from decimal import Decimal
from typing import Any

from examples.flight_recovery.system import (
    CURRENCY,
    EXECUTOR,
    FIND_TOOL,
    MESSAGE,
    PLAN,
    PLANNER,
    REASON,
    STANDARD_AMOUNT,
    bands,
)

_AMOUNT = re.compile(r"(?<![\d.])\d{1,4}(?:\.\d{1,2})?(?![\d.]*\d)")


def in_words(day: date, limit_minutes: int) -> str:
    """Return the task for a coordinator with a model."""
    return (
        f"Departures on {day} ran late. Find those that left {limit_minutes} minutes late or more, plan vouchers "
        "for their passengers, have the operations desks of the carriers with most of them told, and have the plan "
        "carried out."
    )


def as_script(day: date, limit_minutes: int, plan_id: str, amount: str = STANDARD_AMOUNT) -> str:
    """Return the same task for a coordinator without one. `amount` is that of the standard voucher."""
    planner = [
        _call(FIND_TOOL, day=day.isoformat(), limit_minutes=limit_minutes),
        _call("storePlan", specName=PLAN, planId=plan_id, body=_body(day, limit_minutes, amount)),
    ]
    executor = [_call("executePlan", planId={"$result": "[0].results[1].result.planId"})]
    coordinator = [
        _call("call_agent", agent=PLANNER, prompt=json.dumps({"script": planner})),
        _call("call_agent", agent=EXECUTOR, prompt={"script": executor}),
    ]
    return json.dumps({"script": coordinator})


def amount_in(feedback: str) -> str | None:
    """Return the first amount that the text names, with two decimals: all that a script understands of feedback."""
    found = _AMOUNT.search(feedback)
    return f"{Decimal(found[0]):.2f}" if found else None


def _body(day: date, limit_minutes: int, amount: str) -> dict[str, Any]:
    """Return a plan over the handle and the glimpse that the planner's first call returned."""
    handle = {"$result": "[0].{kind: kind, id: id}"}
    vouchers = [
        {
            "kind": "issue_voucher",
            "amount": worth,
            "currency": CURRENCY,
            "from_minutes": start,
            "below_minutes": end,
            "reason": REASON.format(start),
            "references": [handle],
        }
        for start, end, worth in bands(limit_minutes, amount)
    ]
    told = {
        "kind": "notify_operations",
        "carriers": {"$result": "[0].glimpse.by_carrier[].carrier"},
        "message": MESSAGE,
        "references": [handle],
    }
    summary = f"Vouchers for departures {limit_minutes} minutes late or more; the carriers hit most are told."
    return {"day": day.isoformat(), "summary": summary, "actions": [*vouchers, told]}


def _call(tool: str, **args: Any) -> dict[str, Any]:
    return {"tool": tool, "args": args}
