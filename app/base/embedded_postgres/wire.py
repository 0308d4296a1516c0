"""The part of the Postgres protocol that is needed to query a server's state on a Unix socket and create a
database."""

from __future__ import annotations

import socket
import struct
import sys
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from app.base.embedded_postgres.faults import EmbeddedPostgresError

SUPERUSER = "plangate"
REPLY_TIMEOUT_SECONDS = 5.0
_UNNAMED_ACCOUNT_ADVICE = (
    " Only root and the account that runs it can log in, by the name in /etc/passwd: "
    "add an entry if there is none."
)
_PROTOCOL = 196608  # 3.0
_SOL_LOCAL, _LOCAL_PEERPID = 0, 2  # <sys/un.h> of macOS


class ServerState(Enum):
    """The state of a server. BUSY: alive, but starting, recovering, stopping or too slow to respond."""

    SILENT = "silent"
    BUSY = "busy"
    READY = "ready"
    NO_DATABASE = "no_database"


_STATES = {
    "57P01": ServerState.BUSY,  # stopped while we asked
    "57P02": ServerState.BUSY,  # a process of it crashed
    "57P03": ServerState.BUSY,  # starting, recovering or stopping
    "53300": ServerState.READY,  # every connection is taken: alive
    "3D000": ServerState.NO_DATABASE,
    "40P01": ServerState.BUSY,  # in a deadlock with a process of the service
    "55P03": ServerState.BUSY,  # a process of the service holds the lock
    "42P04": ServerState.READY,  # the database exists already
    "55006": ServerState.BUSY,  # someone is in template1
}


@dataclass(frozen=True)
class ServerStatus:
    """The state of a server, and the postmaster's pid from the kernel: None if nobody listens or it is not
    visible."""

    state: ServerState
    pid: int | None = None


def socket_path(socket_dir: Path, port: int) -> Path:
    """Return the path of the socket of a server on this port."""
    return socket_dir / f".s.PGSQL.{port}"


def query_status(path: Path, database: str, statement: str | None = None) -> ServerStatus:
    """Open a session, run one statement if given, and return the state of the server.

    Raises:
        EmbeddedPostgresError: the server rejects the session or the statement permanently.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.settimeout(REPLY_TIMEOUT_SECONDS)
        try:
            peer.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError, ConnectionResetError):
            return ServerStatus(ServerState.SILENT)
        except PermissionError as error:
            raise EmbeddedPostgresError(
                f"This process may not use {path}: the socket is for root and the account that runs Postgres."
            ) from error
        except (BlockingIOError, TimeoutError):
            return ServerStatus(ServerState.BUSY)
        pid = _listener_pid(peer)
        try:
            fields = b"".join(word.encode() + b"\0" for word in ("user", SUPERUSER, "database", database, ""))
            peer.sendall(struct.pack("!ii", len(fields) + 8, _PROTOCOL) + fields)
            state = _read_until_ready(peer)
            if state is ServerState.READY and statement is not None:
                text = statement.encode() + b"\0"
                peer.sendall(b"Q" + struct.pack("!i", len(text) + 4) + text)
                state = _read_until_ready(peer)
        except (TimeoutError, ConnectionError):
            # It accepted the connection and then ended or hung: the next query will show which.
            return ServerStatus(ServerState.BUSY, pid)
        with suppress(OSError):
            peer.sendall(b"X" + struct.pack("!i", 4))  # otherwise the server logs a lost connection
        return ServerStatus(state, pid)


def _listener_pid(peer: socket.socket) -> int | None:
    """Return the pid of the process that listens at the other end: the kernel keeps who called listen()."""
    try:
        if sys.platform == "darwin":
            pid = int(peer.getsockopt(_SOL_LOCAL, _LOCAL_PEERPID))
        else:
            pid = int(struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])
    except OSError:
        return None
    return pid if pid > 0 else None  # 0: it lives in another pid namespace


def _read_until_ready(peer: socket.socket) -> ServerState:
    """Read messages up to ReadyForQuery or an error that ends the session."""
    failure: ServerState | None = None
    while True:
        kind, body = _read_message(peer)
        if kind == b"Z":
            return failure or ServerState.READY
        if kind == b"R" and struct.unpack("!i", body[:4])[0] != 0:
            raise EmbeddedPostgresError(
                "The embedded Postgres asks its launcher for a password: pg_hba.conf was changed. "
                "Stop Postgres and start the service again; it writes pg_hba.conf anew."
            )
        if kind == b"E":
            fields = {part[:1]: part[1:].decode("utf-8", "replace") for part in body.split(b"\0") if part}
            code = fields.get(b"C", "")
            if code not in _STATES:
                advice = _UNNAMED_ACCOUNT_ADVICE if code == "28000" else ""
                raise EmbeddedPostgresError(
                    f"The embedded Postgres refused its launcher: {fields.get(b'M', '')} ({code}).{advice}"
                )
            failure = _STATES[code]
            if fields.get(b"V") == "FATAL":
                return failure


def _read_message(peer: socket.socket) -> tuple[bytes, bytes]:
    head = _read_exactly(peer, 5)
    return head[:1], _read_exactly(peer, struct.unpack("!i", head[1:])[0] - 4)


def _read_exactly(peer: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = peer.recv(count - len(data))
        if not part:
            raise ConnectionResetError("the server closed the connection")
        data += part
    return data
