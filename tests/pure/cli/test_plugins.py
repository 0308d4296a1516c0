"""The script `plangate`: the library has the client commands, and the service adds its own by an entry point."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest
from plangate.cli import script
from plangate.cli.main import build_cli, load_plugins
from typer.main import get_command

from app.commands import main as operator

CLIENT = {"query", "watch", "work", "artifacts", "console", "approvals", "plans", "queries", "runtimes"}


def names(cli: object) -> set[str]:
    return set(getattr(get_command(cli), "commands", {}))  # type: ignore[arg-type]


def test_the_client_commands_need_no_service() -> None:
    assert names(build_cli([])) == CLIENT
    code = (
        "import sys\n"
        "from plangate.cli.main import build_cli, run_cli\n"
        "try:\n"
        "    run_cli(build_cli([]), [])\n"
        "finally:\n"
        "    print([name for name in sys.modules if name.partition('.')[0] == 'app'], file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=False, env={}
    )
    assert (done.returncode, done.stderr) == (0, "[]\n")
    assert "Start a query and follow it to its end." in done.stdout


def test_the_service_adds_its_commands_by_an_entry_point() -> None:
    plugins = load_plugins()
    assert operator.plugin in plugins
    assert names(build_cli(plugins)) >= CLIENT | {"serve", "worker", "tenants", "keys", "openapi"}
    assert names(operator.cli) == names(build_cli([operator.plugin]))


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        SystemExit, match=r"rich and typer not installed\. Run: pip install 'plangate\[cli\]'"
    ):
        script.main()
