"""Browser sessions: permissions, expiry, and protection against other sites and tenants."""

from __future__ import annotations

import asyncio
import time
from http.cookies import Morsel, SimpleCookie
from importlib.metadata import version

import asyncpg
import httpx
import pytest

from app.base.keys import SESSION_PREFIX, TICKET_PREFIX, new_key
from app.deployment import Deployment
from tests.support import specs
from tests.support.client import Caller, eventually, good, refused
from tests.support.cluster import Cluster
from tests.support.sse import frames, served
from tests.support.world import World, world

SECURE = "__Host-plangate_session"
WRITE = {"plangate-request": "1"}
WITHIN_S = 5.0
"""How soon a session ends with its key, in every process."""


def cookie_of(response: httpx.Response) -> Morsel[str]:
    """Return the one cookie that the response sets."""
    (cookie,) = SimpleCookie(response.headers["set-cookie"]).values()
    return cookie


async def sign_in(at: World, **body: str) -> Caller:
    """Return a browser with a new session."""
    response = await at.http.post("/session", json=body)
    good(response)
    return browser(at, response)


def browser(at: World, response: httpx.Response) -> Caller:
    """Return a caller with the cookie that a response sets. It has no key."""
    cookie = cookie_of(response)
    return Caller(at.http, None, cookie=f"{cookie.key}={cookie.value}")


async def ticket_of(key: Caller) -> str:
    return str((await key.do("/session/tickets"))["ticket"])


# -- starting one


async def test_a_session_acts_for_the_owner_of_its_key(idle: World) -> None:
    key = await idle.key("read", "queries:write", principal="ann")
    response = await idle.http.post("/session", json={"key": key.key})
    me = good(response)
    session = browser(idle, response)
    assert await session.read("/whoami") == me
    assert (me["principal"], me["tenant"]) == ("ann", "acme")
    assert me["scopes"] == ["queries:write", "read"]
    assert me["version"] == version("plangate-server")
    assert me["sessionId"].startswith("ses_")
    assert response.headers["cache-control"] == "no-store"
    assert (await session.read("/queries"))["items"] == []


async def test_whoami_describes_a_key(idle: World) -> None:
    key = await idle.key("tools:serve", principal="ann", tools=["look"])
    me = await key.read("/whoami")
    assert me == {
        "principal": "ann",
        "tenant": "acme",
        "scopes": ["tools:serve"],
        "tools": ["look"],
        "version": version("plangate-server"),
        "sessionId": None,
        "expiresAt": None,
        "operator": False,
    }
    refused(await idle.http.get("/whoami"), 401, "unauthenticated")


@pytest.mark.parametrize(
    ("host", "headers", "name", "secure"),
    [
        ("plangate.example", {}, SECURE, True),
        ("127.0.0.1:8700", {}, "plangate_session", False),
        ("localhost:8700", {}, "plangate_session", False),
        ("[::1]:8700", {}, "plangate_session", False),
        ("127.0.0.1.example.com", {}, SECURE, True),
        ("127.0.0.1:8700", {"x-forwarded-for": "192.0.2.1"}, SECURE, True),
    ],
)
async def test_the_cookie_is_secure_except_on_loopback(
    idle: World, host: str, headers: dict[str, str], name: str, secure: bool
) -> None:
    key = await idle.key("read")
    response = await idle.http.post("/session", json={"key": key.key}, headers={"host": host, **headers})
    cookie = cookie_of(response)
    assert cookie.key == name
    assert bool(cookie["secure"]) is secure
    assert cookie["httponly"] is True
    assert cookie["samesite"] == "strict"
    assert (cookie["path"], cookie["domain"]) == ("/", "")
    assert 43_000 < int(cookie["max-age"]) <= 43_200
    good(
        await idle.http.get("/whoami", headers={"host": host, **headers, "cookie": f"{name}={cookie.value}"})
    )


async def test_an_unprefixed_cookie_is_ignored_except_on_loopback(idle: World) -> None:
    key = await idle.key("read")
    cookie = cookie_of(await idle.http.post("/session", json={"key": key.key}))
    headers = {"cookie": f"plangate_session={cookie.value}"}
    refused(await idle.http.get("/whoami", headers=headers), 401, "unauthenticated")


