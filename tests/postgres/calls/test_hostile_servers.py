"""Hostile addresses, servers and keys of tenants."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
)

from app.base.clock import retry_after_s
from app.base.egress_policy import Lookups, requests_of
from app.base.http11 import MAX_HEAD_BYTES
from app.deployment import Deployment
from app.llm.messages import MAX_TOKENS_PER_CALL, Usage
from app.llm.provider import ProviderNotBuilt
from app.llm.service_account import ServiceAccount
from app.tools.transports.mcp.pinning import McpPinning
from tests.support import specs
from tests.support.client import Caller, eventually, good, output_of, refused
from tests.support.cluster import Cluster
from tests.support.endpoint import Answer, endpoint, output
from tests.support.mcp import Asked, Reply, error, fake_mcp, result
from tests.support.world import World, world

ADD = specs.script(("add", {"n": 1}))
SECRET = "sk-4711-very-secret"


@pytest_asyncio.fixture
async def plangate(cluster: Cluster, site: Deployment) -> AsyncIterator[World]:
    async with world(site, cluster.operator_key, allow_hosts=["127.0.0.1"]) as running:
        yield running


def adding(
    url: str, kind: str = "http", headers: dict[str, Any] | None = None, **tool: Any
) -> dict[str, Any]:
    transport = {"kind": kind, "url": url, **({"headers": headers} if headers else {})}
    return specs.scripted({**specs.tool("add"), "transport": transport, **tool})


async def told(api: Caller) -> str:
    """The error of the one call."""
    (entry,) = output_of(await api.run(ADD))
    found: str = entry["error"]
    return found


@contextlib.asynccontextmanager
async def flood(begin: bytes, again: bytes) -> AsyncIterator[str]:
    """A server that answers `begin`, then `again` for as long as somebody reads."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(begin)
            while True:
                writer.write(again)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()


# -- answers without an end


@pytest.mark.parametrize(
    ("begin", "again", "why"),
    [
        (
            b"",
            b"HTTP/1.1 100 \r\n\r\n" * 1000,
            f"its answer begins with more than {MAX_HEAD_BYTES} bytes of headers",
        ),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            b"1\r\na\r\n" * 1000,
            "its answer comes in more than 65636 pieces",
        ),
    ],
)
async def test_a_response_of_endless_empty_chunks_ends(
    api: Caller, begin: bytes, again: bytes, why: str
) -> None:
    """Interim answers and chunks of one byte kept the event loop busy for as long as the tool's timeout."""
    async with flood(begin, again) as url:
        await api.register(adding(url))
        assert why in await told(api)


async def test_a_tool_listing_of_endless_empty_pages_ends(api: Caller) -> None:
    schema = {"type": "object", "x": [[]] * 100_000}

    def listing(asked: Asked) -> Reply:
        tools = [{"name": "add", "inputSchema": schema}]
        message = {"jsonrpc": "2.0", "id": asked.message["id"], "result": {"tools": tools}}
        return Reply(body=json.dumps(message).encode())

    async with fake_mcp() as server:
        server.on["tools/list"] = listing
        body = refused(await api.post("/tools/mcp/list", {"url": server.url}), 422)
    assert body["detail"].endswith(f"{server.url} answered more than the service reads")


# -- names


