"""The approval gate of plans: the bytes to approve, the request, and the comparison before anything is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import accumulate, takewhile
from typing import Any

import orjson
from plangate.spec.approvals import tool_plan_rule
from plangate.spec.models import FactSpec

from app.approvals.models import ApprovalRequest, EndedApproval
from app.approvals.service import ApprovalService
from app.base.digests import sha256
from app.base.errors import Invalid
from app.base.json import strict_json
from app.base.json.offload import loads, offload, weight
from app.base.postgres.database import Tx
from app.engine.query_run import QueryRun
from app.journal.service import append_events
from app.plans import body as bodies
from app.plans import store
from app.plans.artifacts import ArtifactTexts, load_texts
from app.plans.facts import evaluate_facts, fact_document
from app.plans.graph import PlanGraph, PlanStep
from app.plans.models import Actor, Plan
from app.plans.plan_reader import PlanReader
from app.plans.prechecks import name_places
from app.plans.service import PlanRejected, PlanService
from app.plans.snapshot import StoredDocuments, describe_reads, effective_inputs, stored_values
from app.references.models import Handle
from app.references.service import ReferenceExpired, ReferenceNotFound, ReferenceService
from app.variables.values import ARTIFACT

MAX_EVENT_BODY_BYTES = 32 * 1024
MAX_EVENT_VARIABLES = 50  # in events and in the inbox; the subject has all
MAX_EVENT_REFERENCES_BYTES = 128 * 1024  # likewise: of a megabyte of handles the glimpses have forty
REFERENCE_WEIGHT_BYTES = 2 * 1024  # what `offload` counts for a reference; its glimpse has 4 KiB at most
HANDLE = ("kind", "id", "glimpse", "sizeBytes")


class PlanGate:
    """Requests the approval of a plan, and begins the plan if what will run is what was approved."""

    def __init__(self, plans: PlanService, approvals: ApprovalService, references: ReferenceService) -> None:
        self._plans = plans
        self._approvals = approvals
        self._references = references

    async def prepare_request(
        self, run: QueryRun, name: str, read: PlanReader, inputs: Any, actor: Actor
    ) -> ArtifactTexts:
        """Check the inputs, read the plan, compile its schema if it is checked at the gate, and return the texts of the
        artifacts that it names, while no transaction is open. Do nothing if this work has requested an approval before.
        Raise a PlangateError."""

        async def find_unless_requested(tx: Tx) -> Plan | None:
            if await self._approvals.was_requested(tx, actor.scope.work_id, "plan"):
                return None
            return await self._find_plan(tx, run, name)

        plan = await run.read(find_unless_requested)
        if plan is None:
            return ArtifactTexts({}, {})
        await self._plans.check_inputs(run, inputs)
        if plan.variables or plan.runtime_id != run.runtime.id:
            await self._plans.compile_schema(run.runtime, plan.spec_name, variables=plan.variables)
        await read.preload(plan)
        if not plan.variables or f"{ARTIFACT}.".encode() not in plan.body:
            return ArtifactTexts({}, {})
        return await load_texts(run, self._plans.variables, await read.graph(plan))

    async def _find_plan(self, tx: Tx, run: QueryRun, name: str) -> Plan:
        thread = run.query.thread_id if run.query.kind == "agent" else None
        return await self._plans.load(tx, thread, name)

    async def request_approval(
        self,
        tx: Tx,
        run: QueryRun,
        name: str,
        read: PlanReader,
        inputs: Any,
        actor: Actor,
        agent: str | None,
        texts: ArtifactTexts,
    ) -> Plan:
        """Request approval of the current revision, unless this work has requested it before. Raise a PlangateError."""
        plan = await self._find_plan(tx, run, name)
        state = await self._approvals.gate_state(tx, actor.scope.work_id, "plan")
        if state.was_requested:
            return plan
        await store.lock(tx, plan_id=plan.id)
        plan = await self._plans.load(tx, None, plan.id)
        if plan.status != "draft":
            raise PlanRejected(
                f"The plan {plan.name} is {plan.status}; a plan that was ever approved runs once. Store a new plan."
            )
        self._plans.check_unanswered(plan)
        await self._plans.check_no_approval(tx, plan)
        own_spec = plan.spec_name if agent is None else run.runtime.agents[agent].plan_name
        if plan.spec_name != own_spec:  # the rule of one executor is not for the plans of another
            raise Invalid(
                f"{agent} executes plans of {own_spec!r} only, and {plan.name} is a {plan.spec_name}."
            )
        await self._plans.check_body(run.runtime, plan)
        spec = run.runtime.plans[plan.spec_name]
        kinds = {action["kind"] for action in (await read.body(plan))["actions"]} if spec.tools else set()
        rule = tool_plan_rule(run.runtime.spec, agent, sorted(kinds), state.floor)
        snapshot = (
            await self._plans.check_and_snapshot(tx, run, plan, read, inputs, actor, texts)
            if plan.variables
            else None
        )
        subject, glimpses = await self._subject(tx, run, plan, read, inputs, snapshot)
        if spec.glimpse:
            facts = strict_json.dumps(glimpses["facts"])
            await store.save_facts(tx, plan_id=plan.id, revision=plan.revision, facts=facts)
        request = ApprovalRequest(
            kind="plan",
            target=plan.id,
            subject=subject,
            glimpses=glimpses,
            rule=rule.rule,
            scope=actor.scope,
            runtime_id=run.runtime.id,
            requested_by=run.query.principal,
            expires_in_ms=rule.expires_in_ms(run.query.request.get("approvalExpiresInMs")),
            waiting_actions=len((await read.body(plan))["actions"]),
        )
        pending = self._plans.status_event(actor.scope, run.runtime, plan, "draft", "pending_approval")
        if rule.rule.kind != "never":
            await append_events(tx, query_id=run.query.id, events=[pending])
        await self._approvals.request(tx, request, by_policy=rule.rule.kind == "never")
        await self._references.hold(tx, plan.id, until_over=True)
        return plan

    async def _subject(
        self,
        tx: Tx,
        run: QueryRun,
        plan: Plan,
        read: PlanReader,
        inputs: Any,
        snapshot: StoredDocuments | None,
        approved: bytes | None = None,
    ) -> tuple[bytes, dict[str, Any]]:
        """Return the bytes to approve, and the part of them that events carry. `snapshot` are the documents
        that the plan's variables lead into, if it has any. The facts are those of the `approved` bytes, if given: they
        follow from the rest, which is compared."""
        runtime = run.runtime
        body = await read.body(plan)
        graph = None if snapshot is None else await read.graph(plan)
        actions = bodies.parse_actions(body)
        one_by_one = graph is not None and graph.has_variables
        spec = runtime.plans[plan.spec_name]
        kinds = [a.kind for a in actions]
        dispatchers, missing = bodies.resolve_dispatchers(runtime.spec, spec, kinds, graph=one_by_one)
        if missing and actions:
            raise Invalid(f"No dispatcher of the runtime carries out {', '.join(missing)}.")
        batches = [actions] if "*" in dispatchers else [[action] for action in actions]
        references_by_dispatch = [bodies.collect_references(batch) for batch in batches]
        size = bodies.offload_size(plan.body, len(actions))
        if graph is not None:
            references_by_dispatch += await offload(_stored_values_by_step, graph.steps, size=size)
        try:
            references = await self._references.described(tx, references_by_dispatch)
        except (ReferenceExpired, ReferenceNotFound) as error:
            raise await name_places(error, actions, plan.variables, size) from error
        handles = [{name: reference[name] for name in HANDLE} for reference in references]
        facts: list[dict[str, Any]] = []
        if spec.glimpse and approved is not None:
            facts = (await offload(loads, approved)).get("facts", [])
        elif spec.glimpse:
            facts = await _facts(spec.glimpse, body, handles, graph, snapshot)
        subject = {
            "kind": "plan",
            "planId": plan.id,
            "specName": plan.spec_name,
            "revision": plan.revision,
            "planDigest": plan.digest.hex(),
            "body": orjson.Fragment(plan.body),  # it is canonical
            "inputs": inputs if snapshot is None else effective_inputs(run, inputs),
            "runtimeVersion": runtime.digest,
            "dispatchers": {kind: b.digest for kind, b in dispatchers.items()},
            "replay": {kind: (dispatchers.get(kind) or dispatchers["*"]).dispatcher.replay for kind in kinds},
            "facts": facts,
            "references": references,
        }
        glimpses: dict[str, Any] = {
            "planId": plan.id,
            "key": plan.key,
            "specName": plan.spec_name,
            "revision": plan.revision,
            "facts": facts,
            "body": body
            if len(plan.body) <= MAX_EVENT_BODY_BYTES
            else {"actions": [{"kind": a.kind} for a in actions]},
            **_first_items("references", handles, _visible_count(handles)),
        }
        if graph is not None and snapshot is not None:
            subject["variables"] = variables = await describe_reads(graph, snapshot)
            glimpses |= _first_items("variables", variables, MAX_EVENT_VARIABLES)
        size = len(references) * REFERENCE_WEIGHT_BYTES + weight(subject["inputs"])
        return await offload(strict_json.canonical, subject, size=size), glimpses

    async def begin(
        self,
        tx: Tx,
        run: QueryRun,
        plan_id: str,
        read: PlanReader,
        inputs: Any,
        actor: Actor,
        decided: EndedApproval,
    ) -> Plan:
        """Move the plan from draft to executing and insert its actions, if what will run is byte for byte what was
        approved. Raise PlanRejected."""
        await store.lock(tx, plan_id=plan_id)
        plan = await self._plans.load(tx, None, plan_id)
        if plan.status != "draft":
            if await store.executing_work(tx, plan_id=plan_id) == actor.scope.work_id:
                return plan  # this call began it before a crash
            raise PlanRejected(
                f"The plan {plan.name} is {plan.status}: another call carries it out. It runs once."
            )
        snapshot = (
            StoredDocuments(await store.snapshot(tx, work_id=actor.scope.work_id)) if plan.variables else None
        )
        subject, _ = await self._subject(tx, run, plan, read, inputs, snapshot, decided.subject)
        if await offload(sha256, subject) != decided.digest:
            raise PlanRejected(
                f"What would run is not what was approved ({decided.id}): the plan, a reference, the runtime or a "
                "dispatcher changed. Nothing was sent. Execute the plan again to ask for a new approval."
            )
        plan = await self._plans.move(tx, run.runtime, plan, "approved", actor)
        plan = await self._plans.move(tx, run.runtime, plan, "executing", actor, query_id=run.query.id)
        kinds = [action["kind"] for action in (await read.body(plan))["actions"]]
        keys = [bodies.idempotency_key(tx.tenant, plan.id, plan.revision, n) for n in range(len(kinds))]
        await store.insert_actions(tx, plan_id=plan.id, revision=plan.revision, kinds=kinds, keys=keys)
        return plan


async def _facts(
    specs: Mapping[str, FactSpec],
    body: Mapping[str, Any],
    handles: Sequence[Mapping[str, Any]],
    graph: PlanGraph | None,
    snapshot: StoredDocuments | None,
) -> list[dict[str, Any]]:
    """Compute the facts of a plan in a thread: an expression may take long, however small the body is."""

    def compute() -> list[dict[str, Any]]:
        described = {(handle["kind"], handle["id"]): handle for handle in handles}
        documents = {} if snapshot is None else snapshot.documents()
        return evaluate_facts(specs, fact_document(body, described, graph, documents))

    return await asyncio.to_thread(compute)


def _first_items(name: str, items: list[dict[str, Any]], many: int) -> dict[str, Any]:
    """Return the first items of a list by its name, and how many were left out, if any."""
    left = len(items) - many
    return {name: items[:many], **({f"{name}LeftOut": left} if left > 0 else {})}


def _visible_count(handles: list[dict[str, Any]]) -> int:
    """Return how many of the first handles events carry."""
    sizes = accumulate(len(strict_json.dumps(handle)) for handle in handles)
    return sum(1 for _ in takewhile(lambda size: size <= MAX_EVENT_REFERENCES_BYTES, sizes))


def _stored_values_by_step(steps: Sequence[PlanStep]) -> list[list[Handle]]:
    return [stored_values([step]) for step in steps]
