"""Client commands against a service: output, requests, exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import Result
from plangate.cli.connection import CommandError
from typer.testing import CliRunner

from app.base.keys import new_key
from app.commands.main import cli
from tests.support import specs
from tests.support.service import ROOT, Service, folder, plain_environment, serving

PATIENCE_S = 30.0
PAY = specs.tool("pay", approval="always")


@pytest.fixture(scope="module")
def data() -> Iterator[Path]:
    with folder() as at:
        yield at


@pytest.fixture(scope="module")
def service(data: Path) -> Iterator[Service]:
    with serving(data) as running:
        specs_made = (
            specs.planning(tenant="local"),
            specs.scripted(PAY, tenant="local", name="tools"),
            specs.mock("Good morning.\n\x1b[2JBye.", tenant="local", name="polite"),
        )
        with client(running) as http:
            for spec in specs_made:
                http.post("/runtimes", json=spec).raise_for_status()
        yield running


def client(service: Service) -> httpx.Client:
    headers = {"Authorization": f"Bearer {service.key}"}
    return httpx.Client(base_url=service.url, headers=headers, timeout=60, trust_env=False)


@pytest.fixture
def http(service: Service) -> Iterator[httpx.Client]:
    with client(service) as made:
        yield made


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Without the settings of a service of the developer's own."""
    for name in list(os.environ):
        if name.startswith("PLANGATE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LINES", "40")
    return monkeypatch


class Commands:
    def __init__(self, service: Service, data: Path) -> None:
        self.at = ["--url", service.url, "--data-dir", str(data / "data")]

    def result(self, *words: str, given: str = "") -> Result:
        return CliRunner().invoke(cli, [*words, *self.at], input=given)

    def said(self, *words: str, code: int = 0, given: str = "") -> str:
        found = self.result(*words, given=given)
        assert found.exit_code == code, found.output
        assert harmless(found.output), found.output
        return str(found.stdout)

    def json(self, *words: str) -> Any:
        return json.loads(self.said(*words, "--json"))

    def refused(self, *words: str, code: int) -> str:
        """What is said on stderr."""
        found = self.result(*words)
        assert (found.exit_code, found.stdout) == (code, ""), found.output
        return str(found.stderr)


def harmless(text: str) -> bool:
    return all(c.isprintable() or c == "\n" for c in text)


@pytest.fixture
def commands(service: Service, data: Path, env: pytest.MonkeyPatch) -> Commands:
    return Commands(service, data)


def pending(http: httpx.Client, query: str) -> dict[str, Any]:
    """The approval that a query waits for, once it is open."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        items = http.get("/approvals", params={"queryId": query, "status": "pending"}).json()["items"]
        if items:
            found: dict[str, Any] = items[0]
            return found
        assert time.monotonic() < deadline
        time.sleep(0.05)


def served(http: httpx.Client, name: str, output: Any) -> None:
    """Takes one call and answers it."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        calls = http.post("/tool-calls/claim", json={"tools": [{"name": name}]}).json()["calls"]
        if calls:
            body = {"claimToken": calls[0]["claimToken"], "output": output}
            http.post(f"/tool-calls/{calls[0]['workId']}/result", json=body).raise_for_status()
            return
        assert time.monotonic() < deadline
        time.sleep(0.05)


def paying(commands: Commands) -> str:
    """A query that comes to a gate."""
    asked = commands.said("query", specs.script(("pay", {"n": 1})), "--runtime", "tools", "--detach")
    return asked.strip()


# -- query and watch


def test_a_query_is_followed_to_its_end(commands: Commands) -> None:
    lines = commands.said("query", "Good morning!", "--runtime", "polite", "--agent", "solo").splitlines()
    assert re.fullmatch(r"qry_\w{26} in thr_\w{26}", lines[0])
    told = [line[28:] for line in lines[1:-3]]
    assert told[:3] == ["the query is queued", "the query is running", "begins"]
    assert told[3] == r"says: Good morning. \x1b[2JBye."
    assert lines[-3:] == ["", "Good morning.", r"\x1b[2JBye."]
    query = lines[0].split()[0]
    assert commands.said("watch", query).splitlines() == lines


