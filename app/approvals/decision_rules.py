"""Validate decisions against the approval that they are about. Pure: the service calls these before it writes."""

from __future__ import annotations

from collections.abc import Iterable

from app.approvals.models import ApprovalRow, Decision, Voter
from app.approvals.principals import is_same_person
from app.base.errors import Conflict, FieldError, Forbidden, Invalid
from app.tenancy.models import Caller


def validate_decision(row: ApprovalRow, decision: Decision) -> None:
    """Raise Invalid for a decision that this approval does not accept, whatever its status. The digest binds an
    approval to what the approver saw, so it is required."""
    approves = decision.decision == "approve"
    if approves and decision.digest is None:
        raise _invalid(
            "digest",
            f"required to approve: read GET /approvals/{row.id}/subject, show it to the approver, and send the SHA-256 "
            "of its bytes in hex",
        )
    if not approves:
        for field, value in (("args", decision.args), ("scope", decision.scope)):
            if value is not None:
                raise _invalid(field, f"belongs to the decision 'approve', not to {decision.decision!r}")
    if row.kind == "plan" and decision.args is not None:
        raise _invalid("args", "a plan is not edited: send 'revise' with feedback")
    if row.kind == "plan" and decision.scope is not None:
        raise _invalid("scope", "approvals of plans are not remembered: remove 'scope'")
    if decision.scope is not None and not row.rule.rememberable:
        raise _invalid("scope", "the rule of this gate is not 'rememberable': remove 'scope'")


def _invalid(field: str, message: str) -> Invalid:
    return Invalid(f"{field}: {message}.", [FieldError(f"/{field}", message)])


def validate_digest(row: ApprovalRow, decision: Decision, *, edits: bool) -> None:
    """Raise Conflict unless the decision is about the current subject. A repeated edit is accepted with an older
    digest: an approver who sends the current arguments knows them."""
    if decision.digest is None or decision.digest == row.digest.hex():
        return
    if decision.args is not None and not edits:
        return
    raise Conflict(
        "The digest does not match this approval, so you reviewed something else. "
        f"Read GET /approvals/{row.id}/subject again.",
        extra={"digest": row.digest.hex()},
    )


def repeated_decision(row: ApprovalRow, decision: Decision, *, edits: bool) -> ApprovalRow:
    """Return the first result if the same principal repeats the same decision; else raise a Conflict that
    shows the decision that won."""
    first = next((v for v in row.votes if is_same_person(v.principal, decision.by)), None)
    repeats = first is not None and (first.decision, first.scope) == (decision.decision, decision.scope)
    if repeats and row.decision == decision.decision and not edits:
        return row
    decider = f" by {row.decided_by}" if row.decided_by else ""
    raise Conflict(f"This approval is already {row.status}{decider}.", extra={"approval": row.wire()})


def expired_error(row: ApprovalRow) -> Conflict:
    return Conflict("This approval has expired and can no longer be decided.", extra={"approval": row.wire()})


def validate_not_requester(row: ApprovalRow, decision: Decision) -> None:
    """Raise Forbidden if the requester decides and the rule excludes the requester."""
    if row.excluded_requester is not None and is_same_person(decision.by, row.excluded_requester):
        raise Forbidden("This approval must be decided by someone other than the requester.")


def can_decide(caller: Caller, excluded_requester: str | None, voters: Iterable[Voter]) -> bool:
    """Return whether this caller can decide a pending approval or vote on it: neither the caller nor the caller's key has
    voted, and the caller is not the requester whom the rule excludes."""
    if not caller.has_scope("approvals:decide"):
        return False
    if excluded_requester is not None and is_same_person(caller.principal, excluded_requester):
        return False
    return not any(
        is_same_person(voter.principal, caller.principal) or voter.key_id == caller.key_id for voter in voters
    )


def has_voted(row: ApprovalRow, decision: Decision) -> bool:
    """Return whether this vote was cast before. Raise Conflict if the principal voted differently, and
    Forbidden if the key would vote twice: all principals acting through one key count as one vote."""
    for vote in row.votes:
        if is_same_person(vote.principal, decision.by):
            if (vote.decision, vote.scope) == (decision.decision, decision.scope):
                return True
            scope = f" with scope {vote.scope!r}" if vote.scope else ""
            raise Conflict(
                f"{vote.principal} already voted {vote.decision!r}{scope}; a principal has one vote.",
                extra={"approval": row.wire()},
            )
    first = next((v for v in row.votes if v.key_id == decision.key_id), None)
    if first is not None and decision.decision == "approve":
        raise Forbidden(
            f"The API key of this request has already voted, for {first.principal}. All principals "
            "acting through one key count as one vote: the next approver needs a key of their own."
        )
    return False


def is_remembered(row: ApprovalRow) -> bool:
    """Return whether every voter asked to remember the approval. A voter who did not has approved only this call."""
    return bool(row.rule.rememberable) and all(v.scope == "thread" for v in row.votes)