async def test_only_the_hash_of_a_session_is_stored(idle: World, owner: asyncpg.Connection) -> None:
    key = await idle.key("read")
    text = cookie_of(await idle.http.post("/session", json={"key": key.key})).value
    ticket = await ticket_of(key)
    rows = await owner.fetch(
        "SELECT s::text AS row FROM sessions s UNION ALL SELECT i::text FROM idempotency i"
    )
    assert len(rows) == 2
    for row in rows:
        assert text not in row["row"]
        assert ticket not in row["row"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"key": "k", "ticket": "t"}, 422),
        ({"ticket": "t", "tenant": "other"}, 422),
        ({"ticket": "t", "principal": "bob"}, 422),
        ({"key": "plg_no"}, 401),
        ({"key": new_key()[0]}, 401),
        ({"ticket": "plt_no"}, 401),
        ({"ticket": new_key(TICKET_PREFIX)[0]}, 401),
        ({"ticket": new_key()[0]}, 401),
        ({"key": new_key(TICKET_PREFIX)[0]}, 401),
    ],
)
async def test_a_session_needs_a_valid_key_or_ticket(idle: World, body: dict[str, str], status: int) -> None:
    response = await idle.http.post("/session", json=body)
    refused(response, status)
    assert "set-cookie" not in response.headers


async def test_a_repeated_request_starts_no_second_session(idle: World) -> None:
    key = await idle.key("read")
    headers = {"idempotency-key": "one"}
    first = good(await idle.http.post("/session", json={"key": key.key}, headers=headers))
    again = refused(await idle.http.post("/session", json={"key": key.key}, headers=headers), 409, "conflict")
    assert again["id"] == first["sessionId"]


async def test_a_key_has_a_bounded_number_of_sessions(idle: World, owner: asyncpg.Connection) -> None:
    key = await idle.key("read")
    first = await sign_in(idle, key=str(key.key))
    for _ in range(100):
        last = await sign_in(idle, key=str(key.key))
    assert await owner.fetchval("SELECT count(*) FROM sessions") == 100
    idle.services.tenancy.expire_cached_keys()
    refused(await first.get("/whoami"), 401)
    good(await last.get("/whoami"))


# -- other sites


@pytest.mark.parametrize("origin", ["cross-site", "same-site"])
async def test_other_origins_cannot_use_a_session(idle: World, origin: str) -> None:
    key = await idle.key("admin")
    session = await sign_in(idle, key=str(key.key))
    headers = {"sec-fetch-site": origin, **WRITE}
    refused(await session.request("GET", "/queries", headers=headers), 403, "cross_site_request")
    refused(await session.post("/keys", KEY, headers=headers), 403, "cross_site_request")
    response = await idle.http.post("/session", json={"key": key.key}, headers=headers)
    refused(response, 403, "cross_site_request")
    assert "set-cookie" not in response.headers
    good(await session.request("GET", "/queries", headers={"sec-fetch-site": "same-origin"}))
    good(await key.request("GET", "/queries", headers=headers))  # a key is no cookie


KEY = {"principal": "mallory", "scopes": ["admin"]}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/keys"),
        ("PUT", "/secrets/x"),
        ("DELETE", "/secrets/x"),
        ("PUT", "/threads/thr_1/files/x"),
        ("POST", "/runtimes"),
        ("DELETE", "/session"),
    ],
)
async def test_a_write_with_a_session_needs_the_header(idle: World, method: str, path: str) -> None:
    """A form of another site sends the cookie in browsers that ignore SameSite, and no header."""
    session = await sign_in(idle, key=str((await idle.key("admin")).key))
    for headers in ({}, {"plangate-request": "0"}, {"plangate-request": ""}):
        refused(await session.request(method, path, json={}, headers=headers), 403, "cross_site_request")
    response = await session.request(method, path, json={}, headers=WRITE)
    assert response.json().get("type") != "cross_site_request"
    assert (await idle.api.read("/keys"))["items"][0]["principal"] != "mallory"


async def test_a_write_without_the_header_changes_nothing(idle: World) -> None:
    session = await sign_in(idle, key=str((await idle.key("admin")).key))
    before = len((await session.read("/keys"))["items"])
    refused(await session.post("/keys", KEY), 403, "cross_site_request")
    assert len((await session.read("/keys"))["items"]) == before
    good(await session.post("/keys", KEY, headers=WRITE))
    assert len((await session.read("/keys"))["items"]) == before + 1


async def test_a_form_cannot_sign_a_browser_in(idle: World) -> None:
    """Else a page could make its visitor work in the session of somebody else."""
    body = f'{{"key": "{(await idle.key("read")).key}"}}'
    response = await idle.http.post("/session", content=body, headers={"content-type": "text/plain"})
    refused(response, 415)
    assert "set-cookie" not in response.headers


# -- other tenants and principals


