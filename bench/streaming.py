"""`make bench ARGS="--suite streaming"`: the cost of runs whose model streams over HTTP, against the floor that reads
the same model."""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bench import machine, programs, report
from bench.programs import Program
from bench.references import Api
from bench.report import Row, quantile

PROTOCOLS = {"openai": "OpenAI", "anthropic": "Anthropic"}
CROWDS = (8, 48, 200)
FIRST_TOKEN = "event: text"
PHASE_S = 60.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure."""

    rounds: int
    repeats: dict[int, int]
    """Runs of each client, by the number of clients."""
    together: dict[int, int]
    """How often clients start together, by their number."""


FULL = Plan(rounds=3, repeats={8: 4, 48: 2, 200: 1}, together={1: 8, 48: 2})
QUICK = Plan(rounds=1, repeats={8: 2, 48: 1, 200: 1}, together={1: 4, 48: 1})


def register(api: Api, protocol: str) -> None:
    """Register the runtime of runs with a protocol, under its name."""
    agent = {"name": "helper", "role": "specialist", "model": {"id": "m", "provider": protocol}}
    spec = {"name": protocol, "tenant": {"resourceId": "local", "version": "1"}, "agents": [agent]}
    api("POST", "/runtimes", json.dumps(spec).encode())


@contextmanager
def pair() -> Iterator[tuple[Program, Program, int]]:
    """Run the service and the floor on one model server; yield both and the pid of their Postgres."""
    with ExitStack() as stack:
        model_port = stack.enter_context(programs.model_server())
        base = f"http://127.0.0.1:{model_port}"
        env = {
            "OPENAI_API_KEY": "k",
            "OPENAI_BASE_URL": f"{base}/v1",
            "ANTHROPIC_API_KEY": "k",
            "ANTHROPIC_BASE_URL": base,
        }
        data = stack.enter_context(programs.data_dir())
        postgres = stack.enter_context(programs.database_of(data))
        dsn, postmaster = asyncio.run(programs.make_floor_database(postgres))
        service, _ = stack.enter_context(programs.service(data, env, slots=256))
        key = Path(data / "local-key").read_text("utf-8").strip()
        with closing(Api(service.port, key)) as api:
            for protocol in PROTOCOLS:
                register(api, protocol)
        yield service, stack.enter_context(programs.streaming_floor(dsn, model_port)), postmaster


def of_protocol(program: Program, protocol: str) -> Program:
    """Return the program with the request for a run with this protocol."""
    if program.name == "floor":
        return replace(program, request=program.request.replace("/openai/", f"/{protocol}/"))
    head, _, body = program.request.partition("\r\n\r\n")
    old = json.loads(body)
    new = json.dumps(old | {"runtime": protocol})
    head = head.replace(f"Content-Length: {len(body)}", f"Content-Length: {len(new)}")
    return replace(program, request=f"{head}\r\n\r\n{new}")


def crowd(program: Program, postmaster: int, clients: int, repeats: int) -> dict[str, float]:
    """Run every client `repeats` times; return the CPU of a run in ms."""
    own, database = machine.cpu_s(program.pid), machine.cpu_s(postmaster, below=True)
    runs = clients * repeats
    program.load(clients, runs, PHASE_S, FIRST_TOKEN)
    own = (machine.cpu_s(program.pid) - own) / runs * 1000
    database = (machine.cpu_s(postmaster, below=True) - database) / runs * 1000
    return {"CPU of both": own + database, "CPU of the process": own, "CPU of Postgres": database}


def together(program: Program, clients: int, times: int) -> dict[str, float]:
    """Start `clients` runs at once, `times` times; return the time to the first token in ms."""
    values: list[float] = []
    for _ in range(times):
        values += program.load(clients, clients, PHASE_S, FIRST_TOKEN).first_s
    named = {"median": statistics.median(values)}
    if clients > 1:
        named["p99"] = quantile(values, 0.99)
    return {f"time to first token, {name}": value * 1000 for name, value in named.items()}


def measure(plan: Plan) -> str:
    """Measure everything; return the table."""
    rows: dict[str, Row] = {}

    def add(program: Program, name: str, unit: str, value: float) -> None:
        row = rows.setdefault(name, Row(name, unit))
        (row.service if program.name == "service" else row.floor).append(value)
        print(f"{program.name}: {name}: {value:.2f} {unit}", file=sys.stderr)

    with pair() as (service, floor, postmaster):
        for protocol in PROTOCOLS:
            for program in (service, floor):
                of_protocol(program, protocol).load(48, 48, PHASE_S, FIRST_TOKEN)
        for number in range(plan.rounds):
            order = (floor, service) if number % 2 else (service, floor)
            for protocol, title in PROTOCOLS.items():
                pair_of = [of_protocol(program, protocol) for program in order]
                for clients in CROWDS:
                    for program in pair_of:
                        figures = crowd(program, postmaster, clients, plan.repeats[clients])
                        for name, value in figures.items():
                            add(program, f"{title}, {clients} clients, {name}", "ms a run", value)
                for clients, times in plan.together.items():
                    for program in pair_of:
                        for name, value in together(program, clients, times).items():
                            who = f"{clients} client{'s' if clients > 1 else ''}"
                            add(program, f"{title}, {who}, {name}", "ms", value)
        peak = machine.peak_rss_mb(service.pid)
    about = (
        f"{machine.kind()}; Python {sys.version.split()[0]}; {plan.rounds} rounds; median (min–max) of the rounds. The "
        f"service's own process had {peak:.0f} MiB at most."
    )
    return report.table(list(rows.values()), about)


def run(*, quick: bool, page: Path | None) -> None:
    """Measure and print; with `page`, also write the table into it."""
    text = measure(QUICK if quick else FULL)
    print(text)
    if page is not None:
        report.write(page, text, "streaming")
