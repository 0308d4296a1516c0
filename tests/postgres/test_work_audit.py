"""artifacts.md, "Work records", sentence by sentence, where no other test says it: times, sums and limits in bad moments."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tests.support import specs
from tests.support.client import Caller, good
from tests.support.world import World


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


async def in_order(api: Caller, query_id: str) -> list[dict[str, Any]]:
    """The records of a query, once it is clear that none ended before it began or began before what it belongs to."""
    query = await api.read(f"/queries/{query_id}")
    works = {w["id"]: w for w in (await api.read(f"/queries/{query_id}/work"))["items"]}
    for work in works.values():
        if work["endedAt"]:
            assert work["durationMs"] >= 0, work
            assert moment(work["startedAt"]) <= moment(work["endedAt"]) <= moment(query["endedAt"]), work
        if work["parentId"]:
            assert moment(works[work["parentId"]]["startedAt"]) <= moment(work["startedAt"]), work
    assert moment(query["createdAt"]) <= moment(query["startedAt"]) <= moment(query["endedAt"])
    root = works["wrk_" + query_id.removeprefix("qry_")]
    assert (root["endedAt"], root["status"]) == (query["endedAt"], query["status"])
    return list(works.values())


# -- times


async def test_what_began_while_a_cancel_was_on_its_way_did_not_end_before_it_began(
    plangate: World, api: Caller
) -> None:
    """The transaction of a cancel begins before it has the query's row; until then the query goes on."""
    await api.register(specs.scripted(specs.tool("add")))
    query = (await api.submit(specs.script(("add", {"n": 1}), ("add", {"n": 2}))))["id"]
    (call,) = await api.claim("add")
    async with plangate.services.db.transaction("acme") as tx:
        assert await tx.value("SELECT now()")
        good(await api.result(call, 1))
        await api.claim("add")
        await plangate.services.queries.cancel(tx, query)
    assert {w["status"] for w in await in_order(api, query)} == {"succeeded", "cancelled"}


async def test_a_query_that_was_cancelled_as_it_began_did_not_end_before_that(
    idle: World, plangate: World, api: Caller
) -> None:
    await api.register(specs.scripted(specs.tool("add")))
    async with plangate.services.db.transaction("acme") as tx:
        assert await tx.value("SELECT now()")
        query = (await idle.api.submit(specs.script(("add", {"n": 1}))))["id"]
        await api.claim("add")
        await plangate.services.queries.cancel(tx, query)
    await in_order(api, query)
