"""`make bench ARGS="--suite graphs"`: the end-to-end cost of a plan of 1,000 trivial actions, by its
shape."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg

from app.base import embedded_postgres
from bench import machine, programs, report
from bench.endpoint import endpoint
from bench.references import Api, Figures, tables

ACTIONS = 1_000
LAYER = 100
ANSWER = json.dumps({"output": {"entitiesAffected": 1, "details": 1}}).encode()
SAMPLE_INTERVAL_S = 0.02
# Who waits for a row waits for whoever holds it: the database is not at work for that one.
SAMPLE_SQL = """
SELECT count(*) FROM pg_stat_activity
 WHERE application_name = 'plangate' AND state = 'active' AND wait_event_type IS DISTINCT FROM 'Lock'
"""


def _spec(port: int) -> dict[str, Any]:
    model = {"id": "m", "provider": "mock"}
    agents = [
        {"name": "boss", "role": "coordinator", "model": model, "routes": ["planner", "doer"]},
        {"name": "planner", "role": "planner", "plan": "Steps", "model": model},
        {"name": "doer", "role": "executor", "plan": "Steps", "model": model},
    ]
    step = {
        "type": "object",
        "properties": {"kind": {"const": "step"}, "a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["kind", "a"],
        "additionalProperties": False,
    }
    schema = {
        "type": "object",
        "properties": {"actions": {"type": "array", "items": step}},
        "required": ["actions"],
    }
    return {
        "tenant": {"resourceId": "local", "version": "1"},
        "agents": [{"systemPrompt": "You are in a benchmark.", **agent} for agent in agents],
        "plans": [{"name": "Steps", "schema": schema, "variables": True}],
        "actionDispatcher": {"kind": "http", "url": f"http://127.0.0.1:{port}/act", "replay": "safe"},
        "approvalPolicies": {"plans": "never"},
        "interpreter": "mock",
    }


def _step(n: int, *reads: str) -> dict[str, Any]:
    named = dict(zip(("a", "b"), reads, strict=False))
    return {"kind": "step", **named, "_outputPath": f"†state.steps.s{n}"}


def _wide(n: int) -> dict[str, Any]:
    return _step(n, "†input.n")


def _chain(n: int) -> dict[str, Any]:
    return _step(n, f"†state.steps.s{n - 1}" if n else "†input.n")


def _layered(n: int) -> dict[str, Any]:
    """Return an action that reads two results of the layer before."""
    layer, place = divmod(n, LAYER)
    if not layer:
        return _step(n, "†input.n")
    before = (layer - 1) * LAYER
    return _step(n, f"†state.steps.s{before + place}", f"†state.steps.s{before + (place + 1) % LAYER}")


SHAPES: dict[str, Callable[[int], dict[str, Any]]] = {
    "wide": _wide,
    "10 layers of 100": _layered,
    "chain": _chain,
}


@dataclass
class DatabaseSamples:
    """Samples of the database while a plan ran: all of them, and those without a running statement of the
    service."""

    looks: int = 0
    idle: int = 0
    over: threading.Event = field(default_factory=threading.Event)


@contextmanager
def sample_database(dsn: str) -> Iterator[DatabaseSamples]:
    """Sample whether the database works for the service, until the block ends."""
    seen = DatabaseSamples()

    async def look() -> None:
        connection = await asyncpg.connect(dsn, server_settings={"application_name": "bench"})
        try:
            statement = await connection.prepare(SAMPLE_SQL)
            while not seen.over.is_set():
                seen.idle += not await statement.fetchval()
                seen.looks += 1
                await asyncio.sleep(SAMPLE_INTERVAL_S)
        finally:
            await connection.close()

    thread = threading.Thread(target=lambda: asyncio.run(look()))
    thread.start()
    try:
        yield seen
    finally:
        seen.over.set()
        thread.join()


def one_run(api: Api, service: int, postmaster: int, dsn: str, shape: str) -> dict[str, float]:
    """Store and execute a plan of this shape; return what that took."""
    actions = [SHAPES[shape](n) for n in range(ACTIONS)]
    body = {"specName": "Steps", "runtime": "default", "body": {"actions": actions}}
    began = time.perf_counter()
    plan = json.loads(api("POST", "/plans", json.dumps(body).encode()))
    stored_s = time.perf_counter() - began
    own, database = machine.cpu_s(service), machine.cpu_s(postmaster, below=True)
    with sample_database(dsn) as seen:
        began = time.perf_counter()
        asked = api("POST", f"/plans/{plan['id']}/execute", b'{"inputs":{"n":1}}')
        query = f"/queries/{json.loads(asked)['id']}?waitMs=30000"
        while not json.loads(api("GET", query))["endedAt"]:
            pass
        taken_s = time.perf_counter() - began
    own, database = machine.cpu_s(service) - own, machine.cpu_s(postmaster, below=True) - database
    over = json.loads(api("GET", f"/plans/{plan['id']}"))
    if over["status"] != "executed" or over["result"]["entitiesAffected"] != ACTIONS:
        raise SystemExit(f"the plan was not carried out: {str(over['result'])[:400]}")
    return {
        "to store the plan, ms": stored_s * 1000,
        "actions/s": ACTIONS / taken_s,
        "CPU of the service, ms an action": own / ACTIONS * 1000,
        "CPU of Postgres, ms an action": database / ACTIONS * 1000,
        "CPU outside the database, %": own / (own + database) * 100,
        "time outside the database, %": seen.idle / seen.looks * 100,
    }


def measure(rounds: int) -> str:
    """Measure everything; return the table. The first round is discarded."""
    figures = Figures()
    with ExitStack() as stack:
        port = stack.enter_context(endpoint({"/act": ANSWER}))
        data = stack.enter_context(programs.data_dir())
        postgres = stack.enter_context(programs.database_of(data))
        dsn, postmaster = (
            postgres.dsn(user=embedded_postgres.SUPERUSER),
            asyncio.run(_postmaster(postgres.dsn(user=embedded_postgres.SUPERUSER))),
        )
        service, _ = stack.enter_context(programs.service(data, allow_hosts=f"127.0.0.1:{port}"))
        key = Path(data / "local-key").read_text("utf-8").strip()
        api = stack.enter_context(closing(Api(service.port, key)))
        api("POST", "/runtimes", json.dumps(_spec(port)).encode())
        for number in range(rounds):
            for shape in SHAPES:
                found = one_run(api, service.pid, postmaster, dsn, shape)
                told = ", ".join(f"{name} {value:.1f}" for name, value in found.items())
                print(f"round {number}: {shape}: {told}", file=sys.stderr)
                for name, value in found.items():
                    if number:
                        figures.add(name, shape, value)
        peak = machine.peak_rss_mb(service.pid)
    about = (
        f"{machine.kind()}; Python {sys.version.split()[0]}; {rounds - 1} rounds; median (min–max) of the rounds. Plans of "
        f"{ACTIONS:,} actions, at most 8 at a time. The service's own process had {peak:.0f} MiB at most."
    )
    return "\n".join([about, "", *tables(figures, list(SHAPES))])


async def _postmaster(dsn: str) -> int:
    connection = await asyncpg.connect(dsn)
    try:
        return machine.parent_of(await connection.fetchval("SELECT pg_backend_pid()"))
    finally:
        await connection.close()


def run(*, quick: bool, page: Path | None) -> None:
    """Measure and print; with `page`, also write the table into it."""
    text = measure(2 if quick else 5)
    print(text)
    if page is not None:
        report.write(page, text, "graphs")
