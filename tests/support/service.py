"""`plangate serve` as an operator runs it: a separate process with its own data.

Its data directory is a copy of one that a service has used, because creating a cluster and its schema is most of what
a first start costs.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.forked import Forked

ROOT = Path(__file__).parents[2]
END_WITHIN_S = 60.0
DATA_SETTINGS = ("DATABASE_URL", "PLANGATE_CELL", "PLANGATE_SECRET_KEY")
"""Settings on which the contents of a data directory depend."""


@dataclass(frozen=True, slots=True)
class Service:
    """Where it listens, the operator's key of its data, and its process."""

    url: str
    key: str
    pid: int


def plain_environment() -> dict[str, str]:
    """Return the tests' environment without a developer's own service settings and terminal size."""
    return {
        k: v
        for k, v in os.environ.items()
        if k not in ("DATABASE_URL", "COLUMNS", "LINES") and not k.startswith(("PLANGATE_", "OTEL_"))
    }


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A directory that the account of the embedded Postgres can pass through."""
    made = Path(tempfile.mkdtemp(prefix="plangate-test-", dir="/tmp")).resolve()
    made.chmod(0o711)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@contextlib.contextmanager
def serving(
    at: Path,
    settings: Mapping[str, str] | None = None,
    open_files: tuple[int, int] | None = None,
    port: int = 0,
    new_data: bool = False,
) -> Iterator[Service]:
    """Runs until the block ends. `at` is a directory of the caller's, `open_files` the soft and hard limits. With
    `new_data`, the service creates its data directory itself."""
    if not new_data:
        copy_data_directory(at / "data", settings or {})
    command = ("serve", "--port", str(port))
    with started(at, settings, command, open_files) as (process, lines):
        listens, key_in = (next(lines) for _ in range(2))
        assert listens, (at / "log").read_text()[-2000:]
        key = Path(key_in.rsplit(" ", 1)[1]).read_text().strip()
        yield Service(listens.rsplit(" ", 1)[1], key, process.pid)


def copy_data_directory(path: Path, settings: Mapping[str, str]) -> None:
    """Create a data directory for a service with these settings, unless it exists or its contents depend on these
    settings. All copies hold the same keys."""
    if not path.exists() and not settings.keys() & set(DATA_SETTINGS):
        subprocess.run(["cp", "-a", _used_data_directory(), path], check=True)


@cache
def _used_data_directory() -> Path:
    """Return the data directory of a service that has started and ended."""
    with contextlib.ExitStack() as stack:
        at = stack.enter_context(folder())
        assert all(started_lines(at, 1)), (at / "log").read_text()[-2000:]
        atexit.register(stack.pop_all().close)
    return at / "data"


def started_lines(at: Path, count: int) -> list[str]:
    """Return the first lines that a service prints; it runs no longer than that takes."""
    with started(at, None) as (_, lines):
        return [next(lines) for _ in range(count)]


@contextlib.contextmanager
def started(
    at: Path,
    settings: Mapping[str, str] | None,
    command: Sequence[str] = ("serve", "--port", "0"),
    open_files: tuple[int, int] | None = None,
) -> Iterator[tuple[Forked, Iterator[str]]]:
    """Run a command of the service until the block ends, and give what it prints line by line."""
    printed, prints = os.pipe()
    try:
        with (at / "log").open("a") as log:
            process = Forked(
                "app",
                [*command, "--data-dir", str(at / "data")],
                env={**plain_environment(), **(settings or {})},
                stdout=prints,
                stderr=log.fileno(),
                open_files=open_files,
            )
    finally:
        os.close(prints)
    with open(printed) as lines:
        try:
            yield process, iter(lambda: lines.readline().strip(), None)
        finally:
            process.terminate()
            process.wait(END_WITHIN_S)
