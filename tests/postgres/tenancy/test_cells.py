"""Cells: keys, sessions and tickets name the cell that issued them, and the wrong cell names the right one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from http.cookies import SimpleCookie

import pytest
import pytest_asyncio

from app.base.keys import KEY_PREFIX, SESSION_PREFIX, TICKET_PREFIX, new_key
from app.deployment import Deployment
from app.settings import Settings
from tests.support.client import Caller, good, refused
from tests.support.cluster import Cluster
from tests.support.world import World, world


@pytest_asyncio.fixture
async def eu1(cluster: Cluster, site: Deployment) -> AsyncIterator[World]:
    async with world(site, cluster.operator_key, started=False, cell="eu1") as at:
        yield at


@pytest_asyncio.fixture
async def eu2(cluster: Cluster) -> AsyncIterator[World]:
    site = await cluster.create()
    async with world(site, cluster.operator_key, started=False, cell="eu2") as at:
        yield at
    await cluster.drop(site)


async def test_everything_that_a_cell_issues_has_its_name(eu1: World) -> None:
    made = await eu1.api.do("/keys", {"principal": "ann", "scopes": ["read"]})
    assert made["key"].startswith("plg_eu1_")
    key = Caller(eu1.http, made["key"])
    ticket = await key.do("/session/tickets")
    assert ticket["ticket"].startswith("plt_eu1_")
    started = await eu1.http.post("/session", json={"ticket": ticket["ticket"]})
    good(started)
    ((name, cookie),) = SimpleCookie(started.headers["set-cookie"]).items()
    assert cookie.value.startswith("pls_eu1_")
    session = Caller(eu1.http, None, cookie=f"{name}={cookie.value}")
    assert (await session.read("/whoami"))["principal"] == "ann"


async def test_the_wrong_cell_names_the_right_one(eu1: World, eu2: World) -> None:
    key = await eu1.key("read", "queries:write")
    body = {"prompt": "hi", "runtime": "notices"}
    for _ in range(2):  # looked up, then remembered
        response = await Caller(eu2.http, key.key).post("/queries", body)
        assert refused(response, 421, "wrong_cell")["cell"] == "eu1"
        assert response.headers["plangate-cell"] == "eu1"
    ticket = (await key.do("/session/tickets"))["ticket"]
    for sign_in in ({"key": key.key}, {"ticket": ticket}):
        response = await eu2.http.post("/session", json=sign_in)
        assert refused(response, 421, "wrong_cell")["cell"] == "eu1"
        assert "set-cookie" not in response.headers
    good(await eu1.http.post("/session", json={"ticket": ticket}))  # the wrong cell did not use it up


async def test_a_session_of_another_cell_is_refused_with_its_name(eu1: World, eu2: World) -> None:
    key = await eu1.key("read")
    started = await eu1.http.post("/session", json={"key": key.key})
    cookie = started.headers["set-cookie"].partition(";")[0]
    problem = refused(await Caller(eu2.http, None, cookie=cookie).get("/whoami"), 421, "wrong_cell")
    assert problem["cell"] == "eu1"


async def test_keys_from_before_the_cell_had_a_name_work(
    eu1: World, site: Deployment, cluster: Cluster
) -> None:
    async with world(site, cluster.operator_key, started=False) as plain:
        key = await plain.key("read")
        named = await eu1.key("read")
        good(await Caller(plain.http, named.key).get("/whoami"))
    assert str(key.key).startswith("plg_")
    assert len(str(key.key)) == 53
    good(await Caller(eu1.http, key.key).get("/whoami"))


async def test_a_revoked_key_of_this_cell_is_a_401(eu1: World) -> None:
    """The name of a cell is not proof that it issued the key."""
    forged, _ = new_key(KEY_PREFIX, "eu1")
    refused(await Caller(eu1.http, forged).get("/whoami"), 401, "unauthenticated")
    response = await eu1.http.post("/session", json={"ticket": new_key(TICKET_PREFIX, "eu1")[0]})
    refused(response, 401, "unauthenticated")


@pytest.mark.parametrize(
    "cell",
    [
        "EU2",
        "-eu2",
        "eu2-",
        "eu_2",
        "eu.2",
        "eu2\r\nx-a: b",
        "eu2\n",
        "",
        "é",
        "a" * 33,
        "../eu2",
        '"',
        "eu2%0d",
    ],
)
async def test_hostile_names_of_cells_are_no_keys(eu1: World, cell: str) -> None:
    """Such a text is rejected before a lookup, and the response names no cell."""
    with pytest.raises(ValueError, match="lowercase letters, digits and hyphens"):
        Settings(cell=cell)
    for prefix, field in ((KEY_PREFIX, "key"), (TICKET_PREFIX, "ticket")):
        text = new_key(prefix)[0].replace(prefix, f"{prefix}{cell}_")
        response = await eu1.http.post("/session", json={field: text})
        assert "cell" not in refused(response, 401, "unauthenticated")
    cookie = new_key(SESSION_PREFIX)[0].replace(SESSION_PREFIX, f"{SESSION_PREFIX}{cell}_")
    headers = {"cookie": f"plangate_session={cookie}".encode(), "host": "127.0.0.1"}
    assert (await eu1.http.get("/whoami", headers=headers)).status_code == 401  # type: ignore[arg-type]


async def test_forged_keys_of_other_cells_are_limited_like_unknown_keys(eu1: World) -> None:
    statuses = [
        (await Caller(eu1.http, new_key(KEY_PREFIX, f"c{n}")[0]).get("/whoami")).status_code
        for n in range(300)
    ]
    assert set(statuses) == {421, 429}
