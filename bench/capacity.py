"""`make bench ARGS="--suite capacity"`: how many runs one Postgres carries, and what it spends on each.

One, two and four processes that serve and work share one Postgres. Their model answers with 50 tokens at once, so that
the runs wait for nothing but the service and Postgres.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import asyncpg

from app.base import embedded_postgres
from bench import machine, programs, report
from bench.programs import Program
from bench.references import Figures, tables

PROCESSES: Final = (1, 2, 4)
CLIENTS: Final = 16
"""Of each process."""
LOAD_S: Final = 120.0
SAMPLE_S: Final = 0.02
COUNTERS: Final = """
SELECT (SELECT sum(xact_commit) FROM pg_stat_database) AS commits,
       pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8 AS wal_bytes,
       pg_database_size(current_database())::float8 AS stored_bytes
"""
# What the backends that execute a statement do: on a processor, or waiting for something.
ACTIVITY: Final = """
SELECT coalesce(wait_event_type || ': ' || wait_event, 'on a processor') AS what, count(*) AS backends
  FROM pg_stat_activity
 WHERE state = 'active' AND backend_type = 'client backend' AND pid <> pg_backend_pid() GROUP BY 1
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure. `runs` are those of each client."""

    rounds: int
    runs: int


FULL = Plan(rounds=3, runs=60)
QUICK = Plan(rounds=1, runs=10)


async def _query(dsn: str, statement: str) -> list[Any]:
    connection = await asyncpg.connect(dsn)
    try:
        return list(await connection.fetch(statement))
    finally:
        await connection.close()


@contextmanager
def sampled_activity(dsn: str) -> Iterator[Counter[str]]:
    """Count what Postgres's backends do while the block runs."""
    seen: Counter[str] = Counter()
    over = threading.Event()

    async def sample() -> None:
        connection = await asyncpg.connect(dsn)
        try:
            while not over.is_set():
                for row in await connection.fetch(ACTIVITY):
                    seen[row["what"]] += row["backends"]
                await asyncio.sleep(SAMPLE_S)
        finally:
            await connection.close()

    thread = threading.Thread(target=lambda: asyncio.run(sample()))
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def load_all(services: list[Program], runs: int) -> tuple[int, float]:
    """Let the clients of all services run at once; return the number of runs and the seconds of the slowest."""
    with ThreadPoolExecutor(len(services)) as pool:
        results = list(pool.map(lambda each: each.load(CLIENTS, CLIENTS * runs, LOAD_S), services))
    return len(services) * CLIENTS * runs, max(result.elapsed_s for result in results)


def run_round(plan: Plan, figures: Figures, activity: dict[str, Counter[str]]) -> None:
    """Measure a growing number of processes on one Postgres."""
    with ExitStack() as stack:
        data = stack.enter_context(programs.data_dir())
        services = [stack.enter_context(programs.service(data))[0]]
        postgres = stack.enter_context(programs.database_of(data))
        dsn = postgres.dsn(user=embedded_postgres.SUPERUSER)
        postmaster = asyncio.run(programs.postmaster_of(postgres))

        def counted() -> tuple[list[float], list[float]]:
            (row,) = asyncio.run(_query(dsn, COUNTERS))
            own = sum(machine.cpu_s(each.pid) for each in services)
            return [own, machine.cpu_s(postmaster, below=True)], [float(value) for value in row.values()]

        for count in PROCESSES:
            while len(services) < count:
                services.append(stack.enter_context(programs.service(data))[0])
            column = f"{count} process{'es' if count > 1 else ''}"
            load_all(services, 5)  # opens connections and loads code
            with sampled_activity(dsn) as seen:
                cpu, rows = counted()
                runs, elapsed = load_all(services, plan.runs)
                cpu_after, rows_after = counted()
            own, database = (now - then for now, then in zip(cpu_after, cpu, strict=True))
            commits, wal, stored = (now - then for now, then in zip(rows_after, rows, strict=True))
            values = {
                "runs/s": runs / elapsed,
                "CPU of the processes, ms a run": own / runs * 1000,
                "CPU of Postgres, ms a run": database / runs * 1000,
                "cores of Postgres": database / elapsed,
                "runs/s for each core of Postgres": runs / database,
                "commits a run": commits / runs,
                "write-ahead log, kB a run": wal / runs / 1000,
                "stored, kB a run": stored / runs / 1000,
            }
            for name, value in values.items():
                figures.add(name, column, value)
            activity[column].update(seen)
            print(f"{column}: {values}", file=sys.stderr)


def shares(activity: dict[str, Counter[str]]) -> list[str]:
    """Return the table of what backends did, the most frequent first. What is below one percent everywhere is left out."""
    names = sorted(
        {name for seen in activity.values() for name, n in seen.items() if n >= 0.01 * seen.total()},
        key=lambda name: -max(seen[name] / max(1, seen.total()) for seen in activity.values()),
    )
    found = Figures()
    for name in names:
        for column, seen in activity.items():
            found.add(f"{name}, %", column, 100 * seen[name] / max(1, seen.total()))
    return tables(found, list(activity))


def measure(plan: Plan) -> str:
    """Measure everything; return the tables."""
    figures, activity = Figures(), defaultdict[str, Counter[str]](Counter)
    for _ in range(plan.rounds):
        run_round(plan, figures, activity)
    about = (
        f"{machine.kind()}; Python {sys.version.split()[0]}; rounds: {plan.rounds}; {CLIENTS} clients for each process, "
        f"{plan.runs} runs of each; median (min–max) of the rounds. The clients are not counted."
    )
    return "\n".join([about, "", *tables(figures, list(activity)), "", *shares(activity)])


def run(*, quick: bool, page: Path | None) -> None:
    """Measure and print; with `page`, also write the tables into it."""
    text = measure(QUICK if quick else FULL)
    print(text)
    if page is not None:
        report.write(page, text, "capacity")
