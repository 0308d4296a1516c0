"""The prompt of a query: text for a model, or the script that replaces one.

A script is JSON: the calls that an agent makes, one after the other. `{"$result": ...}` puts a value from the
results of the agent's earlier calls into the next one. The scripts of the two other agents stand inside the
coordinator's: the planner's as text, because its `$result`s are its own; the executor's as an object.
"""

from __future__ import annotations

import json
import re
from datetime import date
from typing import Any

from examples.pricing.system import COPYWRITER, EXECUTOR, PLAN, PLANNER

CODE, ENDS = "SPRING", date(2027, 4, 30)
MARKDOWN, DISCOUNT, MIN_STOCK = -20, 30, 40  # percent, percent, pieces

_PERCENT = re.compile(r"(?<![\w.,])([1-9]|[1-4][0-9]|50)(?![\w]|[.,]\d)")


def in_words() -> str:
    """Return the task for a coordinator with a model."""
    return (
        f"Winter is over. Mark the winter products of which we have {MIN_STOCK} or more down by "
        f"{-MARKDOWN} %, promote all spring products with {DISCOUNT} % off under the code {CODE} "
        f"until {ENDS}, and have the plan carried out."
    )


def as_script(plan_id: str, discount: int = DISCOUNT) -> str:
    """Return the same task for a coordinator without one. `discount` is that of the promotion."""
    winter, spring = ({"$result": f"[{n}].{{kind: kind, id: id}}"} for n in (0, 1))
    body = {
        "summary": "Winter goes, spring comes.",
        "context": {"ends": ENDS.isoformat(), "budget_cents": {"$result": "[2].budget_cents"}},
        "actions": [
            {"kind": "price_change", "percent": MARKDOWN, "references": [winter]},
            {
                "kind": "promotion",
                "code": CODE,
                "percent": discount,
                "headline": {"$result": "[3].headline"},
                "references": [spring],
            },
        ],
    }
    planner = [
        _call("find_products", season="winter", min_stock=MIN_STOCK),
        _call("find_products", season="spring", min_stock=0),
        _call("reserve_budget", code=CODE, percent=discount, products=spring),
        _call("call_agent", agent=COPYWRITER, prompt="A headline for the spring promotion."),
        _call("storePlan", specName=PLAN, planId=plan_id, body=body),
    ]
    executor = [_call("executePlan", planId={"$result": "[0].results[4].result.planId"})]
    coordinator = [
        _call("call_agent", agent=PLANNER, prompt=json.dumps({"script": planner})),
        _call("call_agent", agent=EXECUTOR, prompt={"script": executor}),
    ]
    return json.dumps({"script": coordinator})


def discount_in(feedback: str) -> int | None:
    """Return the first discount that the text names, 1 to 50 percent: all that a script understands of feedback."""
    found = _PERCENT.search(feedback)
    return int(found[0]) if found else None


def _call(tool: str, **args: Any) -> dict[str, Any]:
    return {"tool": tool, "args": args}
