"""What a run and an idle stream cost: their statements, commits and tasks, counted."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.postgres.journal.test_open_streams import streaming
from tests.support import specs
from tests.support.faults import coroutine_name
from tests.support.sse import served
from tests.support.world import World

APP = str(Path(__file__).parents[3] / "app")
RUN_TASKS = ("RequestResponseCycle.run_asgi", "Worker._work", "JournalWriter._run")
"""The tasks that send the statements of a run. Those of others are not caused by one."""


@contextlib.contextmanager
def counted_tasks() -> Iterator[Counter[str]]:
    """Count the tasks of the service, and of requests to it, that are created in the block."""
    counts: Counter[str] = Counter()

    def create(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        name = coroutine_name(coroutine)
        code = getattr(coroutine, "cr_code", None)
        if name in RUN_TASKS or (code is not None and code.co_filename.startswith(APP)):
            counts[name] += 1
        return asyncio.Task(coroutine, loop=loop, **options)

    loop = asyncio.get_running_loop()
    loop.set_task_factory(create)
    try:
        yield counts
    finally:
        loop.set_task_factory(None)


def summary(statement: str) -> str:
    """Return `BEGIN`, `COMMIT`, or the function that a statement calls."""
    if "submit_query(" in statement:
        return "submit_query"
    if statement.startswith("BEGIN;"):
        return "BEGIN"
    if statement.endswith("COMMIT"):
        return "COMMIT"
    return statement.partition("(")[0].rpartition(" ")[2]


async def test_a_streamed_run_is_three_commits_and_two_tasks(plangate: World) -> None:
    await plangate.api.register(specs.mock("word " * 50, providers={"mock": {"tokens": 50}}))
    async with served(plangate) as address:

        async def run() -> str:
            async with streaming(address, plangate.api, "/queries/stream", json={"prompt": "hi"}) as response:
                return (await response.aread()).decode()

        await run()
        plangate.faults.recorded = []
        with counted_tasks() as tasks:
            assert "event: finish" in await run()
        sent = [(task, summary(sql)) for task, sql in plangate.faults.recorded if task in RUN_TASKS]
    request, _, journal = RUN_TASKS
    assert sent == [
        (request, "BEGIN"),
        (request, "submit_query"),
        (request, "COMMIT"),
        (journal, "journal_commit"),
        (journal, "journal_commit"),
    ]
    assert tasks == {"RequestResponseCycle.run_asgi": 1, "Worker._work": 1}


async def test_idle_streams_create_no_tasks_and_share_their_statements(plangate: World) -> None:
    await plangate.api.register(specs.scripted(specs.tool("add")))
    query = (await plangate.api.submit(specs.script(("add", {"n": 1}))))["id"]
    await plangate.api.until(query, "waiting")
    async with served(plangate) as address, contextlib.AsyncExitStack() as streams:
        for path in (f"/queries/{query}/stream", "/events/stream"):
            for _ in range(10):
                await streams.enter_async_context(streaming(address, plangate.api, path))
        await asyncio.sleep(1)
        plangate.faults.recorded = []
        with counted_tasks() as tasks:
            await asyncio.sleep(2)
        statements = Counter(sql for _, sql in plangate.faults.recorded)
        by_requests = [sql for task, sql in plangate.faults.recorded if task in RUN_TASKS]
    assert not by_requests
    assert max(statements.values()) <= 4, "of 20 streams in two seconds"
    assert tasks.total() <= 4, "two for each check of the key that the streams share"
