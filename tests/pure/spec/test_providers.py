"""Providers in a spec: required and forbidden fields of each kind, and the wire form."""

from typing import Any

import pytest
from plangate.spec.assembly import SpecInvalid, assemble

KEY = {"apiKey": {"secret": "s"}}
OWN_ADDRESS = (
    "provider 'p' has a 'baseUrl', and the operator's keys are not sent to an address that a spec chose: set 'apiKey' to "
    '{"secret": ...}'
)
BEDROCK = {"kind": "bedrock", "region": "eu-west-3", **KEY}
VERTEX = {"kind": "vertex", "region": "us-east5", "project": "my-project", **KEY}


def spec(provider: dict[str, Any] | None, name: str = "p", **fields: Any) -> dict[str, Any]:
    return {
        "tenant": {"resourceId": "acme"},
        "agents": [
            {
                "name": "helper",
                "role": "specialist",
                "model": {"id": "m", "provider": name},
                "stateful": False,
            }
        ],
        "providers": {} if provider is None else {name: provider},
        **fields,
    }


def problems(provider: dict[str, Any] | None, name: str = "p", **fields: Any) -> list[tuple[str, str]]:
    with pytest.raises(SpecInvalid) as caught:
        assemble(spec(provider, name, **fields))
    return [(problem.pointer, problem.message) for problem in caught.value.problems]


def without(provider: dict[str, Any], *fields: str) -> dict[str, Any]:
    return {name: value for name, value in provider.items() if name not in fields}


@pytest.mark.parametrize(
    ("name", "provider"),
    [
        ("p", BEDROCK),
        ("p", {**BEDROCK, "baseUrl": "https://gateway.test"}),
        ("p", {**without(BEDROCK, "region"), "baseUrl": "https://gateway.test"}),
        ("p", {**without(BEDROCK, "apiKey"), "apiKeyEnv": "TEAM_KEY", "idleTimeoutS": 5.5}),
        ("bedrock", without(BEDROCK, "kind")),
        ("p", {**without(BEDROCK, "apiKey"), "credentials": "operator"}),
        ("p", VERTEX),
        ("p", {**VERTEX, "region": "global", "project": "example.com:my-project"}),
        ("vertex", {**without(VERTEX, "kind"), "baseUrl": "https://gateway.test/v1"}),
        ("anthropic", {}),
        ("p", {"kind": "openai", "apiKeyEnv": "K", "idleTimeoutS": 5.5}),
        ("p", {"kind": "mock", "tokens": 3}),
    ],
)
def test_only_written_fields_are_on_the_wire(name: str, provider: dict[str, Any]) -> None:
    made = assemble(spec(provider, name)).wire
    assert made["providers"] == {name: provider}
    snake = {
        "apiKey": "api_key",
        "apiKeyEnv": "api_key_env",
        "baseUrl": "base_url",
        "idleTimeoutS": "idle_timeout_s",
    }
    spelt = {snake.get(field, field): value for field, value in provider.items()}
    assert assemble(spec(spelt, name)).wire == made


