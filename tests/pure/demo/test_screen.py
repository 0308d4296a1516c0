"""The display of a plan in the demos: every character is visible, and no control sequence has an effect."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from examples.common.render import Screen
from examples.flight_recovery.graph.render import GraphScreen
from examples.flight_recovery.render import FlightScreen
from examples.pricing.render import PricingScreen

HIDDEN = "\u3164\u200b\u202e\xa0\x1b[2J\n\ufe0f"
WRITTEN = r"\u3164\u200b\u202e\u00a0\u001b[2J\n\ufe0f"
APPROVAL = {"id": "apr_1", "kind": "plan", "digest": "0" * 64}


def shown(screen: type[Screen], subject: dict[str, Any], **approval: Any) -> str:
    out = io.StringIO()
    screen(Console(file=out, width=400), scripted=True).gate({**APPROVAL, **approval}, subject)
    return out.getvalue()


def plan(*actions: dict[str, Any], **body: Any) -> dict[str, Any]:
    context = {"ends": "2027-04-30", "budget_cents": 1}
    body = {"summary": "", "day": "2013-03-08", "context": context, "actions": list(actions), **body}
    return {"specName": "Day", "revision": 1, "body": body, "references": []}


def action(kind: str, **payload: Any) -> dict[str, Any]:
    return {"kind": kind, "payload": payload, "references": []}


VOUCHER = {"from_minutes": 120, "amount": "75.00", "currency": "USD"}


@pytest.mark.parametrize(
    ("screen", "subject"),
    [
        (FlightScreen, plan(action("issue_voucher", **{**VOUCHER, "currency": HIDDEN}))),
        (FlightScreen, plan(action("notify_operations", carriers=["AA", HIDDEN]))),
        (FlightScreen, plan(action("refund", to=[{"name": HIDDEN}]))),
        (FlightScreen, plan(day=HIDDEN)),
        (FlightScreen, plan(summary=HIDDEN)),
        (PricingScreen, plan(action("promotion", percent=5, code="A", headline=HIDDEN))),
        (PricingScreen, plan(action("promotion", percent=5, code=HIDDEN, headline=""))),
        (GraphScreen, plan(action("split", flights=HIDDEN, carriers=["AA"]))),
        (GraphScreen, plan(action("summarise", totals="t", groups=[HIDDEN]))),
    ],
)
def test_every_character_of_a_plan_can_be_seen(screen: type[Screen], subject: dict[str, Any]) -> None:
    said = shown(screen, subject)
    assert WRITTEN in said
    assert said.replace("\n", "").isprintable()
    assert "\u3164" not in said


def test_escapes_differ_from_literal_text() -> None:
    args = {"code": r"SPRING\u3164", "tags": [r"a\n", HIDDEN], " ": "blank"}
    said = shown(Screen, {"tool": "reserve", "args": args}, kind="tool")
    assert r"SPRING\\u3164" in said
    assert rf'["a\\n", "{WRITTEN}"]' in said
    assert r"\u0020  blank" in said


def test_events_reach_the_terminal_only_as_text() -> None:
    out = io.StringIO()
    screen = FlightScreen(Console(file=out, width=400), scripted=False)
    outcome = {"outcome": "reject"}
    for event in (
        {"type": "text", "text": HIDDEN},
        {"type": "tool-invocation", "state": "error", "toolName": "x", "error": {"message": HIDDEN}},
        {"type": "tool-invocation", "state": "call", "toolName": "x", "args": {"a": [HIDDEN]}},
        {"type": "tool-progress", "label": f"{HIDDEN}\nplanner      calls nothing"},
        {"type": "approval-decision", "data": {"outcome": outcome, "feedback": HIDDEN, "decidedBy": HIDDEN}},
        {"type": "error", "error": {"code": "x", "message": HIDDEN}},
    ):
        screen.show({"agent": "planner", "workId": "wrk_1", **event})
    action = {"index": 0, "kind": "x", "status": "failed", "workId": "w", "error": {"message": HIDDEN}}
    screen.end([action], {}, None)
    said = out.getvalue()
    assert all(line.isprintable() for line in said.splitlines())
    assert not any(line.startswith("planner      calls nothing") for line in said.splitlines())
    assert r"\u001b[2J" in said
