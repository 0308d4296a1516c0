"""The group-commit writer: in order, in few transactions, each entry once, a bad one alone."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from app.base.errors import Unavailable
from app.engine import lease_store as queue_store
from app.events import CustomEvent, QueryStatusEvent
from app.journal import writer
from app.journal.models import Delta, Entry, Event, Lease, Scope, Work, event
from app.journal.service import append_events
from tests.support import specs
from tests.support.client import eventually
from tests.support.world import World


async def leased(idle: World, count: int, tenant: str = "acme") -> list[Lease]:
    """Leases on new queries of a tenant."""
    caller = idle.operator(tenant)
    await caller.register(specs.mock(tenant=tenant))
    ids = {(await caller.submit())["id"] for _ in range(count)}
    claims = await queue_store.claim(idle.services.db, owner="me", limit=1000, lease_s=100.0)
    return [Lease(c.tenant, c.query_id, c.epoch, 1e12) for c in claims if c.query_id in ids]


def custom(lease: Lease, n: int) -> Event:
    return event(
        Scope(lease.query_id, "thr", "wrk", None, "solo"), CustomEvent, event_type="n", data={"n": n}
    )


async def numbers(idle: World, lease: Lease) -> list[tuple[int, int]]:
    found = await idle.operator(lease.tenant).events(lease.query_id, "custom")
    return [(e["seq"], e["data"]["n"]) for e in found]


class Counting:
    """Counts the commits of a writer's database, and fails or doubles them on demand."""

    def __init__(self, world: World) -> None:
        self._db = world.services.db
        self.calls = 0
        self.lose_answers = 0
        self.fail = 0

    async def call(self, sql: str, *args: Any) -> list[Any]:
        self.calls += 1
        if self.fail:
            self.fail -= 1
            raise Unavailable("test")
        rows = await self._db.call(sql, *args)
        if self.lose_answers:
            self.lose_answers -= 1
            raise Unavailable("the answer was lost")
        return rows


@pytest.fixture
def counted(idle: World) -> Counting:
    counting = Counting(idle)
    idle.services.journal._db = counting  # type: ignore[assignment]
    return counting


async def test_entries_are_in_commit_order(idle: World) -> None:
    (lease,) = await leased(idle, 1)
    journal = idle.services.journal
    for n in range(10):
        await journal.commit(lease, Entry([custom(lease, n)]))
    await asyncio.gather(*(journal.commit(lease, Entry([custom(lease, n)])) for n in range(10, 60)))
    assert await numbers(idle, lease) == [(3 + n, n) for n in range(60)]


async def test_entries_of_many_queries_share_one_commit(idle: World, counted: Counting) -> None:
    leases = [*await leased(idle, 20), *await leased(idle, 20, "other")]
    journal = idle.services.journal
    await asyncio.gather(*(journal.commit(x, Entry([custom(x, n)])) for n in range(3) for x in leases))
    assert counted.calls <= 2
    for lease in leases:
        assert await numbers(idle, lease) == [(3, 0), (4, 1), (5, 2)]


async def test_a_bad_entry_fails_alone(idle: World, counted: Counting) -> None:
    leases = await leased(idle, 9)
    bad = leases[4]
    journal = idle.services.journal

    def entry(lease: Lease) -> Entry:
        work = Work(f"wrk_{lease.query_id[4:]}x", None, "nonsense", "n", "a", "running")  # type: ignore[arg-type]
        return Entry([custom(lease, 0)], [work] if lease is bad else [])

    results = await asyncio.gather(*(journal.commit(x, entry(x)) for x in leases), return_exceptions=True)
    for lease, result in zip(leases, results, strict=True):
        assert isinstance(result, Exception) == (lease is bad)
        assert await numbers(idle, lease) == ([] if lease is bad else [(3, 0)])
    assert not bad.lost
    await journal.commit(bad, Entry([custom(bad, 1)]))
    assert await numbers(idle, bad) == [(3, 1)]


@pytest.mark.parametrize("body", ["no bytes", None])
async def test_an_entry_that_cannot_be_encoded_is_not_an_outage(idle: World, body: Any) -> None:
    (lease,) = await leased(idle, 1)
    async with asyncio.timeout(5):
        with pytest.raises(Exception, match=r"invalid input|expected|null value"):
            await idle.services.journal.commit(lease, Entry([Event("custom", body)]))
        await idle.services.journal.commit(lease, Entry([custom(lease, 1)]))


async def test_a_commit_with_a_lost_response_is_not_applied_twice(idle: World, counted: Counting) -> None:
    leases = await leased(idle, 3)
    counted.lose_answers = 2
    journal = idle.services.journal
    await asyncio.gather(*(journal.commit(x, Entry([custom(x, 1)])) for x in leases))
    await asyncio.gather(*(journal.commit(x, Entry([custom(x, 2)])) for x in leases))
    for lease in leases:
        assert await numbers(idle, lease) == [(3, 1), (4, 2)]


