"""What only the service can check of a spec: expressions it will evaluate, prices it must know. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import jmespath
from jmespath.exceptions import JMESPathError
from plangate.spec.models import RuntimeSpec

from app.base.errors import Flaw
from app.llm.messages import Usage
from app.llm.prices import price


def service_flaws(spec: RuntimeSpec) -> list[Flaw]:
    """Everything that assembly in the library cannot see, with pointers into the assembled spec."""
    return [*_glimpses(spec), *_prices(spec), *_variables(spec)]


def _glimpses(spec: RuntimeSpec) -> Iterator[Flaw]:
    for n, reference in enumerate(spec.references):
        if not isinstance(reference.glimpse, dict):
            continue
        for field, expression in reference.glimpse.items():
            try:
                jmespath.compile(expression)
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


def _variables(spec: RuntimeSpec) -> Iterator[Flaw]:
    for n, plan in enumerate(spec.plans):
        if plan.variables:
            yield Flaw(
                f"/plans/{n}/variables", "variables are not available in this version: remove the field"
            )
