"""Start and stop the two programs. Stops only what it started, by pid, and removes every directory it
created."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import asyncpg

from app.base import embedded_postgres
from bench import machine
from bench.client import Job, Result

READY_S, STOP_S = 60.0, 20.0
TOKENS = 50
TEXT = "".join(f"token{n:02d} " for n in range(TOKENS))
SPEC = {
    "tenant": {"resourceId": "local", "version": "1"},
    "agents": [{"name": "helper", "role": "specialist", "model": {"id": "m", "provider": "mock"}}],
    "mockResponse": TEXT,
    "providers": {"mock": {"tokens": TOKENS}},
}


@dataclass(frozen=True, slots=True)
class Program:
    """A running server: its process, its port, and the request that starts a run."""

    name: str
    child: subprocess.Popen[str]
    port: int
    request: str

    @property
    def pid(self) -> int:
        return self.child.pid

    def load(self, clients: int, runs: int, seconds: float, first: str = "event: ") -> Result:
        """Run one phase with a client in a process of its own. The time to the first event ends with `first`."""
        job = Job(self.port, self.request, clients, runs, seconds, first)
        told = subprocess.run(
            [sys.executable, "-m", "bench.client"],
            input=json.dumps(asdict(job)),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=seconds + 30,
        )
        result = Result(**json.loads(told.stdout))
        if result.error:
            raise SystemExit(f"{self.name}: {result.error}")
        return result


@contextlib.contextmanager
def data_dir() -> Iterator[Path]:
    """Yield a directory for one service; remove it afterwards, with what the service keeps elsewhere for
    it."""
    above = Path(tempfile.mkdtemp(prefix="plangate-bench-"))
    above.chmod(0o711)  # where this runs as root, the account that runs Postgres passes through
    try:
        yield above / "data"
    finally:
        location = above / "data" / "location"
        if location.exists():
            shutil.rmtree(location.read_text("utf-8").strip(), ignore_errors=True)
        shutil.rmtree(above, ignore_errors=True)


def _first_lines(child: subprocess.Popen[str], count: int) -> list[str]:
    """Return the first lines of the child's output. Raise SystemExit if they do not arrive in time."""
    timer = threading.Timer(READY_S, child.kill)
    timer.start()
    try:
        assert child.stdout is not None
        lines = [child.stdout.readline().strip() for _ in range(count)]
    finally:
        timer.cancel()
    if not all(lines):
        raise SystemExit(f"{' '.join(child.args)} did not start")  # type: ignore[arg-type]
    return lines


def _end(child: subprocess.Popen[str]) -> None:
    """Stop this child: SIGTERM, then SIGKILL."""
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait(STOP_S)
    if child.stdout is not None:
        child.stdout.close()


def run_request(port: int, path: str, headers: dict[str, str], body: dict[str, str]) -> str:
    data = json.dumps(body)
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Content-Type: application/json",
        f"Content-Length: {len(data)}",
        *(f"{k}: {v}" for k, v in headers.items()),
    ]
    return "\r\n".join(lines) + "\r\n\r\n" + data


def _call(port: int, key: str, method: str, path: str, body: object = None) -> bytes:
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return bytes(answer.read())


@contextlib.contextmanager
def service(
    data: Path, env: Mapping[str, str] | None = None, *, flags: Sequence[str] = (), **settings: object
) -> Iterator[tuple[Program, float]]:
    """Run `plangate serve` with the mock provider; yield the seconds from its start to the first request that
    reads the database.

    `settings`: `slots=2` is PLANGATE_SLOTS. `env` has variables that are not settings, `flags` more options of the command.
    """
    command = [
        sys.executable,
        "-m",
        "app",
        "serve",
        "--port",
        "0",
        "--data-dir",
        str(data),
        "--host",
        "127.0.0.1",
        *flags,
    ]
    began = time.perf_counter()
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=_environment(env or {}, settings)
    )
    try:
        said, where = _first_lines(child, 2)
        port = int(said.rpartition(":")[2])
        key = Path(where.rpartition(" ")[2]).read_text("utf-8").strip()
        _call(port, key, "GET", "/queries?limit=1")
        ready_s = time.perf_counter() - began
        _call(port, key, "POST", "/runtimes", SPEC)
        headers = {"Authorization": f"Bearer {key}"}
        request = run_request(port, "/queries/stream", headers, {"runtime": "default", "prompt": "hi"})
        yield Program("service", child, port, request), ready_s
    finally:
        _end(child)


