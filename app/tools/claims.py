"""The transport `client`, from the side of the processes of the user: they take calls and post their results.

One claimant holds a call at a time, under a lease and a token. A claim that lapses is offered again only where the
tool says that repeating is safe (calls.py).
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from typing import Any

import orjson
from plangate.events import ToolProgressEvent
from plangate.spec.file_toolkits import WORKSPACE_CALL

from app.base.clock import rfc3339
from app.base.errors import Conflict, Forbidden, NotFound, PlangateError
from app.base.ids import is_id
from app.base.json import strict_json
from app.base.json.offload import offload
from app.base.postgres.database import Tx
from app.base.responses import to_wire
from app.engine import lease_store as queue_store
from app.engine.held_calls import check_call_held
from app.journal import store as journal_store
from app.journal.models import Scope, event
from app.tenancy.models import Caller
from app.tools import store
from app.tools.ledger import Hydrate, hydrate_request
from app.tools.models import NO_FILTER, ClaimFilter, ResolvedRefs, load_request
from app.tools.views import Claimed
from app.workspace.service import lock_thread

LEASE_LEAST_MS, LEASE_MOST_MS = 1_000, 300_000
CARRIED_BYTES = (
    64 * 1024 * 1024
)  # of arguments and the values of references in one answer, or those of one call


class ClaimLapsed(Conflict):
    kind, title = "claim_lapsed", "The claim is not held any more"


class ClientCalls:
    def __init__(self, hydrate: Hydrate) -> None:
        self._hydrate = hydrate

    async def claim(
        self,
        tx: Tx,
        caller: Caller,
        served: Sequence[tuple[str, str | None]],
        limit: int,
        lease_ms: int,
        token: str | None = None,
        only: ClaimFilter = NO_FILTER,
    ) -> list[dict[str, Any]]:
        """Up to `limit` open calls of the named tools that pass the filter, each with a token that its result needs.
        With a token of the claimant's choice the same claim again gives the same calls: an answer that was lost
        loses no call."""
        if caller.tools is not None:
            foreign = sorted({name for name, _ in served} - caller.tools)
            if foreign:
                raise Forbidden(f"This key may not serve {', '.join(foreign)}.")
        if token is not None:
            names, actions = [name for name, _ in served], caller.has_scope("actions:serve")
            held = await store.reclaim(tx, token_hash(token), caller.principal, names, actions)
            if held:
                return await self._claimed_calls(tx, held, token)
        token = token or secrets.token_urlsafe(24)
        rows = await store.claim(
            tx,
            [name for name, _ in served],
            [digest for _, digest in served],
            limit,
            caller.principal,
            token_hash(token),
            max(LEASE_LEAST_MS, min(lease_ms, LEASE_MOST_MS)),
            caller.has_scope("actions:serve"),
            only,
        )
        return await self._claimed_calls(tx, rows, token)

    async def _claimed_calls(self, tx: Tx, rows: Sequence[Any], token: str) -> list[dict[str, Any]]:
        """Return the calls for their claimant. A call whose references are gone is not sent: it ends here
        as failed. Calls that would make the response too large are released."""
        calls: list[dict[str, Any]] = []
        left = CARRIED_BYTES
        for n, row in enumerate(rows):
            try:
                call = await self._claimed_call(tx, row, token)
            except PlangateError as error:
                failed = strict_json.dumps({"error": f"Nothing was sent: {error.detail}"})
                await store.finish(tx, row["work_id"], token_hash(token), failed)
                await queue_store.wake(tx, row["query_id"])
                continue
            refs = call.get("resolvedRefs")
            left -= len(row["request"]) + (refs.size if isinstance(refs, ResolvedRefs) else 0)
            if left < 0 and calls:
                for late in rows[n:]:
                    await store.release(tx, late["work_id"], token_hash(token))
                await store.tell(tx)
                break
            calls.append(call)
        return calls

    async def _claimed_call(self, tx: Tx, row: Any, token: str) -> dict[str, Any]:
        """Return a call for its claimant. The values behind an action's references are added only here."""
        request = await hydrate_request(
            tx, self._hydrate, await offload(load_request, row["request"]), row["work_id"]
        )
        common = to_wire(Claimed, row, claim_token=token, claims=row["attempts"], context=request["context"])
        return {**common, "purpose": row["purpose"], **request}

    async def _call(self, tx: Tx, caller: Caller, work_id: str) -> Any:
        """Return the call, or None if there is none. Raise Forbidden if the caller's key may not serve its tool: a token
        that leaked is worth nothing without such a key."""
        call = await store.call_of(tx, work_id) if is_id("wrk_", work_id) else None
        if call is None:
            return None
        if caller.tools is not None and call["name"] not in caller.tools:
            raise Forbidden(f"This key may not serve the tool of {work_id}.")
        if call["purpose"] != "tool":
            caller.require_scope("actions:serve")
        return call

    async def heartbeat(self, tx: Tx, caller: Caller, work_id: str, token: str, lease_ms: int) -> str:
        """Extend a claim, never beyond the tool's timeout."""
        await self._call(tx, caller, work_id)
        until = await store.heartbeat(
            tx, work_id, token_hash(token), max(LEASE_LEAST_MS, min(lease_ms, LEASE_MOST_MS))
        )
        if until is None:
            raise self._lapsed_error(work_id)
        return rfc3339(until)

    async def progress(
        self, tx: Tx, caller: Caller, work_id: str, token: str, fields: dict[str, Any]
    ) -> None:
        """Tells the readers of the query how far a running call is."""
        await self._call(tx, caller, work_id)
        held = await store.held(tx, work_id, token_hash(token))
        if held is None:
            raise self._lapsed_error(work_id)
        scope = await journal_store.load_scope(tx, work_id)
        if scope is not None:
            told = event(scope, ToolProgressEvent, tool_name=held["name"], **fields)
            await journal_store.append(tx, held["query_id"], [told])

    async def result(self, tx: Tx, caller: Caller, work_id: str, token: str, result: dict[str, Any]) -> bool:
        """Record the result and wake the query, in one transaction. Return False for a late result, which
        is only kept as evidence."""
        data = await offload(orjson.dumps, result)  # it came through the gate
        call = await self._call(tx, caller, work_id)
        if call is None:
            raise NotFound(f"There is no tool call {work_id!r}.")
        query_id = call["query_id"]
        await queue_store.lock(tx, query_id)
        if await store.finish(tx, work_id, token_hash(token), data):
            await queue_store.wake(tx, query_id)
            return True
        late = await store.keep_late(tx, work_id, token_hash(token), data)
        if late is None:
            raise self._lapsed_error(work_id)
        return bool(late["status"] == "done" and late["result"] == data)

    async def workspace_scope(self, tx: Tx, caller: Caller, work_id: str) -> Scope:
        """Return the scope of a call of a workspace. Raise NotFound or Forbidden."""
        call = await self._call(tx, caller, work_id)
        scope = await journal_store.load_scope(tx, work_id) if call is not None else None
        if call is None or scope is None or call["name"] != WORKSPACE_CALL:
            raise NotFound(f"There is no call of a workspace {work_id!r}.")
        return scope

    async def lock_workspace_call(self, tx: Tx, caller: Caller, work_id: str) -> Scope:
        """Lock the query of a call of a workspace, and return the scope. Raise NotFound, or Forbidden or Conflict if the
        caller does not hold the call."""
        scope = await self.workspace_scope(tx, caller, work_id)
        await lock_thread(tx, scope.thread_id)
        await queue_store.lock(tx, scope.query_id)
        await check_call_held(tx, work_id, caller.principal, undone="The file was not copied")
        return scope

    async def release(self, tx: Tx, caller: Caller, work_id: str, token: str) -> None:
        """Release a call that was claimed and not begun."""
        await self._call(tx, caller, work_id)
        if await store.release(tx, work_id, token_hash(token)) is None:
            raise self._lapsed_error(work_id)
        await store.tell(tx)

    def _lapsed_error(self, work_id: str) -> ClaimLapsed:
        return ClaimLapsed(
            f"The claim on {work_id} is not yours or has lapsed: drop the call, do not repeat it."
        )


def token_hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