async def test_a_session_stays_in_its_tenant(plangate: World) -> None:
    await plangate.other.register(specs.mock(tenant="other"))
    foreign = await plangate.other.submit()
    key = await plangate.key("admin", tenant="acme")
    session = await sign_in(plangate, key=str(key.key))
    refused(await session.get(f"/queries/{foreign['id']}"), 404)
    assert (await session.read("/queries"))["items"] == []
    refused(await session.request("GET", "/queries", headers={"plangate-tenant": "other"}), 401)
    response = await plangate.http.post("/session", json={"key": key.key, "tenant": "other"})
    refused(response, 401)
    assert "set-cookie" not in response.headers


async def test_an_operator_session_is_limited_to_one_tenant(idle: World) -> None:
    await idle.other.do("/keys", {"principal": "x", "scopes": ["read"]})
    session = await sign_in(idle, key=idle.operator_key, tenant="acme")
    me = await session.read("/whoami")
    assert (me["tenant"], me["principal"]) == ("acme", "operator")
    good(await session.get("/keys"))
    refused(await session.request("GET", "/keys", headers={"plangate-tenant": "other"}), 401)
    refused(await session.get("/metrics"), 401)  # of all tenants


async def test_a_session_acts_for_one_principal(idle: World) -> None:
    gateway = await idle.key("read", "act-as", principal="gateway")
    session = await sign_in(idle, key=str(gateway.key), principal="bob")
    me = await session.read("/whoami")
    assert (me["principal"], me["scopes"]) == ("bob", ["read"])
    as_alice = {"plangate-principal": "alice"}
    refused(await session.request("GET", "/whoami", headers=as_alice), 403, "forbidden")
    good(await session.request("GET", "/whoami", headers={"plangate-principal": "bob"}))
    plain = await idle.key("read")
    refused(await idle.http.post("/session", json={"key": plain.key, "principal": "bob"}), 403, "forbidden")
    operator = await sign_in(idle, key=idle.operator_key, tenant="acme")
    refused(await operator.request("GET", "/whoami", headers=as_alice), 403, "forbidden")


async def test_a_session_has_the_scopes_of_its_key(idle: World) -> None:
    session = await sign_in(idle, key=str((await idle.key("read")).key))
    refused(await session.post("/keys", KEY, headers=WRITE), 403, "forbidden")
    refused(await session.post("/queries", {"prompt": "x"}, headers=WRITE), 403, "forbidden")


async def test_sessions_keys_and_tickets_are_not_interchangeable(idle: World) -> None:
    key = await idle.key("read")
    session = cookie_of(await idle.http.post("/session", json={"key": key.key})).value
    ticket = await ticket_of(key)
    for text in (session, ticket):
        refused(await Caller(idle.http, text).get("/whoami"), 401)
    for text in (str(key.key), ticket, "x", new_key(SESSION_PREFIX)[0]):
        refused(await Caller(idle.http, None, cookie=f"{SECURE}={text}").get("/whoami"), 401)


# -- the end


async def test_a_revoked_key_ends_its_sessions_in_every_process(plangate: World, second: World) -> None:
    made = await plangate.api.do("/keys", {"principal": "ann", "scopes": ["read"]})
    session = await sign_in(plangate, key=made["key"])
    there = Caller(second.http, None, **session.headers)
    good(await there.get("/whoami"))
    good(await plangate.api.delete(f"/keys/{made['id']}"))
    refused(await session.get("/whoami"), 401)  # this process knows at once
    since = time.monotonic()

    async def ended() -> bool:
        return (await there.get("/whoami")).status_code == 401

    await eventually(ended, "the session ends", WITHIN_S)
    assert time.monotonic() - since < WITHIN_S
    refused(await plangate.http.post("/session", json={"key": made["key"]}), 401)


async def test_a_revoked_key_ends_the_open_streams_of_its_sessions(plangate: World) -> None:
    await plangate.api.register(specs.scripted())
    made = await plangate.api.do("/keys", {"principal": "ann", "scopes": ["read"]})
    headers = {"accept": "text/event-stream"}
    async with (
        served(plangate) as address,
        httpx.AsyncClient(base_url=address, timeout=20, trust_env=False) as http,
    ):
        good(await http.post("/session", json={"key": made["key"]}))  # the client keeps the cookie
        async with http.stream("GET", "/events", headers=headers) as stream:
            assert stream.status_code == 200
            body = stream.aiter_bytes()
            await anext(body)
            good(await plangate.api.delete(f"/keys/{made['id']}"))
            async with asyncio.timeout(WITHIN_S):
                async for _ in body:
                    pass
    assert plangate.services.streams.open_streams.count == 0


