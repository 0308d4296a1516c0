"""Verify that the records in the database are those that the service wrote."""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import orjson

from app.artifacts import decision_store, store
from app.artifacts.chain import ChainCheck, Chainer, ChainHead, ChainLink, MovedHead, StoredLink, Tombstone
from app.artifacts.models import load_record
from app.base.clock import rfc3339
from app.base.errors import Invalid
from app.base.postgres.database import Database, Tx

ROWS_PER_PAGE: Final = 500
HEADS_VERSION: Final = 1
"""The version of the file of exported heads."""

T = TypeVar("T")

Heads = dict[str, dict[str, ChainHead]]
"""The ends of chains, by tenant and thread."""


def export_heads(ends: Heads) -> bytes:
    """Return the heads as the contents of a file."""
    fields = {t: {i: {"n": h.n, "mac": h.mac.hex()} for i, h in chains.items()} for t, chains in ends.items()}
    return orjson.dumps({"version": HEADS_VERSION, "heads": fields}, option=orjson.OPT_INDENT_2) + b"\n"


def read_exported_heads(file: bytes) -> Heads:
    """Parse a file that `export_heads` wrote. Raise Invalid."""
    try:
        fields = orjson.loads(file)
        if fields["version"] != HEADS_VERSION:
            raise Invalid(
                "These heads were exported by another version of Plangate. Compare with an export of this version "
                "(`plangate verify --export`)."
            )
        return {
            t: {i: ChainHead(int(h["n"]), bytes.fromhex(h["mac"])) for i, h in chains.items()}
            for t, chains in fields["heads"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Invalid(
            "The file is damaged or was not written by `plangate verify --export`: use an intact export."
        ) from error


async def heads(db: Database, rows_per_page: int = ROWS_PER_PAGE) -> Heads:
    """Return the end of every chain, to be exported to a place outside of the database."""
    ends: Heads = {}
    for tenant in await store.tenants(db):
        async for thread_id, head in _chains(db, tenant, rows_per_page):
            ends.setdefault(tenant, {})[thread_id] = head
    return ends


async def problems(
    db: Database, chainer: Chainer, exported: Heads, rows_per_page: int = ROWS_PER_PAGE
) -> AsyncIterator[tuple[str, str]]:
    """Yield each problem with its tenant."""
    tenants = await store.tenants(db)
    for tenant in tenants:
        async for problem in tenant_problems(db, chainer, tenant, exported.get(tenant, {}), rows_per_page):
            yield tenant, problem
    for tenant in exported.keys() - set(tenants):
        yield tenant, "the tenant is gone: exported heads have records of it"


async def tenant_problems(
    db: Database,
    chainer: Chainer,
    tenant: str,
    exported: Mapping[str, ChainHead],
    rows_per_page: int = ROWS_PER_PAGE,
) -> AsyncIterator[str]:
    """Yield each problem of one tenant. `exported`: the ends of its chains by thread, as they were exported."""
    expected = dict(exported)
    moved = MovedHeads()
    async for end_before in _chain_links(db, tenant, rows_per_page):
        if not hmac.compare_digest(
            chainer.seal_link(tenant, end_before.thread_id, end_before.head), end_before.seal
        ):
            yield f"the link of thread {end_before.thread_id} to its old chain was not made by the service"
        elif end_before.thread_id in expected:
            moved.add(end_before)
    async for thread_id, _ in _chains(db, tenant, rows_per_page):
        check, end = ChainCheck(chainer, tenant, thread_id), None
        known = expected.get(thread_id)
        async for links, head in _chain_pages(db, tenant, thread_id, rows_per_page):
            end = head
            for link in links:
                for problem in check.take(link):
                    yield problem
                if (
                    known is not None
                    and link.n == known.n
                    and link.mac != known.mac
                    and not moved.has(thread_id, known)
                ):
                    yield f"record {link.n} of thread {thread_id} is not that of the exported head"
        if end is None:
            continue  # the thread was deleted meanwhile: see its tombstone
        expected.pop(thread_id, None)
        for problem in check.end(end, known):
            yield problem
    async for thread_id in _strays(db, tenant, rows_per_page):
        yield f"records of thread {thread_id} are in no chain: they were inserted, or it was removed"
    async for tombstone in _tombstones(db, tenant, rows_per_page):
        thread_id, at = tombstone.thread_id, tombstone.head
        known = expected.pop(thread_id, None)
        if not hmac.compare_digest(chainer.seal(tenant, thread_id, at), tombstone.seal):
            yield f"the tombstone of thread {thread_id} was not made by the service"
        elif known is not None and known.n > at.n:
            yield _truncated_chain(thread_id, at.n, known.n)
        if tombstone.is_back:
            yield f"thread {thread_id} was deleted, and records of it are there again"
    for thread_id, known in expected.items():
        yield f"all {known.n} records of thread {thread_id} were removed: the exported head has them"


class MovedHeads:
    """The ends that chains had in other deployments, as far as exported heads need them."""

    def __init__(self) -> None:
        self._ends: dict[str, list[ChainHead]] = {}

    def add(self, moved: MovedHead) -> None:
        self._ends.setdefault(moved.thread_id, []).append(moved.head)

    def has(self, thread_id: str, known: ChainHead) -> bool:
        """Return whether an exported head may be of a deployment where the tenant was before.

        It is the end before a move, or it was exported earlier there: then only the export of the tenant could compare
        it, because the records have other MACs since.
        """
        return any(head.n > known.n or head == known for head in self._ends.get(thread_id, ()))


async def _pages(
    db: Database,
    tenant: str,
    read: Callable[[Tx, str, int], Awaitable[list[T]]],
    position: Callable[[T], str],
    limit: int,
) -> AsyncIterator[T]:
    """Yield the items of all pages, each read in a transaction of its own after the position of the last item."""
    after = ""
    while True:
        async with db.transaction(tenant) as tx:
            items = await read(tx, after, limit)
        for item in items:
            yield item
        if len(items) < limit:
            return
        after = position(items[-1])


def _chains(db: Database, tenant: str, limit: int) -> AsyncIterator[tuple[str, ChainHead]]:
    return _pages(
        db, tenant, lambda tx, after, n: store.chains(tx, after=after, limit=n), lambda chain: chain[0], limit
    )


def _tombstones(db: Database, tenant: str, limit: int) -> AsyncIterator[Tombstone]:
    return _pages(
        db,
        tenant,
        lambda tx, after, n: store.tombstones(tx, after=after, limit=n),
        lambda t: t.thread_id,
        limit,
    )


async def _chain_links(db: Database, tenant: str, limit: int) -> AsyncIterator[MovedHead]:
    last: MovedHead | None = None
    while True:
        async with db.transaction(tenant) as tx:
            ends = await store.chain_links(tx, after=last, limit=limit)
        for last in ends:
            yield last
        if len(ends) < limit:
            return


async def _strays(db: Database, tenant: str, limit: int) -> AsyncIterator[str]:
    """Yield the threads with records and without a chain."""
    async with db.transaction(tenant) as tx:
        unchained = set(await decision_store.unchained_threads(tx))
    async for thread_id, chained in _pages(
        db, tenant, lambda tx, after, n: store.with_records(tx, after=after, limit=n), lambda t: t[0], limit
    ):
        if not chained:
            unchained.discard(thread_id)
            yield thread_id
    for thread_id in sorted(unchained):
        yield thread_id


async def _chain_pages(
    db: Database, tenant: str, thread_id: str, limit: int
) -> AsyncIterator[tuple[list[ChainLink], ChainHead | None]]:
    """Yield the records of a chain, and its end at that moment, because others may publish meanwhile. None
    means that the chain is gone."""
    after = 0
    while True:
        async with db.transaction(tenant) as tx:
            await tx.set_repeatable_read()
            head = await store.head(tx, thread_id=thread_id)
            records = await store.links(tx, thread_id=thread_id, after=after, limit=limit)
            decisions = await decision_store.links(tx, thread_id=thread_id, after=after, limit=limit)
        links = [_link(stored, _changed_columns) for stored in records]
        links += [_link(link, _changed_decision_columns) for link in decisions]
        links = sorted(links, key=lambda link: link.n)[:limit]
        yield links, head
        if len(links) < limit:
            return
        after = links[-1].n


def _link(link: StoredLink, changed: Callable[[StoredLink], tuple[str, ...]]) -> ChainLink:
    return ChainLink(link.id, link.n, link.record, link.previous, link.mac, changed(link))


def _changed_columns(link: StoredLink) -> tuple[str, ...]:
    """Return the columns that differ from the record."""
    row = link.columns
    try:
        record = load_record(link.record)
        expected = _columns(record)
        # A directory's body is its list, of which the record has only the digest.
        expected["body_bytes"] = row["stored_bytes"] if record.get("isDirectory") else record["sizeBytes"]
    except (ValueError, KeyError, TypeError):
        return ("record",)
    actual = {
        **row,
        "digest": row["digest"].hex(),
        "created_at": rfc3339(row["created_at"]),
        "tags": sorted(row["tags"]),
        "parents": sorted(row["parents"]),
    }
    return tuple(name for name, value in expected.items() if actual[name] != value)


def _changed_decision_columns(link: StoredLink) -> tuple[str, ...]:
    """Return the columns of a decision that differ from its record."""
    row = link.columns
    try:
        record = load_record(link.record)
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
    records = f"record {known} was" if known == last + 1 else f"records {last + 1} to {known} were"
    return f"{records} removed from the end of thread {thread_id} before it was deleted: the exported head has {known}"
