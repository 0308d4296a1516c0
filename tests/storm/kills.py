"""Kills of service processes at random moments, while clients submit short queries, long ones and plans."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx

from tests.processes.acceptance import specs
from tests.processes.acceptance.house import House, Process, readiness
from tests.processes.acceptance.model_server import SlowModel
from tests.processes.acceptance.stubborn import insist
from tests.storm.database import UNENDED, check_innocent, first_moves
from tests.storm.figures import Figures
from tests.storm.house import deadly_model, house_with

MOVES_S = 30.0
START_S = 30.0


@dataclass(frozen=True, slots=True)
class Size:
    """`alive_s` is the most that a process lives after it was ready; `in_start` is the share of kills before that.
    `queries` are submitted in all, of which some are long ones and plans; None submits until the last kill."""

    kills: int
    processes: int
    alive_s: float
    in_start: float
    at_once: int
    turn_s: float
    lease_s: float
    seed: int
    child_processes: int = 8  # of each process
    queries: int | None = None
    patience_s: float = 240


RAPID = Size(
    kills=30, processes=1, alive_s=1.0, in_start=0.2, at_once=92, queries=92, turn_s=10, lease_s=10, seed=1
)
SMALL_RAPID = Size(
    kills=4,
    processes=1,
    alive_s=0.5,
    in_start=0.2,
    at_once=12,
    queries=12,
    turn_s=2,
    lease_s=2,
    seed=1,
    patience_s=60,
)
RANDOM = Size(
    kills=1_000,
    processes=3,
    child_processes=2,
    alive_s=3.0,
    in_start=0.25,
    at_once=40,
    turn_s=20,
    lease_s=10,
    seed=2,
)
SMALL_RANDOM = Size(
    kills=6, processes=2, alive_s=1.0, in_start=0.25, at_once=10, turn_s=2, lease_s=2, seed=2, patience_s=60
)


def run(figures: Figures, size: Size) -> None:
    with (
        deadly_model(0.1) as model,
        house_with(model, lease_s=size.lease_s, child_processes=size.child_processes) as house,
    ):
        house.user(house.ledger(), "actions", "actions.notify", "actions.call", "lookup", lease_ms=5000)
        fleet, clients = Fleet(house, size), Clients(house, model, size)
        with clients.approving():
            began = time.monotonic()
            with clients.submitting():
                fleet.kill_until_enough()
            last_kill, took = time.time(), time.monotonic() - began
            waiting = [row["id"] for row in house.sql(UNENDED) if row["status"] in ("queued", "running")]
            fleet.until_ready()
            figures.at_least("kills of service processes", fleet.kills, size.kills, "kills")
            figures.publish("kills per second", fleet.kills / took, "kills/s")
            check_innocent(house, figures, size.patience_s)
        kept = house.sql("SELECT count(*)::int AS n FROM queries WHERE id = ANY($1)", clients.accepted)[0][
            "n"
        ]
        figures.exactly("accepted queries that were lost", len(clients.accepted) - kept, 0)
        figures.publish("accepted queries", len(clients.accepted), "queries")
        for fault in clients.faults:
            figures.fail("a client's request", fault)
        moved = first_moves(house, waiting, last_kill)
        slowest = max(moved.values(), default=last_kill) - last_kill if len(moved) == len(waiting) else None
        figures.at_most(
            f"{len(waiting)} queries in progress move after the last kill (P3)", slowest, MOVES_S, "s"
        )


SHORT = {
    "name": "short",
    "tenant": specs.TENANT,
    "agents": [{"name": "helper", "role": "specialist", "model": {"id": "m", "provider": "mock"}}],
    "mockResponse": "hello there",
}


class Fleet:
    """The processes of the service. Each has a thread that starts it and kills it, until all have been killed often
    enough; then one more start."""

    def __init__(self, house: House, size: Size) -> None:
        self._house, self._size = house, size
        self._counted = threading.Lock()
        self._ports = [house.port, *(free_port() for _ in range(size.processes - 1))]
        self.kills = 0

    def kill_until_enough(self) -> None:
        threads = [
            threading.Thread(target=self._run, args=(port, random.Random(self._size.seed * 1000 + n)))
            for n, port in enumerate(self._ports)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def until_ready(self) -> None:
        for port in self._ports:
            deadline = time.monotonic() + START_S
            while not self._ready(port) and time.monotonic() < deadline:
                time.sleep(0.05)

    def _run(self, port: int, dice: random.Random) -> None:
        process = self._house.service if port == self._house.port else None
        process = process or self._start(port)
        while self._more():
            if dice.random() < self._size.in_start:
                time.sleep(dice.uniform(0, 1))
            else:
                deadline = time.monotonic() + START_S
                while process.alive and not self._ready(port) and time.monotonic() < deadline:
                    time.sleep(0.05)
                time.sleep(dice.uniform(0, self._size.alive_s))
            with self._counted:
                self.kills += process.alive
            process.kill()
            process = self._start(port)

    def _more(self) -> bool:
        with self._counted:
            return self.kills < self._size.kills

    def _start(self, port: int) -> Process:
        if port == self._house.port:
            return self._house.serve(wait=False)
        return self._house.serve_at(port, wait=False)

    def _ready(self, port: int) -> bool:
        return readiness(f"http://127.0.0.1:{port}") == 200


class Clients:
    """Submit queries under idempotency keys, again and again until each is accepted, and approve plans."""

    def __init__(self, house: House, model: SlowModel, size: Size) -> None:
        self._house, self._model, self._size = house, model, size
        self.accepted: list[str] = []
        self.faults: list[str] = []
        self._over, self._settled = threading.Event(), threading.Event()
        self._numbers = itertools.count()
        self._http = house.http  # threads share it
        self._talk = house.register(specs.talker("talk-storm", model.provider("openai")))
        self._plan = house.register(specs.notices("safe"))
        self._short = house.register(SHORT)

    @contextmanager
    def submitting(self) -> Iterator[None]:
        """Submit until the block ends."""
        clients = [threading.Thread(target=self._submit_some) for _ in range(self._size.at_once)]
        for thread in clients:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in clients:
                thread.join()

    @contextmanager
    def approving(self) -> Iterator[None]:
        """Approve every plan until the block ends."""
        approver = threading.Thread(target=self._approve)
        approver.start()
        try:
            yield
        finally:
            self._settled.set()
            approver.join()

    def _submit_some(self) -> None:
        while not self._over.is_set():
            number = next(self._numbers)
            if self._size.queries is not None and number >= self._size.queries:
                return
            try:
                self._wait_for(self._submit(number))
            except Exception as error:
                self.faults.append(f"{type(error).__name__}: {error}"[:300])

    def _submit(self, number: int) -> str:
        """Submit one query: two of five talk for long, one plans and executes, two are short."""
        key = uuid.uuid4().hex
        body = {"threadKey": key, "runtimeId": self._short, "prompt": "hello"}
        if number % 5 in (0, 1):
            body |= {
                "runtimeId": self._talk,
                "prompt": self._model.prompt(self._size.turn_s),
                "agent": "talker",
            }
        elif number % 5 == 2:
            body |= {"runtimeId": self._plan, "prompt": json.dumps(specs.plan_and_execute(2, specs.LOOK_UP))}
        query: str = insist(self._house, "/queries", body, key)["id"]
        self.accepted.append(query)
        return query

    def _wait_for(self, query: str) -> None:
        """Wait until the query has ended, or all kills are over."""
        while not self._over.wait(0.5):
            with contextlib.suppress(httpx.HTTPError):
                answer = self._http.get(f"/queries/{query}")
                if answer.status_code == 200 and answer.json()["endedAt"]:
                    return

    def _approve(self) -> None:
        while not self._settled.wait(0.3):
            with contextlib.suppress(httpx.HTTPError):
                answer = self._http.get("/approvals?status=pending&limit=100")
                for asked in answer.json()["items"] if answer.status_code == 200 else ():
                    decision = {"decision": "approve", "digest": asked["digest"]}
                    self._http.post(f"/approvals/{asked['id']}", json=decision)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port
