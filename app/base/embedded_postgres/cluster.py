"""Create the cluster on disk atomically, and never run it with programs of another major version."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from app.base.embedded_postgres import binaries, faults, wire
from app.base.embedded_postgres.binaries import Binaries
from app.base.embedded_postgres.faults import EmbeddedPostgresError
from app.base.embedded_postgres.spec import ServerSpec

INITDB_TIMEOUT_SECONDS = 300.0  # syncing takes long on slow disks
_BUILTIN_LOCALES_SINCE = 17


def check_version(cluster: Path, programs: Binaries) -> None:
    """Reject a cluster of another major version: Postgres reads only its own.

    Raises:
        EmbeddedPostgresError: the message says how to upgrade; nothing was changed.
    """
    try:
        version = int((cluster / "PG_VERSION").read_text("ascii").strip())
    except (OSError, ValueError) as error:
        raise EmbeddedPostgresError(
            f"{cluster} is not a Postgres cluster ({error}). "
            "Restore it from a backup, or move it away to start with an empty database."
        ) from error
    if version == programs.major:
        return
    old = binaries.find_major(version)
    hint = f"{version} is in {old}" if old else f"install {version} beside it"
    raise EmbeddedPostgresError(
        f"The cluster {cluster} was made by PostgreSQL {version}, the programs here are {programs.major}. "
        "Nothing was changed. Do one of these: "
        f"upgrade it with pg_upgrade ({programs.major} is in {programs.folder}, {hint}); "
        f"dump it with PostgreSQL {version} (pg_dumpall), move {cluster} away, start, and restore the dump; "
        f"or run PostgreSQL {version} yourself and point DATABASE_URL at it."
    )


def create_cluster(server: ServerSpec, programs: Binaries, lock: int) -> None:
    """Run `initdb` under another name and rename, so that a killed process leaves no partial cluster.

    Raises:
        EmbeddedPostgresError: `initdb` failed; the message has its output.
    """
    places = server.places
    partial = places.home / "cluster.partial"
    if partial.exists():
        shutil.rmtree(partial)  # its initdb is dead: we hold its lock
    partial.mkdir(mode=0o700)
    server.account.take_ownership(partial)
    server.log(f"creating a PostgreSQL {programs.major} cluster in {places.cluster} as {server.account.name}")
    with server.run(_initdb_command(server, programs, partial), lock) as child:
        try:
            code = child.wait(INITDB_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired as error:
            child.kill()
            what = f"initdb did not finish within {INITDB_TIMEOUT_SECONDS:.0f} s"
            raise faults.error_with_log(what, places.home, [places.start_log]) from error
        except BaseException:
            child.kill()
            raise
    if code != 0:
        shutil.rmtree(partial, ignore_errors=True)  # frees space on a full disk
        raise faults.error_with_log(f"initdb failed (exit {code})", places.home, [places.start_log])
    partial.rename(places.cluster)
    _sync(places.home)


def _initdb_command(server: ServerSpec, programs: Binaries, folder: Path) -> list[str]:
    command = [
        *(str(programs.folder / "initdb"), "-D", str(folder), "--username", wire.SUPERUSER),
        *("--encoding=UTF8", "--locale=C", "--data-checksums", "--no-instructions"),
        # access.py replaces pg_hba.conf before the first start; if TCP were on, it would reject everyone.
        *("--auth-local=peer", "--auth-host=reject"),
    ]
    if programs.major >= _BUILTIN_LOCALES_SINCE:
        # Sorts by code point, has case mapping beyond ASCII, and is independent of library upgrades.
        command += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    if server.settings.get("fsync") == "off":
        command += ["--no-sync"]
    return command


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
