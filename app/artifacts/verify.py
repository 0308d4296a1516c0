"""Whether the records in the database are those that the service wrote."""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import orjson

from app.artifacts import decision_store, store
from app.artifacts.chain import ChainCheck, Chainer, ChainHead, ChainLink
from app.artifacts.models import load_record
from app.base.clock import rfc3339
from app.base.errors import Invalid
from app.base.postgres.database import Database

PAGE: Final = 500
VERSION: Final = 1
"""Of the file of exported heads."""

Heads = dict[str, dict[str, ChainHead]]
"""Where chains end, by tenant and thread."""


def export_heads(found: Heads) -> bytes:
    """Return the heads as the contents of a file."""
    named = {t: {i: {"n": h.n, "mac": h.mac.hex()} for i, h in chains.items()} for t, chains in found.items()}
    return orjson.dumps({"version": VERSION, "heads": named}, option=orjson.OPT_INDENT_2) + b"\n"


def read_exported_heads(file: bytes) -> Heads:
    """Parse a file that `export_heads` wrote. Raise Invalid."""
    try:
        held = orjson.loads(file)
        if held["version"] != VERSION:
            raise Invalid(
                "These heads were exported by another version of Plangate. Compare with an export of this version "
                "(`plangate verify --export`)."
            )
        return {
            t: {i: ChainHead(int(h["n"]), bytes.fromhex(h["mac"])) for i, h in chains.items()}
            for t, chains in held["heads"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Invalid("The file was not written by `plangate verify --export`.") from error


async def heads(db: Database) -> Heads:
    """Where every chain ends now: to be kept outside of the database."""
    found: Heads = {}
    for tenant in await store.tenants(db):
        async for thread_id, head in _chains(db, tenant):
            found.setdefault(tenant, {})[thread_id] = head
    return found


async def problems(db: Database, chainer: Chainer, exported: Heads) -> AsyncIterator[tuple[str, str]]:
    """(tenant, what is wrong), of everything."""
    tenants = await store.tenants(db)
    for tenant in tenants:
        expected = dict(exported.get(tenant, {}))
        async for thread_id, _ in _chains(db, tenant):
            check, end = ChainCheck(chainer, tenant, thread_id), None
            known = expected.get(thread_id)
            async for links, head in _pages(db, tenant, thread_id):
                end = head
                for link in links:
                    for problem in check.take(link):
                        yield tenant, problem
                    if known is not None and link.n == known.n and link.mac != known.mac:
                        yield (
                            tenant,
                            f"record {link.n} of thread {thread_id} is not that of the exported head",
                        )
            if end is None:
                continue  # the thread was deleted meanwhile: see its tombstone
            expected.pop(thread_id, None)
            for problem in check.end(end, known):
                yield tenant, problem
        async for thread_id in _strays(db, tenant):
            yield (
                tenant,
                f"records of thread {thread_id} are in no chain: they were inserted, or it was removed",
            )
        async for row in _tombstones(db, tenant):
            thread_id, at = row["thread_id"], ChainHead(row["n"], row["mac"])
            known = expected.pop(thread_id, None)
            if not hmac.compare_digest(chainer.seal(tenant, thread_id, at), row["seal"]):
                yield tenant, f"the tombstone of thread {thread_id} was not made by the service"
            elif known is not None and known.n > at.n:
                yield tenant, _truncated_chain(thread_id, at.n, known.n)
            if row["is_back"]:
                yield tenant, f"thread {thread_id} was deleted, and records of it are there again"
        for thread_id, known in expected.items():
            yield (
                tenant,
                f"all {known.n} records of thread {thread_id} were removed: the exported head has them",
            )
    for tenant in exported.keys() - set(tenants):
        yield tenant, "the tenant is gone: exported heads have records of it"


async def _chains(db: Database, tenant: str) -> AsyncIterator[tuple[str, ChainHead]]:
    after = ""
    while True:
        async with db.transaction(tenant) as tx:
            rows = await store.chains(tx, after, PAGE)
        for thread_id, head in rows:
            yield thread_id, head
        if len(rows) < PAGE:
            return
        after = rows[-1][0]


async def _strays(db: Database, tenant: str) -> AsyncIterator[str]:
    """Threads with records and without a chain."""
    async with db.transaction(tenant) as tx:
        decided = set(await decision_store.unchained_threads(tx))
    after = ""
    while True:
        async with db.transaction(tenant) as tx:
            rows = await store.with_records(tx, after, PAGE)
        for thread_id, chained in rows:
            if not chained:
                decided.discard(thread_id)
                yield thread_id
        if len(rows) < PAGE:
            break
        after = rows[-1][0]
    for thread_id in sorted(decided):
        yield thread_id


async def _pages(
    db: Database, tenant: str, thread_id: str
) -> AsyncIterator[tuple[list[ChainLink], ChainHead | None]]:
    """Yield the records of a chain, and its end at that moment, because others may publish meanwhile. None
    means that the chain is gone."""
    after = 0
    while True:
        async with db.transaction(tenant) as tx:
            await tx.set_repeatable_read()
            head = await store.head(tx, thread_id)
            rows = [(r, _flaws) for r in await store.links(tx, thread_id, after, PAGE)]
            rows += [(r, _decision_flaws) for r in await decision_store.links(tx, thread_id, after, PAGE)]
        rows = sorted(rows, key=lambda row: row[0]["n"])[:PAGE]
        yield (
            [ChainLink(r["id"], r["n"], r["record"], r["previous"], r["mac"], flaws(r)) for r, flaws in rows],
            head,
        )
        if len(rows) < PAGE:
            return
        after = rows[-1][0]["n"]


def _flaws(row: Any) -> tuple[str, ...]:
    """Return the columns that differ from the record."""
    try:
        record = load_record(row["record"])
        expected = _columns(record)
        # A directory's body is its list, of which the record says the digest alone.
        expected["body_bytes"] = row["stored_bytes"] if record.get("isDirectory") else record["sizeBytes"]
    except (ValueError, KeyError, TypeError):
        return ("record",)
    actual = {
        "body_bytes": row["body_bytes"],
        **{
            name: row[name] for name in ("id", "channel", "path", "is_directory", "work_id", "parent_work_id")
        },
        **{
            name: row[name] for name in ("query_id", "agent", "replaces", "first_id", "revision", "thread_id")
        },
        **{name: row[name] for name in ("call_id", "plan_id", "action_index")},
        "digest": row["digest"].hex(),
        "created_at": rfc3339(row["created_at"]),
        "tags": sorted(row["tags"]),
        "parents": sorted(row["parents"]),
    }
    return tuple(name for name, value in expected.items() if actual[name] != value)


def _decision_flaws(row: Any) -> tuple[str, ...]:
    """Return the columns of a decision that differ from its record."""
    try:
        record = load_record(row["record"])
        producer = record["producer"]
        expected = {
            "id": record["id"],
            "kind": record["kind"],
            "artifact_id": record["artifactId"],
            "over_ids": sorted(record.get("over", [])),
            "thread_id": producer["threadId"],
            "call_id": producer.get("callId"),
            "created_at": record["createdAt"],
        }
    except (ValueError, KeyError, TypeError):
        return ("record",)
    actual = {**row, "over_ids": sorted(row["over_ids"]), "created_at": rfc3339(row["created_at"])}
    return tuple(name for name, value in expected.items() if actual[name] != value)


def _columns(record: Mapping[str, Any]) -> dict[str, Any]:
    producer = record["producer"]
    return {
        "id": record["id"],
        "thread_id": producer["threadId"],
        "channel": record["channel"],
        "path": record["path"],
        "is_directory": record.get("isDirectory", False),
        "digest": record["digest"]["value"],
        "work_id": producer["workId"],
        "parent_work_id": producer.get("parentWorkId"),
        "query_id": producer.get("queryId"),
        "agent": producer.get("agent"),
        "replaces": record.get("replaces"),
        "first_id": record.get("firstArtifactId"),
        "revision": record.get("revision", 1),
        "call_id": producer.get("callId"),
        "plan_id": producer.get("planId"),
        "action_index": producer.get("actionIndex"),
        "created_at": record["createdAt"],
        "tags": sorted(record.get("tags", [])),
        "parents": sorted(record.get("parentArtifactIds", [])),
    }


def _truncated_chain(thread_id: str, last: int, known: int) -> str:
    gone = f"record {known} was" if known == last + 1 else f"records {last + 1} to {known} were"
    return f"{gone} removed from the end of thread {thread_id} before it was deleted: the exported head has {known}"


async def _tombstones(db: Database, tenant: str) -> AsyncIterator[Any]:
    """Threads whose chain went with them."""
    after = ""
    while True:
        async with db.transaction(tenant) as tx:
            rows = await store.tombstones(tx, after, PAGE)
        for row in rows:
            yield row
        if len(rows) < PAGE:
            return
        after = rows[-1]["thread_id"]
