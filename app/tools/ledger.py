"""Every call that leaves the service, from the side of the query that makes it.

The row of a call is its intent, whoever carries it: it is committed before anybody can take the call or a byte of it
is sent. What a crash leaves behind is judged by one rule, the tool's `replay`: offered or sent again where that is
safe, else `unknown`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from app.base.errors import PlangateError
from app.base.json import strict_json
from app.base.json.limits import LIMITS
from app.base.json.offload import loads, offload
from app.base.postgres.database import Database, Tx
from app.base.responses import to_wire
from app.engine import lease_store as queue_store
from app.engine.worker import for_each_due
from app.tools import store
from app.tools.models import CallOutcome, OutgoingCall, ResolvedRefs, load_request
from app.tools.views import CallView

MOST_CLAIMS: Final = 3
"""As often as the service itself tries a call that may be repeated."""

LISTED_BYTES: Final = 4 * 1024
"""Of a late result, in a list of up to 500 calls."""

GIVEN_UP: Final = strict_json.dumps(
    {"error": f"{MOST_CLAIMS} times a process took the call and did not answer in time."}
)

_OUTPUT: Final = b'{"output":'

# Gives `{kind: {id: value}}` of the references that a dispatch names, each value as the bytes of its JSON, for the work
# with this id.
Hydrate = Callable[[Tx, Sequence[tuple[str, str]], str], Awaitable[dict[str, dict[str, bytes]]]]


@dataclass(frozen=True, slots=True)
class AcquiredCall:
    """A call that this process may send now: what goes out, and the how-manieth attempt it is."""

    request: dict[str, Any]
    number: int


class CallLedger:
    def __init__(self, db: Database, hydrate: Hydrate, origin: str) -> None:
        self._db = db
        self._hydrate = hydrate
        self._origin = origin

    # -- making a call ---------------------------------------------------------------------------------------

    async def offer(self, tx: Tx, call: OutgoingCall) -> None:
        """Record the intent to call. Calls that client processes may claim are announced to them."""
        made = await store.offer(
            tx,
            call.work_id,
            call.query_id,
            call.purpose,
            call.sender,
            call.name,
            call.definition_digest,
            call.request,
            call.replay,
            call.claim_within_ms,
            call.timeout_ms,
        )
        if made and call.sender == "client":
            await store.tell(tx)

    async def offer_again(self, tx: Tx, call: OutgoingCall) -> None:
        """Offer a call again whose outcome is unknown, because a person decided so."""
        await store.reopen(tx, call.work_id, call.request, call.claim_within_ms)
        if call.sender == "client":
            await store.tell(tx)

    async def outcome(self, tx: Tx, work_id: str) -> CallOutcome | None:
        """How the call ended; None while it is open or somebody works on it."""
        row = await store.outcome(tx, work_id)
        if row is None:
            return None
        return await offload(outcome_from_row, row, size=len(row["result"] or b""))

    async def known(self, tx: Tx, work_id: str) -> bool:
        """Return whether the call was ever offered."""
        return await store.outcome(tx, work_id) is not None

    async def offered(self, tx: Tx, query_id: str) -> list[str]:
        """Return the work ids of the query's calls that were ever offered, except those of actions."""
        return await store.offered(tx, query_id)

    # -- sending it ------------------------------------------------------------------------------------------

    async def take(self, tx: Tx, work_id: str, epoch: int) -> AcquiredCall | CallOutcome:
        """Return the right to send a call of the service's own, valid once the transaction commits, or the
        outcome of the call if it has ended."""
        row = await store.take(tx, work_id, self._origin, epoch)
        if row is None or row["status"] == "unknown":
            ended = await self.outcome(tx, work_id)
            assert ended is not None  # what cannot be taken is over
            return ended
        request = await offload(load_request, row["request"])
        try:
            return AcquiredCall(await hydrate_request(tx, self._hydrate, request, work_id), row["attempts"])
        except PlangateError as error:
            outcome = CallOutcome("done", error=f"Nothing was sent: {error.detail}")
            await self.settle(tx, work_id, epoch, outcome)
            return outcome

    async def settle(self, tx: Tx, work_id: str, epoch: int, outcome: CallOutcome) -> CallOutcome:
        """Record the outcome of a call that this process sent."""
        await store.settle(
            tx, work_id, epoch, outcome.status, await offload(strict_json.dumps, outcome.wire())
        )
        return outcome

    # -- without anybody -------------------------------------------------------------------------------------

    async def lapse_due(self) -> int:
        """End lapsed claims and offers that nobody took, and wake the query of each."""
        due = await store.due(self._db, 100)
        await for_each_due(due, self._lapse)
        return len(due)

    async def _lapse(self, tenant: str, work_id: str) -> None:
        async with self._db.transaction(tenant) as tx:
            call = await store.call_of(tx, work_id)
            if call is None:
                return
            query_id = call["query_id"]
            await queue_store.lock(tx, query_id)
            row = await store.lapse(tx, work_id, MOST_CLAIMS, GIVEN_UP)
            if row is None:
                return
            if row["status"] == "open":
                await store.tell(tx)
            else:
                await queue_store.wake(tx, query_id)

    async def withdraw_of_query(self, tx: Tx, query_id: str, _reason: str) -> None:
        await store.withdraw(tx, query_id)

    # -- reading ---------------------------------------------------------------------------------------------

    async def page(
        self, tx: Tx, before: str | None, status: str | None, query_id: str | None, limit: int
    ) -> list[Any]:
        rows = await store.page(tx, before, status, query_id, limit, LISTED_BYTES)
        return [to_wire(CallView, row, late_result=late_result(row)) for row in rows]


def late_result(row: Any) -> dict[str, Any] | None:
    """Return what a process said about a call after its claim had lapsed."""
    if row["late_bytes"] is None:
        return None
    if row["late_result"] is None:
        return {"note": f"It has {row['late_bytes']} bytes, too many for a list."}
    late: dict[str, Any] = orjson.loads(row["late_result"])
    return late


def outcome_from_row(row: Any) -> CallOutcome | None:
    """Return how a call ended; None while it is open or claimed. Call it through `offload` if its result may be large."""
    if row["status"] in ("open", "claimed"):
        return None
    stored: bytes = row["result"] or b"{}"
    result = loads(stored)
    large = len(stored) > LIMITS.inline_bytes and stored.startswith(_OUTPUT)
    text = stored[len(_OUTPUT) : -1] if large else None
    return CallOutcome(row["status"], result.get("output"), result.get("error"), text=text)


async def hydrate_request(tx: Tx, hydrate: Hydrate, request: dict[str, Any], work_id: str) -> dict[str, Any]:
    """Return the request to send. The values behind an action's references are added only here."""
    if "actions" not in request:
        return request
    named = [(r["kind"], r["id"]) for a in request["actions"] for r in a["references"]]
    return {**request, "resolvedRefs": ResolvedRefs(await hydrate(tx, list(dict.fromkeys(named)), work_id))}
