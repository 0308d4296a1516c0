"""A data directory with its processes, and steps shared by scenarios."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx

from bench import machine
from tests.processes.acceptance import specs
from tests.processes.acceptance.house import House, Process, readiness
from tests.processes.acceptance.model_server import SlowModel
from tests.storm.models import DeadlyModel


@contextlib.contextmanager
def house_with(model: SlowModel, measured: Path | None = None, **env: object) -> Iterator[House]:
    """A running service whose tenants may reach the model. When it stops, the longest callbacks are in `measured`."""
    home = House(allow_hosts=f"127.0.0.1:{model.port}", **env)
    home.program = ["-m", "app"]  # its memory and its start are measured, so it is not forked
    if measured is not None:
        home.program = ["-m", "tests.storm.measured_service", str(measured)]
    try:
        home.serve()
        yield home
    finally:
        home.close()


@contextlib.contextmanager
def deadly_model(pace_s: float) -> Iterator[DeadlyModel]:
    model = DeadlyModel(pace_s)
    model.start()
    try:
        yield model
    finally:
        model.close()


def submit_talks(house: House, model: SlowModel, count: int, seconds: float) -> list[str]:
    """Submit queries whose one model turn takes so long, and return their ids when all turns are under way."""
    runtime = house.register(specs.talker("talk-storm", model.provider("openai")))
    prompts = [model.prompt(seconds) for _ in range(count)]
    queries = [house.submit(runtime, prompt, agent="talker") for prompt in prompts]
    deadline = time.monotonic() + 60
    while any(not model.asked(prompt) for prompt in prompts):
        assert time.monotonic() < deadline, "not every model turn began within 60 s"
        time.sleep(0.05)
    return queries


def restart_and_time(house: House) -> tuple[float, float]:
    """Kill the service, start it again, and return when the new process was started and when it was ready, by the clock
    of `time.time`."""
    house.kill_service()
    began = time.time()
    house.serve()
    return began, time.time()


@contextlib.contextmanager
def frozen(pids: Sequence[int]) -> Iterator[None]:
    """Stop processes, and let them continue afterwards."""
    try:
        for pid in pids:
            _signal(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            _signal(pid, signal.SIGCONT)


def postgres_processes(house: House) -> list[int]:
    postmaster = house.postmaster()
    return machine.tree(postmaster) if postmaster is not None else []


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


class Supervisor:
    """Starts the service of a house again whenever it has died. `deaths` has the pids of the dead."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="supervisor")
        self.deaths: list[int] = []

    def __enter__(self) -> Supervisor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(0.05):
            service: Process | None = self._house.service
            if service is not None and not service.alive:
                self.deaths.append(service.pid)
                self._house.serve(wait=False)


class Probe:
    """Requests a path again and again on a connection of its own; `slowest_s` and `failed` say how that went."""

    def __init__(self, url: str, path: str = "/healthz", every_s: float = 0.02) -> None:
        self._http = httpx.Client(base_url=url, timeout=30)
        self._path, self._every_s = path, every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="probe")
        self.slowest_s, self.answered, self.failed = 0.0, 0, 0

    def __enter__(self) -> Probe:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._http.close()

    def _run(self) -> None:
        while not self._over.wait(self._every_s):
            began = time.monotonic()
            try:
                good = self._http.get(self._path).status_code == 200
            except httpx.HTTPError:
                good = False
            self.answered, self.failed = self.answered + good, self.failed + (not good)
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)


def ready(house: House) -> bool:
    return readiness(house.url) == 200
