"""Queries that cannot continue end in one transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from app.agents.limits import AgentLimits
from app.assembly import FeatureLimits
from app.llm.messages import ToolUse, TurnDone, Usage
from tests.support import specs
from tests.support.client import eventually
from tests.support.world import World, world

EXPIRE = "UPDATE queries SET lease_expires_at = now() - interval '1 s' WHERE status = 'running'"


async def queued(idle: World, count: int) -> list[str]:
    await idle.api.register(specs.mock())
    return [(await idle.api.submit())["id"] for _ in range(count)]


async def ended_by(
    w: World, owner: Any, query: str, begun: Callable[[int], bool] = lambda epoch: True
) -> dict[str, Any]:
    """The query once it is over: whenever the process lets go of it, its lease runs out. `begun`: whether the process works,
    or worked, on it under this epoch; it may have claimed it and not have heard that yet."""

    async def over() -> Any:
        epoch = await owner.fetchval("SELECT lease_epoch FROM queries WHERE id = $1", query)
        if w.services.worker.busy == 0 and begun(epoch):
            await owner.execute(EXPIRE + f" AND lease_epoch = {epoch}")
            w.services.worker.on_notify("")
        found = await w.api.read(f"/queries/{query}")
        return found if found["endedAt"] else None

    found: dict[str, Any] = await eventually(over, f"{query} is over")
    return found


async def open_things(owner: Any, query: str) -> list[Any]:
    rows = await owner.fetch(
        "SELECT kind FROM work_records WHERE query_id = $1 AND ended_at IS NULL UNION ALL "
        "SELECT target FROM approvals WHERE query_id = $1 AND status = 'pending' ORDER BY kind",
        query,
    )
    return [r[0] for r in rows]


# -- what cannot be loaded


async def test_a_query_that_cannot_be_loaded_fails_at_the_third_attempt(
    idle: World, owner: Any, site: Any, cluster: Any
) -> None:
    limits = FeatureLimits(agents=AgentLimits(reload_after_s=0.01))
    (query,) = await queued(idle, 1)
    loads = 0

    async def broken(*_: Any) -> Any:
        nonlocal loads
        loads += 1
        raise ValueError("no runtime")

    async with world(site, cluster.operator_key, started=False, limits=limits) as w:
        w.services.runtimes.get = broken  # type: ignore[method-assign]
        await w.services.start()
        ended = await w.api.ended(query)
    assert (ended["status"], ended["error"]) == (
        "failed",
        {
            "code": "internal_error",
            "message": "The service could not load this query, 3 times in a row (ValueError). Its log says why, "
            "under the query's id.",
        },
    )
    assert loads == 3
    assert await open_things(owner, query) == []
    types = [e["type"] for e in await idle.api.events(query)]
    assert types[-4:] == ["data-cost-summary", "data-latency-summary", "query-status", "error"]
    (root,) = (await idle.api.read(f"/queries/{query}/work"))["items"]
    assert (root["status"], root["error"]) == ("failed", ended["error"])


# -- one transaction


async def test_failing_is_one_transaction(
    plangate: World, owner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What fails is a query with an open gate and an open call. Failing it stops at its last statement at first, as
    in a crash: then nothing of it is there, and what is told in the end is why it failed."""
    api = plangate.api
    rule = {"kind": "always", "onExpiry": "fail"}
    tools = [specs.tool("add"), specs.tool("pay", approval=rule)]
    await api.register(specs.scripted(*tools))

    class Model:
        async def stream(self, _: Any) -> AsyncIterator[Any]:
            uses = tuple(ToolUse(name, name, '{"n": 1}') for name in ("add", "pay"))
            yield TurnDone(uses, "tool_use", Usage(), "m")

    async def of(*_: Any) -> tuple[Any, str]:
        return Model(), "mock"

    plangate.services.providers.of = of  # type: ignore[method-assign]
    query = (await api.submit())["id"]
    await api.until(query, "waiting", "approval")
    before = await open_things(owner, query)
    assert before == ["agent", "pay", "query", "tool_call", "tool_call"]

    async def die() -> None:
        assert await open_things(owner, query) == ["agent", "query", "tool_call", "tool_call"]
        raise RuntimeError("the process ends here")

    end = plangate.faults.after("pg_notify('plangate_wake'", die)
    held = plangate.faults.fail(
        "claim_endings", times=1_000, error=RuntimeError("not yet")
    )  # it ends what is marked
    await owner.execute("UPDATE approvals SET expires_at = now() WHERE status = 'pending'")
    await plangate.services.approvals.expire_due()

    async def tried() -> bool:
        return end.seen == 1 and plangate.services.worker.busy == 0

    await eventually(tried, "the query failed to fail")
    found = await api.read(f"/queries/{query}")
    assert (found["status"], found["error"]) == ("running", None)
    assert await open_things(owner, query) == ["agent", "query", "tool_call", "tool_call"]
    assert (await api.read("/tool-calls", queryId=query))["items"][0]["status"] == "open"
    plangate.faults.faults.remove(held)
    ended = await ended_by(plangate, owner, query)
    assert ended["error"] == {"code": "approval_expired", "message": "Nobody decided about pay in time."}
    assert await open_things(owner, query) == []
    assert (await api.read("/tool-calls", queryId=query))["items"][0]["status"] == "withdrawn"
    types = [e["type"] for e in await api.events(query)]
    assert [t for t in types if t in ("error", "finish")] == ["error"]
    assert types[-1] == "error"
