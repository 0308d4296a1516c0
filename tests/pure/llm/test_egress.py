"""Hostile addresses, names and responses that egress must reject, on loopback only."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx2
import pytest
import structlog

from app.base.egress import egress_client
from app.base.egress_policy import EgressDenied, EgressPolicy, denial_reason, requests_of, system_resolver
from app.base.logs import processors

PUBLIC = "93.184.215.14"


class FakeResolver:
    """Answers the first question with the first answer, the next with the next, and counts."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append((host, port))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if not answer:
            raise OSError("no such name")
        return answer


REFUSED_ADDRESSES = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254",
    "168.63.129.16", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1",
    "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.51.100.7", "203.0.113.7", "224.0.0.1", "240.0.0.1",
    "255.255.255.255", "::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "64:ff9b::a00:1",
    "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::",
    "2002:a00:1::1", "2002:c0a8:101::", "3fff::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1",
    "fe80::1%eth0",
    "2606:4700::1%eth0", "fec0::1", "ff02::1", "ff0e::1", "not an address", "",
]  # fmt: skip
PUBLIC_ADDRESSES = [
    PUBLIC, "8.8.8.8", "100.63.255.255", "100.128.0.1", "172.32.0.1", "2606:4700::1111", "64:ff9b::808:808",
    "2002:808:808::1",
]  # fmt: skip


@pytest.mark.parametrize("address", REFUSED_ADDRESSES)
async def test_a_name_with_a_private_address_is_rejected(address: str) -> None:
    for answer in ([address], [PUBLIC, address], [address, PUBLIC]):
        with pytest.raises(EgressDenied) as refused:
            await EgressPolicy(resolver=FakeResolver(answer)).addresses("tenant.example", 443)
        assert "'tenant.example'" in str(refused.value)
        assert "PLANGATE_ALLOW_HOSTS" in str(refused.value)


@pytest.mark.parametrize("address", PUBLIC_ADDRESSES)
async def test_public_addresses_are_reached(address: str) -> None:
    policy = EgressPolicy(resolver=FakeResolver([address, address]))
    assert await policy.addresses("tenant.example", 443) == [address]


SPELLINGS = [
    "127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0X7F.1", "0177.0.0.1", "017700000001",
    "127.0.0.1.", "127.0.0.1..", "0", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
    "[0:0:0:0:0:0:0:1]", "169.254.169.254", "0xa9fea9fe", "2852039166", "[64:ff9b::7f00:1]", "10.1",
]  # fmt: skip


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_a_private_address_is_rejected_in_any_notation(spelling: str) -> None:
    policy = EgressPolicy(resolver=FakeResolver([]))
    async with egress_client(policy) as client:
        with pytest.raises((EgressDenied, httpx2.InvalidURL)):
            await client.get(f"http://{spelling}:9/")
    with pytest.raises(EgressDenied):
        policy.check_url(f"http://{spelling}:9/")


@pytest.mark.parametrize("host", ["localhost", "localhost.", "LOCALHOST", "ip6-localhost", "a.localhost"])
async def test_names_of_this_machine_are_rejected(host: str) -> None:
    async with egress_client(EgressPolicy()) as client:
        with pytest.raises((EgressDenied, httpx2.ConnectError)):
            await client.get(f"http://{host}:9/")


@pytest.mark.parametrize(
    "url",
    ["ftp://example.com/", "file:///etc/passwd", "ws://example.com/", "gopher://example.com/", "//a.com",
     "http://", "http://localhost/", "http://x.localhost:80/", "http://user:pw@127.0.0.1/", "http://[::1]/",
     "http://xn--a/", "http://xn--zzzzzz-/"],
)  # fmt: skip
async def test_rejected_urls(url: str) -> None:
    with pytest.raises(EgressDenied):
        EgressPolicy().check_url(url)


def test_accepted_urls() -> None:
    policy = EgressPolicy.from_hosts(["localhost:8080", "10.0.0.5"])
    for url in ("https://example.com/x", "http://localhost:8080/", "http://10.0.0.5:1/", f"http://{PUBLIC}"):
        policy.check_url(url)
    with pytest.raises(EgressDenied):
        policy.check_url("http://localhost:8081/")


