"""Requests to every route: the JSON gate, the form of problems, and the table of errors."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from fastapi import APIRouter
from fastapi.routing import APIRoute

from app.api.errors import STATUS_BY_ERROR, http_status
from app.api.http import ROUTERS, create_app
from app.base import errors
from tests.support import specs
from tests.support.client import Caller, good, refused
from tests.support.world import World

JSON = {"content-type": "application/json"}


async def send(api: Caller, body: bytes, path: str = "/queries", **headers: str) -> Any:
    return await api.request("POST", path, content=body, headers={**JSON, **headers})


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "not JSON"),
        (b"nonsense", "not JSON"),
        (b'{"prompt": "a", "prompt": "b"}', "twice"),
        (b'{"prompt": NaN}', "NaN"),
        (b'{"prompt": 1e999}', "beyond the range"),
        (b'{"metadata": {"n": 18446744073709551616}}', "64 bits"),
        (b'{"prompt": "\\u0000"}', "NUL"),
        (b'{"prompt": "\\ud800"}', "surrogate"),
        (b'{"prompt": "\xff"}', "UTF-8"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        ('{"prompt": "x"}'.encode("utf-16"), "UTF-16"),
        (b"[" * 65 + b"]" * 65, "deeper than 64"),
        (b" ", "empty"),
    ],
)
async def test_values_that_cannot_be_stored_exactly_are_rejected(api: Caller, body: bytes, says: str) -> None:
    assert says in refused(await send(api, body), 400, "malformed")["detail"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""])
async def test_a_body_needs_a_json_content_type(api: Caller, kind: str) -> None:
    response = await api.request("POST", "/queries", content=b"{}", headers={"content-type": kind})
    refused(response, 415, "unsupported_media_type")


async def test_a_body_that_is_too_large_is_rejected(api: Caller) -> None:
    refused(await send(api, b'{"prompt": "' + b"x" * (1024 * 1024) + b'"}'), 413, "too_large")

    async def chunks() -> Any:
        for _ in range(40):
            yield b"x" * 64 * 1024

    response = await api.request("POST", "/queries", content=chunks(), headers=JSON)
    refused(response, 413, "too_large")
    await api.register(specs.mock())
    accepted = await api.submit("x" * 1_000_000)
    assert (await api.ended(accepted["id"]))["status"] == "succeeded"


@pytest.mark.parametrize(
    ("body", "pointer", "says"),
    [
        ({}, "/prompt", "required"),
        ({"prompt": "x", "nonsense": 1}, "/nonsense", "unknown field"),
        ({"prompt": 5}, "/prompt", "string"),
        ({"prompt": "x", "ifBusy": "shout"}, "/ifBusy", "'queue'"),
        (
            {"prompt": "x", "thread_key": "t"},
            "/thread_key",
            "unknown field 'thread_key'; did you mean 'threadKey'?",
        ),
        (
            {"prompt": "x", "treadKey": "t"},
            "/treadKey",
            "unknown field 'treadKey'; did you mean 'threadKey'?",
        ),
        ({"prompt": "x", "limits": {"maxTurn": 1}}, "/limits/maxTurn", "did you mean 'maxTurns'?"),
        ({"prompt": "x", "approvalExpiresInMs": 0}, "/approvalExpiresInMs", "greater"),
        ({"prompt": "x", "approvalExpiresInMs": "5"}, "/approvalExpiresInMs", "integer"),
        ({"prompt": "x", "threadKey": "k" * 201}, "/threadKey", "200"),
        ({"prompt": "x", "threadKey": "t", "threadId": "thr_1"}, "", "not both"),
        ({"prompt": "x", "runtime": "t", "runtimeId": "rt_1"}, "", "not both"),
    ],
)
async def test_validation_errors_name_their_place(api: Caller, body: Any, pointer: str, says: str) -> None:
    found = refused(await api.post("/queries", body), 422, "invalid")
    assert [f["pointer"] for f in found["errors"]] == [pointer]
    assert says in found["errors"][0]["message"]


@pytest.mark.parametrize("body", [[], "text", 5, None, True])
async def test_a_body_that_is_not_an_object_is_rejected(api: Caller, body: Any) -> None:
    refused(await send(api, json.dumps(body).encode()), 422, "invalid")


@pytest.mark.parametrize(
    "path",
    [
        "/queries?limit=0",
        "/queries?limit=501",
        "/queries?limit=x",
        "/queries?status=sleeping",
        "/queries/qry_1?waitMs=60001",
    ],
)
async def test_unknown_parameters_list_the_known_ones(api: Caller, path: str) -> None:
    found = refused(await api.get(path), 422, "invalid")
    assert found["errors"][0]["pointer"].startswith("query:")


def every_route() -> list[tuple[str, str]]:
    """Method and path of each, with something in the place of what it names. HEAD has no answer to read, and is GET's."""
    return [
        (method, re.sub(r"\{[^}]*\}", "0", route.path_format))
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in sorted(route.methods - {"HEAD"})
    ]


