"""The builtin plan tools, and the gate in front of execution.

Storing never asks anybody; executing always passes the gate. After a crash the same call finds its approval, its
transitions and its rows by its work id and goes on.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from itertools import accumulate, takewhile
from typing import Any

import orjson
from plangate.spec.approvals import tool_plan_rule
from plangate.spec.variable_schemas import has_variables

from app.approvals.models import ApprovalRequest, DecidedApproval
from app.approvals.service import ApprovalService
from app.base.errors import MAX_LISTED_ERRORS, Invalid, PlangateError
from app.base.json import strict_json
from app.base.json.offload import loads, offload
from app.base.postgres.database import Tx
from app.calls.dispatch import CallDispatcher
from app.calls.toolkit import ToolCall
from app.engine.query_run import QueryFailed, QueryRun
from app.journal import store as journal_store
from app.plans import body as bodies
from app.plans import store
from app.plans.artifacts import ArtifactTexts, load_texts
from app.plans.executor import PlanExecution
from app.plans.graph import PlanStep
from app.plans.models import Plan
from app.plans.service import Actor, PlanGateOpen, PlanRejected, PlanService
from app.plans.variables import (
    ExecutionFlow,
    ExecutionView,
    PlanReader,
    StoredDocuments,
    describe_reads,
    effective_inputs,
    stored_values,
)
from app.references.service import Handle, ReferenceService
from app.tools.results import Answer, Outcome, ToolError
from app.variables.service import query_documents
from app.variables.values import ARTIFACT

SHOWN_BYTES = 32 * 1024
SHOWN_VARIABLES = 50  # in the event of a gate and in the inbox; the subject has all
SHOWN_REFERENCES_BYTES = 128 * 1024  # likewise: of a megabyte of handles the glimpses have forty
REFERENCE_WEIGHS_BYTES = (
    2 * 1024
)  # the `size` for `offload` of a described reference: its glimpse has 4 KiB at most
HANDLE = ("kind", "id", "glimpse", "sizeBytes")


class PlanTools:
    def __init__(
        self,
        plans: PlanService,
        approvals: ApprovalService,
        references: ReferenceService,
        dispatch: CallDispatcher,
    ) -> None:
        self._plans = plans
        self._approvals = approvals
        self._references = references
        self._dispatch = dispatch

    # -- the tools -------------------------------------------------------------------------------------------

    async def store(self, call: ToolCall) -> Outcome:
        args = call.args
        if args["specName"] != call.agent.plan_name:
            return ToolError(f"{call.agent.name} stores plans of {call.agent.plan_name!r} only.")
        who, runtime = Actor(call.scope, call.agent.name), call.run.runtime
        spec = runtime.plans.get(args["specName"])
        try:
            plan = await call.run.in_fenced_transaction(
                lambda tx: self._plans.store(
                    tx,
                    runtime,
                    args["specName"],
                    args["body"],
                    args.get("planId"),
                    who,
                    variables=has_variables(call.agent) or bool(spec and spec.variables),
                    given=query_documents(runtime.spec, call.run.query.request),
                )
            )
        except PlangateError as error:
            return tool_error(error)
        return Answer(plan.for_model())

    async def get(self, call: ToolCall) -> Outcome:
        try:
            plan = await call.run.look(
                lambda tx: self._plans.named(tx, call.run.query.thread_id, call.args["planId"])
            )
        except PlangateError as error:
            return tool_error(error)
        return Answer({**plan.for_model(), "body": await offload(loads, plan.body)})

    async def execute(self, call: ToolCall) -> Outcome:
        who = Actor(call.scope, call.agent.name)
        return await self._execute(
            call.run, call.args["planId"], call.args.get("inputs"), who, call.agent.name
        )

    async def execute_for_host(self, run: QueryRun) -> Outcome:
        """Execute the plan of a query of kind `plan` (`POST /plans/{id}/execute`)."""
        scope = run.scope(run.query.root_work_id, None, run.query.agent)
        request = run.query.request
        return await self._execute(
            run, request["planId"], request.get("inputs"), Actor(scope, run.query.principal), None
        )

    # -- gate and execution ----------------------------------------------------------------------------------

    async def _execute(self, run: QueryRun, name: str, inputs: Any, who: Actor, agent: str | None) -> Outcome:
        read = PlanReader()
        try:
            texts = await self._load_texts(run, name, read, who)
            plan = await run.in_fenced_transaction(
                lambda tx: self._request_approval(tx, run, name, read, inputs, who, agent, texts)
            )
        except PlangateError as error:
            return tool_error(error)
        decided = await run.wait(
            lambda: run.look(lambda tx: self._approvals.decided(tx, who.scope.work_id, "plan")),
            reason="approval",
        )
        if decided.status == "expired" and decided.fails_query:
            raise QueryFailed("approval_expired", f"Nobody decided about the plan {plan.called} in time.")
        if decided.status != "approved":
            return rejection_result(decided)
        who = Actor(who.scope, who.by, decided.id)
        await self._read_ahead(plan, read)
        try:
            plan = await run.in_fenced_transaction(
                lambda tx: self._begin(tx, run, plan.id, read, inputs, who, decided)
            )
        except PlangateError as error:
            await run.in_fenced_transaction(lambda tx: self._plans.leave_draft(tx, plan.id))
            return tool_error(error)
        if plan.status in ("executed", "failed"):  # a crash came after its end
            return execution_result(orjson.loads(plan.result or b"{}"))
        flow = None
        if plan.variables:
            kept = StoredDocuments(await run.look(lambda tx: store.snapshot(tx, who.scope.work_id)))
            graph = await read.graph(plan)
            flow = (
                ExecutionFlow(graph, await asyncio.to_thread(ExecutionView, kept))
                if graph.has_variables
                else None
            )
            inputs = effective_inputs(run, inputs)
        body = await read.body(plan)
        execution = PlanExecution(
            self._plans, self._dispatch, run, run.runtime, plan, body, who, inputs, flow
        )
        return execution_result(await execution.carry_out())

    async def _read_ahead(self, plan: Plan, read: PlanReader) -> None:
        """Read a plan before the transaction that needs it."""
        await (read.graph(plan) if plan.variables else read.body(plan))

    async def _load_texts(self, run: QueryRun, name: str, read: PlanReader, who: Actor) -> ArtifactTexts:
        """Read the plan, and return the texts of the artifacts that it names if its gate is not open yet."""

        async def look(tx: Tx) -> Plan | None:
            asked = (await self._approvals.standing(tx, who.scope.work_id, "plan")).asked
            return None if asked else await self._find_plan(tx, run, name)

        plan = await run.look(look)
        if plan is not None:
            await self._read_ahead(plan, read)
        if plan is None or not plan.variables or f"{ARTIFACT}.".encode() not in plan.body:
            return ArtifactTexts({}, {})
        return await load_texts(run, self._plans.variables, await read.graph(plan))

    async def _find_plan(self, tx: Tx, run: QueryRun, name: str) -> Plan:
        thread = run.query.thread_id if run.query.kind == "agent" else None
        return await self._plans.named(tx, thread, name)

    async def _request_approval(
        self,
        tx: Tx,
        run: QueryRun,
        name: str,
        read: PlanReader,
        inputs: Any,
        who: Actor,
        agent: str | None,
        texts: ArtifactTexts,
    ) -> Plan:
        """Open the gate for the current revision, or find the one that this work opened."""
        plan = await self._find_plan(tx, run, name)
        standing = await self._approvals.standing(tx, who.scope.work_id, "plan")
        if standing.asked:
            return plan
        await store.lock(tx, plan.id)
        plan = await self._plans.named(tx, None, plan.id)
        if plan.status != "draft":
            raise PlanRejected(
                f"The plan {plan.called} is {plan.status}; a plan that was ever approved runs once. Store a new plan."
            )
        if plan.decision is not None:
            raise PlanRejected(
                f"Revision {plan.revision} of the plan {plan.called} was answered with {plan.decision!r}"
                + (f": {plan.feedback}. " if plan.feedback else ". ")
                + "Store the next revision first; it needs an approval of its own."
            )
        if await store.open_gate(tx, plan.id):
            raise PlanGateOpen(f"The plan {plan.called} already waits for a decision.")
        wanted = plan.spec_name if agent is None else run.runtime.agents[agent].plan_name
        if plan.spec_name != wanted:  # the rule of one executor is not for the plans of another
            raise Invalid(
                f"{agent} executes plans of {wanted!r} only, and {plan.called} is a {plan.spec_name}."
            )
        await self._plans.check_body(run.runtime, plan)
        self._plans.check_inputs(run, inputs)
        spec = run.runtime.plans[plan.spec_name]
        kinds = {action["kind"] for action in (await read.body(plan))["actions"]} if spec.tools else set()
        rule = tool_plan_rule(run.runtime.spec, agent, sorted(kinds), standing.floor)
        kept = (
            await self._plans.check_and_snapshot(tx, run, plan, read, inputs, who, texts)
            if plan.variables
            else None
        )
        subject, glimpses = await self._subject(tx, run, plan, read, inputs, kept)
        request = ApprovalRequest(
            kind="plan",
            target=plan.id,
            subject=subject,
            glimpses=glimpses,
            rule=rule.rule,
            scope=who.scope,
            runtime_id=run.runtime.id,
            requested_by=run.query.principal,
            expires_in_ms=rule.expires_in_ms(run.query.request.get("approvalExpiresInMs")),
        )
        told = self._plans.status_event(who.scope, run.runtime, plan, "draft", "pending_approval")
        if rule.rule.kind != "never":
            await journal_store.append(tx, run.query.id, [told])
        await self._approvals.request(tx, request, by_policy=rule.rule.kind == "never")
        await self._references.hold(tx, plan.id, until_over=True)
        return plan

    async def _subject(
        self, tx: Tx, run: QueryRun, plan: Plan, read: PlanReader, inputs: Any, kept: StoredDocuments | None
    ) -> tuple[bytes, dict[str, Any]]:
        """Return the bytes to approve, and the part of them that events carry. `kept` are the documents
        that the plan's variables lead into, if it has any."""
        runtime = run.runtime
        body = await read.body(plan)
        graph = None if kept is None else await read.graph(plan)
        actions = bodies.parse_actions(body)
        alone = graph is not None and graph.has_variables
        spec = runtime.plans[plan.spec_name]
        kinds = [a.kind for a in actions]
        found, missing = bodies.resolve_dispatchers(runtime.spec, spec, kinds, graph=alone)
        if missing and actions:
            raise Invalid(f"No dispatcher of the runtime carries out {', '.join(missing)}.")
        together = [actions] if "*" in found else [[action] for action in actions]
        named = [bodies.collect_references(sent) for sent in together]
        if graph is not None:
            size = bodies.offload_size(plan.body, len(actions))
            named += await offload(_stored_values_by_step, graph.steps, size=size)
        references = await self._references.described(tx, named)
        subject = {
            "kind": "plan",
            "planId": plan.id,
            "specName": plan.spec_name,
            "revision": plan.revision,
            "planDigest": plan.digest.hex(),
            "body": orjson.Fragment(plan.body),  # it is canonical
            "inputs": inputs if kept is None else effective_inputs(run, inputs),
            "runtimeVersion": runtime.digest,
            "dispatchers": {kind: b.digest for kind, b in found.items()},
            "references": references,
        }
        handles = [{name: one[name] for name in HANDLE} for one in references]
        shown: dict[str, Any] = {
            "planId": plan.id,
            "key": plan.key,
            "specName": plan.spec_name,
            "revision": plan.revision,
            "body": body
            if len(plan.body) <= SHOWN_BYTES
            else {"actions": [{"kind": a.kind} for a in actions]},
            **_first_items("references", handles, _visible_count(handles)),
        }
        if graph is not None and kept is not None:
            subject["variables"] = variables = await describe_reads(graph, kept)
            shown |= _first_items("variables", variables, SHOWN_VARIABLES)
        size = len(references) * REFERENCE_WEIGHS_BYTES
        return await offload(strict_json.canonical, subject, size=size), shown

    async def _begin(
        self,
        tx: Tx,
        run: QueryRun,
        plan_id: str,
        read: PlanReader,
        inputs: Any,
        who: Actor,
        decided: DecidedApproval,
    ) -> Plan:
        """draft -> approved -> executing and the rows of the actions, in one transaction, if what is to run is
        what was approved to the byte."""
        await store.lock(tx, plan_id)
        plan = await self._plans.named(tx, None, plan_id)
        if plan.status != "draft":
            if await self._plans.executing_work(tx, plan) == who.scope.work_id:
                return plan  # this very call began it before a crash
            raise PlanRejected(
                f"The plan {plan.called} is {plan.status}: another call carries it out. It runs once."
            )
        kept = StoredDocuments(await store.snapshot(tx, who.scope.work_id)) if plan.variables else None
        subject, _ = await self._subject(tx, run, plan, read, inputs, kept)
        if await offload(_sha256, subject) != decided.digest:
            raise PlanRejected(
                f"What would run is not what was approved ({decided.id}): the plan, a reference, the runtime or a "
                "dispatcher changed. Nothing was sent. Execute the plan again to ask for a new approval."
            )
        plan = await self._plans.move(tx, run.runtime, plan, "approved", who)
        plan = await self._plans.move(tx, run.runtime, plan, "executing", who, query_id=run.query.id)
        kinds = [action["kind"] for action in (await read.body(plan))["actions"]]
        keys = [bodies.idempotency_key(tx.tenant, plan.id, plan.revision, n) for n in range(len(kinds))]
        await store.insert_actions(tx, plan.id, plan.revision, kinds, keys)
        return plan


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _first_items(name: str, items: list[dict[str, Any]], many: int) -> dict[str, Any]:
    """So many of them, and how many more there are: a list that is not whole says so."""
    left = len(items) - many
    return {name: items[:many], **({f"{name}LeftOut": left} if left > 0 else {})}


