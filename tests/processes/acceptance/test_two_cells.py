"""Two cells behind the nginx of docs/operations.md: keys, cookies and tickets lead to their cell."""

from __future__ import annotations

from collections.abc import Iterator
from http.cookies import SimpleCookie

import httpx
import pytest
from plangate.client import ServiceClient
from playwright.sync_api import expect

from app.base.keys import KEY_PREFIX, new_key
from tests.processes.acceptance import specs
from tests.processes.acceptance.house import House
from tests.support import nginx
from tests.support.browser import browsing

ADDRESSES = {"eu1": "10.0.1.11:8700", "eu2": "10.0.2.11:8700"}
TIMES = 6
"""Enough requests that a balancer which takes turns would send some to each cell."""

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cells() -> Iterator[dict[str, House]]:
    houses = {name: House(cell=name) for name in ADDRESSES}
    try:
        for name, house in houses.items():
            house.serve()
            house.register({**specs.notices(), "name": f"runtime-{name}"})
        yield houses
    finally:
        for house in houses.values():
            house.close()


@pytest.fixture(scope="module")
def url(cells: dict[str, House]) -> Iterator[str]:
    ports = {ADDRESSES[name]: house.port for name, house in cells.items()}
    with nginx.nginx(cells["eu1"].folder, "cells.conf", ports) as address:
        yield address


def cell_of(url: str, **headers: str) -> str:
    """Return the cell that answers a request with these headers."""
    answer = httpx.get(f"{url}/runtimes", headers=headers)
    assert answer.status_code == 200, answer.text
    (runtime,) = answer.json()["items"]
    return str(runtime["name"]).removeprefix("runtime-")


@pytest.mark.parametrize("name", ADDRESSES)
def test_a_key_leads_to_its_cell(cells: dict[str, House], url: str, name: str) -> None:
    key = cells[name].key
    assert key.startswith(f"plg_{name}_")
    assert {cell_of(url, authorization=f"Bearer {key}") for _ in range(TIMES)} == {name}
    body = {"runtime": f"runtime-{name}", "prompt": '{"script": []}'}
    answer = httpx.post(f"{url}/queries", json=body, headers={"authorization": f"Bearer {key}"})
    assert answer.status_code == 202, answer.text
    assert cells[name].get(f"/queries/{answer.json()['id']}?waitMs=20000")["status"] == "succeeded"


@pytest.mark.parametrize("name", ADDRESSES)
@pytest.mark.parametrize("by_ticket", [True, False])
def test_a_person_signs_in_at_any_cell(cells: dict[str, House], url: str, name: str, by_ticket: bool) -> None:
    key = cells[name].key
    for _ in range(TIMES):
        body = {"key": key}
        if by_ticket:
            made = httpx.post(f"{url}/session/tickets", headers={"authorization": f"Bearer {key}"})
            assert made.json()["ticket"].startswith(f"plt_{name}_")
            body = {"ticket": made.json()["ticket"]}
        started = httpx.post(f"{url}/session", json=body)
        assert started.status_code == 200, started.text
        ((cookie, value),) = SimpleCookie(started.headers["set-cookie"]).items()
        assert value.value.startswith(f"pls_{name}_")
        assert {cell_of(url, cookie=f"a=b; {cookie}={value.value}") for _ in range(2)} == {name}


def test_the_header_of_the_console_wins_over_an_old_cookie(cells: dict[str, House], url: str) -> None:
    started = httpx.post(f"{url}/session", json={"key": cells["eu1"].key})
    headers = {"cookie": started.headers["set-cookie"].partition(";")[0], "plangate-cell": "eu2"}
    again = httpx.post(f"{url}/session", json={"key": cells["eu2"].key}, headers=headers)
    assert again.status_code == 200
    assert "=pls_eu2_" in again.headers["set-cookie"]


@pytest.mark.parametrize("cell", ["eu9", "any-cell", "127", "localhost"])
def test_a_forged_name_leads_nowhere(url: str, cell: str) -> None:
    """Every cell answers 421 with the name that the key has, and the balancer asks no other address."""
    forged, _ = new_key(KEY_PREFIX, cell)
    for headers in ({}, {"plangate-cell": cell}, {"plangate-cell": "eu2"}):
        answer = httpx.get(f"{url}/whoami", headers={"authorization": f"Bearer {forged}", **headers})
        assert answer.status_code == 421
        assert answer.json()["cell"] == answer.headers["plangate-cell"] == cell


@pytest.mark.parametrize("cell", ["eu1,", "eu1;", "EU1", "$host", "eu1%0d%0a", "../eu1", "169.254.169.254"])
def test_hostile_names_are_no_keys(url: str, cell: str) -> None:
    text = new_key()[0].replace("plg_", f"plg_{cell}_")
    for headers in ({"authorization": f"Bearer {text}"}, {"plangate-cell": cell}):
        answer = httpx.get(f"{url}/whoami", headers=headers)
        assert answer.status_code == 401
        assert "plangate-cell" not in answer.headers


def test_a_forged_key_of_a_real_cell_is_unknown_there(url: str) -> None:
    forged, _ = new_key(KEY_PREFIX, "eu1")
    assert httpx.get(f"{url}/whoami", headers={"authorization": f"Bearer {forged}"}).status_code == 401


async def test_a_client_at_the_wrong_cell_goes_to_the_right_one(cells: dict[str, House]) -> None:
    urls = {name: house.url for name, house in cells.items()}
    client = ServiceClient(urls["eu1"], cells["eu2"].key, None, cell_urls=urls)
    try:
        page = await client.request("GET", "/runtimes")
    finally:
        await client.aclose()
    assert [runtime["name"] for runtime in page["items"]] == ["runtime-eu2"]


def test_the_console_signs_in_at_the_cell_that_a_421_names(cells: dict[str, House]) -> None:
    """Behind a balancer that passes a 421 on, as Envoy does."""
    ports = {ADDRESSES[name]: house.port for name, house in cells.items()}
    follows = "error_page 421 = @named_cell;"
    with (
        nginx.nginx(cells["eu2"].folder, "cells.conf", ports, without=follows) as url,
        browsing() as browser,
    ):
        statuses: list[int] = []
        page = browser.new_context().new_page()
        page.on(
            "response",
            lambda answer: statuses.append(answer.status) if answer.url.endswith("/session") else None,
        )
        for name in ("eu1", "eu2", "eu1"):  # from the second on, the cookie leads to the wrong cell
            key = {"authorization": f"Bearer {cells[name].key}"}
            page.goto(httpx.post(f"{url}/session/tickets", headers=key).json()["url"])
            expect(page.get_by_role("heading", name="Inbox")).to_be_visible()
            (cookie,) = page.context.cookies()
            assert cookie["value"].startswith(f"pls_{name}_")
            page.goto("about:blank")
        assert statuses[-4:] == [421, 200, 421, 200]


def test_a_cell_that_stops_does_not_affect_the_other(cells: dict[str, House], url: str) -> None:
    """The last test: it leaves a cell stopped."""
    keys = {name: {"authorization": f"Bearer {house.key}"} for name, house in cells.items()}
    cells["eu1"].kill_service()
    for _ in range(TIMES):
        assert cell_of(url, **keys["eu2"]) == "eu2"
        assert httpx.get(f"{url}/openapi.json").status_code == 200
        assert httpx.post(f"{url}/session", json={"key": cells["eu2"].key}).status_code == 200
        assert httpx.get(f"{url}/whoami", headers=keys["eu1"]).status_code == 502
