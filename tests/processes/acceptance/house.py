"""One data directory and the real processes on it. Every process is ended by its pid; none outlives the house."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
import httpx

from app.base import embedded_postgres
from app.base.embedded_postgres import places, wire
from tests.processes.acceptance.reader import Reader
from tests.support.forked import Forked
from tests.support.service import copy_data_directory

T = TypeVar("T")

REPOSITORY = Path(__file__).resolve().parents[3]
START_S = 30.0
# Lines that no fault from outside explains: a defect, whatever else the test sees.
DEFECTS = (
    "internal_error",
    "periodic_task_failed",
    "entry_rejected",
    "never retrieved",
    "Traceback",
    '"trace": ',
    "not_mapped",
)

# On a busy machine the watchdog of the event loop has something to say, with a trace.
BLOCKED_LOOP = '"event": "loop.blocked"'


def eventually(holds: Callable[[], T], what: str, patience_s: float = 30.0) -> T:
    """The first true value of `holds`."""
    deadline = time.monotonic() + patience_s
    while not (found := holds()):
        assert time.monotonic() < deadline, f"not within {patience_s} s: {what}"
        time.sleep(0.02)
    return found


def readiness(url: str) -> int | None:
    """The status of /readyz; None while nothing listens there."""
    try:
        return httpx.get(f"{url}/readyz", timeout=5, verify=False).status_code
    except httpx.HTTPError:
        return None


class Process:
    """A process of ours in a session of its own; what it says is in `log`."""

    def __init__(self, child: Forked | subprocess.Popen[bytes], log: Path) -> None:
        self.log = log
        self._child = child
        self.pid = child.pid

    @classmethod
    def started(cls, command: Sequence[str], log: Path, env: dict[str, str]) -> Process:
        with log.open("ab") as out:
            child = subprocess.Popen(
                [sys.executable, *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=REPOSITORY,
                env={**os.environ, **env},
                start_new_session=True,
            )
        return cls(child, log)

    @classmethod
    def forked(cls, arguments: Sequence[str], log: Path, env: dict[str, str]) -> Process:
        """Start a command of the service."""
        with log.open("ab") as out:
            child = Forked(
                "app", arguments, env={**os.environ, **env}, stdout=out.fileno(), stderr=out.fileno()
            )
        return cls(child, log)

    @property
    def alive(self) -> bool:
        return self._child.poll() is None

    def kill(self) -> None:
        """kill -9, and gone when this returns."""
        if self.alive:
            self._child.kill()
        self._child.wait()

    def stop(self, within_s: float = 20.0) -> float:
        """SIGTERM; the seconds until it was gone."""
        began = time.monotonic()
        if self.alive:
            self._child.terminate()
        self._child.wait(within_s)
        return time.monotonic() - began

    def signal(self, number: signal.Signals) -> None:
        self._child.send_signal(number)

    def wait(self, within_s: float = 20.0) -> int:
        """Return the exit code once the process is gone."""
        return self._child.wait(within_s)

    def freeze(self) -> None:
        self._child.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._child.send_signal(signal.SIGCONT)


class Ledger:
    """What a user process left on record."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def lines(self, name: str, query_id: str | None = None) -> list[dict[str, Any]]:
        path = self.folder / name
        text = path.read_text("utf-8") if path.exists() else ""
        found = [json.loads(line) for line in text.splitlines()]
        return [x for x in found if query_id in (None, x["queryId"])]

    def hold(self, *indexes: int) -> None:
        """Everything, or the actions with these indexes."""
        for name in [f"hold-{n}" for n in indexes] or ["hold"]:
            (self.folder / name).touch()

    def let_go(self) -> None:
        for held in self.folder.glob("hold*"):
            held.unlink()


HOUSES: list[House] = []
"""Those that are open."""


