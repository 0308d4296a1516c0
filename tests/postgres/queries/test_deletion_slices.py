"""Deletion of a thread too large for one transaction: hidden at once, its rows removed later, also after a kill."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import replace

import asyncpg
import httpx
import pytest

from app.artifacts.verify import heads, problems
from app.base.sealing import derive_key
from app.deployment import Deployment
from app.queries.deletion import DeletionLimits
from tests.postgres.queries.test_deletion import MARK, Full, deleted, filled, gone, tables_with, writes
from tests.support import specs
from tests.support.client import Caller, eventually, good, refused
from tests.support.cluster import Cluster
from tests.support.sse import open_query
from tests.support.world import World, world

EVENTS = """
INSERT INTO events (tenant_id, query_id, seq, type, body)
SELECT tenant_id, id, n, 'text', convert_to($1, 'UTF8') FROM queries, generate_series(1001, 1000 + $2::int) n WHERE thread_id = $3
"""
KEY = "s" * 40


@pytest.fixture
async def full(site: Deployment, cluster: Cluster) -> Full:
    async with world(site, cluster.operator_key) as before:
        return await filled(before.api)


@pytest.mark.long
@pytest.mark.limits(deletions=DeletionLimits(slice_rows=5, slices_per_turn=1))
async def test_rows_are_hidden_while_they_are_removed(
    idle: World, full: Full, owner: asyncpg.Connection
) -> None:
    api, deletions = idle.api, idle.services.deletions
    range_ = await api.read("/usage", groupBy="query")
    asked = {"groupBy": "query", "from": range_["from"], "to": range_["to"]}
    usage = await api.read("/usage", **asked)
    assert usage["totals"]["modelCalls"] > 0
    records = (await api.read(f"/queries/{full.query}/work"))["items"]
    await deleted(api, full.id)
    new = (await api.do("/threads", {"threadKey": "mine"}))["id"]
    seen = []
    while await owner.fetchval("SELECT count(*) FROM threads WHERE deleted"):
        seen.append(sum((await tables_with(owner, MARK)).values()))
        no_thread = f"There is no thread {full.id!r}."
        for path in ("", "/messages", "/state", "/state/log", "/files", f"/files/{MARK}/a"):
            assert gone(await api.get(f"/threads/{full.id}{path}")) == no_thread
        for path in ("", "/events", "/work"):
            assert gone(await api.get(f"/queries/{full.query}{path}")) == f"There is no query {full.query!r}."
        for path in (f"/plans/{full.plan}", f"/plans/{full.plan}/actions", f"/artifacts/{full.artifact}"):
            assert (await api.get(path)).status_code == 404
        for method, path, body in writes(full):
            gone(await api.request(method, path, **body))
        assert gone(await api.delete(f"/threads/{full.id}")) == no_thread
        for path in ("/queries", "/plans", "/artifacts"):
            assert (await api.read(path))["items"] == []
        assert [t["id"] for t in (await api.read("/threads"))["items"]] == [new]
        for record in records:
            assert MARK not in str(await api.read(f"/work-records/{record['id']}"))
        assert MARK not in str(await api.read("/work-records", limit=500))
        for approval in full.approvals:
            assert (await api.get(f"/approvals/{approval['id']}/subject")).status_code == 410
        assert await api.read("/usage", **asked) == usage
        assert await deletions.finish_due() == 1
    assert len(seen) > 5
    assert seen == sorted(seen, reverse=True)
    assert await tables_with(owner, MARK) == {"approval_grants": 1}
    assert (await tables_with(owner, full.id)).keys() == {
        "work_records",
        "approvals",
        "approval_grants",
        "artifact_tombstones",
    }
    assert await deletions.finish_due() == 0


@pytest.mark.limits(deletions=DeletionLimits(slice_rows=5, slices_per_turn=1, hidden_queries=1))
async def test_the_oldest_of_very_many_queries_are_removed_later(
    idle: World, full: Full, owner: asyncpg.Connection
) -> None:
    await deleted(idle.api, full.id)
    gone(await idle.api.get(f"/queries/{full.planned}"))
    good(await idle.api.get(f"/queries/{full.query}"))
    while await idle.services.deletions.finish_due():
        pass
    gone(await idle.api.get(f"/queries/{full.query}"))
    assert await tables_with(owner, MARK) == {"approval_grants": 1}
    assert await owner.fetchval("SELECT count(*) FROM approvals WHERE subject IS NOT NULL") == 0


async def test_the_oldest_of_very_many_artifacts_are_removed_later(
    idle: World, full: Full, owner: asyncpg.Connection
) -> None:
    services = idle.services
    before = await heads(services.db)
    await owner.execute(
        "INSERT INTO artifact_tags SELECT tenant_id, 't' || g, id FROM artifacts, generate_series(1, 60000) g WHERE id = $1",
        full.artifact,
    )
    await deleted(idle.api, full.id)
    left = "SELECT count(*) FROM artifacts WHERE thread_id = $1"
    assert await owner.fetchval(left, full.id) > 0
    # The tombstone speaks for them from the beginning.
    problems_of = [p async for p in problems(services.db, services.chainer, before)]
    assert problems_of == []
    assert await heads(services.db) == {}
    while await services.deletions.finish_due():
        pass
    refused(await idle.api.get(f"/artifacts/{full.artifact}"), 404)
    assert [p async for p in problems(services.db, services.chainer, before)] == []
    assert "artifact_chains" not in await tables_with(owner, full.id)
    assert await owner.fetchval("SELECT count(*) FROM artifact_tags") == 0


@pytest.mark.limits(deletions=DeletionLimits(slice_s=0.1))
async def test_a_slow_slice_is_made_smaller(idle: World, full: Full, owner: asyncpg.Connection) -> None:
    await owner.execute(EVENTS, MARK, 30_000, full.id)
    # As if a row took a millisecond.
    await owner.execute(
        "CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.001); RETURN old; END $$"
    )
    await owner.execute(
        "CREATE TRIGGER slowly BEFORE DELETE ON events FOR EACH ROW WHEN (old.seq < 1100) EXECUTE FUNCTION slowly()"
    )
    await deleted(idle.api, full.id)
    assert await owner.fetchval("SELECT count(*) FROM events") > 60_000  # marked, and nothing more
    gone(await idle.api.get(f"/queries/{full.query}"))
    while await idle.services.deletions.finish_due():
        pass
    assert await owner.fetchval("SELECT count(*) FROM events") == 0


@pytest.mark.limits(deletions=DeletionLimits(slice_rows=100))
async def test_only_one_process_at_a_time_removes_a_thread(
    plangate: World, second: World, api: Caller, owner: asyncpg.Connection
) -> None:
    await api.register(specs.mock())
    query = await api.run()
    await owner.execute(EVENTS, MARK, 20_000, query["threadId"])
    deleting = [w.services.deletions.finish_due() for w in (plangate, second) for _ in range(3)]
    await asyncio.gather(deleted(api, query["threadId"]), *deleting)
    await eventually(lambda: _none_left(owner), "everything is gone")
    assert await owner.fetchval("SELECT count(*) FROM events") == 0


@pytest.mark.limits(deletions=DeletionLimits(slice_rows=1_000, slices_per_turn=1))
async def test_a_reader_of_events_stops_during_deletion(
    idle: World, full: Full, owner: asyncpg.Connection
) -> None:
    """They go in no order: what is left of them has gaps."""
    await owner.execute(EVENTS, MARK, 3_000, full.id)
    seqs = "SELECT array_agg(seq ORDER BY seq) FROM events WHERE query_id = $1"
    written = await owner.fetchval(seqs, full.query)
    reading = open_query(idle, full.query)
    await reading.until(bool)
    reading.reads.clear()
    await deleted(idle.api, full.id)
    assert await owner.fetchval("SELECT count(*) FROM events WHERE query_id = $1", full.query) > 1_000
    seen = len(reading.frames)
    reading.reads.set()
    got = [int(f.id.rpartition(".")[2]) for f in await reading.end()]
    assert got == written[: len(got)]
    assert len(got) <= seen + 500, "at most the page that was read before"


@pytest.mark.limits(deletions=DeletionLimits(slice_rows=5, slices_per_turn=1))
async def test_a_second_process_skips_a_thread_that_is_being_removed(
    idle: World, full: Full, owner: asyncpg.Connection
) -> None:
    await deleted(idle.api, full.id)
    forget = f"SELECT purge_thread('{full.id}', 5)"
    async with owner.transaction():
        await owner.execute("SELECT FROM threads WHERE deleted FOR UPDATE")
        assert await idle.sql(forget) == [(True,)]
    assert await idle.sql(forget) == [(False,)]


async def _none_left(owner: asyncpg.Connection) -> bool:
    return await owner.fetchval("SELECT count(*) FROM threads WHERE deleted") == 0


@contextlib.asynccontextmanager
async def serving(site: Deployment) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """`plangate serve` on this database: its address, and the process."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PLANGATE_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "app", "serve", "--port", "0"),
        env={**kept, "DATABASE_URL": site.dsn, "PLANGATE_SECRET_KEY": KEY, "PLANGATE_BLOBS": site.blobs},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        said = (await process.stdout.readline()).decode()
        yield said[said.index("http://") :].split()[0].rstrip(".,"), process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@pytest.mark.long
