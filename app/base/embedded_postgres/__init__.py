"""The Postgres that ships with the service: started in a data directory and shared by its users.

Access: the socket is in a directory of mode 0700 that belongs to the account that runs Postgres, and Postgres
lets only that account and root log in, by peer authentication (access.py). The service logs in as
`plangate_owner`, which is not a superuser. If the service is not root, the account is its own. For root, it
is `postgres`, or else `nobody`; a daemon that shares `nobody` could then connect, so add an account
`postgres` on such systems. Nothing listens on TCP.

Lifetime: every user holds a shared lock, which the kernel releases when the process ends in any way. The last
user that releases it stops the server. If all users were killed, the server keeps running: nobody else can
reach it, it ends within a minute once its directory is deleted, and the next start takes it over, or replaces
it if its programs or settings have changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from app.base.embedded_postgres import cluster, faults, locks, places, server
from app.base.embedded_postgres.access import BACKUP, OWNER
from app.base.embedded_postgres.binaries import describe
from app.base.embedded_postgres.faults import EmbeddedPostgresError
from app.base.embedded_postgres.places import listing_warning, prepare_data_dir
from app.base.embedded_postgres.spec import DATABASE, ServerSpec
from app.base.embedded_postgres.wire import SUPERUSER

__all__ = [
    "BACKUP",
    "OWNER",
    "SUPERUSER",
    "EmbeddedPostgres",
    "EmbeddedPostgresError",
    "describe",
    "cluster_exists",
    "listing_warning",
    "prepare_data_dir",
    "start",
]

# Longer than another process may need to create the cluster and wait until it is ready.
_START_LOCK_TIMEOUT_SECONDS = cluster.INITDB_TIMEOUT_SECONDS + server.START_TIMEOUT_SECONDS


@dataclass
class _ServerUse:
    """This process's use of the server: the descriptor that shares `users.lock`, None once released."""

    lock: int | None
    server: ServerSpec


@dataclass(frozen=True)
class EmbeddedPostgres:
    """A running server that this process uses. `port` only names the socket in `socket_dir`."""

    data_dir: Path
    socket_dir: Path
    port: int
    _use: _ServerUse = field(repr=False, compare=False)

    @property
    def home(self) -> Path:
        """Return the directory of the cluster: the data directory, or its substitute if root cannot use that."""
        return self._use.server.places.home

    @property
    def account_name(self) -> str:
        """Return the account that runs Postgres."""
        return self._use.server.account.name

    def dsn(self, database: str = DATABASE, user: str = OWNER) -> str:
        """Return a connection string for asyncpg and libpq."""
        host = quote(str(self.socket_dir), safe="/")
        return f"postgresql://{quote(user, safe='')}@/{quote(database, safe='')}?host={host}&port={self.port}"

    def release(self) -> None:
        """Stop using the server. The last user stops it and waits for that, so this may block. Idempotent.

        Close all connections first: a fast shutdown ends those that are open.
        """
        lock, self._use.lock = self._use.lock, None
        if lock is None:
            return
        used = self._use.server
        try:
            with locks.hold(used.places.start_lock, _START_LOCK_TIMEOUT_SECONDS):
                if locks.try_exclusive(lock):
                    server.stop(used)
        except (OSError, EmbeddedPostgresError) as error:
            used.log(f"the embedded Postgres was not stopped: {error}")
        finally:
            locks.release(lock)


def cluster_exists(data_dir: Path) -> bool:
    """Return whether a cluster was ever created for this data directory. Create nothing."""
    return any((data_dir.expanduser() / name).exists() for name in ("cluster", "location"))


def start(
    data_dir: Path,
    *,
    create: bool = True,
    settings: Mapping[str, str] | None = None,
    log: Callable[[str], object] | None = None,
    state_dir: Path = places.SYSTEM_STATE_DIR,
) -> EmbeddedPostgres:
    """Use the Postgres of this data directory; create it if there is none, and start it if it is not running.

    Blocks for milliseconds if it runs and for about a second if it must be created, so call it before the
    event loop starts, or in a thread. Any number of processes may call it at the same time.

    Args:
        data_dir: created if missing; an existing one keeps its mode and owner.
        create: if False, a missing cluster is an error, so that a lost directory is not silently replaced.
        settings: configuration parameters on top of the defaults, such as `{"fsync": "off"}` for tests. They apply
            when this call starts the server, not when others already use it.
        log: called with a line for each step; the default is the logger of this module.
        state_dir: where root keeps what the account that runs Postgres cannot reach in `data_dir`.

    Raises:
        EmbeddedPostgresError: it cannot be used; the message has the last log lines and what to do.
    """
    write_log = log or logging.getLogger(__name__).info
    try:
        if not create and not cluster_exists(data_dir):
            raise faults.missing_data_error(data_dir)
        data_dir = prepare_data_dir(data_dir)
        with locks.hold(data_dir / places.START_LOCK, _START_LOCK_TIMEOUT_SECONDS):
            cluster, account = places.locate(data_dir, state_dir)
            if not create and not cluster.cluster.exists():
                raise faults.missing_data_error(cluster.cluster)
            socket_dir = places.socket_dir(cluster, account)
            spec = ServerSpec(cluster, account, socket_dir, state_dir, dict(settings or {}), write_log)
            lock = locks.open_lock(cluster.users_lock)
            alone = False
            try:
                alone = locks.try_exclusive(lock)
                locks.share(lock)
                server.ensure_running(spec, alone=alone)
            except BaseException as error:
                try:
                    if alone and isinstance(error, (KeyboardInterrupt, SystemExit)):
                        server.stop_interrupted(spec)
                finally:
                    locks.release(lock)
                raise
    except OSError as error:
        raise faults.error_from_os(error, f"The data directory {data_dir} cannot be used") from error
    return EmbeddedPostgres(data_dir, socket_dir, places.PORT, _ServerUse(lock, spec))