@contextlib.contextmanager
def silent_names(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Names that end with `.silent` are never answered; all others are on loopback."""
    ended = threading.Event()

    def getaddrinfo(host: str, port: int, **_: Any) -> Sequence[Any]:
        if host.endswith(".silent"):
            ended.wait(60)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    try:
        yield
    finally:
        ended.set()


async def in_use(places: Lookups | McpPinning, count: int) -> None:
    async def reached() -> bool:
        return places.in_use == count

    await eventually(reached, f"{count} places are in use")


async def test_unresponsive_names_of_one_tenant_do_not_delay_another(
    cluster: Cluster, site: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """48 names a second that never resolve delayed the call of another tenant by 12 s."""
    async with (
        world(site, cluster.operator_key, allow_hosts=["api.example"]) as running,
        endpoint(output(1)) as at,
    ):
        with silent_names(monkeypatch):
            lookups = running.services.lookups
            with requests_of("acme"):
                held = [asyncio.create_task(lookups(f"n{n}.silent", 443)) for n in range(300)]
            await asyncio.sleep(0)
            await running.other.register(
                {**adding(at.url.replace("127.0.0.1", "api.example")), "tenant": {"resourceId": "other"}}
            )
            assert output_of(await running.other.run(ADD))[0]["result"] == 1
            assert lookups.in_use == 32
            assert not any(task.done() for task in held)
        await asyncio.gather(*held)
        assert lookups.in_use == 0


async def test_calls_count_against_the_share_of_their_tenant(
    cluster: Cluster, site: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"allow_hosts": ["a.silent"], "tenant_dns_lookups": 1}
    async with world(site, cluster.operator_key, **settings) as running:
        with silent_names(monkeypatch):
            model = {"id": "m", "provider": "p"}
            provider = {"kind": "openai", "apiKey": "sk-key", "baseUrl": "http://a.silent/v1"}
            by_transport = {
                "http": adding("http://a.silent/"),
                "model": specs.spec(specs.agent(model=model), providers={"p": provider}),
            }
            for n, (name, spec) in enumerate(by_transport.items(), start=1):
                caller = running.operator(name)
                await caller.register({**spec, "tenant": {"resourceId": name}})
                await caller.submit(ADD)
                await in_use(running.services.lookups, n)
            url = {"url": "http://a.silent/"}
            listing = asyncio.create_task(running.operator("mcp").post("/tools/mcp/list", url))
            await in_use(running.services.lookups, 3)
            assert running.services.lookups._shares._slots_by_tenant == {"http": 1, "model": 1, "mcp": 1}
        refused(await listing, 422)


async def test_tool_listings_of_one_tenant_are_bounded_and_do_not_delay_another(
    cluster: Cluster, site: Deployment
) -> None:
    settings = {"allow_hosts": ["127.0.0.1"], "tenant_mcp_lists": 2}
    async with (
        world(site, cluster.operator_key, **settings) as running,
        fake_mcp() as slow,
        fake_mcp() as quick,
    ):
        slow.on["initialize"] = lambda asked: Reply(end="hang")
        held = [asyncio.create_task(running.api.post("/tools/mcp/list", {"url": slow.url})) for _ in range(2)]
        await in_use(running.services.mcp_pinning, 2)
        answer = await running.api.post("/tools/mcp/list", {"url": quick.url})
        problem = refused(answer, 429, "too_many_requests")
        assert problem["detail"].endswith("at most 2 at once for a tenant. Retry.")
        assert answer.headers["retry-after"] == "1"
        good(await running.other.post("/tools/mcp/list", {"url": quick.url}))
        numbers = await running.operator().get("/metrics")
        assert "plangate_mcp_lists 2.0" in numbers.text
        assert "plangate_mcp_lists_rejected_total 1.0" in numbers.text
        for response in await asyncio.gather(*held):
            refused(response, 422)  # did not answer in time
        good(await running.api.post("/tools/mcp/list", {"url": quick.url}))


async def test_a_registration_lists_tools_within_the_tenants_share(
    cluster: Cluster, site: Deployment
) -> None:
    settings = {"allow_hosts": ["127.0.0.1"], "tenant_mcp_lists": 2}
    async with world(site, cluster.operator_key, **settings) as running, fake_mcp() as server:
        most = 0

        def listing(asked: Asked) -> Reply:
            nonlocal most
            most = max(most, running.services.mcp_pinning.in_use)
            return result(asked, {"tools": server.tools})

        server.on["tools/list"] = listing
        tools = [
            {**specs.tool(f"add{n}"), "transport": {"kind": "mcp", "url": f"{server.url}?{n}", "tool": "add"}}
            for n in range(6)
        ]
        for tool in tools:
            tool["inputSchema"] = server.tools[0]["inputSchema"]
        await running.api.register(specs.scripted(*tools))
        assert most == 2


async def test_an_invalid_base_url_is_reported(api: Caller) -> None:
    good(await api.put("/secrets/k", {"value": "key-key-key"}))
    provider = {"kind": "openai", "apiKey": {"secret": "k"}, "baseUrl": "http://a\nb/"}
    await api.register(specs.spec(specs.agent(model={"id": "m", "provider": "p"}), providers={"p": provider}))
    failed = (await api.run("hi"))["error"]
    assert failed["code"] == "provider_not_configured"
    assert failed["message"].startswith("The provider's baseUrl is not a URL: ")


# -- keys


def rsa_key(p: int, q: int) -> Any:
    private = pow(65537, -1, (p - 1) * (q - 1))
    public = rsa.RSAPublicNumbers(65537, p * q)
    crt = (private % (p - 1), private % (q - 1), pow(q, -1, p))
    return rsa.RSAPrivateNumbers(p, q, private, *crt, public).private_key(unsafe_skip_rsa_key_validation=True)


def account(pem: str) -> str:
    return json.dumps({"client_email": "a@b.c", "private_key_id": "k", "private_key": pem})


def pem_of(key: Any) -> str:
    data: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return data.decode()


def der(tag: int, *parts: bytes) -> bytes:
    data = b"".join(parts)
    size = len(data).to_bytes(2, "big")
    return bytes([tag, 0x82]) + size + data


def integer(n: int) -> bytes:
    return der(2, n.to_bytes(n.bit_length() // 8 + 1, "big"))


RSA = bytes.fromhex("300d06092a864886f70d0101010500")
DIFFIE_HELLMAN = bytes.fromhex("06092a864886f70d010301")
PRIME = 2**9941 - 1


def pkcs8(algorithm: bytes, key: bytes) -> str:
    text = base64.encodebytes(der(0x30, b"\x02\x01\x00", algorithm, der(4, key))).decode()
    return f"-----BEGIN PRIVATE KEY-----\n{text}-----END PRIVATE KEY-----\n"


def small_modulus(p: int, q: int) -> str:
    """A key whose modulus is small and whose primes are not."""
    return pkcs8(RSA, der(0x30, *map(integer, (0, 2**2047 + 1, 65537, 3, p, q, 1, 1, 1))))


def test_a_key_that_is_expensive_to_check_is_rejected_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenSSL looks for primes with the interpreter's lock held: half a minute for the largest of these."""
    small = rsa.generate_private_key(65537, 2048)
    assert ServiceAccount.from_json(account(pem_of(small))).token()
    checked: list[bytes] = []

    def load(data: bytes, password: None, *, unsafe_skip_rsa_key_validation: bool = False) -> Any:
        if not unsafe_skip_rsa_key_validation:
            checked.append(data)
        return load_der_private_key(
            data, password, unsafe_skip_rsa_key_validation=unsafe_skip_rsa_key_validation
        )

    monkeypatch.setattr("app.llm.service_account.load_der_private_key", load)
    group = der(0x30, DIFFIE_HELLMAN, der(0x30, integer(PRIME), integer(2)))
    for pem in (
        pem_of(rsa_key(2**2203 - 1, 2**2281 - 1)),
        small_modulus(7, PRIME),
        small_modulus(PRIME, 7),
        pkcs8(group, integer(5)),
    ):
        with pytest.raises(ProviderNotBuilt):
            ServiceAccount.from_json(account(pem))
    assert checked == []
    ServiceAccount.from_json(account(pem_of(small)))
    assert len(checked) == 1


# -- secrets that are sent, and come back in an error


async def test_an_error_of_a_tool_does_not_repeat_a_secret(api: Caller) -> None:
    good(await api.put("/secrets/ledger", {"value": f"Bearer {SECRET}"}))
    headers = {"authorization": {"secret": "ledger"}, "x-team": "operations"}

    def echo(received: Any) -> Answer:
        sent = f"{received.headers['authorization']} and {SECRET}, {received.headers['x-team']}"
        return Answer(401, json.dumps({"error": f"no such key: {sent}"}).encode())

    async with endpoint(echo) as at:
        await api.register(adding(at.url, headers=headers))
        query = await api.run(ADD)
        assert at.received[0].headers["authorization"] == f"Bearer {SECRET}"
    (entry,) = output_of(query)
    assert entry["error"] == "add answered 401: no such key: (withheld) and (withheld), operations"
    assert SECRET not in json.dumps(await api.events(query["id"]))


async def test_an_error_of_an_mcp_server_does_not_repeat_a_secret(api: Caller) -> None:
    good(await api.put("/secrets/ledger", {"value": f"Bearer {SECRET}"}))
    headers = {"authorization": {"secret": "ledger"}}

    def echo(asked: Asked) -> Reply:
        return error(asked, -32000, f"not for {asked.headers['authorization']}")

    async with fake_mcp() as server:
        await api.register(adding(server.url, "mcp", headers))
        server.on["tools/call"] = echo
        assert "not for bearer (withheld)" in await told(api)
        server.on["tools/list"] = echo
        body = refused(await api.post("/tools/mcp/list", {"url": server.url, "headers": headers}), 422)
        assert body["detail"].endswith("answered: not for bearer (withheld)")


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("openai", {}),
        ("anthropic", {}),
        ("bedrock", {"region": "us-east-1"}),
        ("vertex", {"region": "global", "project": "p"}),
    ],
)
async def test_an_error_of_a_provider_does_not_repeat_a_key(
    api: Caller, kind: str, more: dict[str, str]
) -> None:
    good(await api.put("/secrets/k", {"value": SECRET}))

    def echo(received: Any) -> Answer:
        key = received.headers.get("authorization") or received.headers["x-api-key"]
        body = {"error": {"type": "auth", "message": f"Received API Key = {key}"}}
        return Answer(401, json.dumps(body).encode(), {"content-type": "application/json"})

    async with endpoint(echo) as at:
        provider = {"kind": kind, "apiKey": {"secret": "k"}, "baseUrl": at.url + "/v1", **more}
        await api.register(
            specs.spec(specs.agent(model={"id": "m", "provider": "p"}), providers={"p": provider})
        )
        query = await api.run("hi")
    assert query["error"]["code"] == "provider_not_authorized"
    assert query["error"]["message"].endswith("(withheld)")
    assert SECRET not in json.dumps(await api.events(query["id"]))