async def test_another_process_finishes_the_removal_of_a_killed_one(
    cluster: Cluster, site: Deployment, owner: asyncpg.Connection
) -> None:
    with_key = replace(site, master=derive_key(KEY.encode(), "master"))
    async with world(with_key, cluster.operator_key) as running:
        await running.tenant("fresh")  # those of the template are sealed under another key
        api = running.operator("fresh")
        await api.register(specs.mock(tenant="fresh"))
        query = await api.run()
    thread, headers = query["threadId"], {**api.headers}
    await owner.execute(EVENTS, MARK, 300_000, thread)
    # The process is killed inside of a slice: whoever removes the last of these rows waits for us.
    async with serving(with_key) as (address, process), httpx.AsyncClient(base_url=address) as http:
        holder = await asyncpg.connect(site.dsn)
        held = holder.transaction()
        await held.start()
        await holder.execute("SELECT FROM events WHERE seq = 250000 FOR UPDATE")
        good(await http.delete(f"/threads/{thread}", headers=headers, timeout=30))
        waiting = (
            "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        await eventually(lambda: owner.fetchval(waiting), "it is in the middle")
        process.kill()
        await process.wait()
        await held.rollback()
        await holder.close()
    left = await owner.fetchval("SELECT count(*) FROM events")
    assert 0 < left < 300_000
    async with world(with_key, cluster.operator_key) as running:
        api = running.operator("fresh")
        gone(await api.get(f"/threads/{thread}"))
        gone(await api.get(f"/queries/{query['id']}"))
        await eventually(lambda: _none_left(owner), "the next process goes on", 60)
    assert await owner.fetchval("SELECT count(*) FROM events") == 0
    assert (await tables_with(owner, thread)).keys() == {"work_records"}
