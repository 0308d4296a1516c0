"""`make bench ARGS="--suite processes"`: the throughput of one, two and four worker processes on one Postgres, and of four
of which one is killed every ten seconds."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import machine, programs, report
from bench.references import Api
from bench.streaming import PHASE_S, of_protocol, register

WORKERS = (1, 2, 4)
SLOTS = 64
MODEL_WAIT_S = 5.0
KILL_EVERY_S = 10.0
KILLED_PHASE_S = 300.0
PROTOCOL = "openai"


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure. `repeats` are the runs of each client in a round."""

    rounds: int
    repeats: int


FULL = Plan(rounds=3, repeats=6)
QUICK = Plan(rounds=1, repeats=2)


@dataclass(frozen=True, slots=True)
class Round:
    """One round of one setup. `cores` are CPU seconds for each second: of the API, the workers and Postgres; None where workers
    were killed, because their CPU is not known then."""

    clients: int
    runs_per_s: float
    cores: tuple[float, ...] | None


@contextmanager
def repeated_kills(pids: list[int], start: Callable[[], int]) -> Iterator[None]:
    """While the block runs, kill the worker that runs longest every ten seconds, and start another."""
    over = threading.Event()

    def kill() -> None:
        while not over.wait(KILL_EVERY_S):
            os.kill(pids.pop(0), signal.SIGKILL)
            pids.append(start())

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def run_round(repeats: int) -> Iterator[tuple[str, Round]]:
    """Run an API server with a growing number of workers, and as many clients as these have slots; at the end, kill workers
    under load. Yield what was running, and what was measured."""
    with ExitStack() as stack:
        model_port = stack.enter_context(programs.model_server(MODEL_WAIT_S))
        env = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": f"http://127.0.0.1:{model_port}/v1"}
        data = stack.enter_context(programs.data_dir())
        postgres = stack.enter_context(programs.database_of(data))
        postmaster = asyncio.run(programs.postmaster_of(postgres))
        service, _ = stack.enter_context(programs.service(data, env, flags=["--no-worker"]))
        with closing(Api(service.port, (data / "local-key").read_text("utf-8").strip())) as api:
            register(api, PROTOCOL)
        program = of_protocol(service, PROTOCOL)
        pids: list[int] = []

        def cpu_s() -> list[float]:
            workers_s = sum(machine.cpu_s(pid) for pid in pids)
            return [machine.cpu_s(service.pid), workers_s, machine.cpu_s(postmaster, below=True)]

        def start() -> int:
            return stack.enter_context(programs.worker(data, env, slots=SLOTS))

        for workers in WORKERS:
            while len(pids) < workers:
                pids.append(start())
            clients = workers * SLOTS
            program.load(clients, clients, PHASE_S)  # opens connections and loads code
            before = cpu_s()
            result = program.load(clients, clients * repeats, PHASE_S * 2)
            used = [now - then for now, then in zip(cpu_s(), before, strict=True)]
            cores = tuple(seconds / result.elapsed_s for seconds in used)
            yield str(workers), Round(clients, clients * repeats / result.elapsed_s, cores)
        with repeated_kills(pids, start):
            result = program.load(clients, clients * repeats, KILLED_PHASE_S)
        name = f"{workers}, one killed every {KILL_EVERY_S:.0f} s"
        yield name, Round(clients, clients * repeats / result.elapsed_s, None)


def measure(plan: Plan) -> str:
    """Measure everything; return the table."""
    found: dict[str, list[Round]] = defaultdict(list)
    for _ in range(plan.rounds):
        for workers, measured in run_round(plan.repeats):
            found[workers].append(measured)
            print(f"{workers} workers: {measured}", file=sys.stderr)
    lines = [
        f"{machine.kind()}; Python {sys.version.split()[0]}; rounds: {plan.rounds}, of {plan.repeats} runs for each "
        "client; median (min–max) of the rounds.",
        "",
        "| worker processes | clients | runs/s | times one process | cores: API | workers | Postgres | all |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for workers, rounds in found.items():
        ratios = [each.runs_per_s / one.runs_per_s for each, one in zip(rounds, found["1"], strict=True)]
        cores = [(*each.cores, sum(each.cores)) for each in rounds if each.cores is not None]
        columns = [
            [each.runs_per_s for each in rounds],
            ratios,
            *(zip(*cores, strict=True) if cores else [[]] * 4),
        ]
        cells = [workers, str(rounds[0].clients), *(report.spread(list(column)) for column in columns)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def run(*, quick: bool, page: Path | None) -> None:
    """Measure and print; with `page`, also write the table into it."""
    text = measure(QUICK if quick else FULL)
    print(text)
    if page is not None:
        report.write(page, text, "processes")