class House:
    """`env` is for every process of the service: `lease_s=2` is PLANGATE_LEASE_S; upper case is taken as it is."""

    def __init__(self, **env: object) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="plangate-test-", dir="/tmp")).resolve()
        self.folder.chmod(0o711)
        self.data_dir = self.folder / "data"
        self.env = {
            name if name.isupper() else f"PLANGATE_{name.upper()}": str(value) for name, value in env.items()
        }
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.service: Process | None = None
        self.program: list[str] | None = None  # what runs instead of the service, which is forked
        self._processes: list[Process] = []
        self._users: list[Process] = []
        self._readers: list[Reader] = []
        self._ledgers = 0
        self._http: httpx.Client | None = None
        HOUSES.append(self)

    # -- processes -------------------------------------------------------------------------------------------

    def serve(self, *flags: str, wait: bool = True) -> Process:
        arguments = ["serve", "--port", str(self.port), "--data-dir", str(self.data_dir), *flags]
        copy_data_directory(self.data_dir, self.env)
        self.service = self._start_app("service", arguments)
        if wait:
            self.until_ready()
        return self.service

    def serve_at(self, port: int, *flags: str, wait: bool = True) -> Process:
        """Start one more service, on a port of its own. It is ready when this returns, unless told not to `wait`."""
        arguments = ["serve", "--port", str(port), "--data-dir", str(self.data_dir), *flags]
        service = self._start_app(f"service-{port}", arguments)
        if not wait:
            return service

        def ready() -> bool:
            assert service.alive, service.log.read_text("utf-8")[-3000:]
            return readiness(f"http://127.0.0.1:{port}") == 200

        eventually(ready, "the service is ready", START_S)
        return service

    def kill_service(self) -> float:
        """kill -9; when that was."""
        assert self.service is not None
        at = time.monotonic()
        self.service.kill()
        return at

    def restart(self, *flags: str) -> float:
        """kill -9 and a new start on the same port; when the kill was."""
        at = self.kill_service()
        self.serve(*flags)
        return at

    def until_ready(self) -> None:
        service = self.service
        assert service is not None

        def ready() -> bool:
            assert service.alive, service.log.read_text("utf-8")[-3000:]
            return readiness(self.url) == 200

        eventually(ready, "the service is ready", START_S)

    def worker(self) -> Process:
        count = len(self._processes)
        worker = self._start_app(f"worker-{count}", ["worker", "--data-dir", str(self.data_dir)])
        eventually(lambda: "worker runs" in worker.log.read_text("utf-8"), "the worker runs", START_S)
        return worker

    def user(self, ledger: Ledger, *names: str, lease_ms: int = 2000) -> Process:
        script = str(Path(__file__).with_name("user_process.py"))
        arguments = [self.url, str(self.data_dir / "local-key"), str(ledger.folder), ",".join(names)]
        command = [script, *arguments, str(lease_ms)]
        user = self._keep(Process.started(command, self.folder / "user.log", self.env))
        self._users.append(user)
        return user

    def end_users(self) -> None:
        """None of them takes the calls of the next test."""
        while self._users:
            self._users.pop().kill()

    def _start_app(self, name: str, arguments: Sequence[str]) -> Process:
        log = self.folder / f"{name}.log"
        if self.program is not None:
            return self._keep(Process.started([*self.program, *arguments], log, self.env))
        return self._keep(Process.forked(arguments, log, self.env))

    def _keep(self, process: Process) -> Process:
        self._processes.append(process)
        return process

    def ledger(self) -> Ledger:
        self._ledgers += 1
        return Ledger(self.folder / f"ledger-{self._ledgers}")

    def disconnect(self) -> None:
        """Close the connections of a test."""
        while self._readers:
            self._readers.pop().close()
        if self._http is not None:
            self._http.close()
            self._http = None

    def close(self) -> None:
        """Ends everything, Postgres too, and says what the logs have that should not be there."""
        if self in HOUSES:
            HOUSES.remove(self)
        self.disconnect()
        for process in reversed(self._processes):
            if process.alive:
                process.thaw()
                process.kill()
        postmaster = self.postmaster()
        if postmaster is not None:
            embedded_postgres.start(self.data_dir).release()
            eventually(lambda: self.postmaster() is None, "Postgres ends with its last user")
        logs = {path.name: path.read_text("utf-8", "replace") for path in self.folder.glob("*.log")}
        shutil.rmtree(self.folder)
        for name, text in logs.items():
            lines = text.splitlines()
            found = [
                n
                for n, line in enumerate(lines)
                if any(word in line for word in DEFECTS) and BLOCKED_LOOP not in line
            ]
            assert not found, f"{name}:\n" + "\n".join(x[:6000] for x in lines[found[0] : found[0] + 40])

    # -- the database ----------------------------------------------------------------------------------------

    def _socket_dir(self) -> Path:
        found, account = places.locate(self.data_dir, places.SYSTEM_STATE_DIR)
        return places.socket_dir(found, account)

    def postmaster(self) -> int | None:
        """The pid of the database's first process, as the kernel tells it."""
        if not (self.data_dir / "cluster").exists() and not (self.data_dir / "location").exists():
            return None
        return wire.query_status(wire.socket_path(self._socket_dir(), places.PORT), "plangate").pid

    async def connect(self) -> asyncpg.Connection:
        """A connection that sees everything; the caller closes it."""
        return await asyncpg.connect(
            user=embedded_postgres.SUPERUSER,
            database="plangate",
            host=str(self._socket_dir()),
            port=places.PORT,
        )

    def sql(self, statement: str, *args: object) -> list[dict[str, Any]]:
        """Rows as the database itself has them, whichever tenant's."""

        async def run() -> list[dict[str, Any]]:
            connection = await self.connect()
            try:
                return [dict(row) for row in await connection.fetch(statement, *args)]
            finally:
                await connection.close()

        return asyncio.run(run())

    # -- HTTP ------------------------------------------------------------------------------------------------

    @property
    def key(self) -> str:
        return (self.data_dir / "local-key").read_text("utf-8").strip()

    @property
    def http(self) -> httpx.Client:
        if self._http is None:
            headers = {"Authorization": f"Bearer {self.key}"}
            self._http = httpx.Client(base_url=self.url, headers=headers, timeout=30, verify=False)
        return self._http

    def get(self, path: str) -> Any:
        answer = self.http.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, body: Any, status: int = 200) -> Any:
        answer = self.http.post(path, json=body)
        assert answer.status_code == status, f"{answer.status_code} {answer.text}"
        return answer.json()

    def register(self, spec: dict[str, Any]) -> str:
        answer = self.http.post("/runtimes", json=spec)
        assert answer.status_code in (200, 201), answer.text
        return str(answer.json()["id"])

    def submit(self, runtime_id: str, prompt: object, **more: Any) -> str:
        text = prompt if isinstance(prompt, str) else json.dumps(prompt)
        asked = {"runtimeId": runtime_id, "prompt": text, "threadKey": uuid.uuid4().hex, **more}
        return str(self.post("/queries", asked, 202)["id"])

    def follow(self, query_id: str, after: str | None = None, url: str | None = None) -> Reader:
        """Read the events of a query, at `url` if that is not where the service is."""
        reader = Reader(url or self.url, self.key, query_id, after)
        self._readers.append(reader)
        return reader

    def start(self, runtime_id: str, prompt: object, **more: Any) -> Reader:
        return self.follow(self.submit(runtime_id, prompt, **more))

    def approve(self, reader: Reader) -> dict[str, Any]:
        """Approves what the query's newest gate shows."""
        asked = reader.wait_type("approval-required").event["data"]
        body = {"decision": "approve", "digest": asked["digest"]}
        answer: dict[str, Any] = self.post(f"/approvals/{asked['id']}", body)
        return answer