@contextlib.contextmanager
def worker(data: Path, env: Mapping[str, str] | None = None, **settings: object) -> Iterator[int]:
    """Run `plangate worker` beside a service; yield its pid once it runs. The arguments are those of `service`."""
    command = [sys.executable, "-m", "app", "worker", "--data-dir", str(data)]
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=_environment(env or {}, settings)
    )
    try:
        _first_lines(child, 1)
        yield child.pid
    finally:
        _end(child)


def _environment(env: Mapping[str, str], settings: Mapping[str, object]) -> dict[str, str]:
    """Return the environment of a process of the service, without settings of whoever runs the benchmark."""
    unwanted = ("DATABASE_URL", "PYTHONDONTWRITEBYTECODE")  # an installed service has its bytecode
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PLANGATE_") and k not in unwanted}
    kept |= {f"PLANGATE_{name.upper()}": str(value) for name, value in settings.items()}
    return kept | dict(env)


@contextlib.contextmanager
def floor(dsn: str) -> Iterator[tuple[Program, float]]:
    """Run the floor program on its own database; yield the seconds to its first response."""
    began = time.perf_counter()
    child = subprocess.Popen([sys.executable, "-m", "bench.floor", dsn], stdout=subprocess.PIPE, text=True)
    try:
        port = int(_first_lines(child, 1)[0].rpartition(":")[2])
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/openapi.json", timeout=30) as answer:
            answer.read()
        ready_s = time.perf_counter() - began
        yield Program("floor", child, port, run_request(port, "/runs", {}, {"prompt": "hi"})), ready_s
    finally:
        _end(child)


@contextlib.contextmanager
def model_server(wait_s: float = 0.0) -> Iterator[int]:
    """Run the model server of bench/model.py, which waits `wait_s` before it answers; yield its port."""
    command = [sys.executable, "-m", "bench.model", str(wait_s)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield int(_first_lines(child, 1)[0].rpartition(":")[2])
    finally:
        _end(child)


@contextlib.contextmanager
def streaming_floor(dsn: str, model_port: int) -> Iterator[Program]:
    """Run the floor program of streamed runs on its own database. Its `request` is a run with OpenAI's protocol."""
    command = [sys.executable, "-m", "bench.streaming_floor", dsn, str(model_port)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        port = int(_first_lines(child, 1)[0].rpartition(":")[2])
        yield Program("floor", child, port, run_request(port, "/openai/runs", {}, {"prompt": "hi"}))
    finally:
        _end(child)


@contextlib.contextmanager
def database_of(data: Path) -> Iterator[embedded_postgres.EmbeddedPostgres]:
    """Yield a use of the embedded Postgres of `data`, beside the service's."""
    postgres = embedded_postgres.start(data)
    try:
        yield postgres
    finally:
        postgres.release()


async def make_floor_database(postgres: embedded_postgres.EmbeddedPostgres) -> tuple[str, int]:
    """Create a database for the floor program; return its address and the pid of the postmaster."""
    connection = await asyncpg.connect(postgres.dsn(user=embedded_postgres.SUPERUSER))
    try:
        await connection.execute('CREATE DATABASE "floor"')
        backend = await connection.fetchval("SELECT pg_backend_pid()")
        return postgres.dsn("floor", embedded_postgres.SUPERUSER), machine.parent_of(backend)
    finally:
        await connection.close()


async def postmaster_of(postgres: embedded_postgres.EmbeddedPostgres) -> int:
    """Return the pid of the postmaster."""
    connection = await asyncpg.connect(postgres.dsn(user=embedded_postgres.SUPERUSER))
    try:
        return machine.parent_of(await connection.fetchval("SELECT pg_backend_pid()"))
    finally:
        await connection.close()
