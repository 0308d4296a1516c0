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
  *"-m pytest"*) echo "5339 passed"; exit $STATUS ;;
  *) exit 0 ;;
esac
"""


@pytest.mark.parametrize("status", [0, 1, 2])
@pytest.mark.parametrize("target", ["test", "test-quick", "test-long"])
def test_the_last_line_of_make_test_agrees_with_its_status(tmp_path: Path, target: str, status: int) -> None:
    stub = tmp_path / "bin" / "python"
    stub.parent.mkdir()
    for name in ("python", "uv"):
        (stub.parent / name).write_text(STUB)
        (stub.parent / name).chmod(0o755)
    environment = {
        k: v for k, v in os.environ.items() if k not in ("ARGS", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    }
    done = subprocess.run(
        ["make", target, f"VENV={tmp_path}", f"PYTHON={sys.executable}", f"UV={tmp_path}/bin/uv"],
        cwd=ROOT,
        env={**environment, "STATUS": str(status)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    ending = "\n".join(done.stdout.rstrip().splitlines()[-2:])
    assert "5339 passed" in done.stdout
    if status == 0:
        assert done.returncode == 0
        assert ending.endswith(f"make {target}: every test passed")
    else:
        assert done.returncode == 2
        assert f"make {target}: FAILED (pytest ended with {status})" in ending
        assert "Error 1" in ending.splitlines()[-1]
