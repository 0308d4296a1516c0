"""Where a validation problem is, in the caller's words."""

from __future__ import annotations

import pytest

from app.doors.errors import message, pointer


@pytest.mark.parametrize(
    ("loc", "wanted"),
    [
        (("body",), ""),
        (("body", "a", 0, "b"), "/a/0/b"),
        (("body", "a/b", "c~d"), "/a~1b/c~0d"),
        (("query", "limit"), "query:limit"),
        (("path", "index"), "path:index"),
    ],
)
def test_a_pointer_into_the_body_or_the_name_of_a_parameter(loc: tuple[int | str, ...], wanted: str) -> None:
    assert pointer(loc) == wanted


def test_messages_are_short() -> None:
    assert message({"type": "extra_forbidden", "msg": "x"}) == "unknown field"
    assert message({"type": "missing", "msg": "x"}) == "required"
    assert len(message({"type": "other", "msg": "x" * 1000})) == 500
