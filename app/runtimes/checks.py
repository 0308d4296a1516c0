"""Checks of a spec that only the service can make: expressions it will evaluate, prices it must know.
Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from jmespath.exceptions import JMESPathError
from plangate.json_pointer import json_pointer
from plangate.spec.assembly import Check, SpecInvalid, assemble, with_provider
from plangate.spec.drafts import Draft
from plangate.spec.gate_checks import spec_schemas
from plangate.spec.models import AgentSpec, RuntimeSpec
from plangate.spec.problems import Problem
from plangate.spec.transport_checks import transport_problems
from plangate.spec.transports import Dispatcher, HttpTransport, McpTransport, PythonTransport, Transport
from plangate.spec.vendors import PROVIDER_FIELDS, VENDORS

from app.base import jmespath
from app.base.egress_policy import EgressDenied, EgressPolicy
from app.base.errors import MAX_COLLECTED_ERRORS, MAX_LISTED_ERRORS, FieldError, Invalid
from app.base.schema.bounds import size_error
from app.llm.messages import Usage
from app.llm.prices import price
from app.llm.registry import operator_address
from app.runtimes.predicates import InvalidPredicate, compile_predicate


@dataclass(frozen=True, slots=True)
class Environment:
    """The installation that a spec must run in: egress rules, installed `python` entry points, and the variables with
    keys that the operator listed, each with its host."""

    egress: EgressPolicy
    entry_points: frozenset[str]
    provider_envs: Mapping[str, str]


def assemble_wire(
    raw: Mapping[str, Any], environment: Environment, tenant: str | None = None
) -> dict[str, Any]:
    """Return the spec as it is stored, assembled by the library's code. Raise Invalid with the first
    problems.

    If `tenant` is given, a spec of another tenant is a problem too.
    """
    checks = [service_check(environment), *([tenant_check(tenant)] if tenant is not None else [])]
    try:
        assembled = assemble(raw, extra_checks=checks, max_problems=MAX_COLLECTED_ERRORS)
    except SpecInvalid as error:
        errors = [FieldError(p.pointer, p.message) for p in error.problems]
        count = len(errors)
        many = f"more than {MAX_LISTED_ERRORS}" if count > MAX_LISTED_ERRORS else str(count)
        raise Invalid(
            f"The spec has {many} problem{'s' if count > 1 else ''}; see errors.", errors
        ) from error
    return dict(assembled.wire)


def service_check(environment: Environment) -> Check:
    """Return a check for problems that assembly in the library cannot find."""

    def check(draft: Draft) -> Iterator[Problem]:
        yield from _check_schema_sizes(draft)
        yield from _check_glimpses(draft)
        yield from _check_predicates(draft)
        yield from _check_prices(draft)
        yield from _check_transports(draft, environment)
        yield from _check_provider_envs(draft, environment)

    return check


def tenant_check(tenant: str) -> Check:
    """Return a check for specs that belong to a tenant other than the caller's."""

    def check(draft: Draft) -> Iterator[Problem]:
        if draft.spec.tenant.resource_id != tenant and "tenant" not in draft.unread:
            yield Problem(draft.at("tenant", "resourceId"), f"must be {tenant!r}")

    return check


def _check_transports(draft: Draft, environment: Environment) -> Iterator[Problem]:
    """Yield problems of addresses that are rejected whatever they resolve to, and of entry points that are
    not installed."""
    for at, transport in _transports_with_pointers(draft):
        if isinstance(transport, HttpTransport | McpTransport):
            if any(place == ("url",) for place, _ in transport_problems(transport)):
                continue  # not a URL, which is reported elsewhere
            try:
                environment.egress.check_url(transport.url)
            except EgressDenied as error:
                yield Problem(at("url"), str(error))
        elif isinstance(transport, PythonTransport) and transport.entry_point not in environment.entry_points:
            known = ", ".join(sorted(environment.entry_points)) or "none"
            yield Problem(
                at("entryPoint"),
                f"no entry point {transport.entry_point!r} is installed in the group plangate.tools; "
                f"expected one of: {known}",
            )