async def test_every_route_rejects_unknown_parameters(api: Caller) -> None:
    """A filter that is misspelt would show everything, and nobody would notice."""
    assert len(every_route()) > 60
    for method, path in every_route():
        found = refused(await api.request(method, path, params={"quaryId": "x"}), 422, "invalid")
        (flaw,) = found["errors"]
        assert flaw["pointer"] == "query:quaryId", (method, path)
        assert flaw["message"].startswith("unknown parameter; "), (method, path)
    found = refused(await api.get("/approvals", quaryId="x", Limit="5", limit=5), 422, "invalid")
    names = "agent, canDecide, cursor, from, kind, limit, queryId, requester, runtime, status, text, threadId, to, tool"
    known = f"unknown parameter; expected one of: {names}"
    assert found["errors"] == [
        {"pointer": "query:quaryId", "message": known},
        {"pointer": "query:Limit", "message": known},
    ]


async def test_parameters_are_checked_after_the_key_and_probes_accept_any(plangate: World) -> None:
    for method, path in every_route():
        if (method, path) != ("POST", "/session"):  # it takes the key in its body
            refused(
                await plangate.http.request(method, path, params={"quaryId": "x"}), 401, "unauthenticated"
            )
    operator = plangate.operator()
    for path in ("/healthz", "/readyz", "/metrics"):
        assert (await operator.get(path, **{"from": "a-probe"})).is_success


@pytest.mark.parametrize("path", ["/nothing", "/queries/a/b/c", "/queries//", "/runtimes/"])
async def test_an_unknown_route_is_a_404(api: Caller, path: str) -> None:
    refused(await api.get(path), 404, "not_found")


async def test_a_405_lists_the_allowed_methods(api: Caller) -> None:
    paths = (await api.read("/openapi.json"))["paths"]
    assert len(paths) > 50
    patterns = {
        path: path.replace("{runtime}/{resource}/log", ".+/[^/]+/log").replace(
            "{runtime}/{resource}", "(?!.+/[^/]+/log$).+/[^/]+"
        )
        for path in paths
    }  # names may have slashes
    routes = {path: re.compile(re.sub(r"\{[^}]+\}", "[^/]+", text)) for path, text in patterns.items()}
    for path in paths:
        asked = re.sub(r"\{[^}]+\}", "x", path)
        response = await api.request("TRACE", asked)
        refused(response, 405, "method_not_allowed")
        templates = [other for other, pattern in routes.items() if pattern.fullmatch(asked)]
        declared = {m.upper() for t in templates for m in paths[t] if m != "parameters"}
        listed = response.headers["allow"].split(", ")
        assert set(listed) - {"HEAD"} == declared, path  # the document leaves HEAD out
        assert listed == sorted(set(listed))


@pytest.mark.parametrize(
    "path",
    [
        "/queries/%00",
        "/runtimes/%00",
        "/plans/pln_%00",
        "/approvals/%00",
        "/references/a%00/b",
        "/queries/x%00/events",
        "/threads/%00",
        "/runtimes?name=%00",
        "/queries?threadId=%00",
        "/plans?specName=%00",
        "/queries/%ED%A0%80",
        "/runtimes/%ff%fe",
        "/plans/pln_%F0%9F%99%82",
    ],
)
async def test_ids_with_invalid_characters_are_not_found(api: Caller, path: str) -> None:
    response = await api.get(path)
    assert response.status_code in (200, 400, 404, 422), response.text
    if response.status_code != 200:
        refused(response, response.status_code)


