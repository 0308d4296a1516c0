"""Paths of the embedded Postgres: in the data directory, or where the account that runs it can reach them.

The data directory has the locks, and either the cluster or a file `location`, which names a directory below
the system's state directory with the cluster. That directory names its data directory in turn.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from app.base.embedded_postgres import accounts, faults
from app.base.embedded_postgres.accounts import Account
from app.base.embedded_postgres.faults import EmbeddedPostgresError

SYSTEM_STATE_DIR = Path("/var/lib/plangate")
PRIVATE_MODE, TRAVERSABLE_MODE = 0o700, 0o711  # owner only; others may traverse but not list
START_LOCK = "start.lock"
PORT = 5432  # names the socket only: nothing listens on TCP
_MAX_SOCKET_PATH_BYTES = 103 if sys.platform == "darwin" else 107  # sun_path without the final zero
# Paths that are not split in a connection string and in Postgres's list of directories.
_SAFE_PATH = re.compile(r"[^,:;\"'\\%?#&\x00-\x1f]+")


@dataclass(frozen=True)
class ClusterPaths:
    """The paths of one embedded Postgres. `home` is the data directory or its substitute."""

    data_dir: Path
    home: Path

    @property
    def cluster(self) -> Path:
        return self.home / "cluster"

    @property
    def start_log(self) -> Path:
        """Return the log of `initdb` and of the server before its own log begins."""
        return self.home / "start.log"

    @property
    def fingerprint_file(self) -> Path:
        """Return the file that records the programs and settings of the running server."""
        return self.home / "started-with"

    @property
    def logs(self) -> list[Path]:
        """Return the start log, and the server's own log if it has written one since its start."""
        started = self.fingerprint_file.stat().st_mtime_ns if self.fingerprint_file.exists() else 0
        modified = {path: path.stat().st_mtime_ns for path in self.cluster.glob("log/*.log")}
        own = sorted((path for path in modified if modified[path] >= started), key=modified.__getitem__)
        return [self.start_log, *own[-1:]]

    @property
    def start_lock(self) -> Path:
        return self.data_dir / START_LOCK

    @property
    def users_lock(self) -> Path:
        return self.data_dir / "users.lock"

    @property
    def server_lock(self) -> Path:
        return self.data_dir / "server.lock"


def prepare_data_dir(data_dir: Path) -> Path:
    """Create the directory if it is missing, and resolve it. An existing one keeps its mode and owner.

    Call it before anything else writes there: a directory created under the umask might be listable by
    everyone.

    Raises:
        OSError: it cannot be created, or a file has its name.
    """
    data_dir = data_dir.expanduser().resolve()
    if not data_dir.exists():
        data_dir.parent.mkdir(parents=True, exist_ok=True)
        make_directory(data_dir, TRAVERSABLE_MODE if os.geteuid() == 0 else PRIVATE_MODE)
    if not data_dir.is_dir():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(data_dir))
    return data_dir


def listing_warning(data_dir: Path) -> faults.ListableDataDir | None:
    """Return a warning if other accounts can list the directory."""
    mode = stat.S_IMODE(data_dir.stat().st_mode)
    if not mode & stat.S_IROTH:
        return None
    closed = TRAVERSABLE_MODE if os.geteuid() == 0 else PRIVATE_MODE
    return faults.ListableDataDir(
        f"Other accounts can list the data directory {data_dir} (mode {mode:04o}). "
        f"Close it with: chmod {closed:03o} {data_dir}"
    )


def locate(data_dir: Path, state_dir: Path) -> tuple[ClusterPaths, Account]:
    """Return where the cluster of `data_dir` is or will be, and the account that runs it. Call it under
    `start.lock`.

    Raises:
        EmbeddedPostgresError: the data directory is a copy of another one, or its cluster is unreachable.
    """
    location = data_dir / "location"
    if location.exists():
        home = Path(location.read_text("utf-8").strip())
        _check_not_copied(data_dir, home)
        return ClusterPaths(data_dir, home), accounts.choose_account(home / "cluster")
    account = accounts.choose_account(data_dir / "cluster")
    if not account.needs_switch or account.reaches(data_dir):
        return ClusterPaths(data_dir, data_dir), account
    if (data_dir / "cluster").exists():
        raise EmbeddedPostgresError(
            f"{account.name}, who runs Postgres, no longer reaches {data_dir}. "
            "Let others pass through the directories above it again (chmod o+x), or move it where they can."
        )
    home = state_dir / hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:16]
    state_dir.parent.mkdir(parents=True, exist_ok=True)
    make_directory(state_dir, TRAVERSABLE_MODE)
    make_directory(home, TRAVERSABLE_MODE)
    if not account.reaches(home):
        raise EmbeddedPostgresError(
            f"{account.name}, who runs Postgres, reaches neither {data_dir} nor {home}. "
            "Choose a data directory that others can pass through to, such as one below /var/lib, "
            "or run the service as an ordinary user."
        )
    write_atomically(home / "data-directory", f"{data_dir}\n")
    write_atomically(location, f"{home}\n")
    return ClusterPaths(data_dir, home), account