async def test_other_schemes_are_rejected() -> None:
    async with egress_client(
        EgressPolicy.from_hosts(["example.com"], resolver=FakeResolver([PUBLIC]))
    ) as client:
        for url in ("ftp://example.com/", "ws://example.com/", "wss://example.com/"):
            with pytest.raises((EgressDenied, httpx2.UnsupportedProtocol)):
                await client.get(url)


async def test_allowed_hosts_match_the_host_of_the_url() -> None:
    policy = EgressPolicy.from_hosts(
        ["Tools.Internal.", "127.0.0.1:8080", "[::1]:9", "fd00::7", "localhost"],
        resolver=FakeResolver(["10.0.0.7"]),
    )
    assert await policy.addresses("tools.internal", 1) == ["10.0.0.7"]
    assert await policy.addresses("TOOLS.internal.", 1) == ["10.0.0.7"]
    assert await policy.addresses("127.1", 8080) == ["127.0.0.1"]
    assert await policy.addresses("::1", 9) == ["::1"]
    assert await policy.addresses("fd00::7", 443) == ["fd00::7"]
    for host, port in (("127.0.0.1", 8081), ("::1", 10), ("x.tools.internal", 1), ("127.0.0.2", 8080)):
        with pytest.raises(EgressDenied):
            await policy.addresses(host, port)


@pytest.mark.parametrize("entry", ["", "http://x", "*.example.com", "x:0", "x:99999", "x:http", "[::1]x"])
def test_invalid_allowed_hosts_are_rejected(entry: str) -> None:
    with pytest.raises(ValueError, match="not a host"):
        EgressPolicy.from_hosts([entry])


async def test_a_host_name_has_no_path_and_no_zone() -> None:
    for host in ("", "fe80::1%lo", "a/b"):
        with pytest.raises(EgressDenied):
            await EgressPolicy().addresses(host, 80)


def test_the_reason_names_the_kind_of_address() -> None:
    assert "loopback" in (denial_reason(ipaddress.ip_address("127.0.0.1")) or "")
    assert "inside of 64:ff9b::7f00:1" in (denial_reason(ipaddress.ip_address("64:ff9b::7f00:1")) or "")


# --- Real connections to loopback ---


