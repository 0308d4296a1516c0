"""A registered runtime: an immutable version of a spec."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from plangate.spec.models import AgentSpec, PlanSpec, ReferenceSpec, RuntimeSpec, ToolSpec

from app.base.errors import NotFound


@dataclass(frozen=True, slots=True)
class Runtime:
    """A version in the line `name` of a tenant, with its parts by name. `digest` is that of the wire
    bytes."""

    tenant: str
    id: str
    name: str
    version: int
    digest: str
    spec: RuntimeSpec
    agents: dict[str, AgentSpec] = field(default_factory=dict)
    tools: dict[str, ToolSpec] = field(default_factory=dict)
    plans: dict[str, PlanSpec] = field(default_factory=dict)
    references: dict[str, ReferenceSpec] = field(default_factory=dict)

    @classmethod
    def from_spec(
        cls, tenant: str, id: str, name: str, version: int, digest: str, spec: RuntimeSpec
    ) -> Runtime:
        return cls(
            tenant,
            id,
            name,
            version,
            digest,
            spec,
            {a.name: a for a in spec.agents},
            {t.name: t for t in spec.tools or ()},
            {p.name: p for p in spec.plans or ()},
            {r.name: r for r in spec.references or ()},
        )

    def agent(self, name: str) -> AgentSpec:
        """Return an agent by name. Raise NotFound if the spec does not have it."""
        found = self.agents.get(name)
        if found is None:
            raise NotFound(f"The runtime has no agent {name!r}; it has: {', '.join(self.agents)}.")
        return found

    def prompt_key(self, agent: str) -> str:
        """Return the fingerprint of an agent's assembled prompt: SHA-256 in lower-case hex, as in
        LayeredPrompt."""
        return hashlib.sha256(self.agent(agent).system_prompt.encode()).hexdigest()

    @property
    def coordinators(self) -> list[str]:
        """Return the names of the agents of this role, in the order of the spec."""
        return [agent.name for agent in self.spec.agents if agent.role == "coordinator"]

    def entry_agent(self) -> str | None:
        """Return the agent for a query that names none: the only coordinator, or the only agent."""
        entries = self.coordinators or list(self.agents)
        return entries[0] if len(entries) == 1 else None