def _visible_count(handles: list[dict[str, Any]]) -> int:
    """How many, from the first, are shown beside what is approved."""
    sizes = accumulate(len(strict_json.dumps(handle)) for handle in handles)
    return sum(1 for _ in takewhile(lambda size: size <= SHOWN_REFERENCES_BYTES, sizes))


def rejection_result(decided: DecidedApproval) -> Outcome:
    """Return the result of executePlan when the gate did not open. The revision carries what was said since
    the decision."""
    if decided.status == "expired":
        return ToolError(
            "Nobody decided in time. Execute the plan again to request a new approval.", "approval_expired"
        )
    if decided.status == "cancelled":
        return ToolError("The request for approval was withdrawn.", "approval_cancelled")
    if decided.status == "revised":
        return Answer({"should_revise": True, "feedback": decided.feedback, "partial": decided.partial})
    return Answer({"rejected": True, "feedback": decided.feedback})


def execution_result(result: dict[str, Any]) -> Outcome:
    """Return the result of executePlan. A dispatcher that returned an invalid value fails the call
    (plans.md)."""
    errors = [action["error"] for action in result.get("actions", ()) if "error" in action]
    bad = next((e["message"] for e in errors if e.get("code") == "bad_dispatch_result"), None)
    return Answer(result) if bad is None else ToolError(bad, "bad_dispatch_result")


def tool_error(error: PlangateError) -> ToolError:
    """Return an error that the model can act on: what is wrong, and where."""
    flaws = getattr(error, "errors", ())[:MAX_LISTED_ERRORS]
    listed = "".join(f" {f.pointer}: {f.message}." for f in flaws)
    return ToolError(error.detail + listed, error.kind)


def _stored_values_by_step(steps: Sequence[PlanStep]) -> list[list[Handle]]:
    return [stored_values([step]) for step in steps]
