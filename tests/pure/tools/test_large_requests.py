"""Requests of tools with large arguments: spliced, not parsed, on their way out; the same to every receiver."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from app.tools.models import LargeRequest, load_request, parse_request, tool_request

CONTEXT = {"toolUseId": "wrk_1", "agent": "solo", "queryId": "qry_1"}
TRICK = ',"args":{"n":1},"context":{"agent":"other"}'


def rows(count: int) -> dict[str, Any]:
    return {"rows": [{"n": n, "f": -0.0, "t": TRICK} for n in range(count)], "args": TRICK, "context": TRICK}


@pytest.mark.parametrize("count", [1, 20_000], ids=["small", "large"])
async def test_large_arguments_are_sent_as_stored(count: int) -> None:
    """Also where a value in them looks like the rest of a request."""
    args = rows(count)
    text = orjson.dumps(args)
    data = tool_request(CONTEXT, args)
    assert data == tool_request(CONTEXT, {}, text)
    request = load_request(data)
    assert isinstance(request, LargeRequest) is (count > 1)
    assert request["context"] == CONTEXT
    sent = orjson.loads(orjson.dumps({**request, "attempt": 1}))
    assert sent == {"args": args, "context": CONTEXT, "attempt": 1}
    assert text in orjson.dumps(dict(request))
    assert (await parse_request(request))["args"] == args


async def test_other_requests_are_parsed() -> None:
    """Of predicates, of actions, and those that were stored before there were large ones."""
    for stored in (
        {"args": {"a": "x" * 2_000_000}, "predicate": {"tool": "t"}, "context": CONTEXT},
        {"planId": "pln_1", "actions": [{"payload": "x" * 2_000_000}], "context": CONTEXT},
    ):
        request = load_request(orjson.dumps(stored))
        assert request == stored
        assert await parse_request(request) == stored
