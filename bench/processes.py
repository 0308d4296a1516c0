"""`make bench ARGS="--suite processes"`: the throughput of one, two and four worker processes on one Postgres."""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from bench import machine, programs, report
from bench.references import Api
from bench.streaming import PHASE_S, of_protocol, register

WORKERS = (1, 2, 4)
SLOTS = 64
MODEL_WAIT_S = 5.0
PROTOCOL = "openai"


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure. `repeats` are the runs of each client in a round."""

    rounds: int
    repeats: int


FULL = Plan(rounds=3, repeats=6)
QUICK = Plan(rounds=1, repeats=2)


@dataclass(frozen=True, slots=True)
class Figures:
    """One round with one number of workers. The cores are CPU seconds for each second of the round."""

    runs_per_s: float
    api_cores: float
    worker_cores: float
    postgres_cores: float

    @property
    def cores(self) -> float:
        return self.api_cores + self.worker_cores + self.postgres_cores


def run_round(repeats: int) -> Iterator[tuple[int, Figures]]:
    """Run an API server with a growing number of workers, and as many clients as these have slots. Yield the number of
    workers and what was measured."""
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

        for workers in WORKERS:
            while len(pids) < workers:
                pids.append(stack.enter_context(programs.worker(data, env, slots=SLOTS)))
            clients = workers * SLOTS
            program.load(clients, clients, PHASE_S)  # opens connections and loads code
            before = cpu_s()
            result = program.load(clients, clients * repeats, PHASE_S * 2)
            used = [now - then for now, then in zip(cpu_s(), before, strict=True)]
            cores = [seconds / result.elapsed_s for seconds in used]
            yield workers, Figures(clients * repeats / result.elapsed_s, *cores)


def measure(plan: Plan) -> str:
    """Measure everything; return the table."""
    found: dict[int, list[Figures]] = defaultdict(list)
    for _ in range(plan.rounds):
        for workers, figures in run_round(plan.repeats):
            found[workers].append(figures)
            print(f"{workers} workers: {figures}", file=sys.stderr)
    lines = [
        f"{machine.kind()}; Python {sys.version.split()[0]}; rounds: {plan.rounds}, of {plan.repeats} runs for each "
        "client; median (min–max) of the rounds.",
        "",
        "| worker processes | clients | runs/s | times one process | cores: API | workers | Postgres | all |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for workers, rounds in found.items():
        ratios = [each.runs_per_s / one.runs_per_s for each, one in zip(rounds, found[1], strict=True)]
        columns = [
            [each.runs_per_s for each in rounds],
            ratios,
            [each.api_cores for each in rounds],
            [each.worker_cores for each in rounds],
            [each.postgres_cores for each in rounds],
            [each.cores for each in rounds],
        ]
        cells = [str(workers), str(workers * SLOTS), *(report.spread(column) for column in columns)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def run(*, quick: bool, page: Path | None) -> None:
    """Measure and print; with `page`, also write the table into it."""
    text = measure(QUICK if quick else FULL)
    print(text)
    if page is not None:
        report.write(page, text, "processes")
