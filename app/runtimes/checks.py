"""What only the service can check of a spec: expressions it will evaluate, prices it must know. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from jmespath.exceptions import JMESPathError
from plangate.spec.models import ApprovalRule, RuntimeSpec

from app.base import paths
from app.base.errors import Flaw
from app.llm.messages import Usage
from app.llm.prices import price
from app.runtimes.predicates import NotAPredicate, compiled


def service_flaws(spec: RuntimeSpec) -> list[Flaw]:
    """Everything that assembly in the library cannot see, with pointers into the assembled spec."""
    return [*_glimpses(spec), *_predicates(spec), *_prices(spec), *_not_built(spec)]


def _glimpses(spec: RuntimeSpec) -> Iterator[Flaw]:
    for n, reference in enumerate(spec.references):
        if not isinstance(reference.glimpse, dict):
            continue
        for field, expression in reference.glimpse.items():
            try:
                paths.compiled(expression)
            except JMESPathError as error:
                why = str(error).splitlines()[0]
                yield Flaw(f"/references/{n}/glimpse/{field}", f"is not a JMESPath expression: {why}")


def _prices(spec: RuntimeSpec) -> Iterator[Flaw]:
    if spec.limits is None or spec.limits.max_cost_usd is None:
        return
    for n, agent in enumerate(spec.agents):
        provider = spec.providers.get(agent.model.provider)
        kind = (provider.kind if provider else None) or agent.model.provider
        if spec.interpreter or price(kind, agent.model.id, Usage(input_tokens=1)) is None:
            yield Flaw(
                f"/agents/{n}/model/id",
                f"no price is known for {agent.model.id!r}, so limits.maxCostUsd could not be kept: "
                "use maxTokens, or a model with a known price",
            )


def _predicates(spec: RuntimeSpec) -> Iterator[Flaw]:
    for name, expression in spec.approval_predicates.items():
        pointer = f"/approvalPredicates/{name}"
        if not isinstance(expression, str):
            yield Flaw(
                pointer, "predicates in a process of yours are not available in this version: write CEL"
            )
            continue
        try:
            compiled(expression)
        except NotAPredicate as error:
            yield Flaw(pointer, f"is not a CEL expression that gives a boolean: {error}")


def _not_built(spec: RuntimeSpec) -> Iterator[Flaw]:
    """What the language can say and this version would ignore is refused: nobody should rely on it."""
    later = "is not available in this version: remove it"
    for n, plan in enumerate(spec.plans):
        if plan.variables:
            yield Flaw(f"/plans/{n}/variables", later)
    if spec.state_schema is not None:
        yield Flaw("/stateSchema", later)
    if spec.data:
        yield Flaw("/data", later)
    for pointer, rule in _rules(spec):
        if rule.rememberable:
            yield Flaw(f"{pointer}/rememberable", later)


def _rules(spec: RuntimeSpec) -> Iterator[tuple[str, ApprovalRule]]:
    """Every rule of a spec with its place."""
    policies = {"/approvalPolicies": spec.approval_policies}
    overrides = spec.approval_overrides
    if overrides is not None:
        policies |= {f"/approvalOverrides/agents/{name}": p for name, p in overrides.agents.items()}
        for agent, tools in overrides.tools.items():
            for tool, rule in tools.items():
                if rule is not None:
                    yield f"/approvalOverrides/tools/{agent}/{tool}", rule
    for pointer, channels in policies.items():
        for channel in ("plans", "tools"):
            found = getattr(channels, channel, None)
            if found is not None:
                yield f"{pointer}/{channel}", found
    for n, tool_spec in enumerate(spec.tools):
        if tool_spec.approval is not None:
            yield f"/tools/{n}/approval", tool_spec.approval
