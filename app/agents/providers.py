"""The providers of runtimes: which adapter with which key, over which transport. Clients are shared and reused."""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2
from plangate.spec.models import AgentSpec, ProviderSpec
from plangate.spec.vendors import MODEL_FREE_FIELDS, VENDORS

from app.base.egress_policy import EgressPolicy
from app.llm.client import ModelClient, ModelTraffic, egress_client, open_client
from app.llm.provider import Provider, ProviderNotBuilt
from app.llm.registry import build_provider, load_vendor, operator_address
from app.runtimes.models import Runtime
from app.tenancy.secrets import Secrets

MAX_KEPT = 256


class ProviderUnavailable(Exception):
    """The provider of an agent cannot be used as it is configured; the message says what to change."""


@dataclass(frozen=True, slots=True)
class ProviderChoice:
    """The parameters of a provider. Equal choices share a client."""

    kind: str
    api_key: str | None
    base_url: str | None
    of_tenant: bool
    options: tuple[tuple[str, Any], ...] = ()


class ProviderPool:
    """Builds providers off the event loop, because their SDKs are slow to import, and reuses recent ones.

    `operator_envs` maps a variable of the operator to the host it may be sent to (PLANGATE_PROVIDER_ENVS). With the
    embedded database (`local`) operator and tenant are one person: a spec without a key uses the operator's
    ANTHROPIC_API_KEY or OPENAI_API_KEY. Elsewhere a variable must be listed, and is sent only to the host that it is
    listed for. `aws_tenants` may use the AWS identity of the service (PLANGATE_AWS_TENANTS). Without `calls_models`, the
    process runs no agents and needs no SDKs.
    """

    def __init__(
        self,
        secrets: Secrets,
        policy: EgressPolicy,
        operator_envs: Mapping[str, str],
        *,
        local: bool,
        traffic: ModelTraffic | None = None,
        aws_tenants: Collection[str] = (),
        calls_models: bool = True,
    ) -> None:
        self._calls_models = calls_models
        self._loaded: set[str] = set()
        self._local = local
        self._aws_tenants = frozenset(aws_tenants)
        self._secrets = secrets
        self._policy = policy
        self._operator_envs = operator_envs
        self.traffic = traffic or ModelTraffic()
        self._clients: dict[bool, ModelClient] = {}  # by `ProviderChoice.of_tenant`
        self._providers: OrderedDict[ProviderChoice, Provider] = OrderedDict()
        self._lock = asyncio.Lock()

    async def of(self, runtime: Runtime, agent: AgentSpec) -> tuple[Provider, str]:
        """Return the provider of this agent, and its kind."""
        chosen = await self._choose(runtime, agent)
        provider = self._providers.get(chosen)
        if provider is not None:
            self._providers.move_to_end(chosen)
            return provider, chosen.kind
        async with self._lock:
            if chosen not in self._providers:
                self._providers[chosen] = await self._build(chosen)
                while len(self._providers) > MAX_KEPT:
                    self._providers.popitem(last=False)
            return self._providers[chosen], chosen.kind

    async def load_vendors(self, kinds: Collection[str]) -> None:
        """Import the SDKs of these vendors before their first turn, in which the import would delay every other
        stream of the process."""
        if not self._calls_models:
            return
        for kind in sorted(set(kinds) - self._loaded):
            await asyncio.to_thread(load_vendor, kind)
            self._loaded.add(kind)

    async def _choose(self, runtime: Runtime, agent: AgentSpec) -> ProviderChoice:
        forced = runtime.spec.interpreter
        if forced:
            return ProviderChoice(forced, None, None, False, self._options(forced, runtime, None))
        name = agent.model.provider
        spec = (runtime.spec.providers or {}).get(name)
        kind = (spec.kind if spec else None) or name
        if kind in MODEL_FREE_FIELDS:
            return ProviderChoice(kind, None, None, False, self._options(kind, runtime, spec))
        options = self._options(kind, runtime, spec)
        if spec is not None and spec.credentials is not None:
            self._require_aws_tenant(runtime, name, spec)
            return ProviderChoice(kind, None, None, False, options)
        if spec is not None and spec.base_url:
            return ProviderChoice(
                kind, await self._own_key(runtime, name, spec), spec.base_url, True, options
            )
        if spec is not None and spec.api_key is not None:
            return ProviderChoice(kind, await self._own_key(runtime, name, spec), None, True, options)
        # None for clouds: a spec without a key never uses the operator's cloud account.
        key_env = VENDORS[kind].key_env
        base_url, target = operator_address(kind, spec.region if spec else None)
        if spec is not None and spec.api_key_env:
            return ProviderChoice(
                kind, self._operator_key(spec.api_key_env, target), base_url, False, options
            )
        if key_env is not None and key_env in self._operator_envs:
            return ProviderChoice(kind, self._operator_key(key_env, target), base_url, False, options)
        key = os.environ.get(key_env) if key_env is not None and self._local else None
        if not key:
            raise ProviderUnavailable(
                f"The provider {name!r} has no key. Give it one in the spec (providers.{name}.apiKey as a secret)"
                f"{self._or_else(key_env)}."
            )
        return ProviderChoice(kind, key, base_url, False, options)

    def _require_aws_tenant(self, runtime: Runtime, name: str, spec: ProviderSpec) -> None:
        """Raise ProviderUnavailable unless the operator lets this tenant use the AWS identity of the service, which
        goes to AWS only."""
        if spec.base_url or spec.api_key is not None or spec.api_key_env:
            raise ProviderUnavailable(
                f"The provider {name!r} uses the operator's credentials: remove its key and its baseUrl."
            )
        if runtime.tenant not in self._aws_tenants:
            raise ProviderUnavailable(
                f"The operator does not let the tenant {runtime.tenant!r} use the AWS identity of the service: give the "
                f"provider {name!r} a key (providers.{name}.apiKey as a secret), or have the operator list the tenant in "
                "PLANGATE_AWS_TENANTS."
            )

    def _or_else(self, key_env: str | None) -> str:
        if key_env is None:
            return ""
        if self._local:
            return f", or start the service with {key_env} set"
        return f", or have the operator list {key_env} in PLANGATE_PROVIDER_ENVS"

    def _options(self, kind: str, runtime: Runtime, spec: ProviderSpec | None) -> tuple[tuple[str, Any], ...]:
        options: dict[str, Any] = {}
        if kind == "mock":
            options = {"text": runtime.spec.mock_response, "tokens": spec.tokens if spec else None}
        elif kind in VENDORS and spec is not None:
            wire = spec.to_wire()
            options = {name: wire.get(name) for name in VENDORS[kind].options}
        return tuple((k, v) for k, v in options.items() if v is not None)

    async def _own_key(self, runtime: Runtime, name: str, spec: ProviderSpec) -> str:
        secret = getattr(spec.api_key, "secret", None)
        if secret is None:
            raise ProviderUnavailable(
                f"The provider {name!r} has its own baseUrl and brings no key of its own: the operator's keys are not "
                "sent to an address that a spec chose. Set providers."
                + name
                + '.apiKey to {"secret": "..."}.'
            )
        value = await self._secrets.read(runtime.tenant, secret)
        if value is None:
            raise ProviderUnavailable(
                f"The secret {secret!r} of provider {name!r} does not exist: PUT /secrets/{secret}."
            )
        return value

    def _operator_key(self, env: str, target: str | None) -> str:
        """Return the value of an environment variable of the operator. It may be sent only to the host that
        it is listed for."""
        host = self._operator_envs.get(env)
        if host is None:
            raise ProviderUnavailable(
                f"The operator did not list {env} in PLANGATE_PROVIDER_ENVS, so no spec may use it."
            )
        if target != host:
            raise ProviderUnavailable(f"{env} may be sent to {host} only.")
        value = os.environ.get(env)
        if not value:
            raise ProviderUnavailable(
                f"The operator listed {env} but it is not set in the service's environment."
            )
        return value

    async def _build(self, chosen: ProviderChoice) -> Provider:
        try:
            return await asyncio.to_thread(self._build_shared, chosen)
        except ProviderNotBuilt as error:
            raise ProviderUnavailable(str(error)) from error
        except httpx2.InvalidURL as error:
            raise ProviderUnavailable(f"The provider's baseUrl is not a URL: {error}") from error

    def _build_shared(self, chosen: ProviderChoice) -> Provider:
        return build_provider(
            chosen.kind,
            api_key=chosen.api_key,
            base_url=chosen.base_url,
            http_client=None
            if chosen.kind in MODEL_FREE_FIELDS
            else self._client(of_tenant=chosen.of_tenant),
            options=dict(chosen.options),
        )

    def _client(self, *, of_tenant: bool) -> ModelClient:
        if of_tenant not in self._clients:
            self._clients[of_tenant] = (
                egress_client(self._policy, self.traffic) if of_tenant else open_client(self.traffic)
            )
        return self._clients[of_tenant]

    async def aclose(self) -> None:
        for provider in self._providers.values():
            await provider.aclose()
        for client in self._clients.values():
            await client.aclose()
