"""The transport `client`, as client processes use it: they claim calls and post results.

One claimant holds a call at a time, under a lease and a token. A call whose claim lapses is offered again only if its
tool may be repeated (ledger.py).
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from plangate.spec.file_toolkits import WORKSPACE_CALL
from pydantic import JsonValue

from app.base.clock import rfc3339
from app.base.errors import Conflict, Forbidden, NotFound, PlangateError, TooLarge
from app.base.ids import is_id
from app.base.json import strict_json
from app.base.json.offload import offload
from app.base.postgres.database import Tx
from app.base.responses import to_wire
from app.engine.service import lock_query, try_lock_query, wake_query
from app.events import CustomEvent, ToolProgressEvent
from app.journal.models import Scope, event
from app.journal.service import append_events, load_scope
from app.tenancy.models import Caller
from app.tools import store
from app.tools.claim_check import require_claim
from app.tools.ledger import Hydrate, hydrate_request
from app.tools.models import NO_FILTER, ClaimableTool, ClaimFilter, ResolvedRefs, load_request
from app.tools.store import CallHead, ClaimedCallRow
from app.tools.views import Claimed
from app.workspace.service import lock_thread

MIN_LEASE_MS, MAX_LEASE_MS = 1_000, 300_000
MAX_TOOL_EVENT_BYTES = 64 * 1024
"""Of the data of an event of a tool's own type."""


@dataclass(frozen=True, slots=True)
class ClaimLimits:
    """`max_bytes`: of the arguments and the values of references in one response; a single call may have more."""

    max_bytes: int = 64 * 1024 * 1024


class ClaimLapsed(Conflict):
    kind, title = "claim_lapsed", "The claim has lapsed"


