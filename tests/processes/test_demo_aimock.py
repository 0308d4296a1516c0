"""The demo through the official SDK against aimock: streamed, with parallel calls, a 429 with Retry-After, and a
529."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.processes.aimock.server import calls, fails, journal, running_aimock, says, script
from tests.processes.test_demo import Lab, found

pytestmark = pytest.mark.long

COORDINATOR, PLANNER, EXECUTOR = "You coordinate", "You plan", "You have stored plans"
DAY = {"day": "2013-03-08"}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    shutil.rmtree(made.folder)


def handle_of_first_run(lab: Lab) -> dict[str, str]:
    """The same flights in the same tenant have the same handle: a run without a model tells it."""
    assert lab.run("--yes").returncode == 0
    with lab.service() as api:
        (listed,) = api.get("/references", params={"kind": "DelayedFlights"}).json()["items"]
    return {"kind": listed["kind"], "id": listed["id"]}


def plays(handle: dict[str, str]) -> list[Any]:
    voucher = {
        "kind": "issue_voucher",
        "amount": "75.00",
        "currency": "USD",
        "from_minutes": 120,
        "reason": "late",
    }
    told = {"kind": "notify_operations", "carriers": ["EV", "B6"], "message": "help"}
    actions = [{**voucher, "references": [handle]}, {**told, "references": [handle]}]
    body = {**DAY, "summary": "Vouchers for all.", "actions": actions}
    return [
        fails(429, "rate_limit_error", retry_after_s=1, systemMessage=PLANNER, turnIndex=0, sequenceIndex=0),
        fails(529, "overloaded_error", systemMessage=EXECUTOR, turnIndex=0, sequenceIndex=0),
        *script(
            calls(("call_agent", {"agent": "planner", "prompt": "Plan the day as p-aimock."})),
            calls(("call_agent", {"agent": "executor", "prompt": "Carry out p-aimock."})),
            says("All of them are taken care of."),
            systemMessage=COORDINATOR,
        ),
        *script(
            calls(
                ("find_delayed_departures", {**DAY, "limit_minutes": 120}),
                ("find_delayed_departures", {**DAY, "limit_minutes": 240}),
            ),
            calls(("storePlan", {"specName": "FlightRecovery", "planId": "p-aimock", "body": body})),
            says("The plan is p-aimock."),
            systemMessage=PLANNER,
        ),
        *script(
            calls(("executePlan", {"planId": "p-aimock"})),
            says("It is carried out."),
            systemMessage=EXECUTOR,
        ),
    ]


def test_the_demo_with_the_official_sdk_through_faults(lab: Lab) -> None:
    handle = handle_of_first_run(lab)
    with running_aimock(plays(handle)) as url:
        done = lab.run("--yes", ANTHROPIC_API_KEY="sk-aimock", ANTHROPIC_BASE_URL=url)
        asked = journal(url)
    assert done.returncode == 0, done.stdout + done.stderr
    found(
        "226 vouchers, 126 notifications of this plan|226 vouchers, 85 notifications of this plan",
        done.stdout,
    )
    statuses = Counter(entry["response"]["status"] for entry in asked)
    assert (statuses[429], statuses[529]) == (1, 1)
    assert statuses[200] == 8
    assert all(entry["body"]["stream"] for entry in asked if entry["path"].startswith("/v1/messages"))
    with lab.service() as api:
        newest = api.get("/queries").json()["items"][0]
        events = api.get(f"/queries/{newest['id']}/events", params={"limit": 500}).json()["events"]
    retries = [e["reason"] for e in events if e["type"] == "step-retry"]
    assert [r.partition(":")[0] for r in retries] == ["provider_rate_limited", "provider_overloaded"]
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    parallel = [
        e for e in events if e["type"] == "tool-invocation" and e["toolName"] == "find_delayed_departures"
    ]
    assert Counter(e["state"] for e in parallel) == {"call": 2, "result": 2}
