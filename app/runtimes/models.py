"""A registered runtime: an immutable version of a spec."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import datetime

import orjson
from plangate.spec.models import AgentSpec, PlanSpec, ReferenceSpec, RuntimeSpec, ToolSpec

from app.base.errors import NotFound


@dataclass(frozen=True, slots=True)
class RuntimeHead:
    """A stored version without its spec. `digest` is the SHA-256 of the spec's wire form."""

    id: str
    name: str
    version: int
    digest: bytes
    created_at: datetime
    retired_at: datetime | None


@dataclass(frozen=True, slots=True)
class RuntimeRecord(RuntimeHead):
    """A stored version. `wire` is the canonical JSON of its spec."""

    wire: bytes


@dataclass(frozen=True, slots=True)
class SealedSigningSecret:
    """The sealed secret of a name, and the one before it while that still signs."""

    sealed: bytes
    previous: bytes | None


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
    def from_record(cls, tenant: str, record: RuntimeRecord) -> Runtime:
        """Return the runtime of a stored version. It was checked at registration and is not checked again by later
        rules."""
        spec = RuntimeSpec.model_validate(orjson.loads(record.wire))
        return cls(
            tenant=tenant,
            id=record.id,
            name=record.name,
            version=record.version,
            digest=record.digest.hex(),
            spec=spec,
            agents={agent.name: agent for agent in spec.agents},
            tools={tool.name: tool for tool in spec.tools or ()},
            plans={plan.name: plan for plan in spec.plans or ()},
            references={reference.name: reference for reference in spec.references or ()},
        )

    def agent(self, name: str) -> AgentSpec:
        """Return an agent by name. Raise NotFound if the spec does not have it."""
        agent = self.agents.get(name)
        if agent is None:
            raise NotFound(f"The runtime has no agent {name!r}; it has: {', '.join(self.agents)}.")
        return agent

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
