"""Reference values on their way to a dispatcher: spliced into JSON as stored, parsed for local functions."""

from __future__ import annotations

from app.base.json import strict_json
from app.tools.models import ResolvedRefs, parse_request

STORED = {"Seats": {"r1": b'["1A",1.0,null]', "r2": b"{}"}}


def test_references_are_written_as_the_stored_bytes() -> None:
    refs = ResolvedRefs(STORED)
    assert (
        strict_json.dumps({"resolvedRefs": refs})
        == b'{"resolvedRefs":{"Seats":{"r1":["1A",1.0,null],"r2":{}}}}'
    )
    assert refs.size == len(STORED["Seats"]["r1"]) + 2


async def test_functions_in_this_process_get_values() -> None:
    request = {"planId": "pln_1", "resolvedRefs": ResolvedRefs(STORED)}
    assert await parse_request(request) == {
        "planId": "pln_1",
        "resolvedRefs": {"Seats": {"r1": ["1A", 1.0, None], "r2": {}}},
    }
    for plain in ({"args": {}}, {"resolvedRefs": ResolvedRefs({})}):
        assert await parse_request(plain) is plain
