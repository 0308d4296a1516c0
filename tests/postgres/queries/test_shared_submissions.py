"""Queries of a tenant that are submitted at the same time share transactions."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import asyncpg

from app.base.errors import Conflict
from tests.support import specs
from tests.support.client import good, refused
from tests.support.world import World

CLIENTS = 12


async def test_queries_that_start_together_share_commits(plangate: World) -> None:
    """The first request runs a transaction for itself, and the next one runs a transaction for all that waited."""
    await plangate.api.register(specs.mock("Hello."))
    await plangate.api.run()  # the process knows the newest version of the runtime
    statements = plangate.faults.probe("submit_query")
    prompts = [f"prompt {n}" for n in range(CLIENTS)]
    accepted = await asyncio.gather(*(plangate.api.submit(prompt) for prompt in prompts))
    assert statements.count < CLIENTS / 2
    ended = await asyncio.gather(*(plangate.api.ended(query["id"]) for query in accepted))
    assert [query["prompt"] for query in ended] == prompts
    assert {query["status"] for query in ended} == {"succeeded"}
    assert len({query["threadId"] for query in ended}) == CLIENTS


async def test_a_query_that_cannot_be_stored_fails_alone(plangate: World) -> None:
    await plangate.api.register(specs.mock("Hello."))
    await plangate.api.run()
    # The shared statement fails, and then that of one of its queries.
    plangate.faults.fail("submit_query", skip=1, times=2, error=Conflict("a fault of the test"))
    responses = await asyncio.gather(
        *(plangate.api.post("/queries", {"prompt": "hi"}) for _ in range(CLIENTS))
    )
    failed = [response for response in responses if not response.is_success]
    assert len(failed) == 1
    refused(failed[0], 409)
    accepted = [good(response)["id"] for response in responses if response.is_success]
    ended = await asyncio.gather(*(plangate.api.ended(id) for id in accepted))
    assert {query["status"] for query in ended} == {"succeeded"}
    assert plangate.services.worker.busy == 0
    assert len((await plangate.api.read("/queries"))["items"]) == CLIENTS  # one was there before


async def test_a_limit_counts_the_queries_of_the_same_transaction(plangate: World, owner: Any) -> None:
    await plangate.api.register(specs.mock("Hello."))
    await plangate.api.run()
    plangate.services.worker.stop_starting()
    await owner.execute("""UPDATE tenants SET limits = '{"queuedQueries": 5}'""")
    responses = await asyncio.gather(
        *(plangate.api.post("/queries", {"prompt": "hi"}) for _ in range(CLIENTS))
    )
    assert sorted(response.status_code for response in responses) == [202] * 5 + [429] * (CLIENTS - 5)
    counts = "SELECT (SELECT count(*) FROM threads) - (SELECT count(*) FROM queries)"
    assert await owner.fetchval(counts) == 0, "a rejected query leaves no thread"


async def test_queries_of_a_transaction_that_deadlocked_are_accepted(plangate: World) -> None:
    await plangate.api.register(specs.mock("Hello."))
    await plangate.api.run()
    plangate.faults.fail(
        "submit_query", skip=1, error=asyncpg.exceptions.DeadlockDetectedError("a fault of the test")
    )
    accepted = await asyncio.gather(*(plangate.api.submit() for _ in range(CLIENTS)))
    assert len({query["id"] for query in accepted}) == CLIENTS


async def test_large_queries_do_not_share_a_transaction(plangate: World) -> None:
    await plangate.api.register(specs.mock("Hello."))
    await plangate.api.run()
    statements = plangate.faults.probe("submit_query")
    await asyncio.gather(*(plangate.api.submit("long " * 20_000) for _ in range(CLIENTS)))
    assert statements.count == CLIENTS


async def test_every_request_is_answered_in_time_if_the_database_stalls(plangate: World) -> None:
    await plangate.api.register(specs.mock("Hello."))
    await plangate.api.run()
    never = asyncio.Event()

    async def stall() -> None:
        await never.wait()

    plangate.faults.after("submit_query", stall, times=100)

    async def submit(n: int) -> float:
        await asyncio.sleep(n * 0.1)
        began = time.monotonic()
        refused(await plangate.api.post("/queries", {"prompt": "hi"}), 503)
        return time.monotonic() - began

    waits = await asyncio.gather(*(submit(n) for n in range(CLIENTS)))
    assert max(waits) < 6, "each waits for one transaction at most, and not for two of four seconds"


async def test_a_request_that_is_canceled_lets_others_run_their_transaction(plangate: World) -> None:
    await plangate.api.register(specs.mock("Hello."))
    await plangate.api.run()
    may_continue = asyncio.Event()

    async def wait() -> None:
        await may_continue.wait()

    plangate.faults.after("submit_query", wait)
    first, second, third = [asyncio.create_task(plangate.api.submit()) for _ in range(3)]
    await asyncio.sleep(0.1)
    second.cancel()
    first.cancel()
    await asyncio.wait([first, second], timeout=5)
    may_continue.set()
    assert (await plangate.api.ended((await asyncio.wait_for(third, 5))["id"]))["status"] == "succeeded"
