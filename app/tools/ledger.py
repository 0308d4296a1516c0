"""The ledger of outgoing calls: offers, sends and settles them, and ends expired claims and offers.

The row of a call is its intent: it is committed before any process can take the call and before its first byte is
sent. After a crash the tool's `replay` decides: a call that may be repeated is offered or sent again, any other call
is `unknown`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, assert_never

import orjson
from plangate.statuses import CallStatus

from app.base.errors import PlangateError
from app.base.json import strict_json
from app.base.json.limits import LIMITS
from app.base.json.offload import loads, offload
from app.base.postgres.database import Database, Tx
from app.base.responses import to_wire
from app.engine.service import lock_query, wake_query
from app.engine.worker import for_each_due
from app.runtimes.models import SealedSigningSecret
from app.runtimes.signing import SigningSecrets
from app.tools import store
from app.tools.models import OutgoingCall, ResolvedRefs, load_request
from app.tools.results import Answer, ToolError, ToolResult
from app.tools.store import CallFilter, CallRow, StoredResult
from app.tools.views import CallView

MAX_CLAIMS: Final = 3
"""How often a client may claim a call that may be repeated."""

MAX_LISTED_RESULT_BYTES: Final = 4 * 1024
"""A list of up to 500 calls shows no larger late results."""

GIVEN_UP: Final = strict_json.dumps(
    {"error": f"{MAX_CLAIMS} processes claimed the call in turn, and none posted a result in time."}
)

LOST: Final = strict_json.dumps(
    {"error": "The database lost its newest records, so nobody knows whether this call was sent."}
)

_OUTPUT: Final = b'{"output":'

# Returns `{kind: {id: value}}` of the references that a dispatch names, each value as the bytes of its JSON. It takes
# the transaction, the references and the id of the work that uses them.
Hydrate = Callable[[Tx, Sequence[tuple[str, str]], str], Awaitable[dict[str, dict[str, bytes]]]]


@dataclass(frozen=True, slots=True)
class AcquiredCall:
    """A call that this process may send now: its request, and the number of this attempt. `secret` signs it if it goes over
    HTTP."""

    request: dict[str, Any]
    number: int
    secret: SealedSigningSecret | None = None


class CallLedger:
    def __init__(self, db: Database, hydrate: Hydrate, origin: str, signing: SigningSecrets) -> None:
        self._db = db
        self._hydrate = hydrate
        self.origin = origin
        self._signing = signing

    # -- making a call ---------------------------------------------------------------------------------------

    async def offer(self, tx: Tx, call: OutgoingCall) -> None:
        """Record the intent to call. Calls that client processes may claim are announced to them."""
        if await store.offer(tx, call=call) and call.sender == "client":
            await store.notify_clients(tx)

    async def offer_again(self, tx: Tx, call: OutgoingCall) -> None:
        """Offer a call again whose outcome is unknown, because a person decided to retry it."""
        await store.reopen(tx, call=call)
        if call.sender == "client":
            await store.notify_clients(tx)

    async def outcome(self, tx: Tx, work_id: str) -> ToolResult | None:
        """Return how the call ended, or None while it is open or claimed."""
        row = await store.stored_result(tx, work_id=work_id)
        return None if row is None else await _load_result(row)

    # -- sending it ------------------------------------------------------------------------------------------

    async def take(
        self, tx: Tx, call: OutgoingCall, runtime_name: str, epoch: int
    ) -> AcquiredCall | ToolResult:
        """Acquire the right to send a service-side call, effective when the transaction commits. Return the result of
        the call instead if it has already ended."""
        work_id = call.work_id
        attempt = await store.take(tx, work_id=work_id, by=self.origin, epoch=epoch)
        if attempt is None or attempt.status == "unknown":
            ended = await self.outcome(tx, work_id)
            assert ended is not None  # a call that cannot be taken has ended
            return ended
        request = await offload(load_request, attempt.request)
        try:
            hydrated = await hydrate_request(tx, self._hydrate, request, work_id)
        except PlangateError as error:
            result = ToolError(f"Nothing was sent: {error.detail}")
            await self.settle(tx, work_id, epoch, result)
            return result
        secret = await self._signing.load(tx, runtime_name) if call.is_signed else None
        return AcquiredCall(hydrated, attempt.attempts, secret)

    async def settle(self, tx: Tx, work_id: str, epoch: int, result: ToolResult) -> None:
        """Record the result of a call that this process sent."""
        status, data = await dump_result(result)
        await store.settle(tx, work_id=work_id, epoch=epoch, status=status, result=data)

    # -- without a process -------------------------------------------------------------------------------------

    async def lapse_due(self) -> int:
        """End lapsed claims and unclaimed offers, and wake the query of each. Return how many were due."""
        due = await store.due(self._db, limit=100)
        await for_each_due(due, self._lapse)
        return len(due)

    async def _lapse(self, tenant: str, work_id: str) -> None:
        async with self._db.transaction(tenant) as tx:
            call = await store.head(tx, work_id=work_id)
            if call is None:
                return
            await lock_query(tx, query_id=call.query_id)
            status = await store.lapse(tx, work_id=work_id, max_claims=MAX_CLAIMS, final_result=GIVEN_UP)
            if status == "open":
                await store.notify_clients(tx)
            elif status is not None:
                await wake_query(tx, query_id=call.query_id)

    async def withdraw_of_query(self, tx: Tx, query_id: str, _reason: str) -> None:
        """Withdraw the open calls of a query that ends."""
        await store.withdraw(tx, query_id=query_id)

    # -- reading ---------------------------------------------------------------------------------------------

    async def page(
        self, tx: Tx, *, after: str | None, limit: int, filters: CallFilter
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Return up to `limit` calls for a response, newest first, and the id after which the next page begins, or None on
        the last."""
        rows, last = await store.page(
            tx, after=after, limit=limit, filters=filters, max_late_bytes=MAX_LISTED_RESULT_BYTES
        )
        return [to_wire(CallView, row, late_result=_late_result(row)) for row in rows], last


