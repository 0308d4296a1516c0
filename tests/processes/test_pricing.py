"""The pricing example as a newcomer runs it: a process, a directory, a terminal; with and without a model."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import httpx
import pytest

from examples.pricing.catalogue import catalogue
from tests.processes.aimock.vendor_server import a_end, a_text, a_tool, sse
from tests.processes.test_demo import KEY_SHAPE, MODEL, Lab, Model, found

pytestmark = pytest.mark.long

PRODUCTS = "SELECT sku, price_cents FROM products ORDER BY sku"
PROMOTIONS = "SELECT code, sku, percent, headline FROM promotions ORDER BY sku"
MARKED_DOWN = {p.sku for p in catalogue() if p.season == "winter" and p.stock >= 40}
SPRING = {p.sku for p in catalogue() if p.season == "spring"}
ROWS = [text for p in catalogue() for text in (p.sku, p.name)]
"""What only the rows of the products say."""


class Shopfront(Lab):
    """A place of its own for the example."""

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "examples.pricing", "--data-dir", str(self.data), *arguments]

    def shop(self, sql: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.data / "shop.sqlite")) as db:
            return db.execute(sql).fetchall()


Done = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def lab() -> Iterator[Shopfront]:
    made = Shopfront()
    yield made
    shutil.rmtree(made.folder)


@pytest.fixture(scope="module")
def first(lab: Shopfront) -> Done:
    """The first run in the place."""
    return lab.run("--yes")


@pytest.fixture(scope="module")
def other() -> Iterator[Shopfront]:
    """A place where the first plan was sent back."""
    made = Shopfront()
    yield made
    shutil.rmtree(made.folder)


@pytest.fixture(scope="module")
def revised(other: Shopfront) -> Done:
    return other.run("--yes", "--revise", "15 % is enough")


def records(client: httpx.Client, output: str) -> Iterator[str]:
    """Everything that the service has on record: queries, events, work, approvals, the plan's revisions."""

    def read(path: str) -> str:
        return client.get(path).raise_for_status().text

    for query in client.get("/queries").json()["items"]:
        yield read(f"/queries/{query['id']}")
        yield read(f"/queries/{query['id']}/stream")
        yield read(f"/queries/{query['id']}/work")
    for approval in client.get("/approvals").json()["items"]:
        yield read(f"/approvals/{approval['id']}/subject")
    plan = found("pln_[0-9a-z]{26}", output)
    for part in ("", "/revisions", "/transitions", "/actions"):
        yield read(f"/plans/{plan}{part}")


def assert_no_product(texts: list[str]) -> None:
    for text in texts:
        assert not [row for row in ROWS if row in text]


# Approved at once.


def test_the_price_changes_are_applied(lab: Shopfront, first: Done) -> None:
    assert first.returncode == 0, first.stdout + first.stderr
    assert first.stderr == ""
    said = " ".join(first.stdout.split())
    assert "139 products of winter, 9,445 pieces in stock, 40.00 EUR to 297.00 EUR" in said
    assert "The call of reserve_budget: approve it?" in said and "325,294.80 EUR reserved" in said
    assert "revision 1: being put on the shelves" in said
    assert "139 of 139 prices set to -20 %. 240 of 240 products put in SPRING at 30 %." in said
    assert "139 prices off the list, 240 products in SPRING at 30 %" in said
    assert "22,641 bytes, in no prompt and in no event" in said
    assert "cost copywriter: 1 turn, no tokens" in said
    assert not KEY_SHAPE.search(first.stdout)
    assert list((lab.folder / "home").iterdir()) == []


