"""The definition of one server (paths, account, settings), and how its programs are started."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from app.base.embedded_postgres import binaries, faults, wire
from app.base.embedded_postgres.accounts import Account
from app.base.embedded_postgres.faults import EmbeddedPostgresError
from app.base.embedded_postgres.places import PORT, ClusterPaths

DATABASE = "plangate"

# For one small service on one machine. Callers' settings override these; the location of the socket overrides all.
DEFAULT_SETTINGS: Mapping[str, str] = {
    "shared_buffers": "128MB",
    "max_connections": "100",
    "fsync": "on",
    "synchronous_commit": "on",
    "jit": "off",
    "wal_compression": "on",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # A file for each weekday, begun anew each week.
    "logging_collector": "on",
    "log_destination": "stderr",
    "log_directory": "log",
    "log_filename": "postgresql-%a.log",
    "log_rotation_age": "1d",
    "log_rotation_size": "0",
    "log_truncate_on_rotation": "on",
    "cluster_name": "plangate",
}


@dataclass(frozen=True)
class ServerSpec:
    """Everything that is needed to start and stop one server."""

    places: ClusterPaths
    account: Account
    socket_dir: Path
    state_dir: Path
    settings: Mapping[str, str]
    log: Callable[[str], object]

    @property
    def socket(self) -> Path:
        return wire.socket_path(self.socket_dir, PORT)

    @property
    def arguments(self) -> list[str]:
        placement = {
            "listen_addresses": "",
            "port": str(PORT),
            "unix_socket_directories": f'"{self.socket_dir}"',
            "unix_socket_permissions": "0700",
        }
        options = {**DEFAULT_SETTINGS, **self.settings, **placement}
        return [word for name, value in options.items() for word in ("-c", f"{name}={value}")]

    @property
    def fingerprint(self) -> str:
        """Return a text that shows whether a server that was left behind is the one that would be started
        now."""
        return "\n".join([binaries.wheel_fingerprint(), *self.arguments, ""])

    def run(self, command: list[str], lock: int) -> subprocess.Popen[bytes]:
        """Start a program as the account. It writes to the start log and holds `server.lock` while it lives.

        It gets its own session, so that Ctrl-C in the service's terminal does not reach it.

        Raises:
            EmbeddedPostgresError: the system does not allow this process to run it.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        log = os.open(self.places.start_log, flags, 0o600)
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",  # the account may not reach ours
                env=_environment(),
                user=self.account.child_user,
                group=self.account.child_group,
                extra_groups=self.account.child_groups,
                pass_fds=(lock,),
                start_new_session=True,
            )
        except OSError as error:
            raise EmbeddedPostgresError(
                f"{command[0]} cannot be started as {self.account.name}: {error.strerror}. "
                f"Run the service as an ordinary user, {faults.DATABASE_URL_ADVICE}."
            ) from error
        finally:
            os.close(log)


def _environment() -> dict[str, str]:
    """Return an environment without PG* variables, and with English messages, because this package parses
    them."""
    names = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR")
    return {"LC_ALL": "C", **{name: os.environ[name] for name in names if name in os.environ}}
