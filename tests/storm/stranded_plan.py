"""A plan whose dispatched action kills the process every time, and a plan that an earlier version left stranded."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

from tests.processes.acceptance import specs
from tests.processes.acceptance.house import House, eventually
from tests.storm.database import check_innocent
from tests.storm.figures import Figures
from tests.storm.house import Supervisor, deadly_model, house_with

ACTIONS = 4


@dataclass(frozen=True, slots=True)
class Size:
    lease_s: float
    patience_s: float


FULL = Size(lease_s=10, patience_s=180)
SMALL = Size(lease_s=2, patience_s=60)

# As a version before crash accounting left it: the query ended, and no hook of its plan ran.
STRAND = """
WITH gone AS (
    UPDATE queries SET status = 'failed', reason = NULL, ended_at = now(), parked_at = NULL, lease_owner = NULL,
           lease_expires_at = NULL, next_seq = next_seq + 1,
           error = convert_to('{"code": "poisoned", "message": "set aside by an earlier version"}', 'UTF8')
     WHERE id = $1 RETURNING tenant_id, id, next_seq - 1 AS seq)
INSERT INTO events (tenant_id, query_id, seq, type, body)
SELECT tenant_id, id, seq, 'error', convert_to(
       jsonb_build_object('id', id, 'type', 'error', 'at', now(), 'queryId', id)::text, 'UTF8') FROM gone
"""


def run(figures: Figures, size: Size = FULL) -> None:
    with deadly_model(0.1) as model, house_with(model, lease_s=size.lease_s) as house:
        with Supervisor(house) as supervisor:
            plan, query = execute(house, {"kind": "http", "url": model.endpoint, "replay": "safe"})
            ended = wait_for(house, f"/queries/{query}", lambda q: bool(q["endedAt"]), size.patience_s)
            figures.exactly(
                "query after its third kill", (ended["status"], code_of(ended)), ("failed", "poisoned")
            )
            figures.exactly("processes killed by the action", len(model.killed), 3)
            figures.at_most("services among them", len(supervisor.deaths), 2, "processes")
        check_plan(house, figures, "set aside", plan)
        events = house.sql("SELECT type FROM events WHERE query_id = $1 ORDER BY seq DESC LIMIT 1", query)
        figures.exactly("last event", events[0]["type"], "error")
        settle(house, figures, plan)
        repaired = repair(house, figures, size)
        check_innocent(house, figures, size.patience_s, [query, repaired])


def repair(house: House, figures: Figures, size: Size) -> str:
    """Strand a plan as an earlier version did, and expect the service to repair it. Return the id of its query."""
    plan, query = execute(house, {"kind": "client", "replay": "never"})
    claim = {"tools": [{"name": "actions"}], "max": 1, "leaseMs": 600_000, "claimToken": uuid.uuid4().hex}
    eventually(lambda: house.post("/tool-calls/claim", claim)["calls"], "the actions are offered")
    house.kill_service()
    house.sql(STRAND, query)
    house.serve()
    wait_for(house, f"/plans/{plan}", lambda p: p["status"] == "failed", size.patience_s)
    check_plan(house, figures, "repaired", plan)
    return query


def execute(house: House, dispatcher: dict[str, Any]) -> tuple[str, str]:
    """Store a plan, execute it, approve it, and return the ids of the plan and of its query."""
    spec = specs.notices()
    spec["name"] = f"stranded-{dispatcher['kind']}"
    spec["actionDispatcher"] = dispatcher
    runtime = house.register(spec)
    body = specs.store(ACTIONS)["args"]["body"]
    asked = {"specName": "Notices", "runtimeId": runtime, "threadKey": uuid.uuid4().hex, "body": body}
    plan = house.post("/plans", asked, 201)["id"]
    query = house.post(f"/plans/{plan}/execute", {}, 202)["id"]
    house.approve(house.follow(query))
    return plan, query


def check_plan(house: House, figures: Figures, how: str, plan: str) -> None:
    figures.exactly(f"plan, {how}", house.get(f"/plans/{plan}")["status"], "failed")
    statuses = {row["status"] for row in house.get(f"/plans/{plan}/actions")["items"]}
    figures.exactly(f"its actions, {how}", " ".join(sorted(statuses - {"skipped"})), "unknown")


def settle(house: House, figures: Figures, plan: str) -> None:
    """Settle the unknown actions: that corrects their rows, and the plan stays failed."""
    rows = house.get(f"/plans/{plan}/actions")["items"]
    for row in rows:
        if row["status"] == "unknown":
            house.post(f"/plans/{plan}/actions/{row['index']}", {"outcome": "succeeded"})
    after = house.get(f"/plans/{plan}/actions")["items"]
    figures.exactly("unknown actions after settling", sum(r["status"] == "unknown" for r in after), 0)
    figures.exactly("plan after settling", house.get(f"/plans/{plan}")["status"], "failed")


def code_of(query: dict[str, Any]) -> str | None:
    return (query.get("error") or {}).get("code")


def wait_for(house: House, path: str, holds: Callable[[Any], bool], patience_s: float) -> Any:
    """Return what a path gives once it `holds`, or what it gave last. The service may be away in between."""
    deadline, found = time.monotonic() + patience_s, None
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.HTTPError, AssertionError):
            found = house.get(path)
            if holds(found):
                break
        time.sleep(0.1)
    return found
