"""The import contracts are enforced."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    return subprocess.run(
        command,
        cwd=folder,
        env={"PYTHONPATH": f"{folder}:{folder / 'sdk/python'}", "PATH": "/usr/bin:/bin", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def copy_of_house(to: Path) -> Path:
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "app", to / "app", ignore=unwanted)
    shutil.copytree(ROOT / "sdk/python/plangate", to / "sdk/python/plangate", ignore=unwanted)
    shutil.copy(ROOT / "pyproject.toml", to)
    return to


def test_a_deliberate_upward_import_fails_the_check(tmp_path: Path) -> None:
    house = copy_of_house(tmp_path)
    clock = house / "app/base/clock.py"
    clock.write_text(clock.read_text() + "\nimport app.plans.body  # noqa\n")
    done = lint(house)
    assert done.returncode != 0
    assert "app.base.clock -> app.plans.body" in done.stdout


def test_a_folder_without_a_floor_fails_the_check(tmp_path: Path) -> None:
    house = copy_of_house(tmp_path)
    (house / "app/cellar").mkdir()
    (house / "app/cellar/__init__.py").write_text('"""Nobody said where this stands."""\n')
    done = lint(house)
    assert done.returncode != 0
    assert "cellar" in done.stdout
