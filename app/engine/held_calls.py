"""Whose a call is at the moment: who acts from outside as work goes by it."""

from __future__ import annotations

from app.base.errors import Conflict, Forbidden
from app.base.postgres.database import Tx

CALL = "SELECT sender, status, claimed_by FROM outgoing_calls WHERE tenant_id = $1 AND work_id = $2"


async def check_call_held(tx: Tx, work_id: str, principal: str, *, undone: str) -> None:
    """Raise Forbidden or Conflict unless `principal` holds the claim on the call with this work id. For a
    call that the service sends itself, it is only known that some process holds it. The caller holds the
    call's query, so the result stays true. `undone` says in the message what was not done."""
    call = await tx.row(CALL, tx.tenant, work_id)
    if call is None or (call["sender"] == "client" and call["claimed_by"] not in (None, principal)):
        raise Forbidden(f"{undone}: {work_id} is no call that you answer.")
    if call["status"] != "claimed":
        raise Conflict(
            f"{undone}: nobody has the call {work_id}; it is over, was not taken yet, or its claim has lapsed."
        )
