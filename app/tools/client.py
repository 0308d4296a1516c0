"""The transport `client`: processes of the user take calls from the service and post their results.

The row of a call is its intent: it is committed before anybody can take it. One claimant holds a call at a time,
under a lease and a token. A claim that lapses is offered again only where the tool says that repeating is safe.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import orjson

from app.base import jsongate
from app.base.clock import rfc3339
from app.base.database import Database, Tx
from app.base.errors import Conflict, Forbidden, NotFound, PlangateError
from app.base.ids import is_id
from app.journal import store as journal_store
from app.journal.models import event
from app.queue import store as queue_store
from app.queue.worker import one_by_one
from app.tenancy.models import Caller
from app.tools import store
from app.tools.models import CallOutcome, ClientCall

LEASE_LEAST_MS, LEASE_MOST_MS = 1_000, 300_000


class ClaimLapsed(Conflict):
    kind, title = "claim_lapsed", "The claim is not held any more"


# Gives `{kind: {id: value}}` of the references that a dispatch names.
Hydrate = Callable[[Tx, Sequence[tuple[str, str]]], Awaitable[dict[str, dict[str, Any]]]]


class ClientCalls:
    def __init__(self, db: Database, hydrate: Hydrate) -> None:
        self._db = db
        self._hydrate = hydrate

    # -- the runner's side -----------------------------------------------------------------------------------

    async def offer(self, tx: Tx, call: ClientCall) -> None:
        made = await store.offer(
            tx,
            call.work_id,
            call.query_id,
            call.purpose,
            call.name,
            call.definition_digest,
            call.request,
            call.replay,
            float(call.claim_within_ms),
            call.timeout_ms,
        )
        if made:
            await store.tell(tx)

    async def offer_again(self, tx: Tx, call: ClientCall) -> None:
        """A person decided that a call whose outcome is unknown is to be made again."""
        await store.reopen(tx, call.work_id, call.request, float(call.claim_within_ms))
        await store.tell(tx)

    async def outcome(self, tx: Tx, work_id: str) -> CallOutcome | None:
        """How the call ended; None while it is open or somebody works on it."""
        row = await store.outcome(tx, work_id)
        if row is None or row["status"] in ("open", "claimed"):
            return None
        if row["status"] != "done":
            return CallOutcome(row["status"])
        result = orjson.loads(row["result"])
        return CallOutcome("done", result.get("output"), result.get("error"))

    # -- the claimant's side ---------------------------------------------------------------------------------

    async def claim(
        self,
        tx: Tx,
        caller: Caller,
        served: Sequence[tuple[str, str | None]],
        limit: int,
        lease_ms: int,
        token: str | None = None,
    ) -> list[dict[str, Any]]:
        """Up to `limit` open calls of the named tools, each with a token that its result needs. With a token of the
        claimant's choice the same claim again gives the same calls: an answer that was lost loses no call."""
        if caller.tools is not None:
            foreign = sorted({name for name, _ in served} - caller.tools)
            if foreign:
                raise Forbidden(f"This key may not serve {', '.join(foreign)}.")
        if token is not None:
            names, actions = [name for name, _ in served], caller.may("actions:serve")
            held = await store.reclaim(tx, token_hash(token), caller.principal, names, actions)
            if held:
                return await self._handed_out(tx, held, token)
        token = token or secrets.token_urlsafe(24)
        rows = await store.claim(
            tx,
            [name for name, _ in served],
            [digest for _, digest in served],
            limit,
            caller.principal,
            token_hash(token),
            max(LEASE_LEAST_MS, min(lease_ms, LEASE_MOST_MS)),
            caller.may("actions:serve"),
        )
        return await self._handed_out(tx, rows, token)

    async def _handed_out(self, tx: Tx, rows: Sequence[Any], token: str) -> list[dict[str, Any]]:
        """The calls for their claimant. One whose references are gone is not sent: it ends here, as failed."""
        calls = []
        for row in rows:
            try:
                calls.append(await self._claimed(tx, row, token))
            except PlangateError as error:
                failed = jsongate.dumps({"error": f"Nothing was sent: {error.detail}"})
                await store.finish(tx, row["work_id"], token_hash(token), failed)
                await queue_store.wake(tx, row["query_id"])
        return calls

    async def _claimed(self, tx: Tx, row: Any, token: str) -> dict[str, Any]:
        """A call as its claimant gets it. The values behind an action's references are put in only here."""
        request = orjson.loads(row["request"])
        if row["purpose"] == "action":
            named = [(r["kind"], r["id"]) for a in request["actions"] for r in a["references"]]
            request["resolvedRefs"] = await self._hydrate(tx, list(dict.fromkeys(named)))
        return {
            "workId": row["work_id"],
            "queryId": row["query_id"],
            "purpose": row["purpose"],
            "name": row["name"],
            "definitionDigest": row["definition_digest"],
            "claimToken": token,
            "claimedUntil": rfc3339(row["claimed_until"]),
            "timeoutMs": row["timeout_ms"],
            "claims": row["attempts"],
            **request,
        }

    async def heartbeat(self, tx: Tx, work_id: str, token: str, lease_ms: int) -> str:
        """Holds a claim longer, never beyond the tool's timeout."""
        until = await store.heartbeat(
            tx, work_id, token_hash(token), max(LEASE_LEAST_MS, min(lease_ms, LEASE_MOST_MS))
        )
        if until is None:
            raise self._lapsed(work_id)
        return rfc3339(until)

    async def progress(self, tx: Tx, work_id: str, token: str, fields: dict[str, Any]) -> None:
        """Tells the readers of the query how far a running call is."""
        held = await store.held(tx, work_id, token_hash(token))
        if held is None:
            raise self._lapsed(work_id)
        scope = await journal_store.scope_of(tx, work_id)
        if scope is not None:
            told = event(scope, "tool-progress", toolName=held["name"], **fields)
            await journal_store.append(tx, held["query_id"], [told])

    async def result(self, tx: Tx, work_id: str, token: str, result: dict[str, Any]) -> bool:
        """Records the result and wakes the query in one transaction. A late one is kept as evidence: False."""
        data = jsongate.dumps(result)
        query_id = await store.query_of(tx, work_id) if is_id("wrk_", work_id) else None
        if query_id is None:
            raise NotFound(f"There is no tool call {work_id!r}.")
        await queue_store.lock(tx, query_id)
        if await store.finish(tx, work_id, token_hash(token), data):
            await queue_store.wake(tx, query_id)
            return True
        late = await store.keep_late(tx, work_id, token_hash(token), data)
        if late is None:
            raise self._lapsed(work_id)
        return bool(late["status"] == "done" and late["result"] == data)

    async def release(self, tx: Tx, work_id: str, token: str) -> None:
        """Gives a call back that was claimed and not begun."""
        if await store.release(tx, work_id, token_hash(token)) is None:
            raise self._lapsed(work_id)
        await store.tell(tx)

    def _lapsed(self, work_id: str) -> ClaimLapsed:
        return ClaimLapsed(
            f"The claim on {work_id} is not yours or has lapsed: drop the call, do not repeat it."
        )

    # -- without anybody -------------------------------------------------------------------------------------

    async def lapse_due(self) -> int:
        """Ends claims that ran out and offers that nobody took; each wakes its query."""
        due = await store.due(self._db, 100)
        await one_by_one(due, self._lapse)
        return len(due)

    async def _lapse(self, tenant: str, work_id: str) -> None:
        async with self._db.transaction(tenant) as tx:
            query_id = await store.query_of(tx, work_id)
            if query_id is None:
                return
            await queue_store.lock(tx, query_id)
            row = await store.lapse(tx, work_id)
            if row is None:
                return
            if row["status"] == "open":
                await store.tell(tx)
            else:
                await queue_store.wake(tx, query_id)

    async def withdraw_of_query(self, tx: Tx, query_id: str, _reason: str) -> None:
        await store.withdraw(tx, query_id)

    async def page(
        self, tx: Tx, before: str | None, status: str | None, query_id: str | None, limit: int
    ) -> list[Any]:
        return [
            {
                "workId": r["work_id"],
                "queryId": r["query_id"],
                "purpose": r["purpose"],
                "name": r["name"],
                "status": r["status"],
                "attempts": r["attempts"],
                "claimedBy": r["claimed_by"],
                "createdAt": rfc3339(r["created_at"]),
                "doneAt": rfc3339(r["done_at"]) if r["done_at"] else None,
            }
            for r in await store.page(tx, before, status, query_id, limit)
        ]


def token_hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
