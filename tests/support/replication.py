"""A primary and its standby: servers of our own over TCP, made with initdb and pg_basebackup."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import asyncpg

from app.base.embedded_postgres import binaries

START_S = 30.0
STANDBY = "standby"
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "wal_keep_size": "256MB",
    "max_connections": "150",
    "wal_receiver_status_interval": "1s",
    "wal_retrieve_retry_interval": "200ms",
}


def _programs() -> Path:
    """Return the folder of a Postgres that has pg_basebackup."""
    folders = (*binaries.wheel_folders(), *binaries.machine_folders())
    return next(folder for folder in folders if (folder / "pg_basebackup").exists())


def _account() -> dict[str, Any]:
    """Return who runs Postgres, which root must not do."""
    if os.getuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
    raise LookupError("no account can run Postgres")


class Server:
    """One server with its data directory."""

    def __init__(self, folder: Path, name: str) -> None:
        self.data = folder / name
        self.log = folder / f"{name}.log"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        return f"postgresql://plangate@127.0.0.1:{self.port}/plangate"

    def start(self) -> None:
        options = [word for item in SETTINGS.items() for word in ("-c", "=".join(item))]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [_programs() / "postgres", "-D", self.data, "-p", str(self.port), *options],
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
                **_account(),
            )
        deadline = time.monotonic() + START_S
        while True:
            try:
                self.sql("SELECT 1", database="postgres")
                return
            except (OSError, asyncpg.PostgresError):
                assert time.monotonic() < deadline, self.log.read_text()[-2000:]
                time.sleep(0.05)

    def kill(self) -> None:
        """Send SIGKILL to the server and all its backends, as when its machine is lost."""
        process, self.process = self.process, None
        if process is None:
            return
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.send_signal(signal.SIGSTOP)
        for pid in children:
            os.kill(int(pid), signal.SIGKILL)
        process.kill()
        process.wait()

    def sql(self, statement: str, *args: Any, database: str = "plangate") -> list[Any]:
        async def run() -> list[Any]:
            connection = await asyncpg.connect(
                f"postgresql://plangate@127.0.0.1:{self.port}/{database}", timeout=5
            )
            try:
                return list(await connection.fetch(statement, *args))
            finally:
                await connection.close()

        return asyncio.run(run())


class ReplicatedCluster:
    """A primary and its standby, which is synchronous if the test makes it so."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="plangate-test-", dir="/tmp")).resolve()
        self.folder.chmod(0o755)
        account = _account()
        if account:
            os.chown(self.folder, account["user"], account["group"])
        self.primary = Server(self.folder, "primary")
        self.standby = Server(self.folder, "standby")
        self._run("initdb", "-D", self.primary.data, "-U", "plangate", "--auth=trust", "--no-sync")
        self.primary.start()
        self.primary.sql("CREATE DATABASE plangate", database="postgres")
        source = f"host=127.0.0.1 port={self.primary.port} user=plangate application_name={STANDBY}"
        target = self.standby.data
        self._run(
            "pg_basebackup", "-D", target, "-R", "-X", "stream", "-c", "fast", "--no-sync", "-d", source
        )
        self.standby.start()

    @property
    def url(self) -> str:
        """The address of both servers."""
        hosts = f"127.0.0.1:{self.primary.port},127.0.0.1:{self.standby.port}"
        return f"postgresql://plangate@{hosts}/plangate"

    def set_synchronous(self, standby: str = STANDBY) -> None:
        """Let commits wait for this standby; '' for none."""
        self.primary.sql(f"ALTER SYSTEM SET synchronous_standby_names = '{standby}'")
        self.primary.sql("SELECT pg_reload_conf()")
        time.sleep(0.2)

    def promote(self) -> float:
        """Promote the standby, and return when it took writes."""
        self.standby.sql("SELECT pg_promote(true, 30)")
        return time.monotonic()

    def _run(self, program: str, *arguments: Any) -> None:
        done = subprocess.run(
            [_programs() / program, *arguments], cwd="/", capture_output=True, text=True, **_account()
        )
        assert done.returncode == 0, done.stderr

    def close(self) -> None:
        for server in (self.standby, self.primary):
            server.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
