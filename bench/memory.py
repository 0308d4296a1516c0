"""`make bench ARGS="--suite memory"`: the memory of the service at rest, and after streamed runs."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

from bench import machine, programs, report
from bench.references import Api, Figures, tables
from bench.streaming import FIRST_TOKEN, of_protocol, register

CLIENTS: Final = 48
STOPS, QUICK_STOPS = (48, 1_000, 5_000, 10_000), (48, 480)
"""The runs after which the memory is measured."""
LOAD_S: Final = 300.0
QUIET_S: Final = 15.0
"""So long the service rests before its memory is measured."""
MEMORY: Final = "memory of the process, MiB"
RATIO: Final = "against idle"
PROTOCOL: Final = "openai"


def measure(stops: tuple[int, ...]) -> str:
    """Measure the memory after each of these numbers of runs; return the table."""
    figures = Figures()
    columns = ["idle", *(f"{runs:,} runs" for runs in stops)]
    with ExitStack() as stack:
        model_port = stack.enter_context(programs.model_server())
        env = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": f"http://127.0.0.1:{model_port}/v1"}
        data = stack.enter_context(programs.data_dir())
        service, _ = stack.enter_context(programs.service(data, env, slots=CLIENTS))
        time.sleep(QUIET_S)
        idle = machine.rss_mb(service.pid)
        figures.add(MEMORY, "idle", idle)
        with closing(Api(service.port, Path(data / "local-key").read_text("utf-8").strip())) as api:
            register(api, PROTOCOL)
        program, done = of_protocol(service, PROTOCOL), 0
        for runs, column in zip(stops, columns[1:], strict=True):
            program.load(CLIENTS, runs - done, LOAD_S, FIRST_TOKEN)
            done = runs
            time.sleep(QUIET_S)
            now = machine.rss_mb(service.pid)
            figures.add(MEMORY, column, now)
            figures.add(RATIO, column, now / idle)
            print(f"after {runs} runs: {now:.0f} MiB", file=sys.stderr)
        figures.add("peak, MiB", columns[-1], machine.peak_rss_mb(service.pid))
    about = (
        f"{machine.kind()}; Python {sys.version.split()[0]}; runs of {CLIENTS} clients, with OpenAI's protocol; each figure "
        f"after {QUIET_S:.0f} s without a run."
    )
    return "\n".join([about, "", *tables(figures, columns)])


def run(*, quick: bool, page: Path | None) -> None:
    """Measure and print; with `page`, also write the table into it."""
    text = measure(QUICK_STOPS if quick else STOPS)
    print(text)
    if page is not None:
        report.write(page, text, "memory")
