"""The demo as a newcomer runs it: a process, a directory, a terminal; with and without a model."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import httpx
import pytest

from examples.flight_recovery.data import find_delayed
from tests.processes.aimock.vendor_server import Answer, VendorServer, a_end, a_text, a_tool, sse
from tests.support.service import serving

REPOSITORY = Path(__file__).resolve().parents[2]
PATIENCE_S = 100
MODEL = "claude-sonnet-4-5"
KEY_SHAPE = re.compile(r"plg_[0-9A-Za-z]{20}")


class Lab:
    """A place of its own for the demo: an empty home, a data directory, no key of any model."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="plangate-demo-", dir="/tmp")).resolve()
        self.folder.chmod(0o711)
        self.data = self.folder / "data"
        (self.folder / "home").mkdir()

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "examples.flight_recovery", "--data-dir", str(self.data), *arguments]

    def environment(self, **more: str) -> dict[str, str]:
        ours = ("PLANGATE_", "ANTHROPIC_", "XDG_")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(ours) and k != "DATABASE_URL"}
        return {**kept, "HOME": str(self.folder / "home"), **more}

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            cwd=REPOSITORY,
            env=self.environment(**environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )

    def at_terminal(self, *lines: str) -> tuple[int, str]:
        """The exit code and output of a demo whose person types these lines."""
        mine, its = pty.openpty()
        try:
            with subprocess.Popen(
                self.command(),
                cwd=REPOSITORY,
                env=self.environment(),
                stdin=its,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            ) as process:
                os.write(mine, "".join(f"{line}\n" for line in lines).encode())
                output, _ = process.communicate(timeout=PATIENCE_S)
                return process.returncode, output
        finally:
            os.close(mine)
            os.close(its)

    def ledger(self, sql: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.data / "operations.sqlite")) as db:
            return db.execute(sql).fetchall()

    @contextmanager
    def service(self) -> Iterator[httpx.Client]:
        """The service on the same data, started again, as its operator."""
        with serving(self.folder, {"HOME": str(self.folder / "home")}) as running:
            headers = {"Authorization": f"Bearer {running.key}"}
            with httpx.Client(base_url=running.url, headers=headers, timeout=PATIENCE_S) as client:
                yield client


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    shutil.rmtree(made.folder)


@pytest.fixture(scope="module")
def first(lab: Lab) -> subprocess.CompletedProcess[str]:
    """The first demo in the place."""
    return lab.run("--yes")


@pytest.fixture(scope="module")
def rows() -> set[str]:
    """What only the rows of the flights say: the registrations of the aircraft."""
    return {flight.tail for flight in find_delayed(date(2013, 3, 8), 120).flights}


def found(pattern: str, output: str) -> str:
    match = re.search(pattern, output)
    assert match, output
    return match[0]


def test_the_plan_is_carried_out(lab: Lab, first: subprocess.CompletedProcess[str]) -> None:
    assert first.returncode == 0, first.stdout + first.stderr
    assert first.stderr == ""
    assert "226 of 979 scheduled departures" in first.stdout
    assert "carried out" in first.stdout and "scripts, no tokens" in first.stdout
    assert not KEY_SHAPE.search(first.stdout)
    assert list((lab.folder / "home").iterdir()) == []


def test_the_ledger_has_a_row_for_each_flight(lab: Lab, first: subprocess.CompletedProcess[str]) -> None:
    found("226 vouchers, 126 notifications of this plan", first.stdout)
    with lab.service() as client:
        plan = client.get(f"/plans/{found('pln_[0-9a-z]{26}', first.stdout)}/actions").json()["items"]
    counted = Counter(dict(lab.ledger("SELECT idempotency_key, count(*) FROM vouchers GROUP BY 1")))
    counted.update(dict(lab.ledger("SELECT idempotency_key, count(*) FROM notifications GROUP BY 1")))
    assert [counted[action["idempotencyKey"]] for action in plan] == [162, 64, 126]
    assert [action["result"]["entitiesAffected"] for action in plan] == [162, 64, 126]
    assert {row[0] for row in lab.ledger("SELECT DISTINCT amount FROM vouchers")} >= {"75.00", "200.00"}


