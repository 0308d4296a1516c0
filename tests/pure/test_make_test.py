"""`make test` ends with a line that agrees with its exit status."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Stands in for Python: installs nothing, and pretends to have run the tests.
STUB = """#!/bin/sh
case "$*" in
  *"-m pip"*) exit 0 ;;
  *--ignore=tests/processes*) echo "5339 passed"; exit $OTHERS ;;
  *tests/processes*) echo "600 passed"; exit $PROCESSES ;;
esac
exit 9
"""


@pytest.mark.parametrize(("processes", "others"), [(0, 0), (0, 1), (1, 0), (2, 1)])
def test_the_last_line_of_make_test_agrees_with_its_status(
    tmp_path: Path, processes: int, others: int
) -> None:
    stub = tmp_path / "bin" / "python"
    stub.parent.mkdir()
    stub.write_text(STUB)
    stub.chmod(0o755)
    environment = {
        k: v for k, v in os.environ.items() if k not in ("ARGS", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    }
    done = subprocess.run(
        ["make", "test", f"VENV={tmp_path}", f"PYTHON={sys.executable}"],
        cwd=ROOT,
        env={**environment, "PROCESSES": str(processes), "OTHERS": str(others)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    ending = "\n".join(done.stdout.rstrip().splitlines()[-2:])
    assert "5339 passed" in done.stdout and "600 passed" in done.stdout
    if processes == others == 0:
        assert done.returncode == 0
        assert ending.endswith("make test: every test passed")
    else:
        assert done.returncode == 2
        assert f"make test: FAILED (pytest ended with {processes} for tests/processes and {others}" in ending
        assert "Error 1" in ending.splitlines()[-1]
