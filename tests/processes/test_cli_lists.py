"""Commands that list runtimes, queries and keys, and that cancel or resume a query."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.processes.test_cli import NOBODY, PATIENCE_S, Commands, client, env, harmless, pending
from tests.support import forked, specs
from tests.support.service import Service, folder, plain_environment, serving

__all__ = ["env"]

PAY = specs.tool("pay", approval="always")
MINUTE = r"\d{4}-\d\d-\d\d \d\d:\d\d UTC"


@pytest.fixture(scope="module")
def data() -> Iterator[Path]:
    with folder() as at:
        yield at


@pytest.fixture(scope="module")
def service(data: Path) -> Iterator[Service]:
    with serving(data) as running:
        with client(running) as http:
            for version, reply in (("1", "Good morning."), ("2", "Good evening.")):
                tenant = {"resourceId": "local", "version": version}
                spec = specs.mock(reply, name="polite") | {"tenant": tenant}
                http.post("/runtimes", json=spec).raise_for_status()
            write = {**PAY, "name": "note", "inputSchema": {"type": "object"}}
            tools = specs.scripted(PAY, write, tenant="local", name="tools")
            http.post("/runtimes", json=tools).raise_for_status()
            planning = specs.planning(tenant="local", name="planning")
            http.post("/runtimes", json=planning).raise_for_status()
        yield running


@pytest.fixture
def http(service: Service) -> Iterator[httpx.Client]:
    with client(service) as made:
        yield made


@pytest.fixture
def commands(service: Service, data: Path, env: pytest.MonkeyPatch) -> Commands:
    return Commands(service, data)


def waited(http: httpx.Client, query: str, status: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while http.get(f"/queries/{query}").json()["status"] != status:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def asked(commands: Commands, runtime: str, prompt: str, *more: str) -> str:
    return commands.said("query", prompt, "--runtime", runtime, "--detach", *more).strip()


# -- what is approved


def test_a_subject_is_shown_completely(commands: Commands, http: httpx.Client) -> None:
    args = {"to": "ann\u3164", "text": " a\tb\n\xa0\u200b ", "path": r"C:\u3164", "\u2800": 1.0}
    query = asked(commands, "tools", specs.script(("note", args)))
    said = commands.said("approvals", "approve", pending(http, query)["id"], "--yes")
    lines = said.splitlines()
    subject = "\n".join(line[2:] for line in lines[1:-2])
    assert json.loads(subject)["args"] == args
    assert r'"to": "ann\u3164"' in said
    assert r'"text": "\u0020a\tb\n\u00a0\u200b\u0020"' in said
    assert r'"path": "C:\\u3164"' in said
    assert r'"\u2800": 1.0' in said


# -- lists


def test_runtimes_are_listed_newest_first(commands: Commands, http: httpx.Client) -> None:
    lines = commands.said("runtimes", "list").splitlines()
    told = [re.fullmatch(rf"(rt_\w{{26}})  (\w+) +version (\d)  {MINUTE}", line) for line in lines]
    assert [(m[2], m[3]) for m in told if m] == [
        ("planning", "1"),
        ("tools", "1"),
        ("polite", "2"),
        ("polite", "1"),
    ]
    (only,) = commands.said("runtimes", "list", "--name", "tools").splitlines()
    assert only == lines[1].replace("tools    ", "tools ")
    listed = commands.json("runtimes", "list", "--limit", "2")
    assert listed == http.get("/runtimes", params={"limit": 2}).json()["items"]


def test_truncated_and_empty_lists_are_announced(commands: Commands) -> None:
    found = commands.result("runtimes", "list", "--limit", "2")
    assert (found.exit_code, found.stdout.count("\n")) == (0, 2)
    assert found.stderr == "There are more than 2: --limit shows more of them.\n"
    for words, of in (
        (("runtimes", "list", "--name", "x"), "runtime"),
        (("queries", "list", "--agent", "nobody"), "query"),
        (("approvals", "list", "--query", NOBODY), "approval"),
    ):
        none = commands.result(*words)
        assert (none.exit_code, none.stdout, none.stderr) == (
            0,
            "",
            f"No {of} matches.\n",
        )
        assert commands.json(*words) == []
    for words, line in ((("--tag", "x"), "No artifacts match.\n"), ((), "No artifacts yet.\n")):
        none = commands.result("artifacts", *words)
        assert (none.exit_code, none.stdout, none.stderr) == (0, "", line)
        assert commands.json("artifacts", *words) == []


def test_queries_are_listed_newest_first(commands: Commands, http: httpx.Client) -> None:
    first = asked(commands, "polite", "Good\x1b[2J morning!", "--thread", "t1")
    waited(http, first, "succeeded")
    second = asked(commands, "tools", specs.script(("pay", {"n": 1})))
    pending(http, second)
    waited(http, second, "waiting")
    lines = commands.said("queries", "list", "--limit", "2").splitlines()
    assert re.fullmatch(rf"{second}  waiting \(approval\)  solo  {MINUTE}  \{{\"script\".*\.\.\.", lines[0])
    assert re.fullmatch(rf"{first}  succeeded +solo  {MINUTE}  Good\\x1b\[2J morning!", lines[1])
    thread = http.get(f"/queries/{first}").json()["threadId"]
    for filters, found in (
        (("--status", "waiting"), second),
        (("--thread", thread), first),
        (("--runtime", "polite"), first),
        (("--runtime", http.get(f"/queries/{second}").json()["runtimeId"]), second),
    ):
        assert commands.json("queries", "list", *filters)[0]["id"] == found
        assert commands.said("queries", "list", *filters).startswith(found)
    old = http.get("/runtimes", params={"name": "polite"}).json()["items"][-1]["id"]
    third = asked(commands, old, "Hi")
    assert [q["id"] for q in commands.json("queries", "list", "--runtime", "polite")][:2] == [third, first]


def test_truncated_query_lists_are_announced_once(commands: Commands, http: httpx.Client) -> None:
    """However they are spread over its versions."""
    for prompt in ("1", "2"):
        version = http.post("/runtimes", json=specs.mock(prompt, tenant="local", name="spread")).json()["id"]
        for _ in range(2):
            asked(commands, version, prompt)
    for limit, more in ((1, True), (2, True), (3, True), (4, False)):
        found = commands.result("queries", "list", "--runtime", "spread", "--limit", str(limit))
        assert (found.exit_code, found.stdout.count("\n")) == (0, limit)
        told = f"There are more than {limit}: --limit shows more of them.\n"
        assert found.stderr == (told if more else "")


# -- one query


def test_a_query_is_cancelled(commands: Commands, http: httpx.Client) -> None:
    query = asked(commands, "tools", specs.script(("pay", {"n": 1})))
    pending(http, query)
    assert commands.said("queries", "cancel", query) == f"{query} is cancelled.\n"
    assert http.get(f"/queries/{query}").json()["status"] == "cancelled"


def test_a_query_resumes_from_a_limit(commands: Commands, http: httpx.Client) -> None:
    query = asked(commands, "tools", specs.script(("nothing", {})), "--limits", '{"maxTurns": 1}')
    waited(http, query, "waiting")
    needs = commands.result("queries", "resume", query)
    assert "Give the limit that is to be higher, such as --max-turns" in needs.output
    (line,) = [line for line in commands.said("work", query).splitlines() if line.startswith("waits: ")]
    words = line.removeprefix("waits: plangate ").removesuffix(", higher than it was").split()
    assert words == ["queries", "resume", query, "--max-turns", "N"]
    said = commands.said(*words[:-1], "9")
    assert re.fullmatch(rf"{query} is (queued|running|succeeded)\.\n", said)
    commands.said("watch", query)
    refused = commands.refused("queries", "resume", query, "--max-cost-usd", "1", code=1)
    assert refused.startswith(
        "plangate: The query is succeeded; only one that waits at a limit can be resumed."
    )


def test_an_unknown_action_is_settled(commands: Commands, http: httpx.Client) -> None:
    """Two that were sent together: `work` says how, the command does it, and the query goes on."""
    body = {"actions": [specs.BOOK, specs.BOOK]}
    query = asked(commands, "planning", specs.store_and_execute(body))
    http_decide(http, pending(http, query))
    claimed: list[Any] = []
    while not claimed:
        asking = {"tools": [{"name": "actions"}], "leaseMs": 1000}
        claimed = http.post("/tool-calls/claim", json=asking).json()["calls"]
        time.sleep(0.05)
    deadline = time.monotonic() + PATIENCE_S
    while http.get(f"/queries/{query}").json()["reason"] != "outcome_unknown":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (plan,) = commands.json("plans", "list", "--status", "executing")
    settle = f"plangate plans settle {plan['id']} 0 OUTCOME, once somebody has looked"
    assert f"waits: {settle} at actions 0-1 book" in commands.said("work", query).splitlines()
    words = ("plans", "settle", plan["id"])
    assert "is not one of 'succeeded', 'failed', 'retry'" in " ".join(
        re.sub("[^ -~]", " ", commands.refused(*words, "0", "OUTCOME", code=2)).split()
    )
    assert (
        commands.refused(*words, "2", "failed", code=1)
        == "plangate: The plan has no action 2. (404 not_found)\n"
    )
    told = commands.refused(*words, "0", "failed", "--details", "{", code=2)
    assert told.startswith("plangate: --details is not JSON: ")
    said = commands.said(*words, "1", "succeeded", "--details", '{"seen": "in the ledger"}')
    assert said == f"Action 1 (book) of {plan['id']} is succeeded.\n"
    waited(http, query, "succeeded")
    rows = http.get(f"/plans/{plan['id']}/actions").json()["items"]
    assert [(row["status"], row["result"]["details"]) for row in rows] == [
        ("succeeded", {"seen": "in the ledger"})
    ] * 2
    assert settle in "\n".join(line[28:] for line in commands.said("watch", query).splitlines())
    assert "waits:" not in commands.said("work", query)
    told = commands.refused(*words, "0", "retry", code=1)
    assert told == "plangate: Action 0 is succeeded; only an unknown outcome can be settled. (409 conflict)\n"
    assert f"{plan['id']}  Done and dusted" in commands.said("plans", "list", "--thread", plan["threadId"])


def http_decide(http: httpx.Client, approval: dict[str, Any]) -> None:
    body = {"decision": "approve", "digest": approval["digest"]}
    http.post(f"/approvals/{approval['id']}", json=body).raise_for_status()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("queries", "cancel", NOBODY), f"There is no query '{NOBODY}'. (404 not_found)"),
        (("queries", "resume", NOBODY, "--max-turns", "1"), f"There is no query '{NOBODY}'. (404 not_found)"),
        (("queries", "resume", NOBODY, "--max-tokens", "0"), "greater than or equal to 1"),
        (("queries", "list", "--status", "done"), "query:status: Input should be 'queued',"),
        (
            ("queries", "list", "--runtime", "x"),
            "There is no runtime named 'x': list them with `plangate runtimes list`",
        ),
    ],
)
def test_rejections_are_one_line(commands: Commands, words: tuple[str, ...], told: str) -> None:
    assert told in commands.refused(*words, code=1)


# -- keys


def operator(data: Path, *words: str) -> tuple[int, str, str]:
    """A command that opens the database itself, beside the service."""
    ended = forked.run("app", *words, "--data-dir", str(data / "data"), env=plain_environment())
    assert harmless(ended.stdout + ended.stderr)
    return ended.returncode, ended.stdout, ended.stderr


def test_keys_are_listed_and_revoked(service: Service, data: Path) -> None:
    scopes = ("--scope", "tools:serve", "--scope", "read", "--tool", "pay")
    assert operator(data, "tenants", "create", "acme")[0] == 0
    assert operator(data, "keys", "list", "acme") == (0, "", "No key matches.\n")
    code, text, _ = operator(data, "keys", "create", "acme", "--principal", "ann\u202e", *scopes)
    assert code == 0
    code, said, _ = operator(data, "keys", "list", "acme")
    (line,) = said.splitlines()
    told = re.fullmatch(rf"(key_\w{{26}})  ann\\u202e  tools:serve,read for pay  {MINUTE}", line)
    assert told, line
    assert text.strip() not in said
    with httpx.Client(
        base_url=service.url, headers={"Authorization": f"Bearer {text.strip()}"}, trust_env=False
    ) as caller:
        assert caller.get("/queries").status_code == 200
        assert operator(data, "keys", "revoke", "acme", told[1]) == (0, f"Key {told[1]} is revoked.\n", "")
        deadline = time.monotonic() + 5
        while caller.get("/queries").status_code != 401:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    assert re.search(rf"  revoked {MINUTE}\n$", operator(data, "keys", "list", "acme")[1])
    (key,) = json.loads(operator(data, "keys", "list", "acme", "--json")[1])
    assert (key["id"], key["principal"], key["tools"]) == (told[1], "ann\u202e", ["pay"])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("list", "nobody"), "There is no tenant 'nobody'; make it with `plangate tenants create`."),
        (("list", "A B"), "There is no tenant 'A B'; make it with `plangate tenants create`."),
        (("revoke", "local", "key_1"), "There is no key 'key_1' of the tenant 'local'."),
        (("revoke", "local", "\udcff"), r"There is no key '\udcff' of the tenant 'local'."),
        (
            ("create", "nobody", "--principal", "x", "--scope", "read"),
            "There is no tenant 'nobody'; make it with",
        ),
    ],
)
def test_an_invalid_key_is_reported_in_one_line(
    service: Service, data: Path, words: tuple[str, ...], told: str
) -> None:
    code, said, error = operator(data, "keys", *words)
    assert (code, said) == (1, "")
    assert error.startswith(f"plangate: {told}")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--principal", ""), "/principal: must have 1 to 200 characters, in UTF-8"),
        (("--principal", "x" * 201), "/principal: must have 1 to 200 characters, in UTF-8"),
        (("--principal", "\udcff"), "/principal: must have 1 to 200 characters, in UTF-8"),
        (("--principal", "x", "--tool", ""), "/tools/0: must have 1 to 100 characters, in UTF-8"),
    ],
)
def test_a_key_requires_a_principal(service: Service, data: Path, words: tuple[str, ...], told: str) -> None:
    code, said, error = operator(data, "keys", "create", "local", "--scope", "read", *words)
    assert (code, said, error) == (1, "", f"plangate: The key is invalid; none was created.\n  {told}\n")
