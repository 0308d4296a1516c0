"""Which key is sent where: secrets of the tenant, listed variables, and nothing else."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from plangate.spec.assembly import assemble

from app.agents.providers import ProviderPool, ProviderUnavailable
from app.base.egress_policy import EgressPolicy
from app.llm.messages import StreamPart, Text, TurnDone
from app.llm.provider import RequestRejected
from app.runtimes.models import Runtime, RuntimeRecord
from tests.processes.aimock.vendor_server import (
    PLACES,
    VENDORS,
    Answer,
    VendorServer,
    request,
    whole,
)

CLOUDS = ("bedrock", "vertex")
HOSTS = {
    "anthropic": "api.anthropic.com",
    "openai": "api.openai.com",
    "bedrock": "bedrock-runtime.eu-west-3.amazonaws.com",
    "vertex": "europe-west1-aiplatform.googleapis.com",
}
BASE_URLS = {"anthropic": "ANTHROPIC_BASE_URL", "openai": "OPENAI_BASE_URL"}
LEAKS = (
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "AWS_BEARER_TOKEN_BEDROCK",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "GOOGLE_APPLICATION_CREDENTIALS",
)


class Kept:
    """The secrets of tenants, as the pool reads them."""

    def __init__(self, **values: str) -> None:
        self.values = values

    async def read(self, tenant: str, name: str) -> str | None:
        return self.values.get(name) if tenant == "acme" else None


def runtime(kind: str, *, tenant: str = "acme", declared: bool = True, **provider: Any) -> Runtime:
    place: dict[str, Any] = PLACES.get(kind, {})
    spec = {
        "tenant": {"resourceId": tenant},
        "agents": [{"name": "solo", "role": "specialist", "model": {"id": "m", "provider": kind}}],
        "providers": {kind: {**place, **provider}} if declared else {},
    }
    record = RuntimeRecord("rt_1", "default", 1, b"", datetime.now(UTC), None, json.dumps(spec).encode())
    return Runtime.from_record(tenant, record)


@asynccontextmanager
async def pool(
    operator: dict[str, str] | None = None,
    *,
    local: bool = False,
    allow: str = "",
    aws_tenants: Sequence[str] = (),
    **secrets: str,
) -> AsyncIterator[ProviderPool]:
    policy = EgressPolicy.from_hosts([allow] if allow else [])
    kept: Any = Kept(**secrets)
    made = ProviderPool(kept, policy, operator or {}, local=local, aws_tenants=aws_tenants)
    try:
        yield made
    finally:
        await made.aclose()


async def turn(providers: ProviderPool, of: Runtime) -> list[StreamPart]:
    provider, kind = await providers.of(of, of.agents["solo"])
    assert kind == of.agents["solo"].model.provider
    return [part async for part in provider.stream(request())]


async def refusal_of(providers: ProviderPool, of: Runtime) -> str:
    with pytest.raises(ProviderUnavailable) as refused:
        await providers.of(of, of.agents["solo"])
    return str(refused.value)


@pytest.fixture
async def server() -> AsyncIterator[VendorServer]:
    running = VendorServer()
    await running.start()
    yield running
    await running.stop()


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets variables of the service, after all that would speak of an account were taken away."""
    for name in (*LEAKS, *BASE_URLS.values()):
        monkeypatch.delenv(name, raising=False)

    def put(**values: str) -> None:
        for name, value in values.items():
            monkeypatch.setenv(name, value)

    return put


# --- Variables of the operator ---


@pytest.mark.parametrize("kind", ["anthropic", "openai"])
async def test_a_listed_variable_is_sent_to_its_host(
    kind: str, server: VendorServer, environment: Callable[..., None]
) -> None:
    path = "/v1" if kind == "openai" else ""
    environment(TEAM_KEY="sk-team", **{BASE_URLS[kind]: server.url + path})
    server.answers = [Answer(whole(kind))]
    async with pool({"TEAM_KEY": "127.0.0.1"}) as providers:
        done = (await turn(providers, runtime(kind, apiKeyEnv="TEAM_KEY")))[-1]
    assert isinstance(done, TurnDone)
    assert done.blocks == (Text("Hello there"),)
    assert server.seen[0].headers["authorization"] == "Bearer sk-team"


@pytest.mark.parametrize("kind", ["anthropic", "openai"])
async def test_a_listed_variable_is_sent_to_no_other_host(
    kind: str, server: VendorServer, environment: Callable[..., None]
) -> None:
    environment(TEAM_KEY="sk-team", **{BASE_URLS[kind]: server.url})
    async with pool({"TEAM_KEY": HOSTS[kind]}, local=True) as providers:
        says = await refusal_of(providers, runtime(kind, apiKeyEnv="TEAM_KEY"))
    assert says == f"TEAM_KEY may be sent to {HOSTS[kind]} only."
    assert not server.seen


@pytest.mark.parametrize("kind", VENDORS)
@pytest.mark.parametrize("local", [True, False])
async def test_a_variable_is_bound_to_the_host_of_kind_and_region(
    kind: str, local: bool, environment: Callable[..., None]
) -> None:
    environment(TEAM_KEY="sk-team")
    spec = runtime(kind, apiKeyEnv="TEAM_KEY")
    for host in (*HOSTS.values(), "bedrock-runtime.us-east-1.amazonaws.com", "aiplatform.googleapis.com"):
        async with pool({"TEAM_KEY": host}, local=local) as providers:
            if host == HOSTS[kind]:
                assert (await providers.of(spec, spec.agents["solo"]))[1] == kind
            else:
                assert await refusal_of(providers, spec) == f"TEAM_KEY may be sent to {host} only."