class ClientCalls:
    def __init__(self, hydrate: Hydrate, limits: ClaimLimits) -> None:
        self._hydrate = hydrate
        self._limits = limits

    async def claim(
        self,
        tx: Tx,
        caller: Caller,
        *,
        tools: Sequence[ClaimableTool],
        limit: int,
        lease_ms: int,
        token: str | None = None,
        only: ClaimFilter = NO_FILTER,
    ) -> list[dict[str, Any]]:
        """Claim up to `limit` open calls of these tools that pass the filter, and return them, each with a token that
        its result needs. If the claimant chooses the token, a repeated claim returns the same calls, so a lost
        response loses no call. Raise Forbidden if the caller's key may not serve a tool."""
        names = [tool.name for tool in tools]
        if caller.tools is not None:
            foreign = sorted(set(names) - caller.tools)
            if foreign:
                raise Forbidden(f"This key may not serve {', '.join(foreign)}.")
        with_actions = caller.has_scope("actions:serve")
        if token is not None:
            repeated = await store.reclaim(
                tx, token_hash=_hash(token), by=caller.principal, names=names, with_actions=with_actions
            )
            if repeated:
                return await self._claimed_calls(tx, repeated, token)
        token = token or secrets.token_urlsafe(24)
        rows = await store.claim(
            tx,
            tools=tools,
            limit=limit,
            by=caller.principal,
            token_hash=_hash(token),
            lease_ms=_lease_ms(lease_ms),
            with_actions=with_actions,
            only=only,
        )
        return await self._claimed_calls(tx, rows, token)

    async def _claimed_calls(
        self, tx: Tx, rows: Sequence[ClaimedCallRow], token: str
    ) -> list[dict[str, Any]]:
        """Return the calls for their claimant. A call whose references are gone fails without being sent; if another
        transaction has locked its query, it is released instead, because that transaction may be waiting for the call;
        no hint is sent then, so that claimants do not spin: the next periodic hint offers it again.
        Calls that would make the response too large are released."""
        calls: list[dict[str, Any]] = []
        left = self._limits.max_bytes
        for n, row in enumerate(rows):
            try:
                call = await self._claimed_call(tx, row, token)
            except PlangateError as error:
                if not await try_lock_query(tx, query_id=row.query_id):
                    await store.release(tx, work_id=row.work_id, token_hash=_hash(token))
                    continue
                failed = strict_json.dumps({"error": f"Nothing was sent: {error.detail}"})
                await store.finish(tx, work_id=row.work_id, token_hash=_hash(token), result=failed)
                await wake_query(tx, query_id=row.query_id)
                continue
            refs = call.get("resolvedRefs")
            left -= len(row.request) + (refs.size if isinstance(refs, ResolvedRefs) else 0)
            if left < 0 and calls:
                for late in rows[n:]:
                    await store.release(tx, work_id=late.work_id, token_hash=_hash(token))
                await store.notify_clients(tx)
                break
            calls.append(call)
        return calls

    async def _claimed_call(self, tx: Tx, row: ClaimedCallRow, token: str) -> dict[str, Any]:
        """Return a call for its claimant. The values behind an action's references are added only here."""
        request = await offload(load_request, row.request)
        request = await hydrate_request(tx, self._hydrate, request, row.work_id)
        common = to_wire(Claimed, row, claim_token=token, claims=row.attempts, context=request["context"])
        return {**common, "purpose": row.purpose, **request}

    async def _call(self, tx: Tx, caller: Caller, work_id: str) -> CallHead | None:
        """Return the call, or None if there is none. Raise Forbidden if the caller's key may not serve its tool:
        without such a key a leaked token is worth nothing."""
        call = await store.head(tx, work_id=work_id) if is_id("wrk_", work_id) else None
        if call is None:
            return None
        if caller.tools is not None and call.name not in caller.tools:
            raise Forbidden(f"This key may not serve the tool of {work_id}.")
        if call.purpose != "tool":
            caller.require_scope("actions:serve")
        return call

    async def heartbeat(self, tx: Tx, caller: Caller, work_id: str, token: str, lease_ms: int) -> str:
        """Extend a claim, never beyond the tool's timeout, and return until when. Raise ClaimLapsed."""
        await self._call(tx, caller, work_id)
        until = await store.heartbeat(
            tx, work_id=work_id, token_hash=_hash(token), lease_ms=_lease_ms(lease_ms)
        )
        if until is None:
            raise _lapsed_error(work_id)
        return rfc3339(until)

    async def progress(
        self, tx: Tx, caller: Caller, work_id: str, token: str, fields: dict[str, Any]
    ) -> None:
        """Emit an event that says how far a running call is. Raise ClaimLapsed."""
        call = await self._held_call(tx, caller, work_id, token)
        scope = await load_scope(tx, work_id=work_id)
        if scope is not None:
            progress = event(scope, ToolProgressEvent, tool_name=call.name, **fields)
            await append_events(tx, query_id=call.query_id, events=[progress])

    async def emit(
        self, tx: Tx, caller: Caller, work_id: str, token: str, event_type: str, data: JsonValue
    ) -> None:
        """Emit an event of the tool's own type. Raise ClaimLapsed, or TooLarge for its data."""
        size = len(orjson.dumps(data))  # the strict parser accepted it
        if size > MAX_TOOL_EVENT_BYTES:
            raise TooLarge(
                f"The data of an event has at most {MAX_TOOL_EVENT_BYTES} bytes of JSON; this one has {size}. Store it as "
                "a reference or a file, and send its handle."
            )
        call = await self._held_call(tx, caller, work_id, token)
        scope = await load_scope(tx, work_id=work_id)
        if scope is not None:
            custom = event(scope, CustomEvent, event_type=event_type, data=data)
            await append_events(tx, query_id=call.query_id, events=[custom])

    async def _held_call(self, tx: Tx, caller: Caller, work_id: str, token: str) -> CallHead:
        """Return the call if the token holds the claim on it. Raise Forbidden or ClaimLapsed."""
        await self._call(tx, caller, work_id)
        call = await store.held_call(tx, work_id=work_id, token_hash=_hash(token))
        if call is None:
            raise _lapsed_error(work_id)
        return call

    async def result(self, tx: Tx, caller: Caller, work_id: str, token: str, result: dict[str, Any]) -> bool:
        """Record the result and wake the query, in one transaction. Return False for a late result, which is stored
        only as evidence. Raise NotFound or ClaimLapsed."""
        data = await offload(orjson.dumps, result)  # the strict parser accepted it
        call = await self._call(tx, caller, work_id)
        if call is None:
            raise NotFound(f"There is no tool call {work_id!r}.")
        await lock_query(tx, query_id=call.query_id)
        if await store.finish(tx, work_id=work_id, token_hash=_hash(token), result=data):
            await wake_query(tx, query_id=call.query_id)
            return True
        late = await store.keep_late(tx, work_id=work_id, token_hash=_hash(token), result=data)
        if late is None:
            raise _lapsed_error(work_id)
        return late.status == "done" and late.result == data

    async def workspace_scope(self, tx: Tx, caller: Caller, work_id: str) -> Scope:
        """Return the scope of a call of a workspace. Raise NotFound or Forbidden."""
        call = await self._call(tx, caller, work_id)
        scope = await load_scope(tx, work_id=work_id) if call is not None else None
        if call is None or scope is None or call.name != WORKSPACE_CALL:
            raise NotFound(f"There is no call of a workspace {work_id!r}.")
        return scope

    async def lock_workspace_call(self, tx: Tx, caller: Caller, work_id: str) -> Scope:
        """Lock the query of a call of a workspace, and return the call's scope. Raise NotFound, or Forbidden or
        Conflict if the caller does not hold the call."""
        scope = await self.workspace_scope(tx, caller, work_id)
        await lock_thread(tx, scope.thread_id)
        await lock_query(tx, query_id=scope.query_id)
        await require_claim(tx, work_id, caller.principal, rejection="The file was not copied")
        return scope

    async def release(self, tx: Tx, caller: Caller, work_id: str, token: str) -> None:
        """Release a claimed call whose work has not begun. Raise ClaimLapsed."""
        await self._call(tx, caller, work_id)
        if not await store.release(tx, work_id=work_id, token_hash=_hash(token)):
            raise _lapsed_error(work_id)
        await store.notify_clients(tx)


def _lapsed_error(work_id: str) -> ClaimLapsed:
    return ClaimLapsed(f"The claim on {work_id} is not yours or has lapsed: drop the call, do not repeat it.")


def _lease_ms(requested_ms: int) -> int:
    return max(MIN_LEASE_MS, min(requested_ms, MAX_LEASE_MS))


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
