"""Errors of the embedded Postgres, with the last log lines and what to do next."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from pathlib import Path

MAX_LOG_LINES = 15
DATABASE_URL_ADVICE = "or set DATABASE_URL to a Postgres that you run yourself"


class EmbeddedPostgresError(Exception):
    """The embedded Postgres cannot be used. The message says what happened and what the operator can do."""


class ListableDataDir(EmbeddedPostgresError):
    """Other accounts can list the data directory. Logged as a warning, never raised."""


# Text in the log, and the advice for it. The first match wins.
_ADVICE: tuple[tuple[str, str], ...] = (
    ("No space left on device", "The disk is full: free some space below {home} and start again"),
    ("Disk quota exceeded", "The disk quota is used up: free some space below {home} and start again"),
    ("Read-only file system", "{home} is on a read-only file system: choose a data directory that is not"),
    (
        "could not look up effective user ID",
        "initdb runs only for a user that the system knows: add this one to /etc/passwd, or run as another",
    ),
    ("pre-existing shared memory", "Processes of an earlier server still run on {home}: end them first"),
    ("shared memory", "The machine gives Postgres too little shared memory: raise its limit"),
    ("incompatible with server", "Other binaries made this cluster: install the version that made it"),
    (
        "Permission denied",
        "Give the account that runs Postgres access to {home}, or choose another directory",
    ),
)

_ERRNO_ADVICE: dict[int, str] = {
    errno.ENOSPC: "The disk is full: free some space and start again",
    errno.EDQUOT: "The disk quota is used up: free some space and start again",
    errno.EROFS: "The file system is read-only: choose a data directory that is not",
    errno.EACCES: "This process may not write there: change the owner of the directory, or choose another",
    errno.EPERM: "This process may not do that: run it as an ordinary user that owns the data directory",
    errno.ENOTDIR: "A part of the path is a file: choose another data directory",
    errno.EEXIST: "A file stands where a directory is needed: choose another data directory",
    errno.ENOLCK: "The file system has no locks: choose a data directory on a local disk",
}


def last_lines(files: Iterable[Path]) -> list[str]:
    """Return the last lines of these logs, in order; a missing or unreadable log has none."""
    lines: list[str] = []
    for file in files:
        try:
            with file.open("rb") as log:
                log.seek(max(0, file.stat().st_size - 16_384))
                text = log.read().decode("utf-8", "replace")
        except OSError:
            continue
        lines += [line for line in text.splitlines() if line.strip()][-MAX_LOG_LINES:]
    return lines


def error_with_log(what: str, home: Path, files: Iterable[Path]) -> EmbeddedPostgresError:
    """Return the error for `what`, with the advice that matches the logs and their last lines."""
    files = list(files)
    lines = last_lines(files)
    text = "\n".join(lines)
    advice = next((advice for words, advice in _ADVICE if words in text), "Read the log lines below")
    excerpt = "\n  ".join(lines) or "(nothing was logged)"
    logs = " and ".join(str(file) for file in files)
    return EmbeddedPostgresError(
        f"{what}. {advice.format(home=home)}, {DATABASE_URL_ADVICE}. Log ({logs}):\n  {excerpt}"
    )


def missing_data_error(folder: Path) -> EmbeddedPostgresError:
    """Return the error for a directory that was deleted, moved or unmounted while the service used it."""
    return EmbeddedPostgresError(
        f"{folder} is missing, and the data of the service with it. Restore or mount it: the service continues by "
        "itself. To start with an empty one, restart the service."
    )


def error_from_os(error: OSError, what: str) -> EmbeddedPostgresError:
    """Return the error for an operating system call that failed while doing `what`."""
    advice = _ERRNO_ADVICE.get(error.errno or 0, "Choose another data directory")
    return EmbeddedPostgresError(f"{what}: {error}. {advice}, {DATABASE_URL_ADVICE}.")