async def was_offered(tx: Tx, work_id: str) -> bool:
    """Return whether a call was ever offered."""
    return await store.head(tx, work_id=work_id) is not None


async def record_intent(tx: Tx, call: OutgoingCall) -> None:
    """Record a call without announcing it to anybody."""
    await store.offer(tx, call=call)


async def has_result(tx: Tx, work_id: str) -> bool:
    """Return whether the result of a call is on record."""
    row = await store.stored_result(tx, work_id=work_id)
    return row is not None and row.status == "done"


async def doubt_calls(tx: Tx, query_id: str, tools: Sequence[str]) -> int:
    """Mark the calls of a query that have no result as unknown, unless repeating them is safe. `tools`: those of the runtime
    that are not safe to repeat; their unanswered calls without a record are unknown, too. Return the number of tool calls."""
    unrecorded = await store.doubt_unrecorded(tx, query_id=query_id, tools=tools, result=LOST)
    return unrecorded + await store.doubt(tx, query_id=query_id, result=LOST)


async def offered_calls(tx: Tx, query_id: str) -> list[str]:
    """Return the work ids of the query's calls that were ever offered, except those of actions."""
    return await store.offered(tx, query_id=query_id)


async def abandoned_result(tx: Tx, work_id: str) -> ToolResult | None:
    """Return the result of a call whose query ends. The outcome of a call that is still open or claimed is unknown; a
    call that was withdrawn or never offered has no result."""
    row = await store.stored_result(tx, work_id=work_id)
    if row is None or row.status == "withdrawn":
        return None
    if row.status != "done":
        return ToolError.unknown("")
    return await _load_result(row)


def _late_result(call: CallRow) -> dict[str, Any] | None:
    """Return the result that a process posted after its claim on the call had lapsed."""
    if call.late_bytes is None:
        return None
    if call.late_result is None:
        return {"note": f"It has {call.late_bytes} bytes, too many for a list."}
    late: dict[str, Any] = orjson.loads(call.late_result)
    return late


async def _load_result(row: StoredResult) -> ToolResult | None:
    """Return how a call ended, or None while it is open or claimed."""
    return await offload(_parse_result, row, size=len(row.result or b""))


def _parse_result(row: StoredResult) -> ToolResult | None:
    data = row.result or b"{}"
    result = loads(data)
    error = result.get("error")
    match row.status:
        case "open" | "claimed":
            return None
        case "done" if error is not None:
            return ToolError(error)
        case "done":
            large = len(data) > LIMITS.inline_bytes and data.startswith(_OUTPUT)
            return Answer(result.get("output"), text=data[len(_OUTPUT) : -1] if large else None)
        case "unknown":
            return ToolError.unknown(error or "")
        case "withdrawn":
            return ToolError.withdrawn()
        case _:
            assert_never(row.status)


async def dump_result(result: ToolResult) -> tuple[CallStatus, bytes]:
    """Return the status of a call with this result, and the JSON that its row stores."""
    if isinstance(result, Answer):
        return "done", await offload(strict_json.dumps, {"output": result.value})
    status: CallStatus = "done" if result.status == "failed" else result.status
    return status, await offload(strict_json.dumps, {"error": result.message})


def acquire_on_record(call: OutgoingCall, secret: SealedSigningSecret | None) -> AcquiredCall:
    """Return the acquired form of a call that was recorded as claimed. It has no references, and its request is small."""
    return AcquiredCall({**loads(call.request), "resolvedRefs": ResolvedRefs({})}, 1, secret)


async def hydrate_request(tx: Tx, hydrate: Hydrate, request: dict[str, Any], work_id: str) -> dict[str, Any]:
    """Return the request to send. This is the only place that adds the values behind an action's references."""
    if "actions" not in request:
        return request
    references = [(r["kind"], r["id"]) for a in request["actions"] for r in a["references"]]
    return {
        **request,
        "resolvedRefs": ResolvedRefs(await hydrate(tx, list(dict.fromkeys(references)), work_id)),
    }