async def test_an_event_source_follows_a_query_with_the_cookie(plangate: World) -> None:
    await plangate.api.register(specs.mock())
    query = await plangate.api.submit()
    session = await sign_in(plangate, key=str((await plangate.key("read")).key))
    headers = {"accept": "text/event-stream", "sec-fetch-site": "same-origin"}
    response = await session.request("GET", f"/queries/{query['id']}/events", headers=headers)
    assert frames(response.text)[-1].event == "finish"


async def test_an_expired_session_is_over(idle: World, owner: asyncpg.Connection) -> None:
    session = await sign_in(idle, key=str((await idle.key("read")).key))
    good(await session.get("/whoami"))
    await owner.execute("UPDATE sessions SET expires_at = now() - interval '1 second'")

    async def ended() -> bool:
        return (await session.get("/whoami")).status_code == 401

    await eventually(ended, "the session ends", WITHIN_S)
    assert await idle.services.sessions.sweep() == 1
    assert await owner.fetchval("SELECT count(*) FROM sessions") == 0


async def test_a_session_ends_with_its_key(idle: World) -> None:
    made = await idle.api.do(
        "/keys", {"principal": "ann", "scopes": ["read"], "expiresAt": "2100-01-01T00:00:00Z"}
    )
    response = await idle.http.post("/session", json={"key": made["key"]})
    assert good(response)["expiresAt"] < "2099"
    soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 60))
    made = await idle.api.do("/keys", {"principal": "ann", "scopes": ["read"], "expiresAt": soon})
    response = await idle.http.post("/session", json={"key": made["key"]})
    assert good(response)["expiresAt"].startswith(soon.removesuffix("Z"))
    assert int(cookie_of(response)["max-age"]) <= 60


async def test_the_length_of_a_session_is_a_setting(site: Deployment, cluster: Cluster) -> None:
    async with world(site, cluster.operator_key, with_worker=False, session_s=90) as short:
        response = await short.http.post("/session", json={"key": (await short.key("read")).key})
        assert 80 < int(cookie_of(response)["max-age"]) <= 90


async def test_signing_out_ends_the_session_at_once(idle: World) -> None:
    key = await idle.key("read")
    session = await sign_in(idle, key=str(key.key))
    other = await sign_in(idle, key=str(key.key))
    response = await session.request("DELETE", "/session", headers=WRITE)
    assert good(response)["ended"] is True
    cookie = cookie_of(response)
    assert (cookie.key, cookie.value, cookie["max-age"]) == (SECURE, "", "0")
    for _ in range(2):  # a copy of the cookie; the second time, the process remembers that it is unknown
        assert "This session has ended" in refused(await session.get("/whoami"), 401)["detail"]
    good(await other.get("/whoami"))
    refused(await key.delete("/session"), 409, "conflict")
    good(await key.get("/whoami"))


# -- tickets


async def test_a_ticket_signs_a_person_in_once(idle: World) -> None:
    gateway = await idle.key("read", "act-as", principal="gateway")
    made = good(await gateway.post("/session/tickets", headers={"plangate-principal": "bob"}))
    assert made["url"] == f"http://plangate/console#ticket={made['ticket']}"
    session = await sign_in(idle, ticket=made["ticket"])
    me = await session.read("/whoami")
    assert (me["principal"], me["tenant"], me["scopes"]) == ("bob", "acme", ["read"])
    replay = await idle.http.post("/session", json={"ticket": made["ticket"]})
    refused(replay, 401, "unauthenticated")
    assert "set-cookie" not in replay.headers


async def test_one_ticket_starts_one_session(
    plangate: World, second: World, owner: asyncpg.Connection
) -> None:
    ticket = await ticket_of(await plangate.key("read"))
    answers = await asyncio.gather(
        *(at.http.post("/session", json={"ticket": ticket}) for at in (plangate, second) * 5)
    )
    assert sorted(answer.status_code for answer in answers) == [200] + [401] * 9
    assert await owner.fetchval("SELECT count(*) FROM sessions") == 1


async def test_a_ticket_lives_for_five_minutes(idle: World, owner: asyncpg.Connection) -> None:
    ticket = await ticket_of(await idle.key("read"))
    left = await owner.fetchval("SELECT extract(epoch FROM expires_at - now())::float8 FROM sessions")
    assert 290 < left <= 300
    await owner.execute("UPDATE sessions SET expires_at = now() - interval '1 second'")
    refused(await idle.http.post("/session", json={"ticket": ticket}), 401)


async def test_a_ticket_ends_with_its_key(idle: World) -> None:
    made = await idle.api.do("/keys", {"principal": "ann", "scopes": ["read"]})
    ticket = await ticket_of(Caller(idle.http, made["key"]))
    good(await idle.api.delete(f"/keys/{made['id']}"))
    refused(await idle.http.post("/session", json={"ticket": ticket}), 401)


