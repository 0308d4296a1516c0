"""Check who holds a call, for requests that act as its work."""

from __future__ import annotations

from app.base.errors import Conflict, Forbidden
from app.base.postgres.database import Tx
from app.tools import store


async def require_claim(tx: Tx, work_id: str, principal: str, *, rejection: str) -> None:
    """Raise Forbidden or Conflict unless `principal` holds the claim on the call with this work id.

    Any principal passes for a call that the service sends itself: only its process is on record. The caller must have
    locked the query of the call, so that the result stays true. The message begins with `rejection`, such as "Nothing
    was written".
    """
    claim = await store.load_claim(tx, work_id=work_id)
    if claim is None or (claim.sender == "client" and claim.claimed_by not in (None, principal)):
        raise Forbidden(f"{rejection}: {work_id} is not a call of yours.")
    if claim.status != "claimed":
        raise Conflict(
            f"{rejection}: nobody holds the call {work_id}. It is over, has not been claimed, or its claim has lapsed."
        )