@pytest.mark.parametrize("kind", VENDORS)
@pytest.mark.parametrize("local", [True, False])
async def test_an_unlisted_or_unset_variable_is_rejected(
    kind: str, local: bool, environment: Callable[..., None]
) -> None:
    environment(HOME_KEY="sk-home")
    async with pool({"TEAM_KEY": HOSTS[kind]}, local=local) as providers:
        says = await refusal_of(providers, runtime(kind, apiKeyEnv="HOME_KEY"))
        assert says == "The operator did not list HOME_KEY in PLANGATE_PROVIDER_ENVS, so no spec may use it."
        says = await refusal_of(providers, runtime(kind, apiKeyEnv="TEAM_KEY"))
        assert says == "The operator listed TEAM_KEY but it is not set in the service's environment."


@pytest.mark.parametrize("kind", VENDORS)
async def test_a_base_url_of_the_spec_gets_no_variable(
    kind: str, server: VendorServer, environment: Callable[..., None]
) -> None:
    environment(TEAM_KEY="sk-team")
    async with pool({"TEAM_KEY": "127.0.0.1"}, allow="127.0.0.1") as providers:
        says = await refusal_of(providers, runtime(kind, baseUrl=server.url, apiKeyEnv="TEAM_KEY"))
    assert says == (
        f"The provider {kind!r} has its own baseUrl and brings no key of its own: the operator's keys are not "
        f'sent to an address that a spec chose. Set providers.{kind}.apiKey to {{"secret": "..."}}.'
    )


# --- Specs without a key ---


@pytest.mark.parametrize("kind", CLOUDS)
@pytest.mark.parametrize("local", [True, False])
async def test_a_cloud_account_of_the_operators_is_never_used(
    kind: str, local: bool, environment: Callable[..., None]
) -> None:
    environment(**dict.fromkeys(LEAKS, "leak"))
    async with pool(dict.fromkeys(LEAKS, HOSTS[kind]), local=local) as providers:
        says = await refusal_of(providers, runtime(kind))
    assert says == (
        f"The provider {kind!r} has no key. Give it one in the spec (providers.{kind}.apiKey as a secret)."
    )


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("kind", ["anthropic", "openai"])
async def test_the_operators_key_is_used_locally_or_where_listed(
    kind: str, declared: bool, server: VendorServer, environment: Callable[..., None]
) -> None:
    name, spec = f"{kind.upper()}_API_KEY", runtime(kind, declared=declared)
    path = "/v1" if kind == "openai" else ""
    async with pool(local=True) as providers:
        assert (await refusal_of(providers, spec)).endswith(f", or start the service with {name} set.")
    environment(**{name: "sk-operator", BASE_URLS[kind]: server.url + path})
    async with pool() as providers:
        ending = f", or have the operator list {name} in PLANGATE_PROVIDER_ENVS."
        assert (await refusal_of(providers, spec)).endswith(ending)
    for local in (True, False):
        async with pool({name: HOSTS[kind]}, local=local) as providers:
            assert await refusal_of(providers, spec) == f"{name} may be sent to {HOSTS[kind]} only."
    assert not server.seen
    server.answers = [Answer(whole(kind))] * 2
    async with pool(local=True) as providers:
        await turn(providers, spec)
    async with pool({name: "127.0.0.1"}) as providers:
        await turn(providers, spec)
    assert [seen.headers["authorization"] for seen in server.seen] == ["Bearer sk-operator"] * 2


# --- Secrets ---


@pytest.mark.parametrize("kind", VENDORS)
async def test_a_secret_goes_to_the_address_of_its_spec_through_the_checked_transport(
    kind: str, server: VendorServer, environment: Callable[..., None]
) -> None:
    environment(**dict.fromkeys(LEAKS, "leak"))
    path = "" if kind in ("anthropic", "bedrock") else "/v1"
    spec = runtime(kind, baseUrl=server.url + path, apiKey={"secret": "s"})
    async with pool(s="sk-tenant") as providers:
        with pytest.raises(RequestRejected, match=r"loopback.*PLANGATE_ALLOW_HOSTS"):
            await turn(providers, spec)
    assert not server.seen
    server.answers = [Answer(whole(kind))]
    async with pool(allow="127.0.0.1", s="sk-tenant") as providers:
        await turn(providers, spec)
    assert server.seen[0].headers["authorization"] == "Bearer sk-tenant"
    assert "leak" not in str(server.seen[0])


@pytest.mark.parametrize("kind", VENDORS)
async def test_a_secret_of_another_tenant_is_not_found(kind: str) -> None:
    async with pool(s="sk-tenant") as providers:
        says = await refusal_of(providers, runtime(kind, tenant="other", apiKey={"secret": "s"}))
    assert says == f"The secret 's' of provider {kind!r} does not exist: PUT /secrets/s."


async def test_an_invalid_key_is_reported_without_its_text() -> None:
    async with pool(s='{"client_email": "words"}') as providers:
        says = await refusal_of(providers, runtime("vertex", apiKey={"secret": "s"}))
    assert says.startswith("The provider's key looks like the JSON of a service account but is invalid")
    assert "words" not in says


def test_the_specs_of_these_tests_register() -> None:
    for kind in VENDORS:
        for key in ({"apiKeyEnv": "TEAM_KEY"}, {"apiKey": {"secret": "s"}, "baseUrl": "https://x.test"}):
            assemble(runtime(kind, **key).spec)
