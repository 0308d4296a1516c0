"""Work after the promotion of a standby: it stops if commits may be lost, until the operator recovers."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from app.commands.admin import RecoveryReport, recover_work
from tests.support import specs
from tests.support.client import Caller, good
from tests.support.world import World

PROMOTED = "UPDATE replication SET timeline = '00000000', synchronous = $1"


@pytest.mark.parametrize(
    ("declared", "was_synchronous", "stops"),
    [(True, True, False), (True, False, True), (False, True, True), (False, False, True)],
)
async def test_work_goes_on_only_if_nothing_can_be_lost(
    plangate: World, api: Caller, owner: Any, declared: bool, was_synchronous: bool, stops: bool
) -> None:
    await api.register(specs.mock())
    await plangate.services.promotions.check()
    await owner.execute(PROMOTED, was_synchronous)
    assert await owner.fetchval("SELECT enter_timeline($1)", declared) is stops
    if stops:
        query = (await api.submit())["id"]
        assert (await plangate.services.promotions.check()) is True
        assert (await api.read(f"/queries/{query}"))["status"] == "queued"
        assert await recover_work(plangate.services, nothing_lost=True) == RecoveryReport(0, 0, 0)
        assert (await api.ended(query))["status"] == "succeeded"
    else:
        assert (await api.run())["status"] == "succeeded"
    assert await recover_work(plangate.services, nothing_lost=False) is None


async def test_work_waits_until_a_promotion_is_recorded(plangate: World, api: Caller, owner: Any) -> None:
    await plangate.services.promotions.check()
    transaction = owner.transaction()
    await transaction.start()
    await owner.execute(PROMOTED, True)
    with pytest.raises(asyncpg.CannotConnectNowError):  # an outage for its callers, who try again
        await owner.fetchval("SELECT may_dispatch()")
    await transaction.rollback()
    assert await owner.fetchval("SELECT may_dispatch()") is True


async def test_calls_that_may_have_been_sent_become_unknown(plangate: World, api: Caller, owner: Any) -> None:
    await api.register(specs.scripted(specs.tool("add"), specs.tool("look", replay="safe")))
    script = specs.script(("add", {"n": 1}))
    offered, lost = [(await api.submit(script))["id"] for _ in range(2)]
    safe = (await api.submit(specs.script(("look", {"n": 1}))))["id"]
    for query in (offered, lost, safe):
        await api.until(query, "waiting", "client_call")
    await owner.execute("SET row_security = off")
    await owner.execute("DELETE FROM outgoing_calls WHERE query_id = $1", lost)
    await owner.execute("UPDATE replication SET needs_recovery = true")
    nothing = {"tools": [{"name": "add"}, {"name": "look"}]}
    assert (await api.do("/tool-calls/claim", nothing))["calls"] == [], "no call is handed out"
    assert await recover_work(plangate.services, nothing_lost=False) == RecoveryReport(2, 0, 2)
    for query in (offered, lost):
        await api.ended(query)
        (error,) = [e["error"] for e in await api.events(query, "tool-invocation") if e["state"] == "error"]
        assert "nobody knows whether this call was sent" in error["message"]
        calls = good(await api.get("/tool-calls", queryId=query))["items"]
        assert [call["status"] for call in calls] == ["unknown"]
    await api.serve("look", 1)
    assert (await api.ended(safe))["status"] == "succeeded"


async def test_a_person_settles_an_action_whose_dispatch_is_lost(
    plangate: World, api: Caller, owner: Any
) -> None:
    await api.register(specs.planning())
    query = (await api.submit(specs.store_and_execute()))["id"]
    await api.approve(query)
    await api.until(query, "waiting", "client_call")
    await owner.execute("SET row_security = off")
    await owner.execute("ALTER TABLE plan_actions DISABLE TRIGGER lifecycle")
    await owner.execute("UPDATE plan_actions SET status = 'pending', work_id = NULL, attempts = 0")
    await owner.execute("ALTER TABLE plan_actions ENABLE TRIGGER lifecycle")
    await owner.execute("DELETE FROM outgoing_calls")
    await owner.execute("DELETE FROM work_records WHERE kind = 'action'")
    await owner.execute("UPDATE replication SET needs_recovery = true")
    assert await recover_work(plangate.services, nothing_lost=False) == RecoveryReport(1, 2, 0)
    await api.until(query, "waiting", "outcome_unknown")
    plan = (await api.read("/plans"))["items"][0]["id"]
    actions = (await api.read(f"/plans/{plan}/actions"))["items"]
    assert [action["status"] for action in actions] == ["unknown", "unknown"]
    await api.do(f"/plans/{plan}/actions/0", {"outcome": "retry"})
    await api.serve("actions", {"entitiesAffected": 2, "summary": "Two things."})
    await api.ended(query)
    assert (await api.read(f"/plans/{plan}"))["status"] == "executed"
    changes = [e["data"] for e in await api.events(query, "action-status-change") if e["data"]["index"] == 0]
    assert [change["to"] for change in changes] == [
        "dispatched",
        "unknown",
        "pending",
        "dispatched",
        "succeeded",
    ]
