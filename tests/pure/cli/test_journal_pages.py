"""Commands that read journals and lists of several pages."""

from __future__ import annotations

import httpx
from plangate.cli.connection import Remote
from plangate.cli.queries_and_work import list_artifacts, list_events
from plangate.client import ServiceClient

from app.commands.main import cli


async def test_all_events_of_a_type_are_read_during_writes() -> None:
    asked: list[dict[str, str]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(dict(request.url.params))
        n = len(asked)
        page = {"events": [{"seq": n}] if n < 3 else [], "nextCursor": f"c{n}", "done": False}
        return httpx.Response(200, json=page)

    client = ServiceClient("http://127.0.0.1:9", "plg_key", None, transport=httpx.MockTransport(answer))
    try:
        found = await list_events(Remote(client, wants_json=False), "qry_1", "query-status")
    finally:
        await client.aclose()
    assert found == [{"seq": 1}, {"seq": 2}]
    first = {"types": "query-status", "limit": "500"}
    assert asked == [first, {**first, "after": "c1"}, {**first, "after": "c2"}]


async def test_publications_of_a_query_are_counted_completely() -> None:
    """`plangate work` says how many there are."""

    def answer(request: httpx.Request) -> httpx.Response:
        n = int(request.url.params.get("cursor", "0"))
        return httpx.Response(200, json={"items": [{}] * 500, "nextCursor": str(n + 1) if n < 2 else None})

    client = ServiceClient("http://127.0.0.1:9", "plg_key", None, transport=httpx.MockTransport(answer))
    try:
        assert len(await list_artifacts(Remote(client, wants_json=False), "qry_1")) == 1500
    finally:
        await client.aclose()


def test_a_crashing_command_prints_no_variables() -> None:
    """One of them is a key."""
    assert cli.pretty_exceptions_show_locals is False
