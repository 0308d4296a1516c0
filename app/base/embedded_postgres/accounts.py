"""The account that runs Postgres: this process's own, or an unprivileged one if this process is root."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from pathlib import Path

from app.base.embedded_postgres.faults import EmbeddedPostgresError

# In order of preference: accounts made for Postgres (Linux, macOS), then one that every system has.
_UNPRIVILEGED_NAMES = ("postgres", "_postgres", "nobody")

READ_BIT, TRAVERSE_BIT = 4, 1


@dataclass(frozen=True)
class Account:
    """The account that runs Postgres. `needs_switch`: this process is root and starts children as the
    account."""

    uid: int
    gid: int
    needs_switch: bool

    @property
    def name(self) -> str:
        try:
            return pwd.getpwuid(self.uid).pw_name
        except KeyError:
            return f"uid {self.uid}"

    @property
    def child_user(self) -> int | None:
        return self.uid if self.needs_switch else None

    @property
    def child_group(self) -> int | None:
        return self.gid if self.needs_switch else None

    @property
    def child_groups(self) -> list[int] | None:
        """Return no supplementary groups, so that uid and gid alone decide what the account may do."""
        return [] if self.needs_switch else None

    def permits(self, path: Path, bits: int) -> bool:
        """Return whether the mode of `path` grants the account `bits` (READ_BIT, TRAVERSE_BIT).

        os.access would answer for this process.
        """
        status = path.stat()
        shift = 6 if status.st_uid == self.uid else 3 if status.st_gid == self.gid else 0
        return (status.st_mode >> shift) & bits == bits

    def reaches(self, folder: Path) -> bool:
        """Return whether the account can traverse `folder` and all its parents."""
        folder = folder.resolve()
        return all(self.permits(part, TRAVERSE_BIT) for part in (folder, *folder.parents))

    def take_ownership(self, path: Path) -> None:
        """Make the account the owner of a file or directory that the launcher created."""
        if self.needs_switch:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


def choose_account(cluster: Path) -> Account:
    """Return the owner of the cluster if it exists, so that an account that is added later changes nothing.

    Raises:
        EmbeddedPostgresError: the cluster belongs to an account that this process cannot become.
    """
    owner = cluster.stat() if cluster.exists() else None
    me = os.geteuid()
    if me != 0:
        if owner is not None and owner.st_uid != me:
            other = Account(owner.st_uid, owner.st_gid, needs_switch=False).name
            raise EmbeddedPostgresError(
                f"The cluster {cluster} belongs to {other}, this process runs as uid {me}. "
                f"Start the service as {other} or as root, or choose another data directory."
            )
        return Account(me, os.getegid(), needs_switch=False)
    if owner is not None:
        if owner.st_uid == 0:
            raise EmbeddedPostgresError(
                f"The cluster {cluster} belongs to root, and Postgres refuses to run as root. "
                f"Give it back to the account that made it: chown -R postgres {cluster}"
            )
        return Account(owner.st_uid, owner.st_gid, needs_switch=True)
    for name in _UNPRIVILEGED_NAMES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid, needs_switch=True)
    raise EmbeddedPostgresError(
        f"Postgres refuses to run as root, and this system has no account {' or '.join(_UNPRIVILEGED_NAMES)}. "
        "Add one (useradd --system postgres) or run the service as an ordinary user."
    )
