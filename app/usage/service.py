"""Read work records and usage."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from app.base.clock import rfc3339
from app.base.errors import FieldError, Invalid, NotFound
from app.base.ids import is_id
from app.base.postgres.database import Database, StatementTimeout, Tx
from app.usage import store
from app.usage.models import WorkFilter, WorkRow, record_wire, summary_wire, tree_wire
from app.usage.views import GroupBy, GroupOrder

MAX_TREE_RECORDS = 20_000
MAX_SCANNED_RECORDS = 5_000  # per page, however few of them match
MAX_LIST_BODY_BYTES = 8 * 1024 * 1024  # of all records in the list of a query


async def list_query_records(db: Database, tenant: str, query_id: str) -> bytes:
    """Return the response with all records of a query, oldest first. The caller checks that the query
    exists."""
    async with db.transaction(tenant) as tx:
        records = await store.query_records(tx, query_id=query_id, body_bytes=MAX_LIST_BODY_BYTES)
        ids = [record.id for record in records]
        uses = await store.uses(tx, work_ids=ids)
        statements = await store.statements(tx, work_ids=ids)

    def encode() -> bytes:
        items = []
        for record in records:
            item = record_wire(record, uses.get(record.id, ()), statements.get(record.id))
            if record.bodies > MAX_LIST_BODY_BYTES:
                item["bodiesLeftOut"] = True
            items.append(item)
        return orjson.dumps({"items": items})

    return await asyncio.to_thread(encode)


async def read_record(db: Database, tenant: str, work_id: str, *, tree: bool) -> bytes:
    """Return the response with a record, its bodies and its rollup. Raise NotFound."""
    async with db.transaction(tenant) as tx:
        record = await _load_record(tx, work_id)
        uses = (await store.uses(tx, work_ids=[work_id])).get(work_id, [])
        statement = (await store.statements(tx, work_ids=[work_id])).get(work_id)
        if not tree or record.query_id is None:
            rollup = await store.rollup(tx, work_id=work_id, query_id=record.query_id)
            out = {**record_wire(record, uses, statement), "rollup": rollup.wire()}
            return orjson.dumps({**out, "below": []} if tree else out)
        records = await store.tree(tx, query_id=record.query_id, limit=MAX_TREE_RECORDS + 1)
        used = await store.uses_by_record(tx, work_ids=[r.id for r in records[:MAX_TREE_RECORDS]])
    if len(records) > MAX_TREE_RECORDS:
        raise Invalid(
            f"The query has more than {MAX_TREE_RECORDS} work records, too many for one tree. Read them in pages, "
            f"GET /work-records?queryId={record.query_id}, and this record without tree."
        )

    def encode() -> bytes:
        top, *below = tree_wire(records, used, work_id)
        return orjson.dumps({**record_wire(record, uses, statement), "rollup": top["rollup"], "below": below})

    return await asyncio.to_thread(encode)


async def _load_record(tx: Tx, work_id: str) -> WorkRow:
    record = await store.record(tx, work_id=work_id) if is_id("wrk_", work_id) else None
    if record is None:
        raise NotFound(f"There is no work record {work_id!r}.")
    return record


async def page(tx: Tx, filters: WorkFilter, limit: int) -> tuple[list[dict[str, Any]], str | None]:
    """Return records, newest first, and the id after which the next page begins, if there may be more."""
    await tx.set_repeatable_read()
    records = await store.page(tx, filters=filters, limit=limit + 1, scan_limit=MAX_SCANNED_RECORDS)
    items = [summary_wire(record) for record in records[:limit]]
    if len(records) > limit:
        return items, items[-1]["id"]
    return items, await store.last_scanned(tx, filters=filters, scan_limit=MAX_SCANNED_RECORDS)


MAX_RANGE = timedelta(days=366)
DEFAULT_RANGE = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class TimeRange:
    """A range of times: from `since` up to, but not including, `until`."""

    since: datetime
    until: datetime

    @classmethod
    def from_bounds(cls, since: datetime | None, until: datetime | None) -> TimeRange:
        """Return the requested range; the defaults are now and thirty days. Raise Invalid."""
        until = until or datetime.now(UTC)
        since = since or until - DEFAULT_RANGE
        if since >= until:
            raise Invalid(
                "The range is empty.", [FieldError("query:from", f"must be before {rfc3339(until)}")]
            )
        if until - since > MAX_RANGE:
            message = f"at most {MAX_RANGE.days} days before the end: {rfc3339(until - MAX_RANGE)}"
            raise Invalid("The range is too long.", [FieldError("query:from", message)])
        return cls(since, until)


async def usage(
    tx: Tx, by: GroupBy, order: GroupOrder, within: TimeRange, after: str | None, limit: int
) -> tuple[dict[str, Any], list[dict[str, Any]], str | None]:
    """Return the sums of the range, its groups, and the key after which the next page begins, if any. In the order of
    costs, there is no next page. Raise Invalid."""
    try:
        total, groups = await store.usage(
            tx,
            by=by,
            order=order,
            since=within.since,
            until=within.until,
            after=after,
            limit=limit + 1,
        )
    except StatementTimeout as error:
        raise Invalid(
            "The range contains too much work to sum up in time.",
            [FieldError("query:from", "request fewer days at once")],
        ) from error
    head = {
        "groupBy": by,
        "from": rfc3339(within.since),
        "to": rfc3339(within.until),
        "totals": total.wire(),
    }
    items = [group.wire_with_key(by) for group in groups[:limit]]
    has_next = order == "key" and len(groups) > limit
    return head, items, groups[limit - 1].key if has_next else None


async def add_to_sums(tx: Tx, *, query_ids: Sequence[str], host_ids: Sequence[str]) -> None:
    """Add what ended queries used, and what hosts did, to the sums that `usage` reads. The caller adds each of them once.

    Raise StatementTimeout.
    """
    await store.add_to_sums(tx, query_ids=query_ids, host_ids=host_ids)
