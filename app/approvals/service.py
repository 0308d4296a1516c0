"""The operations of approvals. Only `decide` approves anything, and only the routes call it.

A decision is one transaction: the compare-and-set on the row, its event, and the wake-up of the query. So no decision
is lost after it was recorded, and if several people decide at once, one decision wins.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson
from plangate.spec.toolkits import builtin_tools
from plangate.spec.variable_schemas import has_variables, schema_without_meta
from plangate.statuses import EndedApprovalStatus

from app.approvals import decision_rules, grants, store
from app.approvals.hidden_values import hide_reference_values, reference_variables
from app.approvals.models import (
    ApprovalRequest,
    ApprovalRow,
    Comment,
    Decision,
    EndedApproval,
    GateKind,
    GateState,
    PendingCounts,
)
from app.approvals.states import STATUS_OF_DECISION
from app.approvals.store import ApprovalFilter
from app.approvals.subject import parse_args, with_args
from app.base.errors import Conflict, FieldError, Gone, Invalid, NotFound
from app.base.ids import is_id, new_id
from app.base.json import strict_json
from app.base.json.offload import offload
from app.base.postgres.database import Database, Tx
from app.base.responses import to_wire
from app.base.schema.checker import CompiledSchema, SchemaChecker
from app.base.schema.parts import Schema
from app.engine.service import lock_query, wake_query
from app.engine.worker import for_each_due
from app.events import (
    ApprovalCommentEvent,
    ApprovalCommentNotice,
    ApprovalDecisionEvent,
    ApprovalRequiredEvent,
)
from app.journal.models import Scope, event
from app.journal.service import append_events, load_scope
from app.runtimes.service import Runtimes
from app.tenancy.models import Caller

PlanGateClosed = Callable[[Tx, ApprovalRow, bytes], Awaitable[None]]
"""Called as `(tx, approval, subject)` in the transaction in which the gate of a plan closes without an approval."""

EXPIRED_TOGETHER = 100  # approvals at most in one round
MAX_COUNTED = 10_000  # pending approvals
MAX_GROUPS = 100  # of pending approvals
MAX_COMMENTS = 500  # on one approval
NO_SUBJECT = b"{}"  # stands for the subject of an approval whose thread was deleted: it was decided long ago


class TooManyComments(Conflict):
    kind, title = "too_many_comments", "The approval has as many comments as it can have"


class ApprovalService:
    def __init__(
        self, db: Database, runtimes: Runtimes, schemas: SchemaChecker, plan_gate_closed: PlanGateClosed
    ) -> None:
        self._db = db
        self._runtimes = runtimes
        self._schemas = schemas
        self._plan_gate_closed = plan_gate_closed

    # -- the gate's side -------------------------------------------------------------------------------------

    async def gate_state(self, tx: Tx, work_id: str, kind: GateKind) -> GateState:
        """Return the state of a gate. Read it at every gate: a floor that the operator changes applies from the next
        gate on."""
        return await store.gate_state(tx, work_id=work_id, kind=kind)

    async def was_requested(self, tx: Tx, work_id: str, kind: GateKind) -> bool:
        """Return whether this work requested an approval of this kind before."""
        return await store.exists(tx, work_id=work_id, kind=kind)

    async def request(self, tx: Tx, request: ApprovalRequest, *, by_policy: bool = False) -> None:
        """Open an approval, with its event, unless this work opened it before a crash. With `by_policy` the
        rule is `never`: the row is written for the record and approved at once, as is one that a grant
        covers."""
        pending = await store.insert(tx, approval_id=new_id("apr_"), request=request)
        if pending is None:
            return
        if by_policy:
            await store.approve_by_policy(tx, approval_id=pending.id)
            return
        grant = await grants.covering_grant(tx, request)
        if grant is None:
            await self._emit_opened(tx, pending, request.scope)
            return
        approved = await store.approve_by_grant(
            tx, approval_id=pending.id, by=grant.granted_by, grant_id=grant.id
        )
        await self._emit_ended(tx, approved, request.scope)

    async def outcome(self, tx: Tx, work_id: str, kind: GateKind) -> EndedApproval | None:
        """Return the outcome of the approval that this work opened, or None while it is pending."""
        return await store.ended_of_work(tx, work_id=work_id, kind=kind)

    # -- the approver's side ---------------------------------------------------------------------------------

    async def compile_schemas(
        self, tenant: str, decisions: Mapping[str, Decision]
    ) -> dict[str, CompiledSchema]:
        """Compile the schemas of the tools whose arguments the decisions replace, before the transaction that records
        them. Return them by the ids of the approvals; ids of none are left out."""
        edited = [id for id, decision in decisions.items() if decision.args is not None and is_id("apr_", id)]
        if not edited:
            return {}
        async with self._db.transaction(tenant) as tx:
            rows = [await store.by_id(tx, approval_id=id) for id in edited]
            schemas = {row.id: await self._args_schema(tx, row) for row in rows if row is not None}
        return {id: await offload(self._schemas.compile, schema) for id, schema in schemas.items()}

    async def _args_schema(self, tx: Tx, row: ApprovalRow) -> Schema:
        """Return the schema of the arguments of the tool that an approval is about; of a plan, one that nothing matches."""
        runtime = await self._runtimes.get(tx.tenant, row.runtime_id, tx)
        if row.kind != "tool":
            return False
        schemas = {t.name: t.validation_schema for t in builtin_tools(runtime.spec, runtime.agent(row.agent))}
        own = schema_without_meta if has_variables(runtime.agent(row.agent)) else dict
        schemas |= {name: own(tool.input_schema) for name, tool in runtime.tools.items()}
        return schemas.get(row.target, False)

    async def decide(
        self, tx: Tx, approval_id: str, decision: Decision, schema: CompiledSchema | None = None
    ) -> ApprovalRow:
        """Record a decision or a vote. A repetition by the same principal returns the first result; a
        different decision raises a Conflict that shows the decision that won. `schema` is what `compile_schemas` returned
        for an approval whose arguments the decision replaces."""
        locked = await self._lock(tx, approval_id)
        row, subject = locked.approval, locked.subject or NO_SUBJECT
        decision_rules.validate_decision(row, decision)
        edited = subject if decision.args is None else with_args(subject, decision.args)
        edits = edited != subject
        decision_rules.validate_digest(row, decision, edits=edits)
        if row.status != "pending":
            return decision_rules.repeated_decision(row, decision, edits=edits)
        if locked.is_late:
            raise decision_rules.expired_error(row)
        decision_rules.validate_not_requester(row, decision)
        if edits:
            row = await self._replace_args(tx, row, subject, edited, schema)
        if not decision_rules.has_voted(row, decision):
            vote = await store.insert_vote(tx, approval_id=row.id, edits=row.edits, vote=decision)
            row.votes.append(vote)
        if decision.decision == "approve" and row.voters < row.minimum:
            if edits:
                await self._emit_opened(tx, row, await self._scope_of(tx, row))
            return row
        ended = await self._end(tx, row, STATUS_OF_DECISION[decision.decision], decision)
        if decision.decision == "approve" and decision_rules.is_remembered(ended):
            await grants.add_grant(tx, ended, edited, decision.by)
        return ended

    async def _replace_args(
        self, tx: Tx, row: ApprovalRow, before: bytes, subject: bytes, schema: CompiledSchema | None
    ) -> ApprovalRow:
        """Replace the subject `before`, which voids earlier votes. Raise Invalid if the tool does not accept the
        arguments."""
        args = await offload(parse_args, subject)
        if schema is None:
            schema = await offload(self._schemas.compile, await self._args_schema(tx, row))
        errors = await offload(schema.errors, args)
        if errors:
            raise Invalid(
                f"args do not match the inputSchema of {row.target}; nothing was decided.",
                [FieldError("/args" + e.pointer, e.message) for e in errors],
            )
        glimpses: dict[str, Any] = {"args": args}  # literal: no variable is behind them
        if hidden := reference_variables(row.glimpses):
            original = await offload(parse_args, row.original_subject or before)
            shown = await offload(
                hide_reference_values, args, original, hidden, size=len(before) + len(subject)
            )
            variables = orjson.loads(row.glimpses)["variables"]
            glimpses = {"args": shown, "variables": [v for v in variables if v.get("pointer") in hidden]}
        return await store.replace_subject(
            tx, approval_id=row.id, subject=subject, glimpses=strict_json.dumps(glimpses)
        )

    async def lock_queries(self, tx: Tx, approval_ids: Sequence[str]) -> None:
        """Lock the queries of approvals that are decided together, in one order, so that no two transactions wait for
        each other."""
        for query_id in await store.query_ids_of(tx, approval_ids=approval_ids):
            await lock_query(tx, query_id=query_id)

    async def _lock(self, tx: Tx, approval_id: str) -> store.LockedApproval:
        """Lock the approval's query and then its row. Raise NotFound."""
        await lock_query(tx, query_id=await self._query_id_of(tx, approval_id))
        locked = await store.lock(tx, approval_id=approval_id)
        (row,) = await self._with_votes(tx, [locked.approval])
        return replace(locked, approval=row)

    async def _query_id_of(self, tx: Tx, approval_id: str) -> str:
        """Return the query of an approval. Raise NotFound."""
        query_id = (
            await store.query_id_of(tx, approval_id=approval_id) if is_id("apr_", approval_id) else None
        )
        if query_id is None:
            raise NotFound(f"There is no approval {approval_id!r}.")
        return query_id

    async def _with_votes(self, tx: Tx, rows: Sequence[ApprovalRow]) -> list[ApprovalRow]:
        votes = await store.votes(tx, approval_ids=[row.id for row in rows])
        return [replace(row, votes=votes.get(row.id, [])) for row in rows]

    async def _end(
        self,
        tx: Tx,
        row: ApprovalRow,
        status: EndedApprovalStatus,
        decision: Decision | None = None,
    ) -> ApprovalRow:
        """End an approval: row, event and wake-up. No other code ends one. `decision` is None if no person
        decided."""
        ended = await store.decide(tx, approval_id=row.id, status=status, decision=decision)
        if ended is None:  # its time passed while this transaction held the row
            raise decision_rules.expired_error(row)
        ended = replace(ended, votes=row.votes)
        if ended.kind == "plan" and status != "approved":
            await self._plan_gate_closed(tx, ended, await self.subject(tx, ended.id))
        await self._emit_ended(tx, ended, await self._scope_of(tx, ended))
        await wake_query(tx, query_id=ended.query_id)
        return ended

    # -- events ----------------------------------------------------------------------------------------------

    async def _scope_of(self, tx: Tx, row: ApprovalRow) -> Scope:
        """Return the scope in which the approval was requested: all events about it have the same parent."""
        scope = await load_scope(tx, work_id=row.work_id)
        return scope or Scope(row.query_id, row.thread_id, row.work_id, None, row.agent)

    async def _emit_opened(self, tx: Tx, row: ApprovalRow, scope: Scope) -> None:
        """Emit that an approval was requested, or that its arguments have changed and need another decision."""
        data = row.wire()
        if row.original_subject is not None and (hidden := reference_variables(row.glimpses)):
            original = await offload(parse_args, row.original_subject)
            data["originalArgs"] = await offload(hide_reference_values, original, original, hidden)
        await append_events(
            tx, query_id=row.query_id, events=[event(scope, ApprovalRequiredEvent, data=data)]
        )

    async def _emit_ended(self, tx: Tx, row: ApprovalRow, scope: Scope) -> None:
        data: dict[str, Any] = {
            "id": row.id,
            "outcome": {"outcome": row.decision or row.status},
            "decidedBy": row.decided_by,
        }
        if row.feedback is not None:
            data["feedback"] = row.feedback
        if row.original_subject is not None and row.status == "approved":
            data["args"] = orjson.loads(row.glimpses)["args"]
        if row.grant_id is not None:
            data["grantId"] = row.grant_id
        await append_events(
            tx, query_id=row.query_id, events=[event(scope, ApprovalDecisionEvent, data=data)]
        )

    # -- without a person ------------------------------------------------------------------------------------

    async def cancel_of_query(self, tx: Tx, query_id: str, _reason: str) -> None:
        """Cancel the open approvals of a query that ends."""
        for approval_id in await store.open_of_query(tx, query_id=query_id):
            await self._end(tx, await self.read(tx, approval_id), "cancelled")

    async def expire_due(self) -> int:
        """End overdue approvals, once each, by the database's clock."""
        due = await store.due(self._db, limit=EXPIRED_TOGETHER)
        await for_each_due(due, self._expire)
        return len(due)

    async def _expire(self, tenant: str, approval_id: str) -> None:
        async with self._db.transaction(tenant) as tx:
            row = (await self._lock(tx, approval_id)).approval
            if row.status == "pending":
                await self._end(tx, row, "expired")

    # -- reading ---------------------------------------------------------------------------------------------

    async def read(self, tx: Tx, approval_id: str) -> ApprovalRow:
        """Return an approval with its votes. Raise NotFound."""
        row = await store.by_id(tx, approval_id=approval_id) if is_id("apr_", approval_id) else None
        if row is None:
            raise NotFound(f"There is no approval {approval_id!r}.")
        (row,) = await self._with_votes(tx, [row])
        return row

    async def open_of_query(self, tx: Tx, query_id: str) -> list[str]:
        """Return the ids of the pending approvals of a query."""
        return await store.open_of_query(tx, query_id=query_id)

    async def subject(self, tx: Tx, approval_id: str) -> bytes:
        """Return the bytes to approve; their SHA-256 is the digest. Raise NotFound or Gone."""
        subject = await store.subject(tx, approval_id=approval_id) if is_id("apr_", approval_id) else None
        if subject is None:
            raise NotFound(f"There is no approval {approval_id!r}.")
        if not subject:
            raise Gone(
                "The thread of this approval was deleted together with the subject. The decision and the digest are "
                f"kept: GET /approvals/{approval_id}."
            )
        return subject

    async def page(
        self,
        tx: Tx,
        after: str | None,
        limit: int,
        filters: ApprovalFilter,
        decider: Caller | None = None,
    ) -> tuple[list[ApprovalRow], str | None]:
        """Return up to `limit` approvals, newest first, and the id after which the next page begins, or None on the
        last. With `decider`, approvals that this caller cannot decide are left out of the page."""
        rows, last = await store.page(tx, after=after, limit=limit, filters=filters)
        voted = await self._with_votes(tx, rows)
        if decider is not None:
            voted = [
                row
                for row in voted
                if row.status == "pending"
                and decision_rules.can_decide(decider, row.excluded_requester, row.votes)
            ]
        return voted, last

    async def count_pending(self, tx: Tx, caller: Caller) -> PendingCounts:
        """Count the pending approvals, and those that this caller can decide."""
        await tx.set_repeatable_read()
        can_decide = sum(
            group.pending
            for group in await store.count_by_deciders(tx, most=MAX_COUNTED)
            if decision_rules.can_decide(caller, group.excluded_requester, group.voters)
        )
        return await store.count_pending(tx, most=MAX_COUNTED, groups=MAX_GROUPS, can_decide=can_decide)

    # -- comments --------------------------------------------------------------------------------------------

    async def comment(self, tx: Tx, approval_id: str, by: str, text: str) -> Comment:
        """Add a comment on an approval, whatever its status. Emit an event without the text if its query is not over:
        the journal has more readers than an approval has approvers. Raise NotFound, Gone or TooManyComments."""
        query_id = await self._query_id_of(tx, approval_id)
        status = await lock_query(tx, query_id=query_id)
        await self.subject(tx, approval_id)  # after the lock: the deletion of a thread locks its queries, too
        earlier = await store.count_comments(tx, approval_id=approval_id)
        if earlier >= MAX_COMMENTS:
            raise TooManyComments(
                f"This approval has {earlier} comments, the most that an approval can have. Decide it, or continue elsewhere."
            )
        comment = await store.insert_comment(
            tx, comment_id=new_id("cmt_"), approval_id=approval_id, by=by, text=text
        )
        if status in ("queued", "running", "waiting"):
            scope = await self._scope_of(tx, await self.read(tx, approval_id))
            notice = to_wire(ApprovalCommentNotice, comment, count=earlier + 1)
            await append_events(
                tx, query_id=query_id, events=[event(scope, ApprovalCommentEvent, data=notice)]
            )
        return comment

    async def comments(
        self, tx: Tx, approval_id: str, after: str | None, limit: int
    ) -> tuple[list[Comment], str | None]:
        """Return up to `limit` comments on an approval, newest first, and the id after which the next page begins, or None
        on the last. Raise NotFound."""
        await self.read(tx, approval_id)
        return await store.comments(tx, approval_id=approval_id, after=after, limit=limit)
