"""The client programs of Postgres: which `pg_dump` to use for a server, and how to hand it a login."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from app.backup.errors import BackupError
from app.base.embedded_postgres import binaries
from app.base.postgres.hosts import primary_address

_PROGRAMS = ("pg_dump", "pg_restore", "psql")
CONNECT_SECONDS = 10


@dataclass(frozen=True)
class Programs:
    """A folder with `pg_dump`, `pg_restore` and `psql` of one version."""

    folder: Path
    version: str

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(int(part) for part in re.findall(r"\d+", self.version))

    @property
    def major(self) -> int:
        return self.numbers[0]


def installed() -> list[Programs]:
    """Return the programs of the wheel and of the machine."""
    folders = [*binaries.wheel_folders(), *binaries.machine_folders()]
    on_path = shutil.which("pg_dump")
    if on_path:
        folders.append(Path(on_path).parent)
    installed_programs = (_look(folder) for folder in dict.fromkeys(folders))
    return [programs for programs in installed_programs if programs is not None]


def choose(major: int, candidates: Iterable[Programs]) -> Programs:
    """Return the programs to use for a server of this major version: the oldest that are not older than it, because
    each newer version writes what older servers may not know.

    Raises:
        BackupError: all that were found are older than the server.
    """
    candidates = list(candidates)
    fitting = [programs for programs in candidates if programs.major >= major]
    if fitting:
        return min(fitting, key=lambda programs: (programs.major, [-n for n in programs.numbers]))
    listed = ", ".join(f"{programs.version} in {programs.folder}" for programs in candidates) or "none"
    raise BackupError(
        f"The server is PostgreSQL {major}, and it needs pg_dump, pg_restore and psql of version {major} or newer. "
        f"Found: {listed}. Install the client programs of PostgreSQL {major} (Debian: postgresql-client-{major})."
    )


def _look(folder: Path) -> Programs | None:
    if not all(os.access(folder / program, os.X_OK) for program in _PROGRAMS):
        return None
    try:
        output = subprocess.run(
            [folder / "pg_dump", "--version"], capture_output=True, text=True, check=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        return None  # made for another machine, or its libraries are missing
    version = re.search(r"\(PostgreSQL\) (\d+\S*)", output.stdout)
    return Programs(folder, version[1]) if version else None


def login(dsn: str) -> tuple[str, Mapping[str, str]]:
    """Return a connection string for a command line, and the environment that has its password: everybody on a
    machine can read the command lines of its processes."""
    scheme, _, rest = primary_address(dsn).partition("://")
    address, question, query = rest.partition("?")
    netloc, slash, database = address.partition("/")
    userinfo, at, hosts = netloc.rpartition("@")
    user, colon, password = userinfo.partition(":")
    options = [option for option in query.split("&") if not option.startswith("password=")]
    passwords = [option.removeprefix("password=") for option in query.split("&") if option not in options]
    env = {**os.environ, "PGCONNECT_TIMEOUT": str(CONNECT_SECONDS), "LC_MESSAGES": "C"}
    if passwords or colon:
        env["PGPASSWORD"] = unquote(passwords[-1] if passwords else password)
    return f"{scheme}://{user}{at}{hosts}{slash}{database}{question}{'&'.join(options)}", env
