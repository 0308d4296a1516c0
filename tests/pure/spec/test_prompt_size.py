"""The tools in an agent's prompt: only those that it can use, one sentence each."""

from __future__ import annotations

from typing import Any

import pytest
from plangate import (
    AgentSpec,
    define_coordinator,
    define_executor,
    define_plan,
    define_planner,
    define_runtime,
    define_specialist,
    define_tool,
)
from plangate.spec.assembly import assemble
from plangate.spec.prompts import first_sentence
from plangate.spec.toolkits import TEAM_TOOLS, builtin_tools

from tests.support.guides import FOLDER, Page

PLAN = define_plan("trip", {"actions": list[dict]})  # type: ignore[type-arg]
PLANNER = define_planner("planner", "m-1", "You plan trips, and book nothing by yourself.", PLAN)
EXECUTOR = define_executor("executor", "m-1", "You have plans executed.", PLAN)
HELPER = define_specialist("helper", "m-1", "You help.")


def team(*agents: AgentSpec) -> Any:
    return define_runtime("acme", [define_coordinator("desk", "m-1", "You route.", routes=agents), *agents])


def held(spec: Any, name: str) -> set[str]:
    (agent,) = (agent for agent in spec.agents if agent.name == name)
    return {tool.name for tool in builtin_tools(spec, agent)}


@pytest.mark.parametrize("others", [(), (EXECUTOR,)])
def test_the_guides_planner_has_a_short_prompt_beside_a_coordinator(others: tuple[AgentSpec, ...]) -> None:
    (program,) = (
        block for block in Page(FOLDER / "prompts.md").of("program") if block.file == "prompt_size.py"
    )
    names: dict[str, Any] = {}
    exec(compile(program.text, program.place, "exec"), names)
    planner = names["planner"]
    assert len(planner.system_prompt) == 44
    runtime = team(planner, *others) if others else names["system"]
    (prompt,) = (agent.system_prompt for agent in runtime.agents if agent.name == planner.name)
    assert prompt.startswith(f"{planner.system_prompt}\n\n# Tools\n")
    assert len(prompt) < 400


@pytest.mark.parametrize(
    ("workers", "has_them"),
    [
        ((PLANNER,), False),
        ((EXECUTOR,), False),
        ((HELPER,), True),
        ((PLANNER, EXECUTOR), True),
        ((PLANNER, HELPER), True),
    ],
)
def test_team_tools_are_for_agents_that_can_hand_over(workers: tuple[AgentSpec, ...], has_them: bool) -> None:
    spec = team(*workers)
    for agent in spec.agents:
        assert set(TEAM_TOOLS).issubset(held(spec, agent.name)) == has_them, agent.name


def test_without_a_coordinator_there_is_no_team() -> None:
    spec = define_runtime("acme", [HELPER, PLANNER])
    assert held(spec, "helper") == set()
    assert held(spec, "planner") == {"storePlan", "getPlan"}


def test_the_table_has_the_first_sentence_and_the_definition_the_rest() -> None:
    look = define_tool("look", {"id": str}, "Looks at an order. Ids begin with o-, e.g. o-17.")
    clerk = define_specialist("clerk", "m-1", "You help.", tools=[look], toolkits=["references"])
    runtime = define_runtime("acme", [clerk])
    rows = [line for line in runtime.agents[0].system_prompt.splitlines() if line.startswith("| ")]
    assert "| look | Looks at an order. | never |" in rows
    assert (
        "| resolveRef | Fetches the full value behind a reference {kind, id}: returns {value, glimpse}. |  |"
        in rows
    )
    assert runtime.tools[0].description.endswith("e.g. o-17.")
    assert assemble(runtime.wire).wire == runtime.wire


def test_the_authors_rows_are_unchanged() -> None:
    look = define_tool("look", {"id": str}, "Looks at an order. Ids begin with o-.")
    prompt = {"identity": "You help.", "tools": [{"name": "look", "description": "Looks. Use it first."}]}
    runtime = define_runtime("acme", [define_specialist("clerk", "m-1", prompt, tools=[look])])
    assert "| look | Looks. Use it first. |  |" in runtime.agents[0].system_prompt


@pytest.mark.parametrize("form", ["library", "wire"])
def test_an_agent_can_do_without_the_table(form: str) -> None:
    look = define_tool("look", {"id": str}, "Looks.")
    if form == "library":
        clerk = define_specialist("clerk", "m-1", "You help.", tools=[look], tools_table=False)
        wire = define_runtime("acme", [clerk]).wire
    else:
        clerk = define_specialist("clerk", "m-1", "You help.", tools=[look])
        wire = define_runtime("acme", [clerk]).wire
        written = {**wire["agents"][0], "systemPrompt": "You help.", "toolsTable": False}
        wire = assemble({**wire, "agents": [written]}).wire
    (agent,) = wire["agents"]
    assert (agent["systemPrompt"], agent["toolsTable"], agent["tools"]) == ("You help.", False, ["look"])
    assert assemble(wire).wire == wire


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Finds flights. The cheapest first.", "Finds flights."),
        ("Finds flights", "Finds flights"),
        ("Costs 3.5 USD per call. Be careful.", "Costs 3.5 USD per call."),
        ("Takes a city, e.g. Rome. Returns flights.", "Takes a city, e.g. Rome."),
        ("Really? Yes!", "Really?"),
        ("Finds flights\n\nThe cheapest first.", "Finds flights"),
        ("Finds\nflights. More.", "Finds\nflights."),
        ('Says "hi." Then stops.', 'Says "hi."'),
        ("  ", ""),
        ("." * 200_000 + "x", "." * 200_000 + "x"),  # in linear time
        ("a. " * 70_000, ("a. " * 70_000).strip()),
    ],
    ids=lambda text: text[:20],
)
def test_a_first_sentence(text: str, sentence: str) -> None:
    assert first_sentence(text) == sentence


def test_the_limit_of_tables_counts_first_sentences() -> None:
    agents = [
        {"name": f"a{n}", "role": "specialist", "model": "m", "tools": ["look"], "systemPrompt": "Look."}
        for n in range(100)
    ]
    look = {
        "name": "look",
        "description": f"Looks. {'X' * 90_000}",
        "inputSchema": {"type": "object"},
        "transport": "client",
    }
    spec = assemble({"tenant": {"resourceId": "acme"}, "agents": agents, "tools": [look]})
    assert all(len(agent["systemPrompt"]) < 200 for agent in spec.wire["agents"])