# -- what a spec or a server may say


async def test_headers_are_few(api: Caller) -> None:
    """Each may be a secret of 64 KiB, read anew for each call."""
    headers = {f"x-{n}": {"secret": "k"} for n in range(51)}
    body = refused(await api.post("/runtimes", adding("http://127.0.0.1:1/", headers=headers)), 422)
    assert body["errors"][0]["pointer"] == "/tools/0/transport/headers"


@pytest.mark.parametrize(
    ("pointer", "tool"),
    [
        ("/tools/0/timeoutMs", {"timeoutMs": 2**53}),
        ("/tools/0/transport/claimWithinMs", {"transport": {"kind": "client", "claimWithinMs": 2**62}}),
        (
            "/tools/0/approval/approvalExpiresInMs",
            {"approval": {"kind": "always", "approvalExpiresInMs": 2**53}},
        ),
    ],
)
async def test_times_out_of_range_are_validation_errors(
    api: Caller, pointer: str, tool: dict[str, Any]
) -> None:
    """Past the year 9999 or the longest interval nobody could claim such a call, nor read its approval."""
    body = refused(await api.post("/runtimes", specs.scripted({**specs.tool("add"), **tool})), 422)
    assert body["errors"][0]["pointer"] == pointer


def test_token_counts_of_a_server_are_bounded() -> None:
    said = Usage.from_server(input_tokens=-5, output_tokens=10**30, cache_read_tokens=7)
    assert said == Usage(0, MAX_TOKENS_PER_CALL, 7)