def test_events_are_json_a_line_each(commands: Commands, http: httpx.Client) -> None:
    said = commands.said("query", "Hi", "--runtime", "polite", "--thread", "t1", "--json")
    events = [json.loads(line) for line in said.splitlines()]
    stored = http.get(f"/queries/{events[0]['queryId']}/events", params={"limit": 500}).json()["events"]
    assert events == stored
    assert http.get(f"/threads/{events[0]['threadId']}").json()["key"] == "t1"


def test_a_prompt_can_be_piped_and_a_query_detached(commands: Commands, http: httpx.Client) -> None:
    query = commands.said("query", "-", "--runtime", "polite", "--detach", given="From a pipe\n").strip()
    assert http.get(f"/queries/{query}").json()["prompt"] == "From a pipe\n"
    accepted = commands.json("query", "x", "--runtime", "polite", "--detach", "--limits", '{"maxTurns": 3}')
    assert accepted["links"]["self"] == f"/queries/{accepted['id']}"


def test_a_failed_query_has_its_own_exit_code(commands: Commands, http: httpx.Client) -> None:
    query = paying(commands)
    approval = pending(http, query)
    http.post(f"/queries/{query}/cancel").raise_for_status()
    last = commands.said("watch", query, code=3).splitlines()[-1]
    assert last.endswith("the query ended: cancelled: The query was cancelled.")
    assert f"{approval['id']}: cancelled" in commands.said("watch", query, code=3)


# -- approvals


def test_the_inbox_leads_to_a_decision_by_digest(commands: Commands, http: httpx.Client) -> None:
    query = paying(commands)
    approval = pending(http, query)
    (line,) = [x for x in commands.said("approvals", "list").splitlines() if x.startswith(approval["id"])]
    assert line.split("  ")[:5] == [approval["id"], "pending", "tool pay", "solo", query]
    assert [a["id"] for a in commands.json("approvals", "list", "--query", query)] == [approval["id"]]
    wrong = commands.refused("approvals", "approve", approval["id"], "--digest", "0" * 64, code=1)
    assert wrong == (
        f"plangate: {approval['id']} is about something else than {'0' * 64}: its subject has the digest "
        f"{approval['digest']}.\n"
    )
    said = commands.said("approvals", "approve", approval["id"], "--digest", approval["digest"].upper())
    assert f"digest: {approval['digest']}\n" in said
    assert '    "n": 1\n' in said
    assert said.endswith(f"{approval['id']} is approved by operator.\n")
    served(http, "pay", "paid")
    assert commands.said("watch", query).splitlines()[-1] == '{"results":[{"tool":"pay","result":"paid"}]}'
    again = commands.refused("approvals", "reject", approval["id"], code=1)
    assert again == "plangate: This approval is already approved by operator. (409 conflict)\n"


def test_nothing_is_approved_without_a_terminal(commands: Commands, http: httpx.Client) -> None:
    approval = pending(http, paying(commands))
    for more, told in (
        ((), "Not a terminal: pass --digest (the digest you reviewed) or --yes."),
        (("--json",), "--json shows no subject: pass --digest (the digest you reviewed)."),
        (("--json", "--yes"), "--json shows no subject: pass --digest (the digest you reviewed)."),
    ):
        found = commands.result("approvals", "approve", approval["id"], *more)
        assert (found.exit_code, found.stderr) == (2, f"plangate: {told}\n")
    assert http.get(f"/approvals/{approval['id']}").json()["status"] == "pending"
    decided = commands.json("approvals", "approve", approval["id"], "--digest", approval["digest"])
    assert (decided["status"], decided["decision"]) == ("approved", "approve")


