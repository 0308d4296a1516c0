"""Remembered approvals: a decision creates a grant, the gate applies it instead of asking, an approver revokes it.

A grant covers calls of one tool in one definition, by one agent of the runtimes of one name in one thread, for a day by
the database's clock. The arguments must be the same, except for those that the rule leaves free. A grant applies only
if the rule in force is still rememberable, leaves the same arguments free, and requires no more votes than the grant has.
"""

from __future__ import annotations

from collections.abc import Sequence

from plangate.spec.approvals import free_arguments

from app.approvals import store
from app.approvals.models import ApprovalRequest, ApprovalRow, GrantRow
from app.approvals.principals import canonical_principal
from app.approvals.subject import bound_args, parse_definition
from app.base.errors import NotFound
from app.base.ids import is_id, new_id
from app.base.json.offload import offload
from app.base.postgres.database import Tx

GRANT_VALID_S = 24 * 3600.0


async def add_grant(tx: Tx, row: ApprovalRow, subject: bytes, by: str) -> None:
    """Add the grant of an approved call, in the transaction of the decision. `by` is the principal who
    completed it."""
    free = free_arguments(row.rule.rememberable) or ()
    calls = await _covered_calls(row.thread_id, row.agent, row.target, subject, free)
    await store.insert_grant(
        tx, grant_id=new_id("grt_"), approval_id=row.id, calls=calls, by=by, valid_s=GRANT_VALID_S
    )


async def covering_grant(tx: Tx, request: ApprovalRequest) -> store.CoveringGrant | None:
    """Return the newest grant that covers this call under the rule in force. At least as many people as the rule
    requires now must have voted for the grant, and none who may not decide this call."""
    free, scope = free_arguments(request.rule.rememberable), request.scope
    if request.kind != "tool" or free is None:
        return None
    calls = await _covered_calls(scope.thread_id, scope.agent, request.target, request.subject, free)
    approvers = request.rule.approvers
    minimum = approvers.minimum if approvers else 1
    excluded = {canonical_principal(request.requested_by)} if approvers and approvers.not_requester else set()
    for grant in await store.covering_grants(tx, calls=calls, runtime_id=request.runtime_id):
        voters = set(map(canonical_principal, grant.voters))
        if len(voters) >= minimum and not voters & excluded:
            return grant
    return None


async def _covered_calls(
    thread_id: str, agent: str, tool: str, subject: bytes, free: Sequence[str]
) -> store.CoveredCalls:
    args = await offload(bound_args, subject, free)
    return store.CoveredCalls(thread_id, agent, tool, parse_definition(subject), args, list(free))


async def revoke(tx: Tx, grant_id: str, by: str) -> GrantRow:
    """Revoke a grant and return it. Calls that it has let through are not affected. Revoking it again changes
    nothing."""
    if is_id("grt_", grant_id):
        await store.revoke_grant(tx, grant_id=grant_id, by=by)
        grant = await store.grant(tx, grant_id=grant_id)
        if grant is not None:
            return grant
    raise NotFound(f"There is no grant {grant_id!r}.")
