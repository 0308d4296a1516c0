"""Read the body and the graph of a plan."""

from __future__ import annotations

from typing import Any

from app.base.json.offload import loads, offload
from app.plans import body as bodies
from app.plans.graph import PlanGraph
from app.plans.models import Plan


async def load_graph(plan: Plan) -> PlanGraph:
    """Return the graph of a plan with variables."""
    return await PlanReader().graph(plan)


class PlanReader:
    """Reads the body of a plan once, however often it is asked for while the plan is the same."""

    def __init__(self) -> None:
        self._digest = b""
        self._body: dict[str, Any] = {}
        self._graph: PlanGraph | None = None

    async def body(self, plan: Plan) -> dict[str, Any]:
        """Return the body, which must not be modified."""
        if self._digest != plan.digest:
            self._body = await offload(loads, plan.body)
            self._digest, self._graph = plan.digest, None
        return self._body

    async def graph(self, plan: Plan) -> PlanGraph:
        """Return the graph of a plan with variables."""
        body = await self.body(plan)
        if self._graph is None:
            actions = bodies.parse_actions(body)
            size = bodies.offload_size(plan.body, len(actions))
            self._graph = await offload(PlanGraph.of, actions, size=size)
        return self._graph

    async def preload(self, plan: Plan) -> None:
        """Read what a transaction is about to need."""
        await (self.graph(plan) if plan.variables else self.body(plan))