def test_a_rejection_and_its_reason(commands: Commands, http: httpx.Client) -> None:
    query = paying(commands)
    approval = pending(http, query)
    said = commands.said("approvals", "reject", approval["id"], "--feedback", "too much\x1b[2J")
    assert said == f"{approval['id']} is rejected by operator.\n"
    assert r"reject by operator: too much\x1b[2J" in commands.said("watch", query)
    again = commands.refused("approvals", "approve", approval["id"], "--yes", code=1)
    assert again == f"plangate: There is nothing to decide: {approval['id']} is rejected by operator.\n"
    listed = commands.said("approvals", "list", "--status", "rejected")
    assert listed.splitlines()[0].startswith(f"{approval['id']}  rejected")


def test_a_revision_has_feedback_and_may_keep_a_part(commands: Commands, http: httpx.Client) -> None:
    query = commands.said("query", specs.store_and_execute(), "--detach").strip()
    approval = pending(http, query)
    said = commands.said(
        "approvals", "revise", approval["id"], "--feedback", "no refunds", "--partial", '{"a": 1}'
    )
    assert said == f"{approval['id']} is revised by operator.\n"
    kept = http.get(f"/approvals/{approval['id']}").json()
    assert (kept["feedback"], kept["partial"]) == ("no refunds", {"a": 1})


# -- work


def test_work_shows_actions_products_and_cost(commands: Commands, http: httpx.Client) -> None:
    query = commands.said("query", specs.store_and_execute(), "--detach").strip()
    approval = pending(http, query)
    waits = commands.said("work", query).splitlines()
    assert waits[0] == f"{query}  waiting (approval), by chief"
    assert waits[2] == f"waits: plangate approvals approve {approval['id']}"
    commands.said("approvals", "approve", approval["id"], "--yes")
    served(http, "actions", {"entitiesAffected": 2, "summary": "Booked."})
    commands.said("watch", query)
    said = commands.said("work", query).splitlines()
    assert re.fullmatch(rf"{query}  succeeded after \S+ (s|ms), by chief", said[0])
    done = said[3 : said.index("produced:") - 1]
    assert [line.partition("  succeeded")[0].rstrip() for line in done] == [
        "chief (3 model calls)",
        "  planner (2 model calls)",
        "    storePlan",
        "  doer (2 model calls)",
        "    executePlan",
        "      plan Routing",
        "        actions 0 book, 1 refund",
    ]
    assert all("succeeded" in line for line in done)
    assert re.fullmatch(
        r"  plan Routing \(pln_\w{26}\): Done and dusted: Booked\.", said[said.index("produced:") + 1]
    )
    assert said[said.index("cost:") + 1].strip().startswith("$0.00; 7 model calls, ")
    assert len(said) < 39
    found = commands.json("work", query)
    assert (found["query"]["id"], found["work"]["queryId"], found["artifacts"]) == (query, query, [])
    assert len(found["work"]["below"]) == 16


def test_work_names_the_limit_reached(commands: Commands, http: httpx.Client) -> None:
    asked = ("--runtime", "tools", "--limits", '{"maxTurns": 1}', "--detach")
    query = commands.said("query", specs.script(("nothing", {})), *asked).strip()
    deadline = time.monotonic() + PATIENCE_S
    while http.get(f"/queries/{query}").json()["reason"] != "limit_reached":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    said = commands.said("work", query).splitlines()
    assert said[0] == f"{query}  waiting (limit_reached: maxTurns), by solo"
    assert said[2] == f"waits: plangate queries resume {query} --max-turns N, higher than it was"


def test_work_names_the_program_that_a_query_waits_for(commands: Commands, http: httpx.Client) -> None:
    query = paying(commands)
    commands.said("approvals", "approve", pending(http, query)["id"], "--yes")
    deadline = time.monotonic() + PATIENCE_S
    while http.get(f"/queries/{query}").json()["reason"] != "client_call":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    said = commands.said("work", query).splitlines()
    assert said[2] == "waits: 1 call of pay open: start the program that serves pay"


# -- what cannot be done


