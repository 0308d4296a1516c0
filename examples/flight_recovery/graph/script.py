"""What a query asks: in words for a model, or as the script that stands in for one. `plan.json` has the plan, as a host
would store it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from examples.flight_recovery.system import EXECUTOR, PLANNER, STANDARD_AMOUNT

STORED = Path(__file__).with_name("plan.json")
IN_WORDS = (
    "Departures from New York ran late. Plan vouchers for the passengers of each carrier, and have the plan carried "
    "out. Day and limit are in the inputs."
)


def as_script(plan_id: str, amount: str = STANDARD_AMOUNT) -> str:
    """Return the same task for a coordinator without a model. `amount` is that of the standard voucher."""
    plan = json.loads(STORED.read_text("utf-8"))
    stored = {"specName": plan["specName"], "planId": plan_id, "body": _with_amount(plan["body"], amount)}
    coordinator = [
        _asking(PLANNER, "storePlan", stored),
        _asking(EXECUTOR, "executePlan", {"planId": {"$result": "[0].results[0].result.planId"}}),
    ]
    return json.dumps({"script": coordinator}, ensure_ascii=False)


def _with_amount(body: dict[str, Any], amount: str) -> dict[str, Any]:
    actions = [{**action, "amount": amount} if "amount" in action else action for action in body["actions"]]
    return {**body, "actions": actions}


def _asking(agent: str, tool: str, args: dict[str, Any]) -> dict[str, Any]:
    prompt = {"script": [{"tool": tool, "args": args}]}
    return {"tool": "call_agent", "args": {"agent": agent, "prompt": prompt}}
