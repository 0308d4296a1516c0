"""What a decision may be, given the approval it is about. Pure: the service asks here before it writes anything."""

from __future__ import annotations

from app.approvals.models import ApprovalRow, Decision
from app.approvals.principals import is_same_person
from app.base.errors import Conflict, FieldError, Forbidden, Invalid


def validate_decision(row: ApprovalRow, decision: Decision) -> None:
    """Raise Invalid for a decision that this approval does not accept, whatever its status. An approval is bound to what
    the approver saw by its digest, so it must have one."""
    if decision.decision == "approve" and decision.digest is None:
        raise _invalid(
            "digest",
            f"required to approve: read GET /approvals/{row.id}/subject, show it to the approver, and send the SHA-256 "
            "of its bytes in hex",
        )
    if decision.args is not None:
        if decision.decision != "approve":
            raise _invalid("args", f"belongs to the decision 'approve', not to {decision.decision!r}")
        if row.kind == "plan":
            raise _invalid("args", "a plan is not edited: send 'revise' with feedback")
    if decision.scope is not None:
        if decision.decision != "approve":
            raise _invalid("scope", f"belongs to the decision 'approve', not to {decision.decision!r}")
        if row.kind == "plan":
            raise _invalid("scope", "approvals of plans are not remembered: remove 'scope'")
        if not row.rule.rememberable:
            raise _invalid("scope", "the rule of this gate is not 'rememberable': remove 'scope'")


def _invalid(field: str, message: str) -> Invalid:
    return Invalid(f"{field}: {message}.", [FieldError(f"/{field}", message)])


def validate_digest(row: ApprovalRow, decision: Decision, *, edits: bool) -> None:
    """Check that the decision is about the current subject. A repeated edit is accepted with an older
    digest: whoever sends the current arguments knows them."""
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
    mine = next((v for v in row.votes if is_same_person(v.principal, decision.by)), None)
    same = mine is not None and (mine.decision, mine.scope) == (decision.decision, decision.scope)
    if same and row.decision == decision.decision and not edits:
        return row
    who = f" by {row.decided_by}" if row.decided_by else ""
    raise Conflict(f"This approval is already {row.status}{who}.", extra={"approval": row.wire()})


def expired_error(row: ApprovalRow) -> Conflict:
    return Conflict("This approval has expired and can no longer be decided.", extra={"approval": row.wire()})


def validate_not_requester(row: ApprovalRow, decision: Decision) -> None:
    asked = row.rule.approvers
    if asked is not None and asked.not_requester and is_same_person(decision.by, row.requested_by):
        raise Forbidden("This approval must be decided by someone other than the requester.")


def has_voted(row: ApprovalRow, decision: Decision) -> bool:
    """Return whether this vote was cast before. Raise Conflict if the principal voted differently, and
    Forbidden if the key would vote twice: all principals acting through one key count as one vote."""
    for vote in row.votes:
        if is_same_person(vote.principal, decision.by):
            if (vote.decision, vote.scope) == (decision.decision, decision.scope):
                return True
            how = f" with scope {vote.scope!r}" if vote.scope else ""
            raise Conflict(
                f"{vote.principal} already voted {vote.decision!r}{how}; a principal has one vote.",
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
    """Return whether everybody who approved asked to remember the approval; anyone who did not has approved
    this call only."""
    return bool(row.rule.rememberable) and all(v.scope == "thread" for v in row.votes)