class Deployment:
    """A small server that remembers the heads it got and answers with the same bytes."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.heads: list[str] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.heads.append(head.decode())
                writer.write(self.answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


def http(body: bytes = b"ok", *lines: str, status: str = "200 OK") -> bytes:
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *lines]
    return ("\r\n".join(head) + "\r\n\r\n").encode() + body


@pytest.fixture
async def site() -> AsyncIterator[tuple[Deployment, int]]:
    served = Deployment(http())
    server = await asyncio.start_server(served, "127.0.0.1", 0)
    yield served, server.sockets[0].getsockname()[1]
    server.close()


async def test_the_checked_address_is_the_one_connected_to(
    site: tuple[Deployment, int],
) -> None:
    served, port = site
    resolver = FakeResolver(["127.0.0.1"], ["127.0.0.2"])
    async with egress_client(EgressPolicy.from_hosts([f"tools.example:{port}"], resolver=resolver)) as client:
        for _ in range(2):
            assert (await client.get(f"http://tools.example:{port}/")).text == "ok"
    assert resolver.asked == [("tools.example", port)]
    assert f"host: tools.example:{port}" in served.heads[0].lower()


async def test_a_name_that_becomes_private_is_rejected(site: tuple[Deployment, int]) -> None:
    """Rebinding: what was public when a URL was registered points to loopback when it is called."""
    served, port = site
    resolver = FakeResolver(["127.0.0.1"])
    async with egress_client(EgressPolicy(resolver=resolver)) as client:
        with pytest.raises(EgressDenied, match="its address is not public"):
            await client.get(f"http://tools.example:{port}/")
    assert not served.heads


@pytest.mark.parametrize("address", REFUSED_ADDRESSES)
async def test_the_resolved_address_appears_only_in_the_log(address: str) -> None:
    lines: list[dict[str, Any]] = []

    def keep(_logger: Any, _method: str, line: Any) -> Any:
        lines.append(dict(line))
        raise structlog.DropEvent

    structlog.configure(processors=[*processors.PROCESSORS, keep])
    try:
        with requests_of("acme"), pytest.raises(EgressDenied) as refused:
            await EgressPolicy(resolver=FakeResolver([address])).addresses("tenant.example", 443)
    finally:
        structlog.reset_defaults()
    assert str(refused.value) == (
        "Requests to 'tenant.example' are refused: its address is not public. The operator can allow the host with "
        "PLANGATE_ALLOW_HOSTS."
    )
    if "." in address or ":" in address:  # else it is no address
        ((line,),) = (lines,)
        assert ipaddress.ip_address(line["address"]) == ipaddress.ip_address(address.partition("%")[0])
        assert (line["event"], line["tenant"]) == ("egress.address_refused", "acme")


async def test_a_literal_address_is_rejected_with_the_reason() -> None:
    with pytest.raises(EgressDenied, match=r"its address 127\.0\.0\.1 is loopback"):
        await EgressPolicy().addresses("127.1", 80)


async def test_the_next_address_is_tried_after_a_failure(site: tuple[Deployment, int]) -> None:
    _, port = site
    resolver = FakeResolver(["127.0.0.3", "127.0.0.1"])
    async with egress_client(EgressPolicy.from_hosts(["tools.example"], resolver=resolver)) as client:
        assert (await client.get(f"http://tools.example:{port}/")).text == "ok"


async def test_redirects_cookies_and_the_environment(
    site: tuple[Deployment, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    served, port = site
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    served.answer = http(b"", "Location: http://127.0.0.9/", "Set-Cookie: a=1", status="302 Found")
    async with egress_client(EgressPolicy.from_hosts(["127.0.0.1"])) as client:
        for _ in range(2):
            assert (await client.get(f"http://127.0.0.1:{port}/")).status_code == 302
    assert "cookie" not in served.heads[1].lower()
    assert "accept-encoding: identity" in served.heads[0].lower()


async def test_large_and_compressed_answers_are_stopped(site: tuple[Deployment, int]) -> None:
    served, port = site
    policy = EgressPolicy.from_hosts(["127.0.0.1"])
    served.answer = http(b"x" * 1000)
    async with egress_client(policy, max_response_bytes=999) as client:
        with pytest.raises(EgressDenied, match="larger than 999 bytes"):
            await client.get(f"http://127.0.0.1:{port}/")
    async with egress_client(policy, max_response_bytes=1000) as client:
        assert len((await client.get(f"http://127.0.0.1:{port}/")).content) == 1000
        served.answer = http(b"x", "Content-Encoding: gzip")
        with pytest.raises(EgressDenied, match="compressed"):
            await client.get(f"http://127.0.0.1:{port}/")


async def test_a_failed_or_slow_lookup_is_a_connect_error() -> None:
    async def never(host: str, port: int) -> Sequence[str]:
        await asyncio.sleep(60)
        return []

    async with egress_client(EgressPolicy(resolver=FakeResolver([]))) as client:
        with pytest.raises(httpx2.ConnectError, match="cannot be resolved"):
            await client.get("http://nowhere.example/")
    async with egress_client(EgressPolicy(resolver=never)) as client:
        with pytest.raises(httpx2.ConnectTimeout):
            await client.get("http://slow.example/", timeout=0.1)


async def test_tls_verifies_the_name() -> None:
    """The server name of TLS is the host of the URL, although the connection goes to an address."""
    seen: list[bytes] = []
    reached = asyncio.Event()

    async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.read(4096))
        reached.set()
        writer.close()

    server = await asyncio.start_server(hello, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    policy = EgressPolicy.from_hosts(["tools.example"], resolver=FakeResolver(["127.0.0.1"]))
    async with egress_client(policy) as client:
        with pytest.raises((httpx2.ConnectError, ssl.SSLError)):
            await client.get(f"https://tools.example:{port}/")
        context = client._transport._pool._ssl_context
        assert context.verify_mode == ssl.CERT_REQUIRED
        assert context.check_hostname
    await asyncio.wait_for(reached.wait(), 5)
    assert b"tools.example" in seen[0]
    server.close()


async def test_the_system_resolver_returns_addresses() -> None:
    assert "127.0.0.1" in await system_resolver("127.0.0.1", 80)
