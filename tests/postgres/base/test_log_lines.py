"""Log lines of defects and outages, with hostile values in every field."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import structlog

from app.base.ids import new_id
from app.base.logs import processors
from app.base.postgres.listener import Listener
from app.deployment import Deployment
from app.engine import lease_store as queue_store
from app.journal.models import Entry, Lease, Work
from app.references.service import ReferenceService
from app.tenancy.service import Tenancy
from tests.support import specs
from tests.support.client import good, refused
from tests.support.world import World

SECRET = "sk-hostile-4711"


@pytest.fixture
def lines() -> Iterator[list[dict[str, Any]]]:
    out: list[dict[str, Any]] = []

    def keep(_logger: Any, _method: str, line: Any) -> Any:
        out.append(json.loads(structlog.processors.JSONRenderer()(None, "", line)))
        raise structlog.DropEvent

    structlog.configure(processors=[structlog.processors.add_log_level, *processors.PROCESSORS, keep])
    yield out
    structlog.reset_defaults()


async def test_a_defect_in_a_tool_call_names_query_and_work_and_no_value(
    plangate: World, lines: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError(f"cannot resolve {SECRET}")

    monkeypatch.setattr(ReferenceService, "for_model", broken)
    api = plangate.api
    kind = {"name": "Secret", "schema": {}}
    await api.register(
        specs.spec(specs.agent(toolkits=["references"]), references=[kind], interpreter="scripted")
    )
    query = await api.submit(specs.script(("resolveRef", {"kind": "Secret", "id": SECRET})))
    ended = await api.ended(query["id"])
    assert ended["error"]["code"] == "internal_error"
    (line,) = [x for x in lines if x["event"] == "query.internal_error"]
    work = (await api.read(f"/queries/{query['id']}/work"))["items"]
    (call,) = [w["id"] for w in work if w["kind"] == "tool_call"]
    assert (line["query_id"], line["work_id"]) == (query["id"], call)
    assert line["error"] == "RuntimeError"
    assert line["trace"][-1].endswith(" broken")
    assert SECRET not in json.dumps(lines)


async def test_a_defect_in_a_request_names_the_route_and_no_value(
    plangate: World, lines: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    query = "qry_01m80bc7p50rc8watawwhdkn9f"

    async def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError(f"cannot find {SECRET}")

    monkeypatch.setattr(Tenancy, "authenticate", broken)
    for path in (f"/queries/{query}", f"/queries/{SECRET}"):
        with pytest.raises(RuntimeError):
            await plangate.api.get(path, note=SECRET)
    assert [(x["event"], x["method"], x["route"], x.get("query_id")) for x in lines] == [
        ("http.internal_error", "GET", "/queries/{query_id}", query),
        ("http.internal_error", "GET", "/queries/{query_id}", None),
    ]
    assert SECRET not in json.dumps(lines)


async def test_an_unrecordable_entry_is_logged_by_its_kind(idle: World, lines: list[dict[str, Any]]) -> None:
    """The error of the driver quotes what it was given, in part."""
    await idle.api.register(specs.mock())
    await idle.api.submit()
    (claim,) = await queue_store.claim(idle.services.db, owner="me", limit=1, lease_s=100.0)
    lease = Lease(claim.tenant, claim.query_id, claim.epoch)
    work = Work(new_id("wrk_"), None, "agent", "solo", "solo", "running", input=SECRET)  # type: ignore[arg-type]
    with pytest.raises(Exception, match="a bytes-like object is required"):
        await idle.services.journal.commit(lease, Entry(work=[work]))
    (line,) = lines
    assert (line["event"], line["error"]) == ("journal.entry_rejected", "DataError(22000) <- ValueError")
    assert (line["query_id"], line["work_id"]) == (claim.query_id, work.id)
    assert SECRET not in json.dumps(lines)


async def test_lost_and_unstorable_bodies_are_logged(plangate: World, lines: list[dict[str, Any]]) -> None:
    api, root = plangate.api, Path(plangate.site.blobs)
    thread = (await api.do("/threads", {}))["id"]
    at = f"/threads/{thread}/files/{SECRET}"
    good(await api.request("PUT", at, content=b"x"))
    digest = hashlib.sha256(b"x").hexdigest()
    (body,) = await asyncio.to_thread(lambda: list(root.rglob(digest)))
    await asyncio.to_thread(body.unlink)
    refused(await api.get(at), 503, "blob_lost")
    await asyncio.to_thread(root.rename, root.with_name("elsewhere"))
    refused(await api.get(at), 503, "store_unavailable")
    refused(await api.request("PUT", at, content=b"y"), 503, "store_unavailable")
    await asyncio.to_thread(root.with_name("elsewhere").rename, root)
    assert [(x["event"], x["level"], x["method"], x["route"]) for x in lines] == [
        ("blobs.failed", "warning", "GET", "/threads/{thread_id}/files/{path:path}"),
        ("blobs.failed", "warning", "GET", "/threads/{thread_id}/files/{path:path}"),
        ("blobs.failed", "warning", "PUT", "/threads/{thread_id}/files/{path:path}"),
    ]
    assert lines[0]["error"].startswith(f"BlobLost: The stored body {digest} is missing.")
    for line in lines[1:]:
        assert line["error"].startswith(
            "StoreUnavailable: The blob store is unavailable: No such file or directory."
        )
    assert SECRET not in json.dumps(lines)


async def test_an_outage_and_its_end_are_one_log_line_each(
    site: Deployment, lines: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often a process tries meanwhile."""
    connect, back, tries = asyncpg.connect, asyncio.Event(), 0

    async def away(*given: Any, **named: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries <= 3:
            raise ConnectionRefusedError
        return await connect(*given, **named)

    monkeypatch.setattr(asyncpg, "connect", away)
    listener = Listener(site.listen_dsn, {}, back.set)
    listener.start()
    try:
        async with asyncio.timeout(20):
            await back.wait()
    finally:
        await listener.aclose()
    assert tries == 4
    assert [(x["event"], x.get("error")) for x in lines] == [
        ("listener.outage", "ConnectionRefusedError"),
        ("listener.back", None),
    ]