@pytest.mark.long
def test_no_flight_is_in_agent_records(
    lab: Lab, first: subprocess.CompletedProcess[str], rows: set[str]
) -> None:
    query = found("qry_[0-9a-z]{26}", first.stdout)
    approval = found("apr_[0-9a-z]{26}", first.stdout)
    reference = found(r"/references/DelayedFlights/[0-9a-f]{64}", first.stdout)
    with lab.service() as client:
        told = [
            client.get(f"/queries/{query}/stream").text,
            client.get(f"/queries/{query}/work").text,
            client.get(f"/approvals/{approval}/subject").text,
        ]
        value = client.get(reference).text
    assert "event: finish" in told[0]
    for text in [*told, first.stdout]:
        assert not [row for row in rows if row in text]
    assert all(row in value for row in rows)


@pytest.mark.long
def test_the_lines_at_the_end_work(lab: Lab, first: subprocess.CompletedProcess[str]) -> None:
    if not shutil.which("curl"):
        pytest.skip("there is no curl")
    screen, _, http = first.stdout.partition("in one screen")[2].partition("The same over HTTP")
    serve, wait, work = (line.strip() for line in screen.splitlines()[1:] if line.strip())
    auth, *asked = (line.strip() for line in http.splitlines()[1:] if line.strip())
    assert serve.endswith(f"serve --data-dir {lab.data} --port 8711 &")
    assert len(asked) == 6
    with lab.service() as client:
        address = str(client.base_url).rstrip("/")
        script = f"{wait}\n{work}".replace("http://127.0.0.1:8711", address)
        done = subprocess.run(
            ["sh", "-c", script], capture_output=True, text=True, timeout=30, cwd=REPOSITORY
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"{found('qry_[0-9a-z]{26}', first.stdout)}  succeeded after ")
        assert "\nproduced:\n  plan FlightRecovery" in done.stdout and "\ncost:\n  $0.00; " in done.stdout
        for line in asked:
            script = f"{auth}\n{line.replace('http://127.0.0.1:8711', address)}"
            script = script.replace("curl -s", "curl -s --fail")
            done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=30)
            assert done.returncode == 0 and json.loads(done.stdout), script


@pytest.mark.long
def test_a_second_demo_starts_quickly_and_writes_its_own_rows(
    lab: Lab, first: subprocess.CompletedProcess[str]
) -> None:
    before = lab.ledger("SELECT count(*) FROM vouchers")[0][0]
    started = time.monotonic()
    assert lab.run("--yes", "--day", "2013-09-02", "--limit-minutes", "300").returncode == 0
    assert time.monotonic() - started < 60  # seconds, on a machine that does much else
    late = len(find_delayed(date(2013, 9, 2), 300).flights)
    assert lab.ledger("SELECT count(*) FROM vouchers")[0][0] - before == late > 0


@pytest.mark.long
def test_a_rejected_plan_writes_nothing(lab: Lab, first: subprocess.CompletedProcess[str]) -> None:
    before = lab.ledger("SELECT count(*) FROM vouchers")
    code, output = lab.at_terminal("r", "maybe", "reject", "too expensive")  # `r` alone could be two words
    assert code == 1, output
    found("decision: reject by operator: too expensive", output)
    assert "The plan was rejected, so nothing was carried out." in output
    found(r"plan +[a-z ]+, rejected +pln_", output)
    assert lab.ledger("SELECT count(*) FROM vouchers") == before


@pytest.mark.long
def test_a_revised_plan_needs_its_own_approval(lab: Lab, first: subprocess.CompletedProcess[str]) -> None:
    code, output = lab.at_terminal("revise", "less", "50 is enough", "approve")
    assert code == 0, output
    assert output.count("approve it?") == 2
    assert "revision 2: approve it?" in output and "50.00 USD for each flight" in output
    assert lab.ledger("SELECT count(*) FROM vouchers WHERE amount = '50.00'") == [(162,)]


def test_without_a_person_nothing_starts(lab: Lab) -> None:
    refused = lab.run()
    assert refused.returncode == 2
    assert "add --yes" in refused.stderr and refused.stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [("--day", "2014-03-08"), ("--day", "soon"), ("--limit-minutes", "0"), ("--url", "http://127.0.0.1:1")],
)
def test_an_invalid_command_line_is_rejected(lab: Lab, arguments: tuple[str, ...]) -> None:
    assert lab.run("--yes", *arguments).returncode == 2


