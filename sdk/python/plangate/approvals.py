"""Methods for approvers on an open runtime: pending approvals, decisions, and grants."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, cast, get_args

from plangate.api.models import ApprovalInfo, DecideOne, GrantView, Subject
from plangate.api.record import convert
from plangate.api.requests import present, read_items
from plangate.authoring.arguments import describe_type
from plangate.client import path
from plangate.session import RuntimeSession
from plangate.spec.base import did_you_mean
from plangate.statuses import ApprovalStatus, Decision

DECISIONS: Final = get_args(Decision)
STATUSES: Final = get_args(ApprovalStatus)
FIELDS: Final = ("id", "decision", "feedback", "partial", "digest", "args", "scope")


@dataclass(frozen=True, slots=True)
class ApprovalSubject:
    """The subject of an approval: its exact bytes, their parsed JSON object, and their SHA-256 in hex.

    Show `value`, or `data` where every digit of a number matters; nothing else is carried out.

    Args:
        data: The bytes.
        value: `{"kind": "tool", "tool", "args", ...}` or `{"kind": "plan", "planId", "body", ...}`.
        digest: What `respond_to_approval` takes.

    Example:
        >>> async def read(runtime, approval):
        ...     subject = await runtime.approval_subject(approval["id"])
        ...     return subject.value["args"] if subject.value["kind"] == "tool" else subject.value["body"]
    """

    data: bytes
    value: Subject
    digest: str


class ApprovalMethods(RuntimeSession):
    """The verbs of approvals and grants. Both belong to the tenant, whichever runtime asks."""

    async def approvals(
        self,
        status: ApprovalStatus | None = "pending",
        *,
        query_id: str | None = None,
        limit: int = 50,
    ) -> list[ApprovalInfo]:
        """List the approvals of the tenant, newest first: the inbox of its approvers.

        Args:
            status: None gives all.
            query_id: Only those of this query.
            limit: How many at most.

        Raises:
            ValueError: for another status.
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def inbox(runtime):
            ...     for approval in await runtime.approvals():
            ...         print(approval["id"], approval["agent"], approval["target"], approval["glimpses"])
        """
        if status is not None and status not in STATUSES:
            raise ValueError(f"unknown approval status {status!r}{did_you_mean(str(status), STATUSES)}")
        return await read_items(self.api.list_approvals, status=status, query_id=query_id, limit=limit)

    async def approval_subject(self, id: str) -> ApprovalSubject:
        """Return exactly what is approved and carried out: the call with its arguments, or the plan.

        Show it to the approver, and approve with its digest.

        Args:
            id: The approval's.

        Raises:
            NotFound: if there is none.
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def read_and_approve(runtime, approval):
            ...     subject = await runtime.approval_subject(approval["id"])
            ...     print(subject.value)
            ...     if input("Approve exactly this? ") == "yes":
            ...         await runtime.respond_to_approval(approval["id"], "approve", digest=subject.digest)
        """
        data: bytes = await self._client.request("GET", path("approvals", id, "subject"), raw=True)
        return ApprovalSubject(data, convert(Subject, json.loads(data)), hashlib.sha256(data).hexdigest())

    async def respond_to_approval(
        self,
        id: str,
        decision: Literal["approve", "reject", "revise"],
        feedback: str | None = None,
        partial: Any = None,
        *,
        digest: str | None = None,
        args: Mapping[str, Any] | None = None,
        scope: Literal["thread"] | None = None,
    ) -> ApprovalInfo:
        """Decide an approval and return it as it is then. The key needs the scope `approvals:decide`.

        Args:
            id: The approval's, from an `approval-required` event's `data` or from `approvals`.
            decision: `"revise"` asks for another plan; of a tool call it is a rejection with feedback.
            feedback: The feedback that the agent receives.
            partial: With `"revise"`, what may stay.
            digest: Required with `"approve"`: the digest of the subject that the approver saw, from
                `approval_subject`. Another one is refused.
            args: With `"approve"`, for tools: takes the place of the call's arguments, as it is. It must match
                the tool's input schema. The approval has the arguments that were asked for as `originalArgs`,
                and another digest; votes so far are void.
            scope: With `"approve"`: `"thread"` remembers it for this thread, agent, tool and these arguments,
                for a day, where the rule is `rememberable`. See `grants`.

        Raises:
            ValueError: at once, for another decision or scope, for `"approve"` without `digest`, and for `args`
                or `scope` with anything but `"approve"`.
            TypeError: at once, for `args` that are no mapping.
            Conflict: if it was decided otherwise, has expired, or has another digest; `error.problem` shows it.
            InvalidRequest: if `args` do not match, or the rule does not allow the scope.
            Forbidden: if the key may not decide, or has voted already.
            NotFound: if there is none.
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def ask(runtime, event, show):
            ...     gate = event["data"]  # of an approval-required event
            ...     subject = await runtime.approval_subject(gate["id"])
            ...     if await show(subject.value):
            ...         await runtime.respond_to_approval(gate["id"], "approve", digest=subject.digest)
            ...     else:
            ...         await runtime.respond_to_approval(gate["id"], "reject", "Too expensive.")
            >>> async def approve_less(runtime, gate, subject):
            ...     less = {"digest": subject.digest, "args": {**subject.value["args"], "cents": 500}}
            ...     await runtime.respond_to_approval(gate["id"], "approve", **less, scope="thread")
        """
        _check_decision("", {"decision": decision, "digest": digest, "args": args, "scope": scope})
        return await self.api.decide_approval(
            id,
            decision=decision,
            feedback=feedback,
            partial=partial,
            digest=digest,
            args=None if args is None else dict(args),
            scope=scope,
        )

    async def respond_to_approvals(self, decisions: Sequence[Mapping[str, Any]]) -> list[ApprovalInfo]:
        """Decide several approvals, all or none, and return them in the same order.

        Args:
            decisions: Up to a hundred mappings, each with `id` and `decision` and, where they are wanted,
                `feedback`, `partial`, `digest`, `args` and `scope`, as for `respond_to_approval`. An empty list
                decides nothing.

        Raises:
            ValueError: at once, as `respond_to_approval`, and for an approval that is named twice.
            TypeError: at once, for what is no list of mappings.
            Conflict, InvalidRequest, Forbidden, NotFound: as `respond_to_approval`; nothing was decided then.
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def decide_what_waits(runtime, show):
            ...     decisions = []
            ...     for gate in await runtime.approvals():
            ...         subject = await runtime.approval_subject(gate["id"])
            ...         decision = "approve" if await show(subject.value) else "reject"
            ...         decisions.append({"id": gate["id"], "decision": decision, "digest": subject.digest})
            ...     await runtime.respond_to_approvals(decisions)
        """
        bodies = _validate_decisions(decisions)
        return (await self.api.decide_approvals(decisions=bodies)).approvals if bodies else []

    async def grants(
        self,
        *,
        agent: str | None = None,
        tool: str | None = None,
        active: bool | None = True,
        limit: int = 50,
    ) -> list[GrantView]:
        """List the remembered approvals of the tenant (`scope="thread"`), newest first.

        Each has `id`, `threadId`, `agent`, `tool`, the `args` it holds for, and in `free` the arguments that may
        have any value.

        Args:
            agent, tool: Only those of this agent, of this tool.
            active: False gives those that are revoked or past their day, None all.
            limit: How many at most.

        Raises:
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def forget_all(runtime, tool):
            ...     for grant in await runtime.grants(tool=tool):
            ...         await runtime.revoke_grant(grant["id"])
        """
        return await read_items(self.api.list_grants, agent=agent, tool=tool, active=active, limit=limit)

    async def revoke_grant(self, id: str) -> GrantView:
        """Revoke a remembered approval and return it: the next such call asks again. Idempotent.

        Args:
            id: The grant's, from `grants`, or from the `grantId` of an approval.

        Raises:
            NotFound: if there is none.
            Forbidden: if the key may not decide about approvals.
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def forget(runtime, approval):
            ...     await runtime.revoke_grant(approval["grantId"])
        """
        return await self.api.revoke_grant(id)


def _validate_decisions(decisions: Any) -> list[DecideOne]:
    if isinstance(decisions, str | bytes | Mapping) or not isinstance(decisions, Sequence):
        raise TypeError(
            f"decisions is a list of mappings with id and decision, not {describe_type(decisions)}"
        )
    bodies: list[DecideOne] = []
    for number, one in enumerate(decisions):
        place = f"decisions[{number}]: "
        if not isinstance(one, Mapping):
            raise TypeError(f"{place}a mapping with id and decision is wanted, not {describe_type(one)}")
        for name in one:
            if name not in FIELDS:
                raise ValueError(
                    f"{place}unknown field {name!r} in a decision{did_you_mean(str(name), FIELDS)}"
                )
        if not isinstance(one.get("id"), str):
            raise ValueError(f"{place}it has no 'id': give that of the approval, such as 'apr_...'")
        if one["id"] in (other["id"] for other in bodies):
            raise ValueError(f"{place}{one['id']} is decided twice: an approval has one decision")
        _check_decision(place, one)
        fields = {name: dict(value) if name == "args" else value for name, value in present(one).items()}
        bodies.append(cast(DecideOne, fields))
    return bodies


def _check_decision(place: str, one: Mapping[str, Any]) -> None:
    """Raise ValueError or TypeError for a decision that cannot be one. `place` begins the message."""
    decision, args, scope = one.get("decision"), one.get("args"), one.get("scope")
    if decision not in DECISIONS:
        raise ValueError(f"{place}a decision is one of {', '.join(DECISIONS)}, not {decision!r}")
    if args is not None and not isinstance(args, Mapping):
        raise TypeError(f"{place}args is a mapping of the call's arguments, not {describe_type(args)}")
    if args is not None and decision != "approve":
        raise ValueError(
            f"{place}args take the place of the arguments of a call that is approved: with {decision!r} leave them "
            "out, and say in feedback what should be different"
        )
    if scope is not None and scope != "thread":
        raise ValueError(f"{place}scope is 'thread', or left out to decide this once, not {scope!r}")
    if scope is not None and decision != "approve":
        raise ValueError(f"{place}only an approval is remembered: with {decision!r} leave scope out")
    if decision == "approve" and one.get("digest") is None:
        raise ValueError(
            f"{place}'approve' needs the digest of what was seen: subject = await runtime.approval_subject(id), show "
            "subject.value, and pass digest=subject.digest"
        )
