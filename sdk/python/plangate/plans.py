"""Methods for the plans of an open runtime: store and read."""

from __future__ import annotations

from typing import Any, Final

from plangate.api.models import ActionView, GraphView, PlanView
from plangate.api.requests import read_items
from plangate.authoring.arguments import describe_type
from plangate.context import to_jsonable
from plangate.data import DataMethods
from plangate.spec.base import did_you_mean
from plangate.spec.models import PlanSpec
from plangate.thread_ids import thread_fields

MAX_PLAN_ACTIONS: Final = 1_000
"""How many actions a plan has at most."""


class PlanMethods(DataMethods):
    """The verbs of plans, but for `execute_plan`, which starts a query."""

    async def store_plan(
        self, plan: PlanSpec | str, body: Any, thread_id: str | None = None, *, plan_id: str | None = None
    ) -> PlanView:
        """Store a plan as a draft, without a model, and return it: `{"id", "revision", "status", ...}`.

        Nothing happens before it is executed, with `execute_plan`, and approved. It needs a key with `plans:write`.

        Args:
            plan: A kind of plan of the spec, or its name.
            body: The context of the plan, and its `actions`: a model, a dataclass or plain data. Where the plan
                has `variables`, parameters may be variables, and the result of an action goes to its
                `_outputPath`.
            thread_id: As for `query`; None is a thread of its own.
            plan_id: A key of yours, up to 200 characters. The same one in the same thread makes the next
                revision of a draft.

        Raises:
            ValueError: at once, for a plan that the spec does not have, and a thread_id that cannot be one.
            TypeError: at once, for what is no kind of plan.
            InvalidRequest: if the body does not match, has a cycle, or reads what nothing provides;
                `error.problem` has the places.
            Conflict: if the plan that it would revise was approved, or waits for a decision.
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def store(runtime):
            ...     total = {"kind": "total", "orders": "†input.orders", "_outputPath": "†state.total"}
            ...     refund = {"kind": "refund", "cents": "†state.total"}
            ...     return await runtime.store_plan("Refunds", {"actions": [total, refund]}, "customer-17")
        """
        if not isinstance(plan, str | PlanSpec):
            raise TypeError(
                f"a plan is of what define_plan returns, or of its name, not {describe_type(plan)}"
            )
        name = plan if isinstance(plan, str) else plan.name
        known = self._names("plans")
        if known is not None and name not in known:
            raise ValueError(f"the spec has no plan {name!r}{did_you_mean(name, known)}")
        thread = thread_fields(thread_id)
        await self._ensure_open()
        return await self.api.store_plan(
            runtime_id=self.id,
            spec_name=name,
            body=to_jsonable(body),
            thread_id=thread.get("threadId"),
            thread_key=thread.get("threadKey"),
            plan_id=plan_id,
        )

    async def get_plan(self, plan_id: str) -> PlanView:
        """Return a plan at its current revision.

        Args:
            plan_id: Its `pln_` id, which events and approvals have.

        Raises:
            NotFound: if there is none.
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def status(runtime, approval):
            ...     return (await runtime.get_plan(approval["target"]))["status"]
        """
        return await self.api.read_plan(plan_id)

    async def plan_actions(self, plan_id: str) -> list[ActionView]:
        """List the actions of a plan, in order: status, attempts, results.

        Args:
            plan_id: Its `pln_` id.

        Raises:
            NotFound: if there is none.
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def unknown(runtime, plan_id):
            ...     rows = await runtime.plan_actions(plan_id)
            ...     return [row for row in rows if row["status"] == "unknown"]
        """
        return await read_items(self.api.list_plan_actions, plan_id, limit=MAX_PLAN_ACTIONS)

    async def plan_graph(self, plan_id: str) -> GraphView:
        """Return a plan as a graph: `{"nodes", "edges", ...}`.

        A node is an action: `index`, `kind`, the paths it `reads` and `writes`, its `status` (None before the
        plan was approved) and how many `attempts` there were. An edge leads `from` an action to one that waits
        for it, because it reads the `path`.

        Args:
            plan_id: Its `pln_` id.

        Raises:
            NotFound: if there is none.
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def ready_at_once(runtime, plan_id):
            ...     graph = await runtime.plan_graph(plan_id)
            ...     waiting = {edge["to"] for edge in graph["edges"]}
            ...     return [node["index"] for node in graph["nodes"] if node["index"] not in waiting]
        """
        return await self.api.read_plan_graph(plan_id)

    async def plan_mermaid(self, plan_id: str) -> str:
        """Return the graph of a plan as a Mermaid flowchart: each action with its status.

        Args:
            plan_id: Its `pln_` id.

        Raises:
            NotFound: if there is none.
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def into_a_page(runtime, plan_id, file):
            ...     file.write(f"```mermaid\\n{await runtime.plan_mermaid(plan_id)}```\\n")
        """
        return await self.api.draw_plan_graph(plan_id)
