"""Bedrock with IAM keys: which keys sign, valid signatures, and models other than Claude."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, ClassVar

import httpx2
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from app.llm import aws
from app.llm.aws import OperatorCredentials
from app.llm.client import ModelClient, ModelTraffic
from app.llm.iam_keys import IamKeys
from app.llm.messages import Text, TextDelta, ToolUse, TurnDone, Usage
from app.llm.provider import (
    BrokenTurn,
    NotAuthorized,
    Overloaded,
    ProviderFault,
    ProviderNotBuilt,
    RateLimited,
    RequestRejected,
    ServerFault,
    Unreachable,
)
from app.llm.registry import build_provider
from tests.processes.aimock.vendor_server import (
    KEY,
    Answer,
    Seen,
    VendorServer,
    b_exception,
    c_frame,
    c_whole,
    frame,
    parts_of,
    provider_for,
    request,
    turn_of,
    whole,
)
from tests.processes.test_providers_keys import pool, refusal_of, runtime

REGION = "eu-west-3"
NOVA = "eu.amazon.nova-pro-v1:0"
CLAUDE = "eu.anthropic.claude-opus-4-1-20250805-v1:0"
KEYS = {"AccessKeyId": "AKIAEXAMPLE", "SecretAccessKey": "tenant/secret+key"}
TEMPORARY = {**KEYS, "AccessKeyId": "ASIAEXAMPLE", "SessionToken": "token/with+signs=="}
FRAMES = {"content-type": "application/vnd.amazon.eventstream"}


@pytest.fixture
async def server() -> AsyncIterator[VendorServer]:
    running = VendorServer()
    await running.start()
    yield running
    await running.stop()


def converse(events: list[tuple[str, Any]] | None = None, *more: bytes, **parts: Any) -> Answer:
    frames: list[str | bytes] = [c_frame(kind, payload) for kind, payload in events or c_whole()]
    return Answer([*frames, *more], headers=FRAMES, **parts)


def answer_for(model: str) -> Answer:
    return converse() if model == NOVA else Answer(list(whole("bedrock")))


def verify(url: str, method: str, headers: dict[str, str], body: bytes, keys: dict[str, str]) -> None:
    """Check a request as AWS does: sign what arrived, with the headers that the signature names, and compare."""
    scheme, _, rest = headers["authorization"].partition(" ")
    assert scheme == "AWS4-HMAC-SHA256"
    parts = dict(part.strip().split("=", 1) for part in rest.split(","))
    access, _, region, service, _ = parts["Credential"].split("/")
    assert (access, region, service) == (keys["AccessKeyId"], REGION, "bedrock")
    names = parts["SignedHeaders"].split(";")
    assert {"host", "content-type", "x-amz-date"} <= set(names)
    assert ("x-amz-security-token" in names) is ("SessionToken" in keys)
    assert headers.get("x-amz-security-token") == keys.get("SessionToken")
    signer = SigV4Auth(
        Credentials(access, keys["SecretAccessKey"], keys.get("SessionToken")), service, region
    )
    arrived = AWSRequest(method=method, url=url, data=body, headers={n: headers[n] for n in names})
    arrived.context["timestamp"] = headers["x-amz-date"]
    signature = signer.signature(signer.string_to_sign(arrived, signer.canonical_request(arrived)), arrived)
    assert parts["Signature"] == signature


def verify_seen(server: VendorServer, seen: Seen, keys: dict[str, str]) -> None:
    verify(server.url + seen.path, "POST", seen.headers, seen.raw, keys)


# --- models other than Claude


async def test_other_models_use_converse(server: VendorServer) -> None:
    server.answers = [converse(c_whole(tools=1))]
    *deltas, done = await parts_of(provider_for("bedrock", server), request(model=NOVA, max_output_tokens=50))
    assert deltas == [TextDelta("Hello there")]
    assert done == TurnDone(
        (Text("Hello there"), ToolUse("t1", "look", '{"a": 1}')), "tool_use", Usage(10, 7), NOVA
    )
    (seen,) = server.seen
    assert seen.path == "/model/eu.amazon.nova-pro-v1%3A0/converse-stream"
    assert seen.headers["authorization"] == f"Bearer {KEY}"
    assert seen.body["messages"] == [{"role": "user", "content": [{"text": "Hello"}]}]
    assert seen.body["inferenceConfig"] == {"maxTokens": 50}
    assert [t["toolSpec"]["name"] for t in seen.body["toolConfig"]["tools"]] == ["first", "second"]


@pytest.mark.parametrize("size", [1, 7, 100_000])
async def test_frames_may_arrive_in_any_pieces(size: int, server: VendorServer) -> None:
    data = b"".join(c_frame(kind, payload) for kind, payload in c_whole(tools=2))
    server.answers = [Answer([data[at : at + size] for at in range(0, len(data), size)], headers=FRAMES)]
    done = await turn_of(provider_for("bedrock", server), request(model=NOVA))
    assert [type(block) for block in done.blocks] == [Text, ToolUse, ToolUse]
    assert done.usage == Usage(10, 7)


@pytest.mark.parametrize("end", ["whole", "cut", "reset"])
async def test_a_truncated_stream_is_not_a_turn(end: str, server: VendorServer) -> None:
    data = b"".join(c_frame(kind, payload) for kind, payload in c_whole()[:-1])
    for cut in (1, 60, len(data) - 1):
        server.answers = [Answer([data[:cut]], headers=FRAMES, end=end)]
        with pytest.raises(BrokenTurn if end == "whole" else Unreachable):
            await parts_of(provider_for("bedrock", server), request(model=NOVA))


@pytest.mark.parametrize(
    ("status", "fault"),
    [(400, RequestRejected), (403, NotAuthorized), (424, ServerFault), (429, RateLimited), (503, Overloaded)],
)
async def test_an_error_response(status: int, fault: type[ProviderFault], server: VendorServer) -> None:
    body = json.dumps({"message": f"It failed with the key {KEY}"})
    server.answers = [
        Answer([body.encode()], status, {"content-type": "application/json", "retry-after": "7"})
    ]
    with pytest.raises(fault) as raised:
        await parts_of(provider_for("bedrock", server), request(model=NOVA))
    assert raised.value.message == f"The provider returned {status}: It failed with the key (withheld)"
    assert raised.value.retry_after_s == 7


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("throttlingException", RateLimited),
        ("modelStreamErrorException", ServerFault),
        ("serviceUnavailableException", Overloaded),
        ("validationException", RequestRejected),
        ("exceptionOfTomorrow", ServerFault),
    ],
)
async def test_an_exception_in_the_stream(
    kind: str, fault: type[ProviderFault], server: VendorServer
) -> None:
    server.answers = [converse(c_whole()[:2], b_exception(kind, "It stumbled"))]
    with pytest.raises(fault, match="It stumbled"):
        await parts_of(provider_for("bedrock", server), request(model=NOVA))


@pytest.mark.parametrize(
    "spoilt",
    [
        b"<html>Who are you?</html>",
        frame({":message-type": "event", ":event-type": "contentBlockDelta"}, b"no JSON"),
        frame({":message-type": "event", ":event-type": "contentBlockDelta"}, b"\xff"),
        frame({":message-type": "event", ":event-type": "contentBlockDelta"}, b"[]"),
        frame({":event-type": "contentBlockDelta"}, b"{}"),
    ],
)
async def test_a_spoilt_frame_breaks_the_turn(spoilt: bytes, server: VendorServer) -> None:
    server.answers = [converse(c_whole()[:2], spoilt)]
    with pytest.raises(BrokenTurn):
        await parts_of(provider_for("bedrock", server), request(model=NOVA))


async def test_a_reader_that_leaves_closes_the_stream(server: VendorServer) -> None:
    server.answers = [converse(c_whole()[:2], end="hang")]
    provider = provider_for("bedrock", server)
    parts = provider.stream(request(model=NOVA))
    assert await anext(parts) == TextDelta("Hello ")
    await parts.aclose()
    async with asyncio.timeout(10):
        await server.gone.wait()
    await provider.aclose()


# --- IAM keys of a tenant


@pytest.mark.parametrize("keys", [KEYS, TEMPORARY])
@pytest.mark.parametrize("model", [CLAUDE, NOVA])
async def test_aws_would_accept_the_signature(model: str, keys: dict[str, str], server: VendorServer) -> None:
    server.answers = [answer_for(model)]
    provider = provider_for("bedrock", server, api_key=json.dumps(keys))
    done = await turn_of(provider, request(model=model))
    assert done.blocks == (Text("Hello there"),)
    (seen,) = server.seen
    verify_seen(server, seen, keys)
    assert keys["SecretAccessKey"] not in str(seen.headers)
    with pytest.raises(AssertionError):
        verify(server.url + seen.path, "POST", seen.headers, seen.raw + b" ", keys)  # the check checks


async def test_iam_keys_of_a_tenant_are_a_secret(server: VendorServer) -> None:
    spec = runtime("bedrock", baseUrl=server.url, apiKey={"secret": "aws"})
    server.answers = [answer_for(CLAUDE)]
    async with pool(allow="127.0.0.1", aws=json.dumps(TEMPORARY)) as providers:
        provider, _ = await providers.of(spec, spec.agents["solo"])
        await turn_of(provider, request(model=CLAUDE))
    verify_seen(server, server.seen[0], TEMPORARY)


async def test_keys_of_the_operator_do_not_replace_those_of_a_tenant(
    server: VendorServer, clean: pytest.MonkeyPatch
) -> None:
    clean.setenv("AWS_ACCESS_KEY_ID", "AKIAOPERATOR")
    clean.setenv("AWS_SECRET_ACCESS_KEY", "operator")
    clean.setenv("AWS_SESSION_TOKEN", "operator")
    server.answers = [answer_for(NOVA)]
    await turn_of(provider_for("bedrock", server, api_key=json.dumps(KEYS)), request(model=NOVA))
    verify_seen(server, server.seen[0], KEYS)


@pytest.mark.parametrize("model", [CLAUDE, NOVA])
async def test_key_material_in_aws_errors_is_withheld(model: str, server: VendorServer) -> None:
    body = json.dumps({"message": f"Bad: {TEMPORARY['SecretAccessKey']} and {TEMPORARY['SessionToken']}"})
    server.answers = [Answer([body.encode()], 403, {"content-type": "application/json"})]
    with pytest.raises(NotAuthorized) as raised:
        await parts_of(provider_for("bedrock", server, api_key=json.dumps(TEMPORARY)), request(model=model))
    assert raised.value.message == "The provider returned 403: Bad: (withheld) and (withheld)"


def test_iam_keys_need_a_region() -> None:
    with pytest.raises(ProviderNotBuilt, match="IAM keys need a region"):
        build_provider("bedrock", api_key=json.dumps(KEYS), base_url="https://gateway.test")


def test_without_botocore_the_error_names_the_extra(clean: pytest.MonkeyPatch) -> None:
    clean.delitem(sys.modules, "app.llm.aws")
    clean.setitem(sys.modules, "botocore", None)
    for name in [name for name in sys.modules if name.startswith("botocore.")]:
        clean.delitem(sys.modules, name)
    with pytest.raises(ProviderNotBuilt, match=r"pip install 'plangate-server\[bedrock\]'"):
        build_provider("bedrock", api_key=json.dumps(KEYS), options={"region": REGION})
    build_provider("bedrock", api_key="an-api-key", options={"region": REGION})  # needs no botocore


# --- the operator's identity


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[pytest.MonkeyPatch]:
    """An environment without an AWS account, whose metadata service is nowhere."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    aws.operator_credentials.cache_clear()
    yield monkeypatch
    aws.operator_credentials.cache_clear()