async def test_the_writer_keeps_its_entries_through_an_outage(idle: World, counted: Counting) -> None:
    (lease,) = await leased(idle, 1)
    counted.fail = 3
    journal = idle.services.journal
    scope = Scope(lease.query_id, "thr", "wrk", None, "solo")
    await journal.post(lease, Delta("text", scope, 1, "a"))
    await journal.post(lease, Delta("text", scope, 1, "b"))
    await journal.commit(lease, Entry([custom(lease, 1)]))
    found = await idle.api.events(lease.query_id, "text", "custom")
    assert [e.get("text", "custom") for e in found] == ["ab", "custom"]


async def test_later_tokens_of_a_turn_wait_for_others_but_the_first_does_not(
    idle: World, counted: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    (lease, other) = await leased(idle, 2)
    journal = idle.services.journal

    async def texts() -> list[str]:
        return [e["text"] for e in await idle.api.events(lease.query_id, "text")]

    async def commits(count: int) -> bool:
        return counted.calls == count

    async def post(text: str, *, is_first: bool = False) -> None:
        scope = Scope(lease.query_id, "thr", "wrk", None, "solo")
        await journal.post(lease, Delta("text", scope, 1, text), is_first=is_first)

    monkeypatch.setattr(writer, "MAX_TOKEN_WAIT_S", 1000.0)
    await post("first ", is_first=True)
    await eventually(lambda: commits(1), "the commit of the first token")
    await post("second ")
    await post("third ")
    await asyncio.sleep(0.05)
    assert (counted.calls, await texts()) == (1, ["first "])
    await journal.commit(other, Entry([custom(other, 1)]))
    assert (counted.calls, await texts()) == (2, ["first ", "second third "])
    monkeypatch.setattr(writer, "MAX_TOKEN_WAIT_S", 0.01)
    await post("fourth ")
    await eventually(lambda: commits(3), "the commit of a later token")


async def test_a_record_that_opens_and_closes_in_one_batch_is_written_once(idle: World) -> None:
    (lease,) = await leased(idle, 1)
    opened = Work("wrk_1", None, "agent", "solo", "solo", "running", input=b'"in"')
    closed = Work("wrk_1", None, "agent", "solo", "solo", "succeeded", output=b'"out"')
    await idle.services.journal.commit(lease, Entry([custom(lease, 1)], [opened, closed]))
    (row,) = await idle.sql("SELECT status, input, output, ended_at FROM work_records WHERE id = 'wrk_1'")
    assert (row["status"], row["input"], row["output"]) == ("succeeded", b'"in"', b'"out"')
    assert row["ended_at"] is not None


async def test_numbers_have_no_gap_when_routes_write(idle: World) -> None:
    (lease,) = await leased(idle, 1)

    async def door(n: int) -> None:
        async with idle.services.db.transaction("acme") as tx:
            await append_events(tx, query_id=lease.query_id, events=[custom(lease, n), custom(lease, n)])

    async def door_undone(n: int) -> None:
        with pytest.raises(ZeroDivisionError):
            async with idle.services.db.transaction("acme") as tx:
                await append_events(tx, query_id=lease.query_id, events=[custom(lease, n)])
                raise ZeroDivisionError

    journal = idle.services.journal
    await asyncio.gather(
        *(journal.commit(lease, Entry([custom(lease, n)])) for n in range(20)),
        *(door(n) for n in range(10)),
        *(door_undone(n) for n in range(10)),
    )
    assert [s for s, _ in await numbers(idle, lease)] == list(range(3, 43))


async def test_appending_under_an_old_epoch_writes_nothing(idle: World) -> None:
    (lease,) = await leased(idle, 1)
    async with idle.services.db.transaction("acme") as tx:
        assert (
            await append_events(tx, query_id=lease.query_id, events=[custom(lease, 1)], epoch=lease.epoch + 1)
            is None
        )
        assert (
            await append_events(tx, query_id=lease.query_id, events=[custom(lease, 1)], epoch=lease.epoch)
            == 3
        )


@pytest.mark.parametrize("agent", ["solo", 'a "quoted" \\ agent', "größer 👍"])
async def test_the_database_and_the_service_write_the_same_envelope(idle: World, agent: str) -> None:
    """The database writes some events itself, with `event_body`; readers cannot distinguish the two builders."""
    scope = Scope("qry_1", "thr_1", "wrk_1", None, agent)
    ours = event(scope, QueryStatusEvent, from_="queued", to="running").body
    rows = await idle.services.db.call(
        "SELECT event_body('query-status', $1, $2, $3, $4::json)",
        scope.query_id,
        scope.thread_id,
        agent,
        '{"from":"queued","to":"running"}',
    )
    now = rb'"at":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"'
    assert re.sub(now, b"", rows[0][0], count=1) == re.sub(now, b"", ours, count=1)
    assert len(rows[0][0]) == len(ours)