def _check_provider_envs(draft: Draft, environment: Environment) -> Iterator[Problem]:
    """Yield providers that name a variable which the operator did not list, or listed for another host."""
    for name, provider in draft.spec.providers.items():
        kind, env = provider.kind or name, provider.api_key_env
        if env is None or provider.base_url or kind not in VENDORS or draft.spec.interpreter:
            continue
        at, listed_host = draft.at("providers", name, "apiKeyEnv"), environment.provider_envs.get(env)
        _, host = operator_address(kind, provider.region)
        if listed_host is None:
            yield Problem(
                at,
                f"the operator did not list {env!r} in PLANGATE_PROVIDER_ENVS, so no spec may use it: set 'apiKey' "
                'to {"secret": ...}, or have the operator list it',
            )
        elif listed_host != host:
            yield Problem(
                at,
                f"the operator listed {env!r} for {listed_host}, and provider {name!r} is at {host}: set 'apiKey'",
            )


def _transports_with_pointers(draft: Draft) -> Iterator[tuple[Callable[..., str], Transport | Dispatcher]]:
    for tool in draft.tools:
        yield partial(tool.at, "transport"), tool.value.transport
    if draft.spec.action_dispatcher is not None:
        yield partial(draft.at, "actionDispatcher"), draft.spec.action_dispatcher
    for kind, dispatcher in draft.spec.action_dispatchers.items():
        yield partial(draft.at, "actionDispatchers", kind), dispatcher


def transports(spec: RuntimeSpec) -> Iterator[tuple[str, Transport | Dispatcher]]:
    """Yield every transport of a spec with its JSON pointer."""
    for n, tool in enumerate(spec.tools):
        yield f"/tools/{n}/transport", tool.transport
    if spec.action_dispatcher is not None:
        yield "/actionDispatcher", spec.action_dispatcher
    for kind, dispatcher in spec.action_dispatchers.items():
        yield json_pointer(("actionDispatchers", kind)), dispatcher


def _check_schema_sizes(draft: Draft) -> Iterator[Problem]:
    """Yield schemas that would be too large or too deep to validate with, once their references are followed."""
    for pointer, schema, owner in spec_schemas(draft):
        if (error := size_error(schema)) is not None:
            yield Problem(pointer + error.pointer, f"the schema of {owner} is not usable: {error.message}")


def _check_glimpses(draft: Draft) -> Iterator[Problem]:
    for reference in draft.references:
        if isinstance(reference.value.glimpse, dict):
            for field, expression in reference.value.glimpse.items():
                yield from _check_expression(reference.at("glimpse", field), expression)
    for plan in draft.plans:
        for name, fact in plan.value.glimpse.items():
            yield from _check_expression(plan.at("glimpse", name, "expression"), fact.expression)


def _check_expression(pointer: str, expression: str) -> Iterator[Problem]:
    try:
        jmespath.validate_calls(expression)
    except JMESPathError as error:
        why = str(error).splitlines()[0].rstrip(":")
        yield Problem(pointer, f"is not a JMESPath expression: {why}")


def _check_prices(draft: Draft) -> Iterator[Problem]:
    spec = draft.spec
    if spec.limits is None or spec.limits.max_cost_usd is None:
        return
    for agent in draft.agents:
        if not is_priced(spec, agent.value):
            yield Problem(
                agent.at("model", "id"),
                f"no price is known for {agent.value.model.id!r}, so limits.maxCostUsd cannot be enforced: "
                "use maxTokens, or a model with a known price",
            )


def is_priced(spec: RuntimeSpec, agent: AgentSpec) -> bool:
    """Return whether the price of an agent's model is known, or its provider is not declared."""
    model = with_provider(agent.model, spec)
    provider = spec.providers.get(model.provider)
    kind = (provider.kind if provider else None) or model.provider
    if kind not in PROVIDER_FIELDS:
        return True
    return not spec.interpreter and price(kind, model.id, Usage(input_tokens=1)) is not None


def _check_predicates(draft: Draft) -> Iterator[Problem]:
    for name, expression in draft.spec.approval_predicates.items():
        if not isinstance(expression, str):
            continue  # a process of the user evaluates it
        try:
            compile_predicate(expression)
        except InvalidPredicate as error:
            yield Problem(
                draft.at("approvalPredicates", name),
                f"is not a CEL expression that returns a boolean: {error}",
            )
