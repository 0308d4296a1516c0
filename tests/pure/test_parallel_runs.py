"""Reports of tests that run in several processes reach the main process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

LOGS_A_SURROGATE = r"""
import logging

def test_logs_a_surrogate():
    logging.getLogger().warning("lone \ud800")
    assert PASSES, "also \ud800"

def test_next():
    pass
"""


@pytest.mark.long
@pytest.mark.parametrize("passes", [True, False])
def test_a_lone_surrogate_in_a_report_does_not_end_the_run(tmp_path: Path, passes: bool) -> None:
    (tmp_path / "conftest.py").write_text("from tests.support.reports import pytest_report_to_serializable\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_logs.py").write_text(LOGS_A_SURROGATE.replace("PASSES", str(passes)))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-n1",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:schemathesis",
            "--rootdir",
            tmp_path,
            tmp_path,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "INTERNALERROR" not in done.stdout + done.stderr
    assert done.returncode == (0 if passes else 1)
    assert ("2 passed" if passes else "1 failed, 1 passed") in done.stdout
    assert passes or r"lone \ud800" in done.stdout