@pytest.mark.parametrize("when", ["Mon, 01 Jan 99999999999 00:00:00 GMT", "Mon, 32 Foo"])
def test_an_invalid_retry_after_is_ignored(when: str) -> None:
    assert retry_after_s(httpx2.Response(503, headers={"retry-after": when}).headers) is None
    assert retry_after_s({"retry-after": when}) is None


# -- approvals


async def asked(api: Caller, rule: dict[str, Any]) -> dict[str, Any]:
    await api.register(specs.scripted(specs.tool("pay", approval=rule)))
    query = await api.submit(specs.script(("pay", {"n": 1})))
    return await api.gate(query["id"])


async def test_a_vote_for_earlier_arguments_does_not_count(plangate: World, api: Caller) -> None:
    """Two must approve; the second one looked at the arguments that the first one has replaced."""
    approval = await asked(api, {"kind": "always", "approvers": {"minimum": 2}})
    ann = await plangate.key("approvals:decide", "read")
    bob = await plangate.key("approvals:decide", "read", principal="bob")
    edited = good(await ann.decide(approval["id"], args={"n": 1_000_000}))
    told = refused(await bob.decide(approval["id"], digest=approval["digest"]), 409, "conflict")
    assert told["digest"] == edited["digest"]
    assert told["detail"] == (
        "The digest does not match this approval, so you reviewed something else. "
        f"Read GET /approvals/{approval['id']}/subject again."
    )
    assert good(await ann.decide(approval["id"]))["status"] == "pending"  # her own words, repeated
    many = {"decisions": [{"id": approval["id"], "decision": "approve", "digest": approval["digest"]}]}
    refused(await bob.post("/approvals", many), 409, "conflict")
    assert good(await bob.decide(approval["id"], digest=edited["digest"]))["status"] == "approved"
    assert (await api.serve("pay", 1))["args"] == {"n": 1_000_000}