NOBODY = "qry_" + "0" * 26


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("watch", NOBODY), 1, f"There is no query '{NOBODY}'. (404 not_found)"),
        (("work", NOBODY), 1, f"There is no query '{NOBODY}'. (404 not_found)"),
        (("work", "qry_1/x"), 1, " should be the address of a service alone, and an id has no '/'."),
        (
            ("query", "\udcff", "--runtime", "polite", "--detach"),
            2,
            "What is given has to be UTF-8: there are",
        ),
        (
            ("query", "\udcff", "--runtime", "polite"),
            2,
            "What is given has to be UTF-8: there are other bytes",
        ),
        (("approvals", "reject", "apr_1", "--feedback", "\udcff"), 2, "What is given has to be UTF-8: there"),
        (("queries", "list", "--agent", "\udcff"), 2, "What is given has to be UTF-8: there are other bytes"),
        (("work", ".."), 2, "'..' is not an id such as 'qry_...'"),
        (("approvals", "approve", "apr_1", "--yes"), 1, "There is no approval 'apr_1'. (404 not_found)"),
        (("query", "x", "--runtime", "nobody", "--detach"), 1, "There is no runtime named 'nobody';"),
        (("query", "x", "--runtime", "nobody"), 1, "\n  --runtime takes one of: polite, tools, "),
        (("query", "x", "--runtime", "polite", "--thread", "thr_1"), 1, "There is no thread 'thr_1'."),
        (("query", "x", "--inputs", "[1]"), 2, "--inputs must be a JSON object."),
        (("query", "x", "--limits", "{"), 2, "--limits is not JSON: Expecting property name"),
        (
            ("query", "x", "--runtime", "tools", "--limits", '{"maxSpins": 1}'),
            1,
            "  /limits/maxSpins: unknown field 'maxSpins'; ",
        ),
        (("approvals", "revise", "apr_1", "--feedback", "x", "--partial", "{"), 2, "--partial is not JSON: "),
        (
            ("approvals", "list", "--status", "open"),
            1,
            "  query:status: Input should be 'pending', 'approved',",
        ),
    ],
)
def test_rejections_are_one_line(commands: Commands, words: Any, code: int, told: str) -> None:
    said = commands.refused(*words, code=code)
    assert said.startswith("plangate: ")
    assert told in said
    assert "Traceback" not in said


def test_an_unreachable_service_has_its_own_exit_code(env: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("plg_nobody\n")
    found = CliRunner().invoke(
        cli, ["work", NOBODY, "--url", "http://127.0.0.1:9", "--key-file", str(tmp_path / "key")]
    )
    assert found.exit_code == 4
    assert found.stderr.startswith("plangate: http://127.0.0.1:9 did not answer")
    assert "Is the service running there?" in found.stderr


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--url", "plangate"], "'plangate' is not an address such as http://127.0.0.1:8700."),
        (["--url", "http://127.0.0.1:99999"], "'http://127.0.0.1:99999' is not an address"),
        (["--url", "http://[::1"], "'http://[::1' is not an address"),
        (["--url", "http://999.1.1.1"], "'http://999.1.1.1' is not an address"),
        (["--url", "http://ann:x@127.0.0.1:8700"], "'http://ann:x@127.0.0.1:8700' is not an address"),
        (["--url", "http://127.0.0.1:8700?a=1"], "'http://127.0.0.1:8700?a=1' is not an address"),
        (["--url", "http://a b"], "'http://a b' is not an address"),
        (["--tenant", "é"], "--tenant: 'é' is not a tenant id: 1 to 63 characters of a-z, 0-9, '-' and '_'."),
        (["--tenant", "a\nb"], "--tenant: 'a\\nb' is not a tenant id"),
        (
            ["--url", "https://plangate.example"],
            "A key is needed for https://plangate.example: set PLANGATE_API_KEY",
        ),
        (
            ["--data-dir", "{tmp}/none"],
            "There is no key to read in {tmp}/none/local-key (FileNotFoundError).",
        ),
        (["--key-file", "{tmp}"], "There is no key to read in {tmp} (IsADirectoryError)."),
        (["--key-file", "{tmp}/two"], "{tmp}/two does not hold a key: keys begin with 'plg_'."),
    ],
)
def test_a_missing_key_is_reported(
    env: pytest.MonkeyPatch, tmp_path: Path, given: list[str], told: str
) -> None:
    """Above all, the key of this machine is never sent to another one."""
    (tmp_path / "two").write_text("plg_a plg_b\n")
    env.setenv("PLANGATE_DATA_DIR", str(tmp_path))
    (tmp_path / "local-key").write_text("plg_operator\n")
    found = CliRunner().invoke(cli, ["work", NOBODY, *(word.format(tmp=tmp_path) for word in given)])
    assert isinstance(found.exception, CommandError)
    assert found.exception.code == 2
    assert told.format(tmp=tmp_path) in str(found.exception)