@pytest.mark.parametrize(
    ("provider", "at", "message"),
    [
        (
            without(VERTEX, "project"),
            "/providers/p/project",
            "provider 'p' of kind 'vertex' has no 'project': name the Google Cloud project by its id",
        ),
        (
            without(VERTEX, "region"),
            "/providers/p/region",
            "provider 'p' of kind 'vertex' has no 'region': it is a part of the address, such as 'us-east5'",
        ),
        (
            {**without(VERTEX, "region"), "baseUrl": "https://gateway.test"},
            "/providers/p/region",
            "provider 'p' of kind 'vertex' has no 'region': it is a part of the address, such as 'us-east5'",
        ),
        (
            without(BEDROCK, "region"),
            "/providers/p/region",
            "provider 'p' of kind 'bedrock' has no 'region': it names the host, such as 'us-east-1'",
        ),
        (
            without(BEDROCK, "apiKey"),
            "/providers/p/apiKey",
            "provider 'p' of kind 'bedrock' has no key: set 'apiKey' to {\"secret\": ...}, or 'apiKeyEnv'",
        ),
        (
            without(VERTEX, "apiKey"),
            "/providers/p/apiKey",
            "provider 'p' of kind 'vertex' has no key: set 'apiKey' to {\"secret\": ...}, or 'apiKeyEnv'",
        ),
        (
            {"kind": "openai", "baseUrl": "https://x.test"},
            "/providers/p/apiKey",
            OWN_ADDRESS,
        ),
        (
            {"kind": "anthropic", "apiKeyEnv": "K", "baseUrl": "https://x.test"},
            "/providers/p/apiKey",
            OWN_ADDRESS,
        ),
        (
            {**without(VERTEX, "apiKey"), "baseUrl": "https://x.test"},
            "/providers/p/apiKey",
            OWN_ADDRESS,
        ),
        (
            {**BEDROCK, "credentials": "operator"},
            "/providers/p/credentials",
            "provider 'p' uses the operator's credentials, which allow no 'apiKey': remove one of them",
        ),
        (
            {**without(BEDROCK, "apiKey"), "credentials": "operator", "baseUrl": "https://x.test"},
            "/providers/p/credentials",
            "provider 'p' uses the operator's credentials, which allow no 'baseUrl': remove one of them",
        ),
        (
            {**VERTEX, "credentials": "operator"},
            "/providers/p/credentials",
            "provider 'p' of kind 'vertex' takes no 'credentials', which is for bedrock: remove it",
        ),
        (
            {**BEDROCK, "apiKeyEnv": "K"},
            "/providers/p/apiKeyEnv",
            "provider 'p' has an 'apiKey' and an 'apiKeyEnv': keep one",
        ),
        (
            {**BEDROCK, "project": "my-project"},
            "/providers/p/project",
            "provider 'p' of kind 'bedrock' takes no 'project', which is for vertex: remove it",
        ),
        (
            {"kind": "anthropic", "region": "us-east-1"},
            "/providers/p/region",
            "provider 'p' of kind 'anthropic' takes no 'region', which is for bedrock, vertex: remove it",
        ),
        (
            {"kind": "openai", "project": "my-project"},
            "/providers/p/project",
            "provider 'p' of kind 'openai' takes no 'project', which is for vertex: remove it",
        ),
        (
            {"kind": "openai", "tokens": 3},
            "/providers/p/tokens",
            "provider 'p' of kind 'openai' takes no 'tokens', which is for mock: remove it",
        ),
        (
            {"kind": "scripted", **KEY},
            "/providers/p/apiKey",
            "provider 'p' of kind 'scripted' takes no 'apiKey', which is for anthropic, bedrock, openai, vertex: "
            "remove it",
        ),
        (
            {"kind": "noop", "baseUrl": "https://x.test"},
            "/providers/p/baseUrl",
            "provider 'p' of kind 'noop' takes no 'baseUrl', which is for anthropic, bedrock, openai, vertex: "
            "remove it",
        ),
        (
            {**BEDROCK, "region": "us-east-1.evil.test/"},
            "/providers/p/region",
            "'us-east-1.evil.test/' is not a region: use lower-case letters, digits and '-', such as us-east-1 or "
            "global",
        ),
        (
            {**VERTEX, "region": ""},
            "/providers/p/region",
            "'' is not a region: use lower-case letters, digits and '-', such as us-east-1 or global",
        ),
        (
            {**VERTEX, "project": "My Project"},
            "/providers/p/project",
            "'My Project' is not a project of Google Cloud: use its id, such as my-project-123, not its display name",
        ),
    ],
)
def test_a_rejection_names_the_provider_and_the_fix(provider: dict[str, Any], at: str, message: str) -> None:
    assert problems(provider) == [(at, message)]


@pytest.mark.parametrize("region", ["-east", "east-", "US-EAST-1", "a" * 33, "us east", "us\n", "ü", "1"])
def test_a_region_cannot_be_more_than_a_part_of_a_hosts_name(region: str) -> None:
    assert [at for at, _ in problems({**BEDROCK, "region": region})] == ["/providers/p/region"]


def test_all_missing_fields_are_reported_at_once() -> None:
    found = problems({"kind": "vertex", "tokens": 3})
    assert [at.rpartition("/")[2] for at, _ in found] == ["tokens", "region", "project", "apiKey"]


@pytest.mark.parametrize("name", ["bedrock", "vertex"])
def test_a_platform_has_to_be_declared(name: str) -> None:
    assert problems(None, name) == [
        (
            "/agents/0/model/provider",
            f"agent 'helper' names the provider {name!r}, which is not in 'providers': declare it there, with its "
            "region and key",
        )
    ]


def test_a_platform_needs_no_key_without_a_model() -> None:
    for provider in (BEDROCK, VERTEX):
        made = assemble(spec(without(provider, "apiKey"), interpreter="mock", mockResponse="x"))
        assert "apiKey" not in made.wire["providers"]["p"]