def make_directory(folder: Path, mode: int) -> None:
    """Create a directory of this mode, whatever the umask, if it is missing. An existing one is not changed.

    It appears with its final mode, so that no other process sees it closed and chooses another place.
    """
    if folder.exists():
        return
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name[:50]}-"))
    temporary.chmod(mode)
    try:
        temporary.rename(folder)
    except OSError:
        temporary.rmdir()
        if not folder.is_dir():  # else another process was faster
            raise


def _check_not_copied(data_dir: Path, home: Path) -> None:
    """Raise an error if the data directory is a copy: two data directories must not share a cluster.

    A directory that was moved keeps its cluster.
    """
    note = home / "data-directory"
    if not note.exists():
        raise EmbeddedPostgresError(
            f"{data_dir}/location says that the database is in {home}, where there is none. "
            f"Restore that directory, or delete {data_dir}/location to start with an empty database."
        )
    target = Path(note.read_text("utf-8").strip())
    if target == data_dir:
        return
    claim = target / "location"
    if claim.exists() and claim.read_text("utf-8").strip() == str(home) and not target.samefile(data_dir):
        raise EmbeddedPostgresError(
            f"{data_dir} is a copy of {target}, whose database is in {home} and was not copied along. "
            f"Delete {data_dir}/location to start with an empty database, or use {target}."
        )
    write_atomically(note, f"{data_dir}\n")


def socket_dir(places: ClusterPaths, account: Account) -> Path:
    """Return the private directory of the socket, which only root and the account that runs Postgres can
    enter.

    It is in `home`, or in the temporary directory if the socket's path would be too long or contain
    characters that split a connection string; a file in `home` then names it.
    """
    near = places.home / "socket"
    if _is_usable_socket_dir(near):
        if not _is_private(near, account):
            _make_private(near, account)
        return near
    record = places.home / "socket-directory"
    if record.exists():
        recorded = Path(record.read_text("utf-8").strip())
        if _is_private(recorded, account):
            return recorded
    for parent in dict.fromkeys((Path(tempfile.gettempdir()).resolve(), Path("/tmp").resolve())):  # noqa: S108
        if account.reaches(parent) and _is_usable_socket_dir(parent / "plangate-12345678"):
            # A new name each time, so that nobody can create the directory first.
            temporary = Path(tempfile.mkdtemp(prefix="plangate-", dir=parent))
            account.take_ownership(temporary)
            write_atomically(record, f"{temporary}\n")
            return temporary
    raise EmbeddedPostgresError(
        f"The path of a socket below {places.home} is too long, and {account.name} cannot use the "
        "temporary directory. Choose a data directory with a shorter path, or point TMPDIR at a short one."
    )


def _is_usable_socket_dir(folder: Path) -> bool:
    path = str(folder / f".s.PGSQL.{PORT}")
    return len(os.fsencode(path)) <= _MAX_SOCKET_PATH_BYTES and _SAFE_PATH.fullmatch(path) is not None


def _make_private(folder: Path, account: Account) -> None:
    """Create the directory, or replace an empty one that was left behind. Do not touch one with content."""
    with suppress(OSError):
        folder.rmdir()
    try:
        folder.mkdir(mode=PRIVATE_MODE)
    except FileExistsError:
        raise EmbeddedPostgresError(
            f"{folder} is not private to {account.name}, so others could connect. "
            f"Move it away, or give it back: chown {account.name} {folder} && chmod 700 {folder}"
        ) from None
    account.take_ownership(folder)


def _is_private(folder: Path, account: Account) -> bool:
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == account.uid and not status.st_mode & 0o077


def write_atomically(path: Path, text: str, owner: Account | None = None) -> None:
    """Write a small file so that a reader, or a start after a crash, sees all of it or none."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    if owner is not None and owner.needs_switch:
        os.fchown(descriptor, owner.uid, owner.gid)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    Path(name).replace(path)
