"""Batches of actions: what is sent together, to which dispatcher, and the request. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plangate.spec.action_schemas import REFERENCES
from plangate.spec.plan_schemas import resolve
from plangate.spec.transports import ToolDispatcher, Transport

from app.plans import body as bodies
from app.plans.body import Action, ResolvedDispatcher
from app.plans.models import Plan
from app.runtimes.models import Runtime
from app.tools.models import DEFAULT_TIMEOUT_MS, OutgoingCall, definition_digest


@dataclass(frozen=True, slots=True)
class DispatchBatch:
    """Actions that are sent in one call: all of a plan, or one."""

    indexes: tuple[int, ...]
    resolved: ResolvedDispatcher
    key: str
    transport: Transport
    definition_digest: str
    timeout_ms: int

    @property
    def by_tool(self) -> bool:
        return isinstance(self.resolved.dispatcher, ToolDispatcher)


class DispatchPlanner:
    """Plan the batches of one execution of a plan."""

    def __init__(
        self,
        tenant: str,
        query_id: str,
        runtime: Runtime,
        plan: Plan,
        actions: Sequence[Action],
        inputs: Any,
        *,
        graph: bool,
    ) -> None:
        self._tenant = tenant
        self._query_id = query_id
        self._runtime = runtime
        self._plan = plan
        self._actions = actions
        self._inputs = inputs
        self.all = self._batches(graph)

    def _batches(self, graph: bool) -> list[DispatchBatch]:
        spec = self._runtime.plans[self._plan.spec_name]
        resolved_by_kind, _ = bodies.resolve_dispatchers(
            self._runtime.spec, spec, [a.kind for a in self._actions], graph=graph
        )
        addresses = {kind: self._address(resolved) for kind, resolved in resolved_by_kind.items()}
        if "*" in resolved_by_kind:
            everything = tuple(range(len(self._actions)))
            return (
                [DispatchBatch(everything, resolved_by_kind["*"], self._key(None), *addresses["*"])]
                if everything
                else []
            )
        return [
            DispatchBatch((n,), resolved_by_kind[a.kind], self._key(n), *addresses[a.kind])
            for n, a in enumerate(self._actions)
        ]

    def _key(self, index: int | None) -> str:
        return bodies.idempotency_key(self._tenant, self._plan.id, self._plan.revision, index)

    def _address(self, resolved: ResolvedDispatcher) -> tuple[Transport, str, int]:
        """Return the dispatcher itself or, if it is a declared tool, the tool's code."""
        dispatcher = resolved.dispatcher
        if isinstance(dispatcher, ToolDispatcher):
            tool = self._runtime.tools[dispatcher.tool]
            timeout_ms = dispatcher.timeout_ms or tool.timeout_ms or DEFAULT_TIMEOUT_MS
            return tool.transport, definition_digest(tool), timeout_ms
        return dispatcher, resolved.digest, dispatcher.timeout_ms or DEFAULT_TIMEOUT_MS

    def call(self, batch: DispatchBatch, work_id: str, request: bytes) -> OutgoingCall:
        return OutgoingCall(
            work_id=work_id,
            query_id=self._query_id,
            purpose="action",
            name=bodies.client_call_name(batch.resolved),
            definition_digest=batch.definition_digest,
            request=request,
            replay=batch.resolved.dispatcher.replay,
            timeout_ms=batch.timeout_ms,
            transport=batch.transport,
            idempotency_key=batch.key,
        )

    def request(
        self, batch: DispatchBatch, payloads: Sequence[dict[str, Any]], attempt: int
    ) -> dict[str, Any]:
        """Return the request of a batch. `payloads` are the fields of its actions, with values."""
        plan = self._plan
        actions = []
        for n, payload in zip(batch.indexes, payloads, strict=True):
            request = {**self._actions[n].wire(), "payload": payload}
            actions.append({**request, "index": n, "idempotencyKey": self._key(n)})
        return {
            "planId": plan.id,
            "specName": plan.spec_name,
            "revision": plan.revision,
            "digest": plan.digest.hex(),
            "idempotencyKey": batch.key,
            "actions": actions,
            "inputs": self._inputs,
            "attempt": attempt,
            **({"args": self._arguments(batch, actions[0])} if batch.by_tool else {}),
            "context": {
                "queryId": self._query_id,
                "threadId": plan.thread_id,
                "runtimeId": plan.runtime_id,
                "resourceId": self._tenant,
            },
        }

    def _arguments(self, batch: DispatchBatch, action: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of the tool that carries an action out. An argument `references` of its own is that of
        the action."""
        dispatcher = batch.resolved.dispatcher
        assert isinstance(dispatcher, ToolDispatcher)
        args: dict[str, Any] = action["payload"]
        schema = self._runtime.tools[dispatcher.tool].input_schema
        properties = resolve(schema, schema).get("properties")
        takes = isinstance(properties, Mapping) and REFERENCES in properties
        return {**args, REFERENCES: action[REFERENCES]} if takes else args
