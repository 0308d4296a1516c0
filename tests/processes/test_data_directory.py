"""The data directory of a service: its mode, a warning, and its location for root."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.service import folder, serving, started_lines

pytestmark = pytest.mark.root(required=False)

ROOT = os.geteuid() == 0


@pytest.fixture
def at() -> Iterator[Path]:
    with folder() as made:
        yield made


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def warnings(at: Path) -> list[dict[str, Any]]:
    """Return the warnings in the log. Python also writes there, without JSON, that it ignored the end of the process
    in a callback of the garbage collector (`_exit` in app/api/process.py)."""
    log = (at / "log").read_text().splitlines()
    lines = [json.loads(line) for line in log if line.startswith("{")]
    return [line for line in lines if line["event"] == "data_dir.listable"]


def test_a_new_data_directory_cannot_be_listed_by_others(at: Path) -> None:
    before = os.umask(0o000)
    try:
        with serving(at, new_data=True):
            assert mode(at / "data") == (0o711 if ROOT else 0o700)
    finally:
        os.umask(before)
    assert not warnings(at)


def test_an_existing_data_directory_keeps_its_mode_with_a_warning(at: Path) -> None:
    (at / "data").mkdir()
    (at / "data").chmod(0o755)
    with serving(at):
        assert mode(at / "data") == 0o755
    (warning,) = warnings(at)
    assert f"{at / 'data'} (mode 0755)" in warning["error"]
    assert f"chmod {'711' if ROOT else '700'} {at / 'data'}" in warning["error"]


@pytest.mark.root
def test_root_is_told_the_database_directory(at: Path) -> None:
    private = at / "private"
    private.mkdir(mode=0o700)
    try:
        lines = started_lines(private, 3)
        home = (private / "data" / "location").read_text().strip()
        assert lines[2].startswith(f"The database is in {home}: ")
        assert lines[2].endswith(f"which runs Postgres, cannot reach {private / 'data'}")
    finally:
        location = private / "data" / "location"
        if location.exists():
            shutil.rmtree(location.read_text().strip())