@pytest.mark.long
def test_a_day_without_late_departures_makes_no_plan(
    lab: Lab, first: subprocess.CompletedProcess[str]
) -> None:
    done = lab.run("--yes", "--limit-minutes", "1440")
    assert done.returncode == 1
    assert "there is nothing to plan" in done.stdout and done.stderr == ""


# With a model: a server that answers as a good model would, in the vendor's own format.


class Model(VendorServer):
    """Plays the three agents. Which one it is, it reads from the system prompt."""

    async def _answer(self, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = int(found(r"(?i)content-length: \d+", head).split(" ")[1])
        body = await reader.readexactly(size)
        self.bodies.append(body.decode())
        self.answers = [Answer(self._turn(json.loads(body)))]
        replay = asyncio.StreamReader()
        replay.feed_data(body)
        await super()._answer(head, replay, writer)

    def __init__(self) -> None:
        super().__init__()
        self.bodies: list[str] = []

    def _turn(self, body: dict[str, Any]) -> list[str]:
        asked = json.dumps(body["system"])
        agent = next(a for a in PLAYS if PLAYS[a][0] in asked)
        blocks = [b for m in body["messages"] if isinstance(m["content"], list) for b in m["content"]]
        results = [_text(b["content"]) for b in blocks if b["type"] == "tool_result"]
        said = PLAYS[agent][1](results)
        usage = {"input_tokens": 1000, "output_tokens": 1}
        message = {"id": "m", "type": "message", "role": "assistant", "model": MODEL, "content": []}
        start = sse("message_start", message={**message, "stop_reason": None, "usage": usage})
        if isinstance(said, str):
            return [start, *a_text(0, said), *a_end()]
        name, args = said
        return [start, *a_tool(0, f"toolu_{len(self.bodies)}", name, json.dumps(args)), *a_end("tool_use")]


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _coordinator(results: list[str]) -> Any:
    if not results:
        return "call_agent", {"agent": "planner", "prompt": "Plan 2013-03-08 from 120 minutes as plan p-1."}
    if len(results) == 1:
        return "call_agent", {"agent": "executor", "prompt": "Have the plan p-1 carried out."}
    return "All flights are [taken] care of."


def _planner(results: list[str]) -> Any:
    if not results:
        return "find_delayed_departures", {"day": "2013-03-08", "limit_minutes": 120}
    if len(results) > 1:
        return "The plan is p-1."
    handle = json.loads(results[0])
    references = [{"kind": handle["kind"], "id": handle["id"]}]
    carriers = [c["carrier"] for c in handle["glimpse"]["by_carrier"]]
    voucher = {
        "kind": "issue_voucher",
        "amount": "75.00",
        "currency": "USD",
        "from_minutes": 120,
        "reason": "-",
    }
    told = {"kind": "notify_operations", "carriers": carriers, "message": "-"}
    actions = [{**voucher, "references": references}, {**told, "references": references}]
    body = {"day": "2013-03-08", "summary": "Vouchers for all.", "actions": actions}
    return "storePlan", {"specName": "FlightRecovery", "planId": "p-1", "body": body}


def _executor(results: list[str]) -> Any:
    return "It is carried out." if results else ("executePlan", {"planId": "p-1"})


PLAYS: dict[str, tuple[str, Callable[[list[str]], Any]]] = {
    "coordinator": ("You coordinate", _coordinator),
    "planner": ("You plan", _planner),
    "executor": ("You have stored plans", _executor),
}


@pytest.mark.long
async def test_the_same_with_a_model(
    lab: Lab, first: subprocess.CompletedProcess[str], rows: set[str]
) -> None:
    model = Model()
    await model.start()
    try:
        environment = {"ANTHROPIC_API_KEY": "sk-demo-key", "ANTHROPIC_BASE_URL": model.url}
        done = await asyncio.to_thread(lab.run, "--yes", **environment)
    finally:
        await model.stop()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "“All flights are [taken] care of.”" in done.stdout
    found(r"model +claude-sonnet-4-5: [78],000 tokens in, \d+ out, 0\.0\d+ USD", done.stdout)
    found("226 vouchers, 126 notifications of this plan", done.stdout)
    assert "sk-demo-key" not in done.stdout
    assert any("DelayedFlights" in body for body in model.bodies)
    for body in model.bodies:  # every byte of every prompt
        assert not [row for row in rows if row in body]
