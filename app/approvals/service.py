"""The verbs of approvals. Only `decide` approves anything, and only the HTTP door calls it.

A decision is one transaction: the compare-and-set on the row, its event, and the wake-up of the query. So none is
taken and then lost, and of any number of decisions one wins.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson
from plangate.events import ApprovalDecisionEvent, ApprovalRequiredEvent
from plangate.spec.models import ApprovalPolicies
from plangate.spec.toolkits import builtin_tools
from plangate.spec.variable_schemas import has_variables, schema_without_meta

from app.approvals import decision_rules, grants, store
from app.approvals.models import ApprovalRequest, ApprovalRow, DecidedApproval, Decision, Gate
from app.approvals.states import STATUS_OF_DECISION
from app.approvals.subject import parse_args, with_args
from app.base.errors import FieldError, Gone, Invalid, NotFound
from app.base.ids import is_id, new_id
from app.base.json import strict_json
from app.base.json.offload import offload
from app.base.postgres.database import Database, Tx
from app.base.schema.checker import SchemaChecker
from app.engine import lease_store as queue_store
from app.engine.worker import for_each_due
from app.journal import store as journal_store
from app.journal.models import Scope, event
from app.runtimes.service import Runtimes
from app.tenancy.floor import parse_floor

# What the owner of a plan does, in the transaction in which its gate closes without an approval: (tx, approval, subject).
GateClosed = Callable[[Tx, ApprovalRow, bytes], Awaitable[None]]

NO_SUBJECT = b"{}"  # of an approval whose thread was deleted: it was decided long ago


@dataclass(frozen=True, slots=True)
class GateState:
    """How a gate stands for a piece of work: the floor under its rule now, and whether it was asked before."""

    floor: ApprovalPolicies
    asked: bool


class ApprovalService:
    def __init__(
        self, db: Database, runtimes: Runtimes, schemas: SchemaChecker, plan_gate_closed: GateClosed
    ) -> None:
        self._db = db
        self._runtimes = runtimes
        self._schemas = schemas
        self._plan_gate_closed = plan_gate_closed

    # -- the gate's side -------------------------------------------------------------------------------------

    async def standing(self, tx: Tx, work_id: str, kind: Gate) -> GateState:
        """Asked anew at every gate: what the operator changes holds from the next one on."""
        row = await store.gate_state(tx, work_id, kind)
        return GateState(parse_floor(row["floor"]), row["asked"])

    async def asked(self, tx: Tx, work_id: str, kind: Gate) -> bool:
        """Return whether this work opened an approval of this kind before."""
        return await store.by_work(tx, work_id, kind) is not None

    async def request(self, tx: Tx, request: ApprovalRequest, *, by_policy: bool = False) -> None:
        """Open an approval, with its event, unless this work opened it before a crash. With `by_policy` the
        rule is `never`: the row is written for the record and approved at once, as is one that a grant
        covers."""
        row = await store.open_approval(
            tx,
            new_id("apr_"),
            request.kind,
            request.target,
            request.subject,
            strict_json.dumps(request.glimpses),
            strict_json.dumps(request.rule.to_wire()),
            request.scope.query_id,
            request.scope.work_id,
            request.scope.agent,
            request.scope.thread_id,
            request.runtime_id,
            request.requested_by,
            float(request.expires_in_ms),
        )
        if row is None:
            return
        opened = store.approval_from_row(row)
        if by_policy:
            await store.decide(tx, opened.id, "approved", "policy", "approve", None, None)
            return
        grant = await grants.covering_grant(tx, request)
        if grant is None:
            await self._emit_opened(tx, opened, request.scope)
            return
        grant_id, granted_by = grant
        used = await store.set_grant(tx, opened.id, granted_by, grant_id)
        await self._emit_ended(tx, used, request.scope)

    async def decided(self, tx: Tx, work_id: str, kind: Gate) -> DecidedApproval | None:
        """Return the outcome of the approval that this work opened, or None while it is pending."""
        row = await store.ended_of_work(tx, work_id, kind)
        if row is None:
            return None
        return DecidedApproval(
            row["id"],
            row["status"],
            row["digest"],
            row["subject"],
            row["original_subject"],
            store.rule_from_stored(row["rule"]).on_expiry == "fail",
            row["feedback"],
            None if row["partial"] is None else orjson.loads(row["partial"]),
        )

    # -- the approver's side ---------------------------------------------------------------------------------

    async def decide(self, tx: Tx, approval_id: str, decision: Decision) -> ApprovalRow:
        """Record a decision or a vote. A repetition by the same principal returns the first result; a
        different decision raises a Conflict that shows the decision that won."""
        row, subject, late = await self._lock(tx, approval_id)
        decision_rules.validate_decision(row, decision)
        wanted = subject if decision.args is None else with_args(subject, decision.args)
        edits = wanted != subject
        decision_rules.validate_digest(row, decision, edits=edits)
        if row.status != "pending":
            return decision_rules.repeated_decision(row, decision, edits=edits)
        if late:
            raise decision_rules.expired_error(row)
        decision_rules.validate_not_requester(row, decision)
        if edits:
            row = await self._replace_args(tx, row, wanted)
        if not decision_rules.has_voted(row, decision):
            said = (decision.by, decision.key_id, decision.decision, decision.scope)
            row.votes.append(await store.vote(tx, row.id, row.edits, *said))
        if decision.decision == "approve" and row.voters < row.minimum:
            if edits:
                await self._emit_opened(tx, row, await self._scope_of(tx, row))
            return row
        ended = await self._end(
            tx,
            row,
            STATUS_OF_DECISION[decision.decision],
            decision.by,
            decision.decision,
            decision.feedback,
            decision.partial,
        )
        if decision.decision == "approve" and decision_rules.is_remembered(ended):
            await grants.add_grant(tx, ended, wanted, decision.by)
        return ended

    async def _replace_args(self, tx: Tx, row: ApprovalRow, subject: bytes) -> ApprovalRow:
        """Another subject in the place of this one, if the tool takes its arguments; what was voted so far is void."""
        args = await offload(parse_args, subject)
        runtime = await self._runtimes.get(tx.tenant, row.runtime_id, tx)
        schemas = {t.name: t.validation_schema for t in builtin_tools(runtime.spec, runtime.agent(row.agent))}
        own = schema_without_meta if has_variables(runtime.agent(row.agent)) else dict
        schemas |= {name: own(tool.input_schema) for name, tool in runtime.tools.items()}
        schema = await offload(self._schemas.compile, schemas.get(row.target, False))
        flaws = await offload(schema.errors, args)
        if flaws:
            raise Invalid(
                f"args do not match the inputSchema of {row.target}; nothing was decided.",
                [FieldError("/args" + f.pointer, f.message) for f in flaws],
            )
        glimpses = {"args": args}  # literal: no variable is behind them
        return await store.replace(tx, row.id, subject, strict_json.dumps(glimpses))

    async def lock_queries(self, tx: Tx, approval_ids: Sequence[str]) -> None:
        """For who decides several at once: the queries first, in the order in which everybody locks them."""
        for query_id in await store.query_ids_of(tx, approval_ids):
            await queue_store.lock(tx, query_id)

    async def _lock(self, tx: Tx, approval_id: str) -> tuple[ApprovalRow, bytes, bool]:
        """Lock the approval's query and then its row. Return the row, the subject, and whether the approval
        has expired."""
        query_id = await store.query_id_of(tx, approval_id) if is_id("apr_", approval_id) else None
        if query_id is None:
            raise NotFound(f"There is no approval {approval_id!r}.")
        await queue_store.lock(tx, query_id)
        row = await store.lock(tx, approval_id)
        subject = row["subject"] or NO_SUBJECT
        return await self._add_vote(tx, store.approval_from_row(row)), subject, bool(row["late"])

    async def _add_vote(self, tx: Tx, row: ApprovalRow) -> ApprovalRow:
        return replace(row, votes=(await store.votes(tx, [row.id])).get(row.id, []))

    async def _end(
        self,
        tx: Tx,
        row: ApprovalRow,
        status: str,
        by: str | None,
        decision: str | None,
        feedback: str | None = None,
        partial: Any = None,
    ) -> ApprovalRow:
        """End an approval: row, event and wake-up. No other code ends one."""
        packed = None if partial is None else strict_json.dumps(partial)
        done = await store.decide(tx, row.id, status, by, decision, feedback, packed)
        if done is None:  # its time passed while this transaction had it
            raise decision_rules.expired_error(row)
        ended = replace(store.approval_from_row(done), votes=row.votes)
        if ended.kind == "plan" and status != "approved":
            await self._plan_gate_closed(tx, ended, await self.subject(tx, ended.id))
        await self._emit_ended(tx, ended, await self._scope_of(tx, ended))
        await queue_store.wake(tx, ended.query_id)
        return ended

    # -- telling ---------------------------------------------------------------------------------------------

    async def _scope_of(self, tx: Tx, row: ApprovalRow) -> Scope:
        """Where the gate opened: all events about it stand under the same parent."""
        found = await journal_store.load_scope(tx, row.work_id)
        return found or Scope(row.query_id, row.thread_id, row.work_id, None, row.agent)

    async def _emit_opened(self, tx: Tx, row: ApprovalRow, scope: Scope) -> None:
        """Emit that a gate opens, or that it asks again because the arguments have changed."""
        await journal_store.append(tx, row.query_id, [event(scope, ApprovalRequiredEvent, data=row.wire())])

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
        await journal_store.append(tx, row.query_id, [event(scope, ApprovalDecisionEvent, data=data)])

    # -- without a person ------------------------------------------------------------------------------------

    async def cancel_of_query(self, tx: Tx, query_id: str, _reason: str) -> None:
        """Withdraws what a query that ends still asks for."""
        for approval_id in await store.open_of_query(tx, query_id):
            await self._end(tx, await self.read(tx, approval_id), "cancelled", None, None)

    async def expire_due(self) -> int:
        """End the approvals that nobody decided in time, once each, by the database's clock."""
        due = await store.due(self._db, 100)
        await for_each_due(due, self._expire)
        return len(due)

    async def _expire(self, tenant: str, approval_id: str) -> None:
        async with self._db.transaction(tenant) as tx:
            row, _, _ = await self._lock(tx, approval_id)
            if row.status == "pending":
                await self._end(tx, row, "expired", None, None)

    # -- reading ---------------------------------------------------------------------------------------------

    async def read(self, tx: Tx, approval_id: str) -> ApprovalRow:
        row = await store.by_id(tx, approval_id) if is_id("apr_", approval_id) else None
        if row is None:
            raise NotFound(f"There is no approval {approval_id!r}.")
        return await self._add_vote(tx, store.approval_from_row(row))

    async def open_of_query(self, tx: Tx, query_id: str) -> list[str]:
        return await store.open_of_query(tx, query_id)

    async def subject(self, tx: Tx, approval_id: str) -> bytes:
        """Return the bytes to approve; their SHA-256 is the digest. Raise NotFound or Gone."""
        found = await store.subject(tx, approval_id) if is_id("apr_", approval_id) else None
        if found is None:
            raise NotFound(f"There is no approval {approval_id!r}.")
        if found["subject"] is None:
            raise Gone(
                "The thread of this approval was deleted together with the subject. The decision and the digest are "
                f"kept: GET /approvals/{approval_id}."
            )
        subject: bytes = found["subject"]
        return subject

    async def page(
        self, tx: Tx, before: str | None, filters: list[str | None], limit: int
    ) -> list[ApprovalRow]:
        rows = [store.approval_from_row(r) for r in await store.page(tx, before, *filters, limit)]
        votes = await store.votes(tx, [r.id for r in rows])
        return [replace(r, votes=votes.get(r.id, [])) for r in rows]
