"""`make bench ARGS="--suite journal"`: how many events a second one process writes durably, and how long a commit takes.

The writer of the journal and the client are one process here, without HTTP and without a model.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from app.assembly import Services, assemble
from app.deployment import find_deployment
from app.engine import lease_store
from app.journal.models import Delta, Entry, Lease, Scope
from app.settings import Settings
from bench import machine, programs, report
from bench.references import Api, Figures, tables
from bench.report import quantile

TEXT = "token"
LEASE_S = 3600.0


@dataclass(frozen=True, slots=True)
class Load:
    """Queries that write at once, each one entry after the other, and the events of an entry."""

    queries: int
    events: int

    @property
    def title(self) -> str:
        return f"{self.queries} × {self.events}"


LOADS = (Load(1, 1), Load(8, 1), Load(64, 1), Load(500, 1), Load(12, 10), Load(64, 10), Load(250, 10))
PHASE_S, QUICK_PHASE_S = 8.0, 2.0
WARM_S = 1.0


@dataclass(slots=True)
class Written:
    """What was written in a phase, and how long each producer waited until its entry was durable."""

    events: int = 0
    waits_s: list[float] = field(default_factory=list)


async def write(services: Services, leases: Sequence[Lease], load: Load, seconds: float) -> Written:
    """Let each of the load's queries commit one entry after the other for so long."""
    written = Written()
    ends = time.perf_counter() + seconds

    async def produce(lease: Lease) -> None:
        scope = Scope(lease.query_id, "thr_bench", "wrk_bench", None, "helper")
        turn = 0
        while (began := time.perf_counter()) < ends:
            # A turn of its own for each piece of text: those of one turn would become one event.
            entry = Entry([Delta("text", scope, turn + n, TEXT) for n in range(load.events)])
            turn += load.events
            await services.journal.commit(lease, entry)
            written.waits_s.append(time.perf_counter() - began)
            written.events += load.events

    await asyncio.gather(*(produce(lease) for lease in leases[: load.queries]))
    return written


async def measure_loads(services: Services, postmaster: int, rounds: int, seconds: float) -> Figures:
    """Measure every load in each round."""
    services.journal.start()
    figures = Figures()
    try:
        claims = await lease_store.claim(services.db, owner="bench", limit=1000, lease_s=LEASE_S)
        leases = [Lease(c.tenant, c.query_id, c.epoch, 1 << 40) for c in claims]
        for load in LOADS:
            await write(services, leases, load, WARM_S)
        for _ in range(rounds):
            for load in LOADS:
                began, own = time.perf_counter(), time.process_time()
                database = machine.cpu_s(postmaster, below=True)
                written = await write(services, leases, load, seconds)
                elapsed, own = time.perf_counter() - began, time.process_time() - own
                database = machine.cpu_s(postmaster, below=True) - database
                values = {
                    "events/s": written.events / elapsed,
                    "until an entry is durable, p50, ms": quantile(written.waits_s, 0.5) * 1000,
                    "until an entry is durable, p99, ms": quantile(written.waits_s, 0.99) * 1000,
                    "CPU of the process, µs an event": own / written.events * 1e6,
                    "CPU of Postgres, µs an event": database / written.events * 1e6,
                    "cores": (own + database) / elapsed,
                }
                for name, value in values.items():
                    figures.add(name, load.title, value)
                print(f"{load.title}: {written.events / elapsed:.0f} events/s", file=sys.stderr)
    finally:
        await services.journal.aclose()
        await services.db.aclose()
    return figures


def measure(rounds: int, seconds: float) -> str:
    """Measure everything; return the table."""
    with ExitStack() as stack:
        data = stack.enter_context(programs.data_dir())
        service, _ = stack.enter_context(programs.service(data, flags=["--no-worker"]))
        postgres = stack.enter_context(programs.database_of(data))
        postmaster = asyncio.run(programs.postmaster_of(postgres))
        key = (data / "local-key").read_text("utf-8").strip()
        with closing(Api(service.port, key)) as api:
            for _ in range(max(load.queries for load in LOADS)):
                api("POST", "/queries", json.dumps({"runtime": "default", "prompt": "hi"}).encode())
        settings = Settings(data_dir=data)
        site = find_deployment(settings)
        try:
            services = assemble(settings, site, with_worker=False)
            figures = uvloop.run(measure_loads(services, postmaster, rounds, seconds))
        finally:
            site.release()
    about = (
        f"{machine.kind()}; Python {sys.version.split()[0]}; {rounds} rounds of {seconds:.0f} s for each load; median "
        "(min–max) of the rounds. A load is queries that write at once × events of an entry."
    )
    return "\n".join([about, "", *tables(figures, [load.title for load in LOADS])])


def run(*, quick: bool, page: Path | None) -> None:
    """Measure and print; with `page`, also write the table into it."""
    text = measure(1 if quick else 4, QUICK_PHASE_S if quick else PHASE_S)
    print(text)
    if page is not None:
        report.write(page, text, "journal")
