"""Remembered approvals: made by a decision, used by the gate instead of asking, revoked by an approver.

A grant covers calls of one tool in one definition, with the same arguments but for those that the rule leaves open,
by one agent of one line of runtimes in one thread, for a day by the database's clock. It is only as good as the rule in
force where it is used: the rule must be rememberable still, leave the same arguments open, and ask for no more votes
than stand behind it.
"""

from __future__ import annotations

from plangate.spec.approvals import free_arguments

from app.approvals import store
from app.approvals.models import ApprovalRequest, ApprovalRow, GrantRow
from app.approvals.principals import canonical_principal
from app.approvals.subject import bound_args, parse_definition
from app.base.errors import NotFound
from app.base.ids import is_id, new_id
from app.base.json.offload import offload
from app.base.postgres.database import Tx

GRANT_S = 24 * 3600.0


async def add_grant(tx: Tx, row: ApprovalRow, subject: bytes, by: str) -> None:
    """Add the grant of an approved call, in the transaction of the decision. `by` is the principal who
    completed it."""
    free = free_arguments(row.rule.rememberable) or ()
    await store.insert_grant(
        tx,
        new_id("grt_"),
        row.id,
        row.thread_id,
        row.agent,
        row.target,
        parse_definition(subject),
        await offload(bound_args, subject, free),
        list(free),
        by,
        GRANT_S,
    )


async def covering_grant(tx: Tx, request: ApprovalRequest) -> tuple[str, str] | None:
    """Return the newest grant that covers this call under the rule in force, and the principal who gave it. At least as many
    people as the rule requires now must have voted for the grant, and none who may not decide this call."""
    free = free_arguments(request.rule.rememberable)
    if request.kind != "tool" or free is None:
        return None
    asked = request.rule.approvers
    found = await store.covering_grants(
        tx,
        request.scope.thread_id,
        request.scope.agent,
        request.target,
        parse_definition(request.subject),
        await offload(bound_args, request.subject, free),
        list(free),
        request.runtime_id,
    )
    barred = {canonical_principal(request.requested_by)} if asked and asked.not_requester else set()
    for grant in found:
        voters = {canonical_principal(principal) for principal in grant["voters"]}
        if len(voters) >= (asked.minimum if asked else 1) and not voters & barred:
            return grant["id"], grant["granted_by"]
    return None


async def revoke(tx: Tx, grant_id: str, by: str) -> GrantRow:
    """End a grant from now on; calls that it has let through are not affected. A revoked grant stays as it
    is."""
    if is_id("grt_", grant_id):
        await store.revoke_grant(tx, grant_id, by)
        found = await store.grant(tx, grant_id)
        if found is not None:
            return found
    raise NotFound(f"There is no grant {grant_id!r}.")