class Metadata:
    """The metadata service of a machine with a role, and how often it was asked."""

    keys: ClassVar = {
        "AccessKeyId": "ASIAROLE",
        "SecretAccessKey": "role/secret",
        "SessionToken": "role+token",
    }

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split(" ")[1]
        self.asked.append(path)
        if path.endswith("/api/token"):
            body = "token"
        elif path.endswith("/security-credentials/"):
            body = "role"
        else:
            names = {
                "AccessKeyId": "AccessKeyId",
                "SecretAccessKey": "SecretAccessKey",
                "SessionToken": "Token",
            }
            found = {names[name]: value for name, value in self.keys.items()}
            body = json.dumps({**found, "Code": "Success", "Expiration": "2099-01-01T00:00:00Z"})
        writer.write(
            f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode()
        )
        await writer.drain()
        writer.close()


@pytest.fixture
async def metadata(clean: pytest.MonkeyPatch) -> AsyncIterator[Metadata]:
    running = Metadata()
    await running.start()
    clean.setenv("AWS_EC2_METADATA_DISABLED", "false")
    clean.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", running.url)
    yield running
    await running.stop()


def of_operator(tenant: str, **provider: Any) -> Any:
    return runtime("bedrock", tenant=tenant, credentials="operator", **provider)


async def test_only_named_tenants_use_the_operators_identity(metadata: Metadata) -> None:
    sent: list[httpx2.Request] = []

    def bedrock(got: httpx2.Request) -> httpx2.Response:
        sent.append(got)
        frames = b"".join(c_frame(kind, payload) for kind, payload in c_whole())
        return httpx2.Response(200, headers=FRAMES, content=frames)

    async with pool(aws_tenants=["acme"]) as providers:
        providers._clients[False] = ModelClient(httpx2.MockTransport(bedrock), ModelTraffic())
        says = await refusal_of(providers, of_operator("other"))
        assert "does not let the tenant 'other' use the AWS identity of the service" in says
        assert (metadata.asked, sent) == ([], [])
        spec = of_operator("acme")
        provider, _ = await providers.of(spec, spec.agents["solo"])
        assert metadata.asked == []  # the address is reached only when a request is signed
        await turn_of(provider, request(model=NOVA))
        await turn_of(provider, request(model=NOVA))
        assert len(metadata.asked) == 3  # a token, the role, its keys: once
    for got in sent:
        assert got.url.host == f"bedrock-runtime.{REGION}.amazonaws.com"
        verify(str(got.url), "POST", dict(got.headers), got.content, metadata.keys)


