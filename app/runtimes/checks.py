"""What only the service can check of a spec: expressions it will evaluate, prices it must know. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jmespath.exceptions import JMESPathError
from plangate.spec.models import RuntimeSpec
from plangate.spec.problems import json_pointer
from plangate.spec.transports import Dispatcher, HttpTransport, McpTransport, PythonTransport, Transport

from app.base import paths
from app.base.egress import EgressPolicy, EgressRefused
from app.base.errors import Flaw
from app.llm.messages import Usage
from app.llm.prices import price
from app.runtimes.predicates import NotAPredicate, compiled


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What of this installation decides whether a spec can run here: the way out, and what the operator installed
    for the transport `python`."""

    egress: EgressPolicy
    entry_points: frozenset[str]


def service_flaws(spec: RuntimeSpec, surroundings: Surroundings) -> list[Flaw]:
    """Everything that assembly in the library cannot see, with pointers into the assembled spec."""
    return [
        *_glimpses(spec),
        *_predicates(spec),
        *_prices(spec),
        *_transports(spec, surroundings),
        *_not_built(spec),
    ]


def _transports(spec: RuntimeSpec, surroundings: Surroundings) -> Iterator[Flaw]:
    """An address that is refused whatever its name resolves to, and functions that nobody installed."""
    for pointer, transport in transports(spec):
        if isinstance(transport, HttpTransport | McpTransport):
            try:
                surroundings.egress.check_url(transport.url)
            except EgressRefused as error:
                yield Flaw(f"{pointer}/url", str(error))
        elif (
            isinstance(transport, PythonTransport) and transport.entry_point not in surroundings.entry_points
        ):
            known = ", ".join(sorted(surroundings.entry_points)) or "none"
            yield Flaw(
                f"{pointer}/entryPoint",
                f"the operator installed no entry point {transport.entry_point!r} in the group plangate.tools; "
                f"there are: {known}",
            )


def transports(spec: RuntimeSpec) -> Iterator[tuple[str, Transport | Dispatcher]]:
    """Every transport of a spec with its place."""
    for n, tool in enumerate(spec.tools):
        yield f"/tools/{n}/transport", tool.transport
    if spec.action_dispatcher is not None:
        yield "/actionDispatcher", spec.action_dispatcher
    for kind, dispatcher in spec.action_dispatchers.items():
        yield json_pointer(("actionDispatchers", kind)), dispatcher


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
        if not isinstance(expression, str):
            continue  # a process of the user answers for it
        try:
            compiled(expression)
        except NotAPredicate as error:
            yield Flaw(
                json_pointer(("approvalPredicates", name)),
                f"is not a CEL expression that gives a boolean: {error}",
            )


def _not_built(spec: RuntimeSpec) -> Iterator[Flaw]:
    """What the language can say and this version would ignore is refused: nobody should rely on it."""
    later = "is not available in this version: remove it"
    for n, plan in enumerate(spec.plans):
        if plan.variables:
            yield Flaw(f"/plans/{n}/variables", later)