async def test_a_line_break_at_the_end_of_a_path_is_not_cut_off(api: Caller) -> None:
    await api.register(specs.scripted())
    thread = (await api.run(specs.script()))["threadId"]
    files = f"/threads/{thread}/files"
    assert (await api.request("PUT", f"{files}/a", content=b"x")).status_code == 201
    for response in (
        await api.get(f"{files}/a%0A"),
        await api.request("PUT", f"{files}/a%0A", content=b"y"),
        await api.delete(f"{files}/a%0A"),
    ):
        refused(response, 404, "not_found")
    assert (await api.get(f"{files}/a")).content == b"x"


@pytest.mark.parametrize("value", ["%FF", "x%E9", "%ED%A0%80", "%C3"])
@pytest.mark.parametrize("path", ["/runtimes?name=", "/artifacts?tag=", "/usage?from="])
async def test_a_parameter_that_is_not_utf8_is_rejected(api: Caller, path: str, value: str) -> None:
    body = refused(await api.get(path + value), 422, "invalid")
    name = path.partition("?")[2].removesuffix("=")
    assert body["errors"] == [{"pointer": f"query:{name}", "message": "is not UTF-8: é is %C3%A9, not %E9"}]


@pytest.mark.parametrize("value", ["x", "plg_short", "plg_" + "0" * 49, "é"])
async def test_an_invalid_key_is_rejected(plangate: World, value: str) -> None:
    for header in (f"Bearer {value}", value, f"Basic {value}"):
        headers = [(b"authorization", header.encode())]
        response = await plangate.http.request("GET", "/queries", headers=headers)
        assert refused(response, 401, "unauthenticated")
        assert response.headers["www-authenticate"] == "Bearer"
    refused(await Caller(plangate.http, None).get("/queries"), 401)


def subclasses(kind: type[errors.PlangateError]) -> list[type[errors.PlangateError]]:
    return [k for sub in kind.__subclasses__() for k in (sub, *subclasses(sub))]


def test_every_error_has_its_status_its_slug_and_its_title() -> None:
    found = subclasses(errors.PlangateError)
    assert len(found) > len(STATUS_BY_ERROR)
    for kind in found:
        assert http_status(kind.__new__(kind)) in {
            400,
            401,
            403,
            404,
            409,
            410,
            412,
            413,
            415,
            416,
            421,
            422,
            429,
            503,
        }, kind
        assert kind.kind.replace("_", "").isalpha(), kind
        assert kind.kind == kind.kind.lower()
        assert kind.title[0].isupper()
    slugs = [k.kind for k in found]
    assert len(slugs) == len(set(slugs)), "a slug means one thing"


def paths(router: APIRouter) -> set[str]:
    return {route.path_format for route in router.routes if isinstance(route, APIRoute)}


async def test_the_document_names_every_route_and_its_scope(plangate: World) -> None:
    document = good(await plangate.http.get("/openapi.json"))
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation["summary"], (method, path)
            if operation["operationId"] in ("whoami", "endSession", "createTicket"):
                assert operation["security"] == [{"HTTPBearer": []}]
            elif path not in ("/healthz", "/readyz", "/metrics", "/session"):
                assert any(s for entry in operation["security"] for s in entry.values()), (method, path)
    declared = set().union(*(paths(r) for r in ROUTERS))
    assert len(declared) > 30
    assert declared <= document["paths"].keys()
    assert create_app().openapi()["paths"].keys() == document["paths"].keys()


async def test_operations_answer_without_a_key(plangate: World) -> None:
    assert good(await plangate.http.get("/healthz")) == {"status": "ok"}
    assert good(await plangate.http.get("/readyz"))["status"] == "ready"
    plangate.services.health.draining = True
    response = await plangate.http.get("/readyz")
    refused(response, 503, "unavailable")
    assert response.headers["retry-after"] == "1"


async def test_expiries_at_the_ends_of_time_are_answered(api: Caller) -> None:
    for text in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "nonsense", "2030-01-01T00:00:00"):
        body = {"principal": "a", "scopes": ["read"], "expiresAt": text}
        response = await api.post("/keys", body)
        assert response.status_code in (201, 422), response.text