async def test_a_replaced_subject_is_rejected(plangate: World, api: Caller) -> None:
    approval = await asked(api, {"kind": "always", "approvers": {"minimum": 2}})
    ann = await plangate.key("approvals:decide")
    bob = await plangate.key("approvals:decide", principal="bob")
    good(await ann.decide(approval["id"], args={"n": 2}))
    assert good(await bob.decide(approval["id"], "reject"))["status"] == "rejected"


async def test_a_grant_applies_to_the_runtimes_of_one_name(api: Caller) -> None:
    """Another runtime of the tenant's may send the same tool, by the same agent in the same thread, anywhere."""

    def paying(name: str, url: str, **more: Any) -> dict[str, Any]:
        transport = {"kind": "http", "url": url}
        tool = specs.tool("pay", approval={"kind": "always", "rememberable": True}, transport=transport)
        return specs.scripted(tool, name=name, **more)

    async with endpoint(output("paid")) as bank, endpoint(output("taken")) as elsewhere:
        await api.register(paying("bank", bank.url))
        await api.register(paying("elsewhere", elsewhere.url))
        thread = (await api.do("/threads", {"threadKey": "t"}))["id"]
        pay = specs.script(("pay", {"n": 1}))
        first = await api.submit(pay, runtime="bank", threadId=thread)
        good(await api.decide((await api.gate(first["id"]))["id"], scope="thread"))
        await api.ended(first["id"])
        other = await api.submit(pay, runtime="elsewhere", threadId=thread)
        await api.gate(other["id"])
        good(await api.post(f"/queries/{other['id']}/cancel"))
        await api.register(paying("bank", bank.url, limits={"maxTurns": 7}))
        assert output_of(await api.run(pay, runtime="bank", threadId=thread))[0]["result"] == "paid"
        assert (len(bank.received), len(elsewhere.received)) == (2, 0)
