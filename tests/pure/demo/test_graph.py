"""The graph form of the demo: its plan, its actions, and its display."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from plangate.spec.toolkits import TEAM_TOOLS, builtin_tools

from app.base.schema.checker import SchemaChecker
from app.llm.scripted import parse_script
from app.plans.body import normalize, parse_actions
from app.plans.graph import PlanGraph
from examples.common.graph import Edges, meaning
from examples.flight_recovery.data import Flight
from examples.flight_recovery.graph.script import STORED, as_script
from examples.flight_recovery.graph.system import NAME, PLAN, Summarise, Total, define, summarise, tools
from examples.flight_recovery.ledger import Ledger


def flight(carrier: str, minutes_late: int, number: int = 1) -> dict[str, Any]:
    made = Flight(
        carrier=carrier,
        number=number,
        tail="N1",
        origin="JFK",
        destination="BOS",
        scheduled="08:10",
        minutes_late=minutes_late,
    )
    return made.model_dump()


FLIGHTS = [flight("EV", 130), flight("HA", 239), flight("DL", 240), flight("DL", 400, number=2)]
STORED_PLAN: dict[str, Any] = json.loads(STORED.read_text("utf-8"))
PRICE = {
    "group": "DL",
    "day": "2013-03-08",
    "flights": [flight("DL", 239, number=3), *FLIGHTS[2:]],
    "amount": "75.00",
    "severe_amount": "200.00",
    "currency": "USD",
}


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "operations.sqlite")


async def dispatch(ledger: Ledger, name: str, **args: Any) -> Any:
    return await tools(ledger)[name](args, {"idempotency_key": f"key-{name}"})


def vouchers(ledger: Ledger) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(ledger.path)) as db:
        return db.execute("SELECT flight, amount, reason FROM vouchers ORDER BY minutes_late").fetchall()


# The plan.


def test_the_stored_plan_is_the_documented_graph(ledger: Ledger) -> None:
    defined = define(ledger, tenant="local", model="m-1", scripted=True)
    (spec,) = defined.spec.plans
    assert (STORED_PLAN["runtime"], STORED_PLAN["specName"]) == (NAME, PLAN) == (defined.spec.name, spec.name)
    body, flaws = normalize(spec, STORED_PLAN["body"], SchemaChecker(), variables=True)
    assert flaws == []
    graph = PlanGraph.of(parse_actions(body))
    assert graph.errors(lambda reference: None if reference.kind == "input" else "nothing") == []
    assert [sorted(needs) for needs in graph.needs] == [[], [0], *[[1]] * 6, [2, 3, 4, 5, 6, 7]]


def test_the_script_stores_the_plan_with_the_given_amount() -> None:
    planner, executor = parse_script(as_script("p1", "60.00")).steps
    (stored,) = parse_script(json.dumps(planner.args["prompt"])).steps
    amounts = [action.pop("amount", None) for action in stored.args["body"]["actions"]]
    assert amounts == [None, None, *["60.00"] * 6, None]
    plain = [{k: v for k, v in a.items() if k != "amount"} for a in STORED_PLAN["body"]["actions"]]
    assert stored.args["body"]["actions"] == plain
    assert executor.args["prompt"]["script"][0]["tool"] == "executePlan"


@pytest.mark.parametrize("scripted", [True, False])
def test_the_same_system_with_a_model_and_without(ledger: Ledger, scripted: bool) -> None:
    wire = define(ledger, tenant="local", model="m-1", scripted=scripted).wire
    assert wire.pop("interpreter", None) == ("scripted" if scripted else None)
    other = define(ledger, tenant="local", model="m-1", scripted=not scripted).wire
    assert wire == {key: value for key, value in other.items() if key != "interpreter"}


def test_the_planner_cannot_find_flights(ledger: Ledger) -> None:
    spec = define(ledger, tenant="local", model="m-1", scripted=True).spec
    (planner,) = (agent for agent in spec.agents if agent.name == "planner")
    assert {tool.name for tool in builtin_tools(spec, planner)} == {"storePlan", "getPlan", *TEAM_TOOLS}
    assert not any(agent.tools for agent in spec.agents)
    assert {tool.name for tool in spec.tools} == set(spec.plans[0].tools)


# The actions.


async def test_a_split_has_each_flight_once_and_a_group_for_each_carrier(ledger: Ledger) -> None:
    done = await dispatch(ledger, "split", flights=FLIGHTS, carriers=["AA", "DL", "EV"])
    assert done == {
        "entitiesAffected": 0,
        "summary": "Split into AA 0, DL 2, EV 1, other 1.",
        "details": {"AA": [], "DL": FLIGHTS[2:], "EV": FLIGHTS[:1], "other": FLIGHTS[1:2]},
    }


async def test_a_repeated_price_is_written_once(ledger: Ledger) -> None:
    for _ in range(2):
        assert await dispatch(ledger, "price", **PRICE) == {
            "entitiesAffected": 3,
            "summary": "3 vouchers for DL: 475.00 USD.",
            "details": {"DL": {"vouchers": 3, "amount": "475.00"}},
        }
    assert [row[1:] for row in vouchers(ledger)] == [
        ("75.00", "Departed late"),
        ("200.00", "Departed 240 minutes late or more"),
        ("200.00", "Departed 240 minutes late or more"),
    ]


async def test_an_empty_group_costs_nothing(ledger: Ledger) -> None:
    done = await dispatch(ledger, "price", **{**PRICE, "flights": []})
    assert done["details"] == {"DL": {"vouchers": 0, "amount": "0.00"}}
    assert vouchers(ledger) == []


async def test_a_day_without_delays_is_empty(ledger: Ledger) -> None:
    done = await dispatch(ledger, "find_delays", day="2013-03-08", limit_minutes=1440)
    assert done["summary"] == "0 of 979 departures on 2013-03-08 were 1440 minutes late or more."
    assert done["details"]["flights"] == []


def test_a_summary_covers_only_the_groups_of_its_plan() -> None:
    """The state of a thread may have totals of an earlier plan."""
    totals = {"DL": Total(vouchers=2, amount="400.00"), "UA": Total(vouchers=9, amount="675.00")}
    action = Summarise.model_validate({"day": "2013-03-08", "groups": ["DL"], "totals": totals})
    assert summarise(action, "k")["details"] == {
        "day": "2013-03-08",
        "vouchers": 2,
        "amount": "400.00",
        "currency": "USD",
        "by_group": {"DL": "400.00"},
    }


# What a person is shown.

SUBJECT = {
    "body": {
        "actions": [
            {"payload": {"day": "†input.day"}, "_outputPath": "†state.a"},
            {
                "payload": {"x": ["†state.a.b || †input.day"]},
                "_outputPath": "†state.t",
                "_outputMethod": "push",
            },
            {"payload": {"text": "††state.a"}},
        ]
    },
    "variables": [
        {"variable": "†input.day", "glimpse": "2013-03-08"},
        {"variable": "†state.a.b", "resultOf": [0]},
    ],
}


def test_an_action_shows_its_inputs_and_output_path() -> None:
    edges = Edges(SUBJECT)
    assert [edges.text(n) for n in range(3)] == ["→ †state.a", "after 0 → †state.t, push", ""]
    plain = {"body": {"actions": [{"payload": {"text": "†input.day"}}]}}
    assert Edges(plain).text(0) == ""


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ({"glimpse": {"n": 1}}, '{"n": 1}'),
        ({"glimpse": None}, "null"),
        ({"resultOf": [2, 3]}, "the result of 2, 3"),
        ({"glimpse": 7, "resultOf": [0]}, "the result of 0; it was 7"),
        ({}, "no value"),
    ],
)
def test_variables_are_described(variable: dict[str, Any], text: str) -> None:
    assert meaning({"variable": "†state.x", **variable}) == text
