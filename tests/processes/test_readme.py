"""The README's commands, run in order in one bash, on a service that they start."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from app.commands.main import cli

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
PLANGATE = Path(sys.executable).with_name("plangate")
PATIENCE_S = 100

# Whatever fails, the service that the README started is stopped, by its pid, and waited for.
BEFORE = """
set -euo pipefail
trap 'code=$?; kill "${SERVICE:-}" "${STREAM:-}" 2>/dev/null || true; wait; exit $code' EXIT
"""
# The README's last block stops the service: what it left is read before.
CHECK = """
api "$API/queries/$QUERY" > "$DATA/check-query.json"
api "$API/plans/$PLAN" > "$DATA/check-plan.json"
api "$API/plans/$PLAN/actions" > "$DATA/check-actions.json"
api "$API/approvals/$APPROVAL" > "$DATA/check-approval.json"
"""


def section(title: str) -> str:
    return README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def blocks(title: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", section(title), re.MULTILINE | re.DOTALL)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory that the account of the embedded Postgres can pass through."""
    made = Path(tempfile.mkdtemp(prefix="plangate-readme-", dir="/tmp")).resolve()
    made.chmod(0o711)
    yield made
    shutil.rmtree(made, ignore_errors=True)


def environment(**more: str) -> dict[str, str]:
    """This one, without the settings of a service of the developer's own."""
    kept = {k: v for k, v in os.environ.items() if k != "DATABASE_URL" and not k.startswith("PLANGATE_")}
    return {**kept, **more}


def run(command: list[str], env: dict[str, str]) -> str:
    """What it says. It has a session of its own, which is ended as a whole if it takes too long."""
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert process.returncode == 0, said[-4000:]
    return said


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("curl"), reason="the README's commands need curl")
def test_the_readme_leads_to_an_approved_plan_with_curl(folder: Path) -> None:
    found = blocks("From nothing to an approved plan with curl alone", "bash")
    script = "\n".join([BEFORE, *found[:-1], CHECK, found[-1]])
    data = folder / "data"
    env = environment(PORT=str(free_port()), DATA=str(data), PLANGATE=str(PLANGATE))
    said = run(["bash", "-c", script], env)

    query, plan, actions, approval = (
        json.loads((data / f"check-{name}.json").read_bytes())
        for name in ("query", "plan", "actions", "approval")
    )
    assert query["status"] == "succeeded"
    assert plan["status"] == "executed"
    assert plan["result"]["entitiesAffected"] == 2
    assert [(a["status"], a["attempts"]) for a in actions["items"]] == [("succeeded", 1)] * 2
    assert (approval["status"], approval["decidedBy"]) == ("approved", "operator")
    assert f"The digest is that of what I read: {approval['digest']}" in said

    events = json.loads((data / "events.json").read_bytes())
    streamed = re.findall(r"^data: (.*)$", (data / "stream.txt").read_text("utf-8"), re.MULTILINE)
    assert events["done"]
    assert [json.loads(line) for line in streamed] == events["events"]
    assert [e["seq"] for e in events["events"]] == list(range(1, len(streamed) + 1))
    assert not (data / "cluster" / "postmaster.pid").exists()  # the service took its Postgres along


@pytest.mark.long
def test_the_python_library_in_a_few_lines(folder: Path) -> None:
    (code,) = blocks("The Python library", "python")
    program = folder / "greet.py"
    program.write_text(code, "utf-8")
    said = run([sys.executable, str(program)], environment(PLANGATE_DATA_DIR=str(folder / "data")))
    types = [line.split()[1] for line in said.splitlines()]
    assert types[0] == "query-status"
    assert types[-1] == "finish"
    assert types.index("approval-required") < types.index("approval-decision")


def test_make_does_what_the_readme_says() -> None:
    named = set(re.findall(r"^    make ([a-z]+)", README, re.MULTILINE))
    targets = set(re.findall(r"^([a-z]+):.*##", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert named
    assert named <= targets


def test_the_named_commands_exist() -> None:
    there: set[str] = set()
    for name, command in getattr(get_command(cli), "commands", {}).items():
        inner = getattr(command, "commands", {})
        there |= {f"{name} {verb}" for verb in inner} or {name}
    verbs = "|".join({command.partition(" ")[2] for command in there} - {""})
    text = README + "".join(page.read_text("utf-8") for page in (ROOT / "docs").glob("*.md"))
    command = rf"(?<!from )(?<![\w/.-])plangate ([a-z]+(?: (?:{verbs}))?)(?=[ `\n])"
    named = set(re.findall(command, text))
    assert named == there