async def test_a_session_cannot_prolong_itself_with_a_ticket(idle: World) -> None:
    session = await sign_in(idle, key=str((await idle.key("admin")).key))
    refused(await session.post("/session/tickets", headers=WRITE), 403, "forbidden")


async def test_a_flood_of_unknown_tickets_is_limited(idle: World) -> None:
    statuses = []
    for _ in range(300):
        body = {"ticket": new_key(TICKET_PREFIX)[0]}
        statuses.append((await idle.http.post("/session", json=body)).status_code)
    assert set(statuses) == {401, 429}
    assert statuses[:50] == [401] * 50


# -- other origins, with keys


ORIGIN = "https://app.example"


async def test_pages_of_named_origins_call_the_api_with_keys(site: Deployment, cluster: Cluster) -> None:
    async with world(site, cluster.operator_key, with_worker=False, cors_origins=[ORIGIN]) as open_to:
        asked = {
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization,content-type",
        }
        preflight = await open_to.http.options("/queries", headers={"origin": ORIGIN, **asked})
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == ORIGIN
        key = await open_to.key("read")
        for caller, status in ((key, 200), (Caller(open_to.http, None), 401)):
            response = await caller.request("GET", "/queries", headers={"origin": ORIGIN})
            assert response.status_code == status
            assert response.headers["access-control-allow-origin"] == ORIGIN
            assert "access-control-allow-credentials" not in response.headers
        assert "access-control-allow-credentials" not in preflight.headers


async def test_other_origins_get_no_access(site: Deployment, cluster: Cluster) -> None:
    async with world(site, cluster.operator_key, with_worker=False, cors_origins=[ORIGIN]) as open_to:
        key = await open_to.key("read")
        for origin in (
            "https://evil.example",
            "https://app.example.evil.example",
            "http://app.example",
            "null",
        ):
            response = await key.request("GET", "/queries", headers={"origin": origin})
            assert "access-control-allow-origin" not in response.headers
            asked = {"origin": origin, "access-control-request-method": "POST"}
            assert (await open_to.http.options("/queries", headers=asked)).status_code == 400


async def test_a_named_origin_cannot_use_a_session(site: Deployment, cluster: Cluster) -> None:
    async with world(site, cluster.operator_key, with_worker=False, cors_origins=[ORIGIN]) as open_to:
        asked = {
            "access-control-request-method": "POST",
            "access-control-request-headers": "plangate-request",
        }
        preflight = await open_to.http.options("/keys", headers={"origin": ORIGIN, **asked})
        assert preflight.status_code == 400
        session = await sign_in(open_to, key=str((await open_to.key("admin")).key))
        headers = {"origin": ORIGIN, "sec-fetch-site": "cross-site", **WRITE}
        refused(await session.request("GET", "/keys", headers=headers), 403, "cross_site_request")


async def test_without_the_setting_no_origin_has_access(idle: World) -> None:
    response = await (await idle.key("read")).request("GET", "/queries", headers={"origin": ORIGIN})
    assert response.status_code == 200
    assert "access-control-allow-origin" not in response.headers


# -- behind a reverse proxy


async def test_links_hold_below_a_path_prefix(site: Deployment, cluster: Cluster) -> None:
    address = "https://example.com/plangate"
    async with world(site, cluster.operator_key, public_url=address) as below:
        await below.api.register(specs.mock())
        for prefix in ("/plangate", ""):  # proxies pass it on, or remove it
            response = await below.api.post(f"{prefix}/queries", {"prompt": "hi"})
            accepted = good(response)
            assert response.headers["location"] == f"/plangate/queries/{accepted['id']}"
            assert accepted["links"]["events"] == f"/plangate/queries/{accepted['id']}/events"
            read = await below.api.read(response.headers["location"])
            assert read["links"] == accepted["links"]
            listed = await below.api.read(f"{prefix}/queries", limit=1)
            assert listed["items"][0]["links"] == accepted["links"]
        for path in ("/plangate", "/plangate/", "/"):
            assert (await below.http.get(path)).headers["location"] == "/plangate/console"
        assert (await below.http.get("/plangate/docs")).status_code == 200
        assert f"({address}/guides/operations.md)" in (await below.http.get("/plangate/llms.txt")).text
        made = await below.api.do("/plangate/session/tickets")
        assert made["url"].startswith(f"{address}/console#ticket=")
        response = await below.http.post("/plangate/session", json={"ticket": made["ticket"]})
        assert cookie_of(response).key == SECURE
        good(await browser(below, response).get("/plangate/whoami"))
        refused(await below.http.get("/plangates/whoami"), 404)