def test_the_environment_sets_address_and_key(
    service: Service, env: pytest.MonkeyPatch, http: httpx.Client
) -> None:
    env.setenv("PLANGATE_URL", service.url)
    env.setenv("PLANGATE_API_KEY", service.key + "\n")
    found = CliRunner().invoke(cli, ["query", "Hi", "--runtime", "polite", "--detach", "--tenant", "local"])
    assert found.exit_code == 0
    assert http.get(f"/queries/{found.stdout.strip()}").status_code == 200
    asked = CliRunner().invoke(
        cli, ["query", "Hi", "--runtime", "polite", "--detach", "--tenant", "elsewhere"]
    )
    assert (asked.exit_code, "There is no runtime named 'polite';" in asked.stderr) == (1, True)


def test_the_command_exits_with_the_code(service: Service, tmp_path: Path) -> None:
    """As a process: what it says on stderr, and a reader that has seen enough."""
    env = {**plain_environment(), "PLANGATE_URL": service.url, "PLANGATE_API_KEY": service.key}
    command = [sys.executable, "-m", "app"]
    for words, code, told in (
        (["work", NOBODY], 1, f"plangate: There is no query '{NOBODY}'. (404 not_found)\n"),
        (
            ["work", NOBODY, "--key-file", str(tmp_path)],
            2,
            f"plangate: There is no key to read in {tmp_path}",
        ),
    ):
        ended = subprocess.run(
            [*command, *words], cwd=ROOT, env=env, capture_output=True, text=True, check=False
        )
        assert (ended.returncode, ended.stdout) == (code, "")
        assert ended.stderr.startswith(told)


def test_the_only_runtime_needs_no_name(commands: Commands, http: httpx.Client) -> None:
    http.post("/runtimes", json=specs.mock("Good evening.", tenant="lone", name="only")).raise_for_status()
    commands.at += ["--tenant", "lone"]
    assert "Good evening." in commands.said("query", "hello")
    assert "Good evening." in commands.said("query", "-", given="hello")
    http.post("/runtimes", json=specs.mock("Good night.", tenant="lone", name="other")).raise_for_status()
    assert "--runtime takes one of: other, only" in commands.refused("query", "hello", code=1)


def test_a_rejected_key_is_named_by_prefix_and_source(
    service: Service, data: Path, env: pytest.MonkeyPatch
) -> None:
    key, _ = new_key()
    file = data / "other-key"
    file.write_text(key)
    env.setenv("PLANGATE_API_KEY", key)
    for place, options in (
        ("PLANGATE_API_KEY", []),
        (str(file), ["--key-file", str(file)]),
    ):
        found = CliRunner().invoke(cli, ["runtimes", "list", "--url", service.url, *options])
        assert found.exit_code == 1
        assert f"The key that was sent begins with {key[:8]!r} and is from {place}." in found.stderr
        assert key[8:] not in found.output
    file.write_text("hunter2")
    found = CliRunner().invoke(cli, ["runtimes", "list", "--url", service.url, "--key-file", str(file)])
    assert f"The key that was sent is from {file}." in found.stderr
    assert "hunter2" not in found.output