async def test_without_the_setting_no_tenant_uses_the_operators_identity(metadata: Metadata) -> None:
    for local in (True, False):
        async with pool(local=local) as providers:
            assert "PLANGATE_AWS_TENANTS" in await refusal_of(providers, of_operator("acme"))
    assert metadata.asked == []


async def test_the_operators_identity_is_sent_only_to_aws(metadata: Metadata, server: VendorServer) -> None:
    async with pool(aws_tenants=["acme"], allow="127.0.0.1", s="key") as providers:
        for more in ({"baseUrl": server.url}, {"apiKey": {"secret": "s"}}, {"apiKeyEnv": "TEAM_KEY"}):
            says = await refusal_of(providers, of_operator("acme", **more))
            assert "remove its key and its baseUrl" in says
    assert (metadata.asked, server.seen) == ([], [])


async def test_a_spec_without_key_and_credentials_uses_nothing(metadata: Metadata) -> None:
    async with pool(aws_tenants=["acme"]) as providers:
        assert "has no key" in await refusal_of(providers, runtime("bedrock"))
    assert metadata.asked == []


def profiles(at: Path, config: str, credentials: str = "") -> None:
    (at / "config").write_text(config)
    (at / "credentials").write_text(credentials)


async def test_keys_of_the_environment_and_of_a_profile(clean: pytest.MonkeyPatch, tmp_path: Path) -> None:
    profiles(tmp_path, "", "[work]\naws_access_key_id = AKIAPROFILE\naws_secret_access_key = profile\n")
    clean.setenv("AWS_PROFILE", "work")
    assert await OperatorCredentials().load() == IamKeys("AKIAPROFILE", "profile")
    clean.delenv("AWS_PROFILE")
    clean.setenv("AWS_ACCESS_KEY_ID", "AKIAENV")
    clean.setenv("AWS_SECRET_ACCESS_KEY", "environment")
    assert await OperatorCredentials().load() == IamKeys("AKIAENV", "environment")


