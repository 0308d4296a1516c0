"""The scripts that replace a model."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest
from plangate.spec.toolkits import TEAM_TOOLS, builtin_tools

from app.llm.scripted import parse_script
from examples.flight_recovery.ledger import Ledger
from examples.flight_recovery.script import amount_in, as_script
from examples.flight_recovery.system import FlightRecovery, bands, define


def test_the_scripts_are_scripts() -> None:
    coordinator = parse_script(as_script(date(2013, 3, 8), 120, "p1")).steps
    assert [step.args["agent"] for step in coordinator] == ["planner", "executor"]
    planner = parse_script(coordinator[0].args["prompt"]).steps
    assert [step.tool for step in planner] == ["find_delayed_departures", "storePlan"]


def test_the_plan_in_the_script_is_valid() -> None:
    coordinator = parse_script(as_script(date(2013, 3, 8), 120, "p1", "60.00")).steps
    body = parse_script(coordinator[0].args["prompt"]).steps[1].args["body"]
    for action in body["actions"]:
        assert action.pop("references") == [{"$result": "[0].{kind: kind, id: id}"}]
    body["actions"][-1]["carriers"] = ["EV", "B6"]  # what the $result gives
    plan = FlightRecovery.model_validate_json(json.dumps(body))
    assert [getattr(action, "amount", None) for action in plan.actions] == ["60.00", "200.00", None]


def test_bands_cover_every_delay_once() -> None:
    assert bands(120) == [(120, 240, "75.00"), (240, None, "200.00")]
    assert bands(240) == [(240, None, "200.00")]
    assert bands(300) == [(300, None, "200.00")]


@pytest.mark.parametrize(
    ("feedback", "amount"),
    [
        ("50", "50.00"),
        ("make it 60.5 USD", "60.50"),
        ("give them 120.00.", "120.00"),
        ("less", None),
        ("123456", None),
        ("1.2.3", None),
    ],
)
def test_amounts_in_feedback(feedback: str, amount: str | None) -> None:
    assert amount_in(feedback) == amount


@pytest.mark.parametrize("scripted", [True, False])
def test_the_same_system_with_a_model_and_without(tmp_path: Path, scripted: bool) -> None:
    ledger = Ledger(tmp_path / "l.sqlite")
    wire = define(ledger, tenant="local", model="m-1", limit_minutes=120, scripted=scripted).wire
    assert wire.pop("interpreter", None) == ("scripted" if scripted else None)
    other = define(ledger, tenant="local", model="m-1", limit_minutes=120, scripted=not scripted).wire
    assert wire == {key: value for key, value in other.items() if key != "interpreter"}


def test_no_agent_can_read_the_flights(tmp_path: Path) -> None:
    """The executor's own `resolveRef` would bring the rows into a prompt."""
    defined = define(
        Ledger(tmp_path / "l.sqlite"), tenant="local", model="m-1", limit_minutes=120, scripted=True
    )
    held = {tool.name for agent in defined.spec.agents for tool in builtin_tools(defined.spec, agent)}
    assert held == {"call_agent", "storePlan", "getPlan", "executePlan", *TEAM_TOOLS}
