"""`make bench`: run the service and the floor program in turn, so that noise of the machine affects both.

The other suites are in modules of their names.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import statistics
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

from bench import (
    artifacts,
    capacity,
    graphs,
    idle_streams,
    journal,
    large_tables,
    machine,
    memory,
    parked,
    processes,
    programs,
    references,
    report,
    streaming,
    variables,
    work,
)
from bench.programs import Program
from bench.report import Row, quantile

SUITES = {
    "references": references.run,
    "variables": variables.run,
    "graphs": graphs.run,
    "work": work.run,
    "artifacts": artifacts.run,
    "idle-streams": idle_streams.run,
    "streaming": streaming.run,
    "processes": processes.run,
    "journal": journal.run,
    "capacity": capacity.run,
    "parked": parked.run,
    "memory": memory.run,
    "large-tables": large_tables.run,
}
PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
PHASE_S = 60.0  # no phase takes longer
IDLE_S = 3.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure. The first round is discarded."""

    rounds: int
    alone: int  # runs with one client
    crowd: int  # runs with eight
    starts: int


FULL = Plan(rounds=7, alone=200, crowd=600, starts=3)
QUICK = Plan(rounds=3, alone=80, crowd=200, starts=1)


class Figures:
    """The rows of the table, filled round by round."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}

    def add(self, program: str, name: str, unit: str, value: float) -> None:
        row = self.rows.setdefault(name, Row(name, unit))
        (row.service if program == "service" else row.floor).append(value)


def starts(count: int, figures: Figures) -> None:
    """Measure starting the service, cold (empty data directory) and warm (its Postgres stopped)."""
    for _ in range(count):
        with programs.data_dir() as data:
            for name in ("cold start", "warm start"):
                with programs.service(data) as (_, ready_s):
                    figures.add("service", name, "s", ready_s)


def phase(program: Program, postmaster: int, clients: int, runs: int, figures: Figures | None) -> str:
    """Run one load on one program. Without `figures`, only warm up."""
    own, database = machine.cpu_s(program.pid), machine.cpu_s(postmaster, below=True)
    result = program.load(clients, runs, PHASE_S)
    own = (machine.cpu_s(program.pid) - own) / runs * 1000
    database = (machine.cpu_s(postmaster, below=True) - database) / runs * 1000
    who = f"{clients} client{'s' if clients > 1 else ''}"
    rate = runs / result.elapsed_s
    if figures is not None:
        if clients == 1:
            for name, values in (("first event", result.first_s), ("completion", result.whole_s)):
                figures.add(program.name, f"{name}, median", "ms", statistics.median(values) * 1000)
                figures.add(program.name, f"{name}, p95", "ms", quantile(values, 0.95) * 1000)
        else:
            figures.add(
                program.name, f"completion with {who}, median", "ms", statistics.median(result.whole_s) * 1000
            )
            figures.add(
                program.name, f"completion with {who}, p95", "ms", quantile(result.whole_s, 0.95) * 1000
            )
        figures.add(program.name, f"throughput, {who}", "runs/s", rate)
        figures.add(program.name, f"CPU of the process, {who}", "ms a run", own)
        figures.add(program.name, f"CPU of Postgres, {who}", "ms a run", database)
        figures.add(program.name, f"CPU of both, {who}", "ms a run", own + database)
    client_ms = result.cpu_s / runs * 1000
    return (
        f"{program.name} {who}: {rate:.0f} runs/s, CPU {own:.2f} + {database:.2f} ms (client {client_ms:.2f} ms), "
        f"{result.bytes // runs} bytes a run"
    )


def idle(program: Program, postmaster: int) -> float:
    """Return the CPU that the service and Postgres use while idle, in ms per second."""
    before = machine.cpu_s(program.pid) + machine.cpu_s(postmaster, below=True)
    time.sleep(IDLE_S)
    return (machine.cpu_s(program.pid) + machine.cpu_s(postmaster, below=True) - before) / IDLE_S * 1000


def measure(plan: Plan) -> str:
    """Measure everything; return the table."""
    figures = Figures()
    starts(plan.starts, figures)
    with ExitStack() as stack:
        data = stack.enter_context(programs.data_dir())
        postgres = stack.enter_context(programs.database_of(data))
        dsn, postmaster = asyncio.run(programs.make_floor_database(postgres))
        service, _ = stack.enter_context(programs.service(data))
        quiet = idle(service, postmaster)
        floor, _ = stack.enter_context(programs.floor(dsn))
        for program in (service, floor):
            figures.add(program.name, "memory, idle", "MiB", machine.rss_mb(program.pid))
        for number in range(plan.rounds):
            order = (floor, service) if number % 2 else (service, floor)
            for clients, runs in ((1, plan.alone), (8, plan.crowd)):
                for program in order:
                    kept = figures if number else None
                    print(
                        f"round {number}: {phase(program, postmaster, clients, runs, kept)}", file=sys.stderr
                    )
        for program in (service, floor):
            figures.add(program.name, "memory, peak", "MiB", machine.peak_rss_mb(program.pid))
        database_mb = machine.tree_pss_mb(postmaster)
    about = (
        f"{machine.kind()}; Python {sys.version.split()[0]}; {plan.rounds - 1} rounds of {plan.alone} runs with 1 client "
        f"and {plan.crowd} with 8; median (min–max) of the rounds. At rest the service and its Postgres use "
        f"{quiet:.1f} ms of CPU a second; Postgres has {database_mb:.0f} MiB after the load of both."
    )
    memory = {"memory, idle", "memory, peak", "cold start", "warm start"}
    names = sorted(figures.rows, key=lambda name: name in memory)
    return report.table([figures.rows[name] for name in names], about)


def _stop(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(143)  # so that everything that was started is ended


def main() -> None:
    """Parse the arguments of `make bench` and run the suite."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run, for a first look")
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    parser.add_argument("--suite", choices=("floor", *SUITES), default="floor", help="what is measured")
    parser.add_argument("--streams", type=int, help="how many query streams the suite idle-streams opens")
    given = parser.parse_args()
    if given.streams is not None and given.suite != "idle-streams":
        parser.error("--streams is for --suite idle-streams")
    signal.signal(signal.SIGTERM, _stop)
    if given.suite in SUITES:
        options = {} if given.streams is None else {"streams": given.streams}
        SUITES[given.suite](quick=given.quick, page=PAGE if given.write else None, **options)
        return
    text = measure(QUICK if given.quick else FULL)
    print(text)
    if given.write:
        report.write(PAGE, text)


if __name__ == "__main__":
    main()