@pytest.mark.parametrize(
    ("config", "in_credentials"),
    [
        ("[profile work]\ncredential_process = {program}\n", False),
        ("[work]\ncredential_process = {program}\n", True),
        (
            "[profile work]\nrole_arn = arn:aws:iam::123456789012:role/x\nsource_profile = base\nregion = eu-west-3\n"
            "[profile base]\ncredential_process = {program}\n",
            False,
        ),
    ],
)
async def test_no_program_is_ever_started(
    config: str, in_credentials: bool, clean: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran, program = tmp_path / "ran", tmp_path / "program"
    keys = json.dumps({"Version": 1, "AccessKeyId": "AKIAPROGRAM", "SecretAccessKey": "program"})
    program.write_text(f"#!/bin/sh\ntouch {ran}\necho '{keys}'\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    text = config.format(program=program)
    profiles(tmp_path, *(("", text) if in_credentials else (text,)))
    clean.setenv("AWS_PROFILE", "work")
    with pytest.raises(ProviderFault):
        await OperatorCredentials().load()
    assert not ran.exists()


async def test_a_missing_identity_is_reported(clean: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotAuthorized, match="The service has no AWS credentials"):
        await OperatorCredentials().load()
    provider = build_provider("bedrock", options={"region": REGION, "credentials": "operator"})
    for model in (CLAUDE, NOVA):
        with pytest.raises(NotAuthorized, match="The service has no AWS credentials"):
            await parts_of(provider, request(model=model))


async def test_identity_errors_stay_in_the_log(clean: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean.setenv("AWS_PROFILE", "no-such-profile")
    with pytest.raises(NotAuthorized) as raised:
        await OperatorCredentials().load()
    assert raised.value.message == (
        "The AWS credentials of the service cannot be loaded (ProfileNotFound). Its log has the reason."
    )


def test_the_pool_reads_the_setting(clean: pytest.MonkeyPatch) -> None:
    from app.settings import Settings  # noqa: PLC0415 - after the environment is clean

    clean.setenv("PLANGATE_AWS_TENANTS", "acme, other-team")
    assert Settings().aws_tenants == ["acme", "other-team"]
    clean.setenv("PLANGATE_AWS_TENANTS", "*")
    with pytest.raises(ValueError, match="ids of tenants"):
        Settings()