def test_the_shop_matches_the_plan(lab: Shopfront, first: Done) -> None:
    expected = [
        (p.sku, p.list_cents * 8 // 10 if p.sku in MARKED_DOWN else p.list_cents) for p in catalogue()
    ]
    assert lab.shop(PRODUCTS) == expected
    headline = "Lighter days, lighter clothes"
    assert lab.shop(PROMOTIONS) == [("SPRING", sku, 30, headline) for sku in sorted(SPRING)]
    cents = sum(p.list_cents * p.stock for p in catalogue() if p.sku in SPRING) * 30 // 100
    assert lab.shop("SELECT code, cents FROM budgets") == [("SPRING", cents)] == [("SPRING", 32_529_480)]


def test_each_action_has_its_own_idempotency_key(lab: Shopfront, first: Done) -> None:
    with lab.service() as client:
        plan = found("pln_[0-9a-z]{26}", first.stdout)
        actions = client.get(f"/plans/{plan}/actions").json()["items"]
        body = client.get(f"/plans/{plan}").json()["body"]
    changes = dict(lab.shop("SELECT idempotency_key, changed FROM changes"))
    assert [changes[action["idempotencyKey"]] for action in actions] == [139, 240]
    assert [action["result"]["entitiesAffected"] for action in actions] == [379, 379]  # one batch, one answer
    assert body["context"] == {"ends": "2027-04-30", "budget_cents": 32_529_480}


def test_no_product_is_in_any_record(lab: Shopfront, first: Done) -> None:
    with lab.service() as client:
        told = list(records(client, first.stdout))
        handles = client.get("/references", params={"kind": "Products"}).json()["items"]
        values = [client.get(f"/references/Products/{handle['id']}").json() for handle in handles]
    assert sum("event: finish" in text for text in told) == 1
    assert sum('"kind":"model_call"' in text for text in told) == 2  # in the events and in the work
    assert_no_product([*told, first.stdout])
    assert {p["sku"] for value in values for p in value["products"]} == MARKED_DOWN | SPRING


def test_running_it_again_changes_nothing(lab: Shopfront, first: Done) -> None:
    before = lab.shop(PRODUCTS), lab.shop(PROMOTIONS), lab.shop("SELECT * FROM budgets")
    again = lab.run("--yes")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "0 of 139 prices set to -20 %. 0 of 240 products put in SPRING at 30 %." in " ".join(
        again.stdout.split()
    )
    assert (lab.shop(PRODUCTS), lab.shop(PROMOTIONS), lab.shop("SELECT * FROM budgets")) == before
    assert sorted(changed for (changed,) in lab.shop("SELECT changed FROM changes")) == [0, 0, 139, 240]
    with lab.service() as client:  # the same products are the same references
        assert len(client.get("/references", params={"kind": "Products"}).json()["items"]) == 2


def test_the_lines_at_the_end_are_about_this_run(first: Done) -> None:
    lines = first.stdout.partition("The same over HTTP")[2].splitlines()
    assert len([line for line in lines if "curl " in line]) == 7
    assert len([line for line in lines if line.endswith("# the products")]) == 2


# Sent back first.


@pytest.mark.long
def test_a_revised_plan_is_a_second_revision(other: Shopfront, revised: Done) -> None:
    assert revised.returncode == 0, revised.stdout + revised.stderr
    assert "decision: revise by operator: 15 % is enough" in revised.stdout
    assert "revision 2: approve it?" in revised.stdout and "revision 2: on the shelves" in revised.stdout
    with other.service() as client:
        plan = found("pln_[0-9a-z]{26}", revised.stdout)
        numbers = [item["revision"] for item in client.get(f"/plans/{plan}/revisions").json()["items"]]
        revisions = [client.get(f"/plans/{plan}/revisions/{number}").json() for number in numbers]
        approvals = client.get("/approvals").json()["items"]
        told = list(records(client, revised.stdout))
    percents = {r["revision"]: [a["payload"]["percent"] for a in r["body"]["actions"]] for r in revisions}
    assert percents == {1: [-20, 30], 2: [-20, 15]}
    assert [(a["kind"], a["target"], a["status"], a["feedback"]) for a in reversed(approvals)] == [
        ("tool", "reserve_budget", "approved", None),
        ("plan", plan, "revised", "15 % is enough"),
        ("plan", plan, "approved", None),
    ]
    assert_no_product(told)


@pytest.mark.long
def test_only_approved_changes_are_in_the_shop(other: Shopfront, revised: Done) -> None:
    assert other.shop("SELECT DISTINCT percent FROM promotions") == [(15,)]
    assert sorted(changed for (changed,) in other.shop("SELECT changed FROM changes")) == [139, 240]


@pytest.mark.long
def test_a_discount_of_fifteen_percent_needs_no_approval(revised: Done) -> None:
    assert revised.stdout.count("calls reserve_budget code=SPRING") == 2
    assert revised.stdout.count("The call of reserve_budget: approve it?") == 1


# A person at the terminal.


@pytest.mark.long
def test_a_person_revises_and_approves(lab: Shopfront, first: Done) -> None:
    code, output = lab.at_terminal("approve", "revise", "less", "10", "approve")
    assert code == 0, output
    assert output.count("another discount for the promotion, such as 15 %: ") == 2
    assert "revision 2: approve it?" in output
    assert lab.shop("SELECT DISTINCT percent FROM promotions") == [(10,)]


@pytest.mark.long
def test_a_rejected_call_is_not_made(other: Shopfront, revised: Done) -> None:
    before = other.shop("SELECT * FROM budgets")
    code, output = other.at_terminal("revise", "reject", "too deep")
    assert code == 1, output
    assert output.count("approve or reject? ") == 2  # a call cannot be revised
    assert "The call was rejected and not made. Feedback: too deep" in output
    assert "The plan was not carried out." in output
    assert other.shop("SELECT * FROM budgets") == before


@pytest.mark.long
def test_a_rejected_plan_changes_nothing(other: Shopfront, revised: Done) -> None:
    before = other.shop(PRODUCTS), other.shop(PROMOTIONS)
    code, output = other.at_terminal("approve", "reject", "not yet")
    assert code == 1, output
    found("plan +proposed, rejected +pln_", output)
    assert "The plan was rejected, so nothing was carried out." in output
    assert (other.shop(PRODUCTS), other.shop(PROMOTIONS)) == before


def test_without_a_person_nothing_starts(lab: Shopfront) -> None:
    refused = lab.run()
    assert refused.returncode == 2
    assert "add --yes" in refused.stderr and refused.stdout == ""


@pytest.mark.parametrize("arguments", [("--revise", "less"), ("--url", "http://127.0.0.1:1")])
def test_an_invalid_command_line_is_rejected(lab: Shopfront, arguments: tuple[str, ...]) -> None:
    assert lab.run("--yes", *arguments).returncode == 2


# With a model: a server that answers as a good model would, in the vendor's own format.


class Merchants(Model):
    """Plays the four agents. Which one it is, it reads from the system prompt."""

    def _turn(self, body: dict[str, Any]) -> list[str]:
        asked = json.dumps(body["system"])
        play = next(play for begins, play in PLAYS.items() if begins in asked)
        said = play([_text(message) for message in body["messages"] if message["role"] == "user"])
        usage = {"input_tokens": 1000, "output_tokens": 1}
        message = {"id": "m", "type": "message", "role": "assistant", "model": MODEL, "content": []}
        start = sse("message_start", message={**message, "stop_reason": None, "usage": usage})
        if isinstance(said, str):
            return [start, *a_text(0, said), *a_end()]
        name, args = said
        return [start, *a_tool(0, f"toolu_{len(self.bodies)}", name, json.dumps(args)), *a_end("tool_use")]


def _text(message: dict[str, Any]) -> str:
    """What a message of the user says, or the results in it."""
    if isinstance(message["content"], str):
        return message["content"]
    parts = [part for block in message["content"] for part in _parts(block)]
    return "".join(part["text"] for part in parts)


def _parts(block: dict[str, Any]) -> list[dict[str, Any]]:
    content = block.get("content", [block])
    return [{"text": content}] if isinstance(content, str) else content


def _coordinator(heard: list[str]) -> Any:
    """`heard`: the prompt, then the answer to each call."""
    calls = [
        ("planner", "Plan it as p-1."),
        ("executor", "Have p-1 carried out."),
        ("planner", "Of p-1: 15 % is enough."),
        ("executor", "Have p-1 carried out."),
    ]
    if len(heard) == 3:
        assert "15 % is enough" in heard[2]  # the executor told it
    if len(heard) <= len(calls):
        agent, prompt = calls[len(heard) - 1]
        return "call_agent", {"agent": agent, "prompt": prompt}
    return "Prices are [down] and spring is promoted."


def _planner(heard: list[str]) -> Any:
    """It remembers the first time when it is called again: `heard` has both."""
    begins = max(n for n, text in enumerate(heard) if "p-1" in text and not text.startswith("{"))
    heard, percent = heard[begins:], 15 if "15 %" in heard[begins] else 30
    handles = [{key: json.loads(text)[key] for key in ("kind", "id")} for text in heard[1:3]]
    match len(heard):
        case 1:
            return "find_products", {"season": "winter", "min_stock": 40}
        case 2:
            return "find_products", {"season": "spring", "min_stock": 0}
        case 3:
            return "reserve_budget", {"code": "SPRING", "percent": percent, "products": handles[1]}
        case 4:
            return "call_agent", {"agent": "copywriter", "prompt": "A headline for spring."}
        case 5:
            body = {
                "summary": "Winter goes.",
                "context": {"ends": "2027-04-30", "budget_cents": json.loads(heard[3])["budget_cents"]},
                "actions": [
                    {"kind": "price_change", "percent": -20, "references": handles[:1]},
                    {"kind": "promotion", "code": "SPRING", "percent": percent, "references": handles[1:]}
                    | json.loads(heard[4]),
                ],
            }
            return "storePlan", {"specName": "Campaign", "planId": "p-1", "body": body}
    return "It is stored. Ask me of it as the plan of spring."


def _copywriter(heard: list[str]) -> Any:
    return '{"headline": "Spring!"}' if "JSON" in heard[-1] else "What about: Spring!"


def _executor(heard: list[str]) -> Any:
    return heard[1] if len(heard) > 1 else ("executePlan", {"planId": "p-1"})


PLAYS: dict[str, Callable[[list[str]], Any]] = {
    "You coordinate the prices": _coordinator,
    "You plan price changes": _planner,
    "You write headlines": _copywriter,
    "You have stored plans": _executor,
}


@pytest.mark.long
async def test_a_model_does_the_same_in_one_query(other: Shopfront, revised: Done) -> None:
    model = Merchants()
    await model.start()
    try:
        environment = {"ANTHROPIC_API_KEY": "sk-demo-key", "ANTHROPIC_BASE_URL": model.url}
        done = await asyncio.to_thread(other.run, "--yes", "--revise", "15 % is enough", **environment)
    finally:
        await model.stop()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "“Prices are [down] and spring is promoted.”" in done.stdout
    assert "revision 2: on the shelves" in done.stdout
    assert len(set(re.findall("qry_[0-9a-z]{26}", done.stdout))) == 1
    found(
        r"cost +copywriter: 4 turns, 4,000 tokens in, \d+ out, 0\.0\d+ USD", done.stdout
    )  # twice, in words first
    found(r"model +claude-sonnet-4-5: 2\d,000 tokens in, \d+ out, 0\.\d+ USD", done.stdout)
    assert other.shop("SELECT DISTINCT percent, headline FROM promotions") == [(15, "Spring!")]
    assert "sk-demo-key" not in done.stdout
    assert any("cheapest_cents" in body for body in model.bodies)
    assert_no_product(model.bodies)  # every byte of every prompt
