"""A client follows the service to another cell once, and only to an address that it was given."""

from __future__ import annotations

from collections.abc import AsyncIterator

import plangate
import pytest
import pytest_asyncio
from plangate.client import ServiceClient

from tests.pure.sdk.fake_service import FakeService, fake_service


def refer_to(service: FakeService, cell: str) -> None:
    """Let a service answer that the tenant is in another cell."""
    problem = {"type": "wrong_cell", "title": "t", "status": 421, "detail": "It is elsewhere.", "cell": cell}
    for where in (
        ("GET", "/queries"),
        ("POST", "/queries"),
        ("POST", "/runtimes"),
        ("GET", "/queries/qry_1/stream"),
    ):
        service.answers[where] = lambda _body: (421, problem)


@pytest_asyncio.fixture
async def eu1() -> AsyncIterator[FakeService]:
    async with fake_service() as service:
        refer_to(service, "eu2")
        yield service


@pytest_asyncio.fixture
async def eu2() -> AsyncIterator[FakeService]:
    async with fake_service() as service:
        service.answers["GET", "/queries"] = lambda _body: (200, {"items": [], "nextCursor": None})
        service.answers["POST", "/queries"] = lambda body: (202, {"id": "qry_1", "echo": body})
        yield service


async def test_a_request_follows_to_a_configured_cell(eu1: FakeService, eu2: FakeService) -> None:
    client = ServiceClient(eu1.url, "plg_eu2_x", None, cell_urls={"eu2": eu2.url + "/"})
    try:
        answer = await client.request("POST", "/queries", {"prompt": "hi"})
        assert answer == {"id": "qry_1", "echo": {"prompt": "hi"}}
        await client.request("GET", "/queries")
    finally:
        await client.aclose()
    assert [asked[:2] for asked in eu1.asked] == [("POST", "/queries")]
    assert [asked[:2] for asked in eu2.asked] == [("POST", "/queries"), ("GET", "/queries")]
    keys = [service.headers("POST", "/queries")[0]["idempotency-key"] for service in (eu1, eu2)]
    assert keys[0] == keys[1]


async def test_a_stream_follows_to_a_configured_cell(eu1: FakeService, eu2: FakeService) -> None:
    eu2.streams["GET", "/queries/qry_1/stream"] = [[{"type": "finish", "seq": 1}]]
    client = ServiceClient(eu1.url, "plg_eu2_x", None, cell_urls={"eu2": eu2.url})
    try:
        async with client.stream("GET", "/queries/qry_1/stream") as (_, events):
            assert len([event async for event in events]) == 1
    finally:
        await client.aclose()


@pytest.mark.parametrize("cell", ["eu3", "http://127.0.0.1:1", "", "eu2\r\nx: y", "../eu2"])
async def test_a_key_goes_to_no_address_that_the_service_names(
    eu1: FakeService, eu2: FakeService, cell: str
) -> None:
    refer_to(eu1, cell)
    client = ServiceClient(eu1.url, "plg_eu2_x", None, cell_urls={"eu2": eu2.url})
    try:
        with pytest.raises(plangate.WrongCell) as raised:
            await client.request("GET", "/queries")
        with pytest.raises(plangate.WrongCell):
            async with client.stream("GET", "/queries/qry_1/stream"):
                pass
    finally:
        await client.aclose()
    assert raised.value.cell == cell
    assert eu2.asked == []


async def test_cells_that_refer_to_each_other_are_followed_once(eu1: FakeService, eu2: FakeService) -> None:
    refer_to(eu2, "eu1")
    client = ServiceClient(eu1.url, "plg_x", None, cell_urls={"eu1": eu1.url, "eu2": eu2.url})
    try:
        with pytest.raises(plangate.WrongCell):
            await client.request("GET", "/queries")
    finally:
        await client.aclose()
    assert (len(eu1.asked), len(eu2.asked)) == (1, 1)


@pytest.mark.parametrize("by_argument", [True, False])
async def test_a_runtime_knows_cells_by_argument_or_environment(
    eu1: FakeService, eu2: FakeService, monkeypatch: pytest.MonkeyPatch, by_argument: bool
) -> None:
    monkeypatch.setenv("PLANGATE_CELL_URLS", "" if by_argument else f"eu1={eu1.url}, eu2={eu2.url}")
    spec = plangate.define_runtime("acme", [plangate.define_specialist("helper", "m-1", "You help.")])
    cells = {"eu2": eu2.url} if by_argument else None
    async with eu1.runtime(spec, cell_urls=cells):
        assert eu2.bodies("POST", "/runtimes")


@pytest.mark.parametrize(
    "text", ["eu2", "eu2=", "=http://a", "eu2=ftp://a", "eu2=http://user@a", "eu2=http://a:b"]
)
def test_addresses_of_cells_that_cannot_be_used_are_refused(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("PLANGATE_CELL_URLS", text)
    with pytest.raises(ValueError, match="PLANGATE_CELL_URLS, has names of cells and addresses"):
        plangate.connect("orders", url="http://127.0.0.1:1", api_key="plg_x")
