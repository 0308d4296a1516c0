"""Queries in flight when processes died: only the culprit is set aside."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes.acceptance import specs
from tests.processes.acceptance.house import House, eventually
from tests.processes.acceptance.model_server import SlowModel
from tests.processes.acceptance.reader import Reader
from tests.processes.acceptance.verdict import judge

pytestmark = pytest.mark.long

PLUGIN = """
import os, signal
def end_process(args, ctx):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an installed distribution whose tool ends the process that calls it."""
    folder = tmp_path_factory.mktemp("plugins")
    (folder / "deadly.py").write_text(PLUGIN)
    info = folder / "deadly-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: deadly\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[plangate.tools]\ndeadly.end_process = deadly:end_process\n")
    return folder


@pytest.fixture(scope="module")
def home(model: SlowModel, plugins: Path) -> Iterator[House]:
    """With leases so long that only the file locks say who died."""
    made = House(lease_s=60, allow_hosts=f"127.0.0.1:{model.port}", PYTHONPATH=str(plugins))
    made.program = ["-m", "app"]  # a forked process would not look for the plugin
    try:
        yield made
    finally:
        made.close()


def deadly() -> dict[str, Any]:
    agent = {"name": "fool", "role": "specialist", "model": specs.MODEL, "tools": ["end"]}
    tool = {
        "name": "end",
        "description": "Ends the process that calls it",
        "inputSchema": {"type": "object"},
        "transport": {"kind": "python", "entryPoint": "deadly.end_process"},
        "replay": "safe",
    }
    return {
        "name": "deadly",
        "tenant": specs.TENANT,
        "interpreter": "scripted",
        "agents": [agent],
        "tools": [tool],
    }


def tries(reader: Reader) -> int:
    return sum(f.type == "step-retry" for f in list(reader.frames))


def talk(house: House, model: SlowModel, seconds: float) -> Reader:
    """A query whose model turn takes so long, and is under way."""
    runtime = house.register(specs.talker("talk", model.provider("openai")))
    reader = house.start(runtime, model.prompt(seconds), agent="talker")
    reader.wait(lambda e: e["type"] == "text", "text of the model")
    return reader


def children(house: House) -> list[int]:
    rows = house.sql("SELECT pid FROM processes WHERE parent_id IS NOT NULL AND ended_at IS NULL")
    return [row["pid"] for row in rows]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_the_queries_of_a_killed_process_run_again_as_soon_as_it_is_back(
    house: House, model: SlowModel
) -> None:
    readers = [talk(house, model, 4) for _ in range(3)]
    house.restart()
    for reader in readers:
        reader.wait_type("step-retry")  # long before a lease runs out
    for reader in readers:
        reader.wait_end()
        judge(house, reader)


def test_innocent_queries_run_side_by_side_after_any_number_of_kills(house: House, model: SlowModel) -> None:
    model.hold()  # no turn ends while the others begin
    readers = [talk(house, model, 1) for _ in range(3)]
    for kills in (1, 2, 3):
        house.restart()
        for reader in readers:
            reader.wait(lambda _, r=reader, n=kills: tries(r) >= n, "another try", 60)
    assert len(children(house)) == 3
    model.let_go()
    for reader in readers:
        assert reader.wait_end()["type"] == "finish"
        judge(house, reader)
    eventually(lambda: not children(house), "idle children end")


def test_a_query_that_kills_its_process_is_set_aside_after_the_third_time(
    house: House, model: SlowModel
) -> None:
    beside = talk(house, model, 20)
    guilty = house.start(house.register(deadly()), {"tool": "end", "args": {}}, agent="fool")
    for _ in range(2):
        service = house.service
        assert service is not None
        eventually(lambda s=service: not s.alive, "the service is ended by the query")
        house.serve()
    ended = guilty.wait_end()
    assert ended["error"] == {
        "code": "poisoned",
        "message": "This query was set aside: 3 processes in a row ended while they worked on it, the last of them while "
        "working on nothing else.",
    }
    judge(house, guilty, end="error")
    assert house.service is not None
    assert house.service.alive, "the third time it ended no more than a child process"
    assert beside.wait_end()["type"] == "finish"
    judge(house, beside)


def test_a_child_process_ends_with_its_parent(house: House, model: SlowModel) -> None:
    reader = talk(house, model, 15)
    for kills in (1, 2):
        house.restart()
        reader.wait(lambda _, n=kills: tries(reader) >= n, "another try")
    (child,) = children(house)
    assert is_alive(child)
    house.kill_service()
    eventually(lambda: not is_alive(child), "the child ended", 5)
    house.serve()
    reader.wait(lambda _: tries(reader) >= 3, "another try")
    (child,) = children(house)
    os.kill(child, 0)
    assert house.service is not None
    house.service.stop()
    eventually(lambda: not is_alive(child), "the child stopped", 10)
    house.serve()
    assert reader.wait_end()["type"] == "finish"
    judge(house, reader)
