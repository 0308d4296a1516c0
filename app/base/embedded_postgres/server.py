"""Start the server, wait for it and stop it: one process at a time, which holds `start.lock`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from app.base.embedded_postgres import access, binaries, cluster, faults, locks, places, wire
from app.base.embedded_postgres.faults import EmbeddedPostgresError
from app.base.embedded_postgres.spec import DATABASE, ServerSpec
from app.base.embedded_postgres.wire import ServerState

START_TIMEOUT_SECONDS = 60.0  # crash recovery of a busy cluster takes a while
FAST_SHUTDOWN_SECONDS = 60.0  # a fast shutdown writes a checkpoint
IMMEDIATE_SHUTDOWN_SECONDS = 10.0
_RETRY_INTERVAL_SECONDS = 0.1  # while backends of a killed postmaster end


def ensure_running(server: ServerSpec, *, alone: bool) -> None:
    """Make sure that the server responds and has its database: find it running, wait for it, or start it.

    `alone`: no other process uses it. An unused server was left behind by killed processes: it is taken over
    if it has the current programs and settings, and replaced otherwise.

    Raises:
        EmbeddedPostgresError: it does not start; the message has the last lines of its log.
    """
    state = _probe(server)
    if alone and state is not ServerState.SILENT and _is_outdated(server):
        server.log("the Postgres that was left running has other programs or settings: restarting it")
        stop(server)
        state = ServerState.SILENT
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    child: subprocess.Popen[bytes] | None = None
    try:
        while state is not ServerState.READY:
            if child is not None and child.poll() is not None:
                _check_exit(server, child.returncode, deadline)
                child = None
            if child is None and state is ServerState.SILENT:
                child, spent = _launch_if_free(server)
                deadline += spent
            if time.monotonic() >= deadline:
                raise _startup_timeout_error(server, state, child)
            time.sleep(locks.POLL_INTERVAL_SECONDS)
            state = _probe(server)
    finally:
        if child is not None:
            _reap_later(child)
    if access.write_files(server):  # a running server, whose files were changed
        wire.query_status(server.socket, DATABASE, "SELECT pg_reload_conf()")


def _probe(server: ServerSpec) -> ServerState:
    """Return the state of the server. Create the roles, and the database if it is missing."""
    state = wire.query_status(server.socket, DATABASE, access.PREPARE).state
    if state is ServerState.NO_DATABASE:
        state = wire.query_status(server.socket, "postgres", f'CREATE DATABASE "{DATABASE}"').state
        if state is ServerState.READY:
            state = wire.query_status(server.socket, DATABASE, access.PREPARE).state
    return state


def _is_outdated(server: ServerSpec) -> bool:
    try:
        return server.places.fingerprint_file.read_text("utf-8") != server.fingerprint
    except OSError:
        return True


def _launch_if_free(server: ServerSpec) -> tuple[subprocess.Popen[bytes] | None, float]:
    """Start the server unless a process of an earlier one is still alive.

    Return the child, or None, and the seconds of preparation, which do not count as waiting.
    """
    began = time.monotonic()
    lock = locks.open_lock(server.places.server_lock)
    try:
        if not locks.try_exclusive(lock):
            return None, 0.0
        programs = binaries.find_binaries(server.account, server.state_dir)
        if server.places.cluster.exists():
            cluster.check_version(server.places.cluster, programs)
            _clear_leftovers(server)
        else:
            cluster.create_cluster(server, programs, lock)
        access.write_files(server)
        places.write_atomically(server.places.fingerprint_file, server.fingerprint)
        server.log(f"starting PostgreSQL {programs.major} as {server.account.name}, socket {server.socket}")
        command = [str(programs.folder / "postgres"), "-D", str(server.places.cluster), *server.arguments]
        return server.run(command, lock), time.monotonic() - began
    finally:
        os.close(lock)  # closed, not unlocked: the child holds it now


def _clear_leftovers(server: ServerSpec) -> None:
    """Remove the pid and socket files of a dead server; its free `server.lock` proves that it is dead.

    Postgres itself only checks whether a process has the pid, and refuses to start if that is a zombie or
    another program of the same account.

    Raises:
        EmbeddedPostgresError: a Postgres that this service did not start runs on the cluster.
    """
    pid_file = server.places.cluster / "postmaster.pid"
    if pid_file.exists():
        pid = pid_file.read_text("utf-8", "replace").split("\n", 1)[0].strip()
        if pid.isdecimal() and _is_postgres(int(pid), server.places.cluster):
            raise EmbeddedPostgresError(
                f"A Postgres that the service did not start runs on {server.places.cluster} (process {pid}). "
                f"Stop it (kill -INT {pid}), {faults.DATABASE_URL_ADVICE}."
            )
        pid_file.unlink(missing_ok=True)
    server.socket.unlink(missing_ok=True)
    server.socket.with_name(f"{server.socket.name}.lock").unlink(missing_ok=True)


def _is_postgres(pid: int, cluster: Path) -> bool:
    """Return whether the process is a running Postgres of the cluster, as far as this process can see."""
    if sys.platform == "linux":
        process = Path("/proc", str(pid))
        try:
            # "pid (name) state ...": the name may hold anything, parentheses too.
            before, _, after = process.joinpath("stat").read_text("utf-8", "replace").rpartition(")")
        except OSError:
            return False
        if before.partition("(")[2] != "postgres" or after.split()[0] in "ZX":
            return False
        try:
            return process.joinpath("cwd").samefile(cluster)  # a postmaster works in its cluster
        except OSError:
            return True  # not visible to us: an error is better than two servers
    ps = ["ps", "-o", "stat=,comm=", "-p", str(pid)]
    result = subprocess.run(ps, capture_output=True, text=True, check=False)
    state, _, command = result.stdout.strip().partition(" ")
    return bool(state) and not state.startswith("Z") and Path(command.strip()).name == "postgres"


def _check_exit(server: ServerSpec, code: int, deadline: float) -> None:
    """Raise an error unless the server may be started again because backends of a killed one are still
    ending."""
    lines = "\n".join(faults.last_lines([server.places.start_log]))
    if "is still in use" not in lines or time.monotonic() >= deadline:
        what = f"Postgres ended while starting (exit {code})"
        raise faults.error_with_log(what, server.places.home, server.places.logs)
    time.sleep(_RETRY_INTERVAL_SECONDS)


def _startup_timeout_error(
    server: ServerSpec, state: ServerState, child: subprocess.Popen[bytes] | None
) -> EmbeddedPostgresError:
    """Return the error for a server that is not ready in time.

    One that recovers keeps running, so that the next start finds it further; one that hangs is killed.
    """
    if state is not ServerState.SILENT:
        what = f"Postgres was not ready within {START_TIMEOUT_SECONDS:.0f} s; it continues to recover"
    elif child is not None:
        child.kill()
        what = f"Postgres did not open its socket {server.socket} within {START_TIMEOUT_SECONDS:.0f} s"
    else:
        what = (
            f"Processes of an earlier Postgres live on {server.places.cluster} and do not answer on "
            f"{server.socket}: end them, postmaster.pid may name the first"
        )
    return faults.error_with_log(what, server.places.home, server.places.logs)


def _reap_later(child: subprocess.Popen[bytes]) -> None:
    """Wait for the child in a thread, so that it is no zombie after another process stopped it."""
    threading.Thread(target=child.wait, name="embedded-postgres-reaper", daemon=True).start()


def stop_interrupted(server: ServerSpec) -> None:
    """Stop the server after a signal has interrupted its start, if it was launched. It may have no socket yet."""
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    lock = locks.open_lock(server.places.server_lock)
    try:
        while not locks.try_exclusive(lock) and time.monotonic() < deadline:
            if wire.query_status(server.socket, DATABASE).pid is not None:
                stop(server)
                break
            time.sleep(locks.POLL_INTERVAL_SECONDS)
    finally:
        locks.release(lock)


def stop(server: ServerSpec) -> None:
    """Stop the server and wait until all its processes have ended: fast shutdown first, then immediate."""
    lock = locks.open_lock(server.places.server_lock)
    try:
        has_exited = locks.try_exclusive(lock)
        for means, seconds in (
            (signal.SIGINT, FAST_SHUTDOWN_SECONDS),
            (signal.SIGQUIT, IMMEDIATE_SHUTDOWN_SECONDS),
        ):
            if not has_exited:
                # Take the pid from the kernel through the socket: a pid file may name any process.
                pid = wire.query_status(server.socket, DATABASE).pid
                if pid is not None:
                    with suppress(ProcessLookupError):
                        os.kill(pid, means)
                has_exited = locks.wait_exclusive(lock, seconds)
    finally:
        locks.release(lock)
    if not has_exited:
        server.log("Postgres did not stop; it is left running, and the next start will find it")
    elif server.socket_dir.parent != server.places.home:
        with suppress(OSError):
            server.socket_dir.rmdir()  # it was made in the temporary directory
