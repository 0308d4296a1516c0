"""What a review found: each of these once went wrong."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import pytest

from app.base.errors import Unavailable
from app.journal.models import Delta, Entry, Scope, event
from app.llm.messages import TextDelta, TurnDone
from tests.postgres.test_journal import custom, leased, numbers
from tests.support import specs
from tests.support.client import Caller, eventually, good, output_of
from tests.support.world import World

OLD = "UPDATE queries SET parked_at = now() - interval '8 days' WHERE id = $1"


async def test_a_text_that_cannot_be_encoded_does_not_end_the_writer(idle: World) -> None:
    bad, good_one = await leased(idle, 2)
    journal = idle.services.journal
    await journal.post(bad, Delta("text", Scope(bad.query_id, "thr", "wrk", None, "solo"), 1, "half \ud83d"))
    with pytest.raises(Exception, match="surrogates|UTF-8"):
        await asyncio.wait_for(journal.commit(bad, Entry([custom(bad, 1)])), 5)
    await asyncio.wait_for(journal.commit(good_one, Entry([custom(good_one, 2)])), 5)
    assert [n for _, n in await numbers(idle, good_one)] == [2]


async def test_half_a_character_of_a_provider_is_a_broken_turn(plangate: World, api: Caller) -> None:
    await api.register(specs.mock("fine"))
    await api.run()
    providers = plangate.services.providers
    (kept,) = providers._kept.values()
    whole = kept.stream
    asked = 0

    async def stream(request: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked == 1:
            yield TextDelta("half \ud83d")
        async for part in whole(request):
            yield part

    kept.stream = stream  # type: ignore[method-assign]
    query = await api.run()
    assert (query["status"], query["output"], asked) == ("succeeded", "fine", 2)
    (retry,) = await api.events(query["id"], "step-retry")
    assert retry["reason"].startswith("provider_broken_turn")


async def test_the_stream_of_a_tenant_skips_nothing_in_an_outage(
    plangate: World, api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.register(specs.mock())
    streams = plangate.services.streams
    read = streams.tenant_page
    failing = 0

    async def page(*args: Any) -> Any:
        nonlocal failing
        if failing:
            failing -= 1
            raise Unavailable("test")
        return await read(*args)

    monkeypatch.setattr(streams, "tenant_page", page)
    async with plangate.services.db.transaction("acme") as tx:
        position = await streams.tenant_position(tx, None)

    async def allowed() -> bool:
        return True

    query = (await api.run())["id"]
    failing = 2
    seen = b""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(6):
            async for chunk in streams.tenant_sse("acme", position, ["finish"], None, None, allowed):
                seen += chunk
                if query.encode() in seen:
                    break
    assert query.encode() in seen


async def test_a_stateful_sub_agent_remembers_its_earlier_call_in_the_same_query(
    plangate: World, api: Caller
) -> None:
    """In a new thread too, where the agent that was asked first has nothing to remember."""
    await api.register(
        specs.spec(
            specs.agent("chief", "coordinator", routes=["helper"]),
            specs.agent("helper", stateful=True),
            interpreter="scripted",
        )
    )
    await api.run()  # makes the provider
    (provider,) = plangate.services.providers._kept.values()
    whole = provider.stream
    asked: list[int] = []

    def stream(request: Any) -> Any:
        if "helper" in request.system:
            asked.append(len(request.messages))
        return whole(request)

    provider.stream = stream  # type: ignore[method-assign]
    call = ("call_agent", {"agent": "helper", "prompt": "{}"})
    await api.run(specs.script(call, call))
    assert asked == [1, 3]


async def test_a_limit_that_was_just_raised_fails_nobody(
    plangate: World, api: Caller, owner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from app.agents import store

    await api.register(specs.scripted(specs.tool("add"), limits={"maxTurns": 1}))
    query = (await api.submit(specs.script(("add", {"n": 1}))))["id"]
    await api.serve("add", 1)
    await api.until(query, "waiting", "limit_reached")
    await owner.execute(OLD, query)
    found = store.due_limits

    async def due(*args: Any) -> Any:
        rows = await found(*args)
        if rows:
            await api.do(f"/queries/{query}/resume", {"limits": {"maxTurns": 5}})
        return rows

    monkeypatch.setattr(store, "due_limits", due)
    await plangate.services.queries.fail_due_limits()
    assert (await api.ended(query))["status"] == "succeeded"
