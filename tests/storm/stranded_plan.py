"""A plan whose dispatched action kills the process every time, and a plan that an earlier version left stranded."""

from __future__ import annotations

import asyncio
import contextlib
import threading
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
from tests.storm.house import Supervisor, deadly_model, house_with, ready

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
     WHERE id = $1 RETURNING tenant_id, id, next_seq - 1 AS seq),
closed AS (UPDATE work_records SET status = 'failed', ended_at = now() WHERE query_id = $1 AND ended_at IS NULL)
INSERT INTO events (tenant_id, query_id, seq, type, body)
SELECT tenant_id, id, seq, 'error', convert_to(
       jsonb_build_object('id', id, 'type', 'error', 'at', now(), 'queryId', id)::text, 'UTF8') FROM gone
"""


LOCK = "SELECT id FROM plans WHERE id = $1 FOR UPDATE"


def run(figures: Figures, size: Size = FULL) -> None:
    with deadly_model(0.1) as model, house_with(model, lease_s=size.lease_s) as house:
        with Supervisor(house) as supervisor:
            lock = Lock(house)
            model.before_kill = lambda number: lock.take() if number == 3 else None
            lock.plan, query = execute(house, {"kind": "http", "url": model.endpoint, "replay": "safe"})
            eventually(lambda: len(model.killed) == 3, "the third kill", size.patience_s)
            interrupt_ending(house)
            lock.release()
            ended = wait_for(house, f"/queries/{query}", lambda q: bool(q["endedAt"]), size.patience_s)
            figures.exactly(
                "query after its third kill", (ended["status"], code_of(ended)), ("failed", "poisoned")
            )
            figures.exactly("processes killed by the action", len(model.killed), 3)
            services = set(model.killed) & set(supervisor.deaths)
            figures.at_most("services among them", len(services), 2, "processes")
        check_plan(house, figures, "set aside", lock.plan)
        events = house.sql("SELECT type FROM events WHERE query_id = $1 ORDER BY seq DESC LIMIT 1", query)
        figures.exactly("last event", events[0]["type"], "error")
        settle(house, figures, lock.plan)
        repaired = repair(house, figures, size)
        check_innocent(house, figures, size.patience_s, [query, repaired])


def interrupt_ending(house: House) -> None:
    """Kill the service twice while it cannot end the query, because somebody holds a lock on the plan."""
    for _ in range(2):
        time.sleep(2)
        service = house.service
        assert service is not None
        service.kill()
        eventually(lambda was=service: house.service is not was and ready(house), "the service is back")  # type: ignore[misc]


class Lock:
    """A lock on the row of a plan, held by a connection of its own."""

    def __init__(self, house: House) -> None:
        self.plan = ""
        self._house = house
        self._held, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._hold()))

    def take(self) -> None:
        self._thread.start()
        assert self._held.wait(10)

    def release(self) -> None:
        self._over.set()
        self._thread.join()

    async def _hold(self) -> None:
        connection = await self._house.connect()
        async with connection.transaction():
            await connection.execute(LOCK, self.plan)
            self._held.set()
            await asyncio.to_thread(self._over.wait, 60)
        await connection.close()


def repair(house: House, figures: Figures, size: Size) -> str:
    """Strand a plan as an earlier version did, and expect the service to repair it. Return the id of its query."""
    plan, query = execute(house, {"kind": "client", "replay": "never"})
    claim = {"tools": [{"name": "actions"}], "max": 1, "leaseMs": 300_000, "claimToken": uuid.uuid4().hex}
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
    for index in range(ACTIONS):
        if house.get(f"/plans/{plan}/actions")["items"][index]["status"] == "unknown":
            house.post(f"/plans/{plan}/actions/{index}", {"outcome": "succeeded"})
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
