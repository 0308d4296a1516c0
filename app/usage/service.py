"""Read work records and usage."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from app.base.clock import rfc3339
from app.base.errors import FieldError, Invalid, NotFound
from app.base.ids import is_id
from app.base.postgres.database import Database, StatementTimeout, Tx
from app.usage import store
from app.usage.models import UsageSum, group_key, record_wire, summary_wire, tree_wire, usage_row_wire

MAX_TREE_RECORDS = 20_000
MAX_SCANNED_RECORDS = 5_000  # per page, however few of them match
MAX_LIST_BODY_BYTES = 8 * 1024 * 1024  # of all records in the list of a query


async def list_query_records(db: Database, tenant: str, query_id: str) -> bytes:
    """Return the response with all records of a query, oldest first. The caller checks that the query
    exists."""
    async with db.transaction(tenant) as tx:
        rows = await store.query_records(tx, query_id, MAX_LIST_BODY_BYTES)
        uses = await store.uses(tx, [r["id"] for r in rows])
        statements = await store.statements(tx, [r["id"] for r in rows])

    def encode() -> bytes:
        items = []
        for row in rows:
            item = record_wire(row, uses.get(row["id"], ()), statements.get(row["id"]))
            if row["bodies"] > MAX_LIST_BODY_BYTES:
                item["bodiesLeftOut"] = True
            items.append(item)
        return orjson.dumps({"items": items})

    return await asyncio.to_thread(encode)


async def read_record(db: Database, tenant: str, work_id: str, *, tree: bool) -> bytes:
    """Return the response with a record, its bodies and its rollup. Raise NotFound."""
    async with db.transaction(tenant) as tx:
        row = await _load_record(tx, work_id)
        uses = (await store.uses(tx, [work_id])).get(work_id, [])
        statement = (await store.statements(tx, [work_id])).get(work_id)
        if not tree or row["query_id"] is None:
            rollup = UsageSum.from_rows(*await store.rollup(tx, work_id, row["query_id"])).wire()
            out = {**record_wire(row, uses, statement), "rollup": rollup}
            return orjson.dumps({**out, "below": []} if tree else out)
        rows = await store.tree(tx, row["query_id"], MAX_TREE_RECORDS + 1)
        used = await store.uses_by_record(tx, [r["id"] for r in rows[:MAX_TREE_RECORDS]])
    if len(rows) > MAX_TREE_RECORDS:
        raise Invalid(
            f"The query has more than {MAX_TREE_RECORDS} work records, too many for one tree. Read them in pages, "
            f"GET /work-records?queryId={row['query_id']}, and this record without tree."
        )

    def encode() -> bytes:
        found = {u["work_id"]: UsageSum.from_rows(u) for u in used}
        top, *below = tree_wire(rows, found, work_id)
        return orjson.dumps({**record_wire(row, uses, statement), "rollup": top["rollup"], "below": below})

    return await asyncio.to_thread(encode)


async def _load_record(tx: Tx, work_id: str) -> Any:
    row = await store.record(tx, work_id) if is_id("wrk_", work_id) else None
    if row is None:
        raise NotFound(f"There is no work record {work_id!r}.")
    return row


async def page(
    tx: Tx, before: str | None, query_id: str | None, kind: str | None, status: str | None, limit: int
) -> tuple[list[dict[str, Any]], str | None]:
    """Return records, newest first, and the id after which the next page begins, if there may be more."""
    await tx.set_repeatable_read()
    rows = await store.page(tx, before, query_id, kind, status, limit + 1, MAX_SCANNED_RECORDS)
    items = [summary_wire(r) for r in rows]
    if len(items) > limit:
        return items[:limit], items[limit - 1]["id"]
    return items, await store.last_scanned(tx, before, query_id, MAX_SCANNED_RECORDS)


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
            told = f"at most {MAX_RANGE.days} days before the end: {rfc3339(until - MAX_RANGE)}"
            raise Invalid("The range is too long.", [FieldError("query:from", told)])
        return cls(since, until)


async def usage(
    tx: Tx, by: str, within: TimeRange, after: str | None, limit: int
) -> tuple[dict[str, Any], list[dict[str, Any]], str | None]:
    """Return the sums of the range, its groups, and the key after which the next page begins, if any. Raise Invalid."""
    try:
        total, groups = await store.usage(tx, by, within.since, within.until, after, limit + 1)
    except StatementTimeout as error:
        told = "request fewer days at once"
        raise Invalid(
            "The range contains too much work to sum up in time.", [FieldError("query:from", told)]
        ) from error
    shown = groups[:limit]
    head = {
        "groupBy": by,
        "from": rfc3339(within.since),
        "to": rfc3339(within.until),
        "totals": usage_row_wire(total),
    }
    items = [{**group_key(by, row["key"]), **usage_row_wire(row)} for row in shown]
    return head, items, shown[-1]["key"] if len(groups) > limit else None
