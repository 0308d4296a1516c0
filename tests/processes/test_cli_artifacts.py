"""Client commands show files and publications as lines without their content."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest
from typer.testing import CliRunner

from app.commands.main import cli
from tests.processes.test_cli import Commands, client, env
from tests.support import specs
from tests.support.service import ROOT, Service, folder, plain_environment, serving

__all__ = ["env"]

BODY = "what stands in the file and nowhere else"
MAKE = specs.script(
    ("write", {"path": "notes/plan.md", "content": "†input.body"}),
    ("artifact_publish", {"channel": "design", "path": "notes/plan.md", "title": "The plan"}),
    ("artifact_publish", {"channel": "handoff", "path": "notes"}),
)


@pytest.fixture(scope="module")
def data() -> Iterator[Path]:
    with folder() as at:
        yield at


@pytest.fixture(scope="module")
def service(data: Path) -> Iterator[Service]:
    maker = specs.agent("maker", toolkits=["workspace", "artifacts", "variables"])
    payer = specs.agent("payer", tools=["pay"])
    tools = [specs.tool("pay", approval="always")]
    with serving(data) as running:
        with client(running) as http:
            spec = specs.spec(maker, payer, tools=tools, interpreter="scripted", tenant="local")
            http.post("/runtimes", json=spec).raise_for_status()
        yield running


@pytest.fixture
def commands(service: Service, data: Path, env: pytest.MonkeyPatch) -> Commands:
    return Commands(service, data)


def made(commands: Commands) -> list[str]:
    """What is printed of a query that publishes a file and a directory."""
    inputs = json.dumps({"body": BODY})
    return commands.said("query", MAKE, "--agent", "maker", "--inputs", inputs).splitlines()


def test_a_publication_is_one_line_without_content(commands: Commands, service: Service) -> None:
    told = made(commands)
    query = told[0].split()[0]
    with client(service) as http:
        items = http.get("/artifacts", params={"queryId": query}).json()["items"]
        assert http.get(f"/artifacts/{items[1]['id']}/content").text == BODY
    directory, file = (a["id"] for a in items)
    lines = [line[10:].split(None, 1) for line in told[1:] if line[10:].startswith("maker")]
    assert [line for _, line in lines if line.startswith("published")] == [
        f"published notes/plan.md (design, {file})",
        f"published notes (handoff, {directory})",
    ]
    (ends,) = (line for _, line in lines if line.startswith("ends"))
    assert re.fullmatch(r"ends \(4 model calls(, .*)?, 2 published\)", ends)
    listed = commands.said("artifacts", "--query", query).splitlines()
    assert listed == [
        f"notes (handoff, maker, {directory})",
        f"notes/plan.md (design, maker, {file}): The plan",
    ]
    work = commands.said("work", query)
    produced = work.partition("produced:\n")[2].splitlines()
    assert produced[:2] == [f"  {line}" for line in listed]
    everything = (*told, *listed, work, commands.said("watch", query), commands.said("work", query, "--all"))
    assert BODY not in "\n".join(everything)


def test_every_command_prints_json(commands: Commands) -> None:
    query = made(commands)[0].split()[0]
    events = [json.loads(line) for line in commands.said("watch", query, "--json").splitlines()]
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    records = [e["data"] for e in events if e["type"] == "artifact-published"]
    for record in records:
        if record.get("isDirectory"):
            del record["targetChanged"]  # lists do not read directories
    assert commands.json("artifacts", "--query", query) == records[::-1]
    work = commands.json("work", query)
    assert work["artifacts"] == records[::-1]
    assert BODY not in json.dumps([records, events])
    asked = commands.json("query", specs.script(("pay", {"n": 1})), "--agent", "payer", "--detach")
    assert asked["links"]["self"] == f"/queries/{asked['id']}"
    assert commands.json("approvals", "list", "--query", query) == []


def on_a_terminal(commands: Commands, *words: str) -> str:
    """What a command prints where a person looks at it, on a terminal that has colours."""
    ours, theirs = pty.openpty()
    colours = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "CLICOLOR_FORCE": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "app", *words, *commands.at],
        cwd=ROOT,
        env={**plain_environment(), **colours},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        seen = b""
        while piece := read(ours):
            seen += piece
        assert process.wait() == 0, seen
    os.close(ours)
    return seen.decode()


def read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # how a terminal says that nobody writes to it any more
        return b""


@pytest.mark.long
def test_no_command_prints_colors(commands: Commands) -> None:
    query = made(commands)[0].split()[0]
    inputs = json.dumps({"body": BODY})
    for words in (
        ("query", MAKE, "--agent", "maker", "--inputs", inputs),
        ("watch", query),
        ("artifacts", "--query", query),
        ("work", query),
        ("approvals", "list"),
    ):
        said = on_a_terminal(commands, *words)
        assert said or words[0] == "approvals"
        assert all(c.isprintable() or c in "\r\n" for c in said), said


# -- artifacts, by the wire form alone


class Artifacts(BaseHTTPRequestHandler):
    """Two pages of records, as the service gives them."""

    asked: ClassVar[list[dict[str, list[str]]]] = []

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        self.asked.append(query)
        number = 2 if "cursor" in query else 1
        record = {
            "id": f"art_{number}",
            "version": 1,
            "channel": "design",
            "kind": "report",
            "path": f"tasks/{number}/plan\x1b[2J.md",
            "title": "The plan" if number == 1 else None,
            "summary": "never shown",
            "producer": {"workId": "wrk_1", "kind": "agent", "threadId": "thr_1", "agent": "planner"},
            "status": "active",
        }
        body = json.dumps({"items": [record], "nextCursor": "more" if number == 1 else None}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def test_artifacts_are_a_line_each(env: pytest.MonkeyPatch) -> None:
    env.setenv("PLANGATE_API_KEY", "plg_key")
    Artifacts.asked.clear()
    server = HTTPServer(("127.0.0.1", 0), Artifacts)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        at = ["--url", f"http://127.0.0.1:{server.server_port}"]
        found = CliRunner().invoke(
            cli, ["artifacts", "--query", "qry_1", "--channel", "design", "--superseded", *at]
        )
        listed = CliRunner().invoke(cli, ["artifacts", "--limit", "1", "--json", *at])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert found.stdout.splitlines() == [
        r"tasks/1/plan\x1b[2J.md (design, planner, art_1): The plan",
        r"tasks/2/plan\x1b[2J.md (design, planner, art_2)",
    ]
    filters = {"queryId": ["qry_1"], "channel": ["design"], "includeSuperseded": ["true"]}
    assert Artifacts.asked == [
        {**filters, "limit": ["51"]},
        {**filters, "limit": ["50"], "cursor": ["more"]},
        {"limit": ["2"]},
        {"limit": ["1"], "cursor": ["more"]},
    ]
    assert [a["id"] for a in json.loads(listed.stdout)] == ["art_1"]


# -- a service that is away for a while


class Away(BaseHTTPRequestHandler):
    """A query whose events cannot be read at the first try."""

    tries: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        end = {
            "type": "finish",
            "seq": 1,
            "queryId": "qry_1",
            "threadId": "thr_1",
            "at": "",
            "output": "done",
        }
        status, kind, body = 200, "application/json", b"{}"
        if self.path.endswith("/stream"):
            self.tries.append(self.path)
            status, kind, body = 200, "text/event-stream", f"id: 1\ndata: {json.dumps(end)}\n\n".encode()
            if len(self.tries) == 1:
                status, kind, body = (
                    503,
                    "application/problem+json",
                    b'{"type": "x", "detail": "Not now\\u001b."}',
                )
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_follower_is_notified_of_an_outage(env: pytest.MonkeyPatch, more: tuple[str, ...]) -> None:
    env.setenv("PLANGATE_API_KEY", "plg_key")
    Away.tries.clear()
    server = HTTPServer(("127.0.0.1", 0), Away)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        found = CliRunner().invoke(cli, ["watch", "qry_1", "--url", url, *more])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert (found.exit_code, len(Away.tries)) == (0, 2)
    assert "done" in found.stdout
    assert found.stderr == f"plangate: {url} does not answer (Not now\\x1b.); trying again\n"
