"""Vendor records: hosts, kinds, prices, and tokens of service accounts."""

from __future__ import annotations

import base64
import json
import time
from functools import cache
from typing import Any, get_args

import httpx2
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from plangate.spec.vendors import PROVIDER_FIELDS, VENDORS, ProviderKind

from app.llm.client import ModelClient, ModelTraffic
from app.llm.messages import Message, ModelRequest, Text, Usage
from app.llm.prices import price
from app.llm.provider import ProviderNotBuilt, RequestRejected
from app.llm.registry import build_provider
from app.llm.service_account import ServiceAccount

ASKED = ModelRequest("model-1", "", (), (Message("user", (Text("Hello"),)),))
EMAIL = "agents@my-project.iam.gserviceaccount.com"


@cache
def rsa_key() -> rsa.RSAPrivateKey:
    """Return a key. Generating one takes a while, and the parameters below need several."""
    return rsa.generate_private_key(65537, 2048)


def key_file(key: Any = None, **changes: Any) -> str:
    """The JSON of a service account, as Google gives it."""
    key = key or rsa_key()
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    info = {"type": "service_account", "client_email": EMAIL, "private_key_id": "kid", "private_key": pem}
    return json.dumps({**info, "token_uri": "http://169.254.169.254/token", **changes}, indent=2)


def opened(part: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def test_every_provider_kind_can_be_built_from_its_fields() -> None:
    assert set(get_args(ProviderKind)) == set(PROVIDER_FIELDS)


@pytest.mark.parametrize(
    ("kind", "place", "url"),
    [
        ("anthropic", {}, "https://api.anthropic.com/v1/messages"),
        ("openai", {}, "https://api.openai.com/v1/chat/completions"),
        (
            "bedrock",
            {"region": "eu-central-1"},
            "https://bedrock-runtime.eu-central-1.amazonaws.com/model/model-1/invoke-with-response-stream",
        ),
        *(
            (
                "vertex",
                {"region": region, "project": "my-project"},
                f"https://{host}/v1/projects/my-project/locations/{region}/publishers/anthropic/models/"
                "model-1:streamRawPredict",
            )
            for region, host in (
                ("us-east5", "us-east5-aiplatform.googleapis.com"),
                ("global", "aiplatform.googleapis.com"),
                ("us", "aiplatform.us.rep.googleapis.com"),
                ("eu", "aiplatform.eu.rep.googleapis.com"),
            )
        ),
    ],
)
async def test_default_addresses_of_vendors(kind: str, place: dict[str, str], url: str) -> None:
    asked: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(404, json={"error": {"message": "no"}})

    async with ModelClient(httpx2.MockTransport(answer), ModelTraffic()) as client:
        provider = build_provider(kind, api_key="k", http_client=client, options=place)
        with pytest.raises(RequestRejected):
            await anext(provider.stream(ASKED))
    assert [str(request.url) for request in asked] == [url]
    assert asked[0].url.host == VENDORS[kind].host_in(place.get("region"))


@pytest.mark.parametrize(
    ("kind", "settings", "says"),
    [
        ("bedrock", {"api_key": "k"}, "A provider of kind 'bedrock' needs a region, such as us-east-1."),
        *(
            ("vertex", {"api_key": "k", "options": place}, "'vertex' needs a project and a region.")
            for place in ({}, {"region": "us-east5"}, {"project": "p"})
        ),
        ("bedrock", {"api_key": "k", "options": {"project": "p"}}, "knows no option 'project'"),
        ("anthropic", {"api_key": "k", "options": {"region": "us-east-1"}}, "knows no option 'region'"),
    ],
)
def test_providers_that_cannot_be_built_are_rejected(kind: str, settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ProviderNotBuilt) as refused:
        build_provider(kind, **settings)
    assert says in str(refused.value)


def test_the_token_of_a_service_account() -> None:
    key = rsa_key()
    began = int(time.time())
    token = ServiceAccount.from_json("\n" + key_file(key)).token()
    head, claims, signature = token.split(".")
    assert opened(head) == {"alg": "RS256", "typ": "JWT", "kid": "kid"}
    issued = opened(claims)["iat"]
    assert began <= issued <= time.time()
    assert opened(claims) == {
        "iss": EMAIL,
        "sub": EMAIL,
        "scope": "https://www.googleapis.com/auth/cloud-platform",
        "iat": issued,
        "exp": issued + 3600,
    }
    written = base64.urlsafe_b64decode(signature + "=" * (-len(signature) % 4))
    key.public_key().verify(written, f"{head}.{claims}".encode(), padding.PKCS1v15(), hashes.SHA256())
    with pytest.raises(InvalidSignature):
        key.public_key().verify(written, b"other", padding.PKCS1v15(), hashes.SHA256())


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "{}",
        "[" * 100_000,
        key_file(private_key="-----BEGIN PRIVATE KEY-----\nsecret words\n-----END PRIVATE KEY-----\n"),
        key_file(private_key=17),
        key_file(private_key=None),
        key_file(client_email=["a"]),
        key_file(private_key_id=None),
        key_file(ec.generate_private_key(ec.SECP256R1())),
    ],
)
def test_an_invalid_key_file_is_rejected_without_its_text(text: str) -> None:
    with pytest.raises(ProviderNotBuilt) as refused:
        ServiceAccount.from_json(text)
    assert str(refused.value) == (
        "The provider's key looks like the JSON of a service account but is invalid. Store the key file "
        "as downloaded from Google, with client_email, private_key_id and private_key."
    )
    assert "PRIVATE KEY" not in repr(ServiceAccount.from_json(key_file()))


SONNET = "anthropic.claude-sonnet-4-5-20250929-v1:0"


def usd(kind: str, model: str, usage: Usage) -> float:
    cost = price(kind, model, usage)
    assert cost is not None
    return cost.usd


@pytest.mark.parametrize(
    "usage",
    [Usage(1000), Usage(0, 1000), Usage(cache_read_tokens=1000), Usage(cache_write_tokens=1000)],
)
def test_the_platforms_have_prices_of_their_own(usage: Usage) -> None:
    """The same model costs the same on each, but for Bedrock's regional profiles, which cost a tenth more."""
    vendors = usd("anthropic", "claude-sonnet-4-5", usage)
    assert vendors > 0
    assert usd("vertex", "claude-sonnet-4-5@20250929", usage) == pytest.approx(vendors)
    assert usd("bedrock", f"global.{SONNET}", usage) == pytest.approx(vendors)
    assert usd("bedrock", f"eu.{SONNET}", usage) == pytest.approx(1.1 * vendors)
    assert usd("bedrock", SONNET, usage) == pytest.approx(1.1 * vendors)


@pytest.mark.parametrize(
    ("kind", "model"),
    [
        ("bedrock", "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abc"),
        ("vertex", "claude-of-tomorrow"),
        ("mock", "claude-sonnet-4-5"),
    ],
)
def test_unknown_models_have_no_price(kind: str, model: str) -> None:
    assert price(kind, model, Usage(1, 1)) is None
