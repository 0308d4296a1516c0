"""The verbs of approvals. Only `decide` approves anything, and only the HTTP door calls it.

A decision is one transaction: the compare-and-set on the row, its event, and the wake-up of the query. So none is
taken and then lost, and of any number of decisions one wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from app.approvals import store
from app.approvals.models import DEFAULT_EXPIRES_MS, ApprovalRequest, ApprovalRow, Decided
from app.approvals.states import STATUS_OF_DECISION
from app.base import jsongate
from app.base.clock import rfc3339
from app.base.database import Database, Tx
from app.base.errors import Conflict, Forbidden, NotFound
from app.base.ids import is_id, new_id
from app.journal import store as journal_store
from app.journal.models import Scope, event
from app.queue import store as queue_store
from app.queue.worker import one_by_one

DecisionWord = Literal["approve", "reject", "revise"]
Gate = Literal["plan", "tool"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What an approver says. `digest` binds it to what he saw."""

    decision: DecisionWord
    by: str
    feedback: str | None = None
    partial: Any = None
    digest: str | None = None


class Approvals:
    def __init__(self, db: Database) -> None:
        self._db = db

    # -- the gate's side -------------------------------------------------------------------------------------

    async def asked(self, tx: Tx, work_id: str, kind: Gate) -> bool:
        """Whether this work opened an approval of this kind before."""
        return await store.by_work(tx, work_id, kind) is not None

    async def request(self, tx: Tx, request: ApprovalRequest, *, by_policy: bool = False) -> str:
        """Opens an approval, with its event; finds the one this work opened before a crash. `by_policy`: the rule
        is `never`, so the row is there for the record and approved at once."""
        rule = request.rule
        expires = request.expires_in_ms or rule.approval_expires_in_ms or DEFAULT_EXPIRES_MS
        row = await store.open_(
            tx,
            new_id("apr_"),
            request.kind,
            request.target,
            request.subject,
            jsongate.dumps(request.glimpses),
            jsongate.dumps(rule.model_dump(mode="json", by_alias=True, exclude_none=True)),
            request.scope.query_id,
            request.scope.work_id,
            request.scope.agent,
            request.scope.thread_id,
            request.runtime_id,
            request.requested_by,
            float(expires),
        )
        if row is None:
            return str((await store.by_work(tx, request.scope.work_id, request.kind))["id"])
        opened = store.row_of(row)
        if by_policy:
            await store.decide(tx, opened.id, "approved", "policy", "approve", None, None)
            return opened.id
        told = event(request.scope, "approval-required", data=opened.wire())
        await journal_store.append(tx, request.scope.query_id, [told])
        return opened.id

    async def decided(self, tx: Tx, work_id: str, kind: Gate) -> Decided | None:
        """What became of the approval that this work opened; None while it is pending."""
        row = await store.by_work(tx, work_id, kind)
        if row is None or row["status"] == "pending":
            return None
        partial = None if row["partial"] is None else orjson.loads(row["partial"])
        return Decided(row["id"], row["status"], row["digest"], row["decided_by"], row["feedback"], partial)

    # -- the approver's side ---------------------------------------------------------------------------------

    async def decide(self, tx: Tx, approval_id: str, decision: Decision) -> ApprovalRow:
        """Takes a decision or a vote. The same decision again by the same principal gives the first answer; a
        different one is a Conflict that shows the winner."""
        row, late = await self._locked(tx, approval_id)
        if decision.digest is not None and decision.digest != row.digest.hex():
            raise Conflict(
                "The digest is not that of this approval: what you looked at is not what would be approved. "
                f"Read GET /approvals/{approval_id}/subject again.",
                extra={"digest": row.digest.hex()},
            )
        if row.status != "pending":
            votes = (await store.votes(tx, [approval_id])).get(approval_id, [])
            return self._repeated(self._with_votes(row, votes), decision)
        if late:
            raise Conflict(
                "This approval has expired; nothing can be decided any more.", extra={"approval": row.wire()}
            )
        asked = row.rule.get("approvers") or {}
        if asked.get("notRequester") and decision.by == row.requested_by:
            raise Forbidden("The rule of this gate wants somebody else than who asked for it to decide.")
        await store.vote(tx, approval_id, decision.by, decision.decision)
        votes = (await store.votes(tx, [approval_id])).get(approval_id, [])
        mine = next(v for v in votes if v["principal"] == decision.by)
        if mine["decision"] != decision.decision:
            raise Conflict(
                f"{decision.by} already voted {mine['decision']!r}; a principal has one vote.",
                extra={"approval": self._with_votes(row, votes).wire()},
            )
        approvals = sum(v["decision"] == "approve" for v in votes)
        if decision.decision == "approve" and approvals < int(asked.get("minimum") or 1):
            return self._with_votes(row, votes)
        status = STATUS_OF_DECISION[decision.decision]
        ended = await self._end(
            tx, approval_id, status, decision.by, decision.decision, decision.feedback, decision.partial
        )
        if ended is None:
            raise Conflict(
                "This approval has expired; nothing can be decided any more.", extra={"approval": row.wire()}
            )
        return self._with_votes(ended, votes)

    async def lock_queries(self, tx: Tx, approval_ids: Sequence[str]) -> None:
        """For who decides several at once: the queries first, in the order in which everybody locks them."""
        for query_id in await store.queries_of(tx, approval_ids):
            await queue_store.lock(tx, query_id)

    async def _locked(self, tx: Tx, approval_id: str) -> tuple[ApprovalRow, bool]:
        """The row under the lock order (its query first), and whether its time has passed."""
        query_id = await store.query_of(tx, approval_id) if is_id("apr_", approval_id) else None
        if query_id is None:
            raise NotFound(f"There is no approval {approval_id!r}.")
        await queue_store.lock(tx, query_id)
        row = await store.lock(tx, approval_id)
        return store.row_of(row), bool(row["late"])

    def _repeated(self, row: ApprovalRow, decision: Decision) -> ApprovalRow:
        voted = any(v["principal"] == decision.by and v["decision"] == decision.decision for v in row.votes)
        if voted and row.decision == decision.decision:
            return row
        who = f" by {row.decided_by}" if row.decided_by else ""
        raise Conflict(f"This approval is already {row.status}{who}.", extra={"approval": row.wire()})

    def _with_votes(self, row: ApprovalRow, votes: list[Any]) -> ApprovalRow:
        row.votes[:] = [vote_wire(v) for v in votes]
        return row

    async def _end(
        self,
        tx: Tx,
        approval_id: str,
        status: str,
        by: str | None,
        decision: str | None,
        feedback: str | None = None,
        partial: Any = None,
    ) -> ApprovalRow | None:
        """The one place where an approval ends: row, event, wake-up."""
        packed = None if partial is None else jsongate.dumps(partial)
        row = await store.decide(tx, approval_id, status, by, decision, feedback, packed)
        if row is None:
            return None
        ended = store.row_of(row)
        # The event stands where the gate opened: under the same parent as its `approval-required`.
        scope = await journal_store.scope_of(tx, ended.work_id) or Scope(
            ended.query_id, ended.thread_id, ended.work_id, None, ended.agent
        )
        data: dict[str, Any] = {
            "id": ended.id,
            "outcome": {"outcome": decision or status},
            "decidedBy": by,
        }
        if feedback is not None:
            data["feedback"] = feedback
        await journal_store.append(tx, ended.query_id, [event(scope, "approval-decision", data=data)])
        await queue_store.wake(tx, ended.query_id)
        return ended

    # -- without a person ------------------------------------------------------------------------------------

    async def cancel_of_query(self, tx: Tx, query_id: str, _reason: str) -> None:
        """Withdraws what a query that ends still asks for."""
        for approval_id in await store.open_of_query(tx, query_id):
            await self._end(tx, approval_id, "cancelled", None, None)

    async def expire_due(self) -> int:
        """Ends what nobody decided in time; once each, by the database's clock."""
        due = await store.due(self._db, 100)
        await one_by_one(due, self._expire)
        return len(due)

    async def _expire(self, tenant: str, approval_id: str) -> None:
        async with self._db.transaction(tenant) as tx:
            row, _ = await self._locked(tx, approval_id)
            if row.status == "pending":
                await self._end(tx, approval_id, "expired", None, None)

    # -- reading ---------------------------------------------------------------------------------------------

    async def read(self, tx: Tx, approval_id: str) -> ApprovalRow:
        row = await store.by_id(tx, approval_id) if is_id("apr_", approval_id) else None
        if row is None:
            raise NotFound(f"There is no approval {approval_id!r}.")
        return self._with_votes(
            store.row_of(row), (await store.votes(tx, [approval_id])).get(approval_id, [])
        )

    async def open_of_query(self, tx: Tx, query_id: str) -> list[str]:
        return await store.open_of_query(tx, query_id)

    async def subject(self, tx: Tx, approval_id: str) -> bytes:
        """The bytes that are approved; their SHA-256 is the digest."""
        found = await store.subject(tx, approval_id) if is_id("apr_", approval_id) else None
        if found is None:
            raise NotFound(f"There is no approval {approval_id!r}.")
        return found

    async def page(
        self, tx: Tx, before: str | None, filters: list[str | None], limit: int
    ) -> list[ApprovalRow]:
        rows = [store.row_of(r) for r in await store.page(tx, before, *filters, limit)]
        votes = await store.votes(tx, [r.id for r in rows])
        return [self._with_votes(r, votes.get(r.id, [])) for r in rows]


def vote_wire(vote: Any) -> dict[str, Any]:
    return {"principal": vote["principal"], "decision": vote["decision"], "at": rfc3339(vote["at"])}
