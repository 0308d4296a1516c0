"""Pointers of validation errors use the caller's names."""

from __future__ import annotations

import pytest
from plangate.spec import bounds

from app.api.errors import field_message, field_pointer
from app.base.errors import MAX_LISTED_ERRORS, MAX_MESSAGE_CHARS, MAX_POINTER_CHARS, FieldError, list_errors


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
    assert field_pointer(loc) == wanted


def test_messages_say_what_is_wrong() -> None:
    assert field_message({"type": "extra_forbidden", "msg": "x"}) == "unknown field"
    assert field_message({"type": "missing", "msg": "x"}) == "required"
    assert field_message({"type": "other", "msg": "x"}) == "x"


@pytest.mark.parametrize(
    ("count", "more"), [(0, False), (MAX_LISTED_ERRORS, False), (MAX_LISTED_ERRORS + 1, True)]
)
def test_the_first_errors_are_listed_and_whether_there_are_more(count: int, more: bool) -> None:
    listed = list_errors(FieldError(f"/{n}", "no") for n in range(count))
    assert listed["hasMoreErrors"] is more
    assert [error["pointer"] for error in listed["errors"]] == [
        f"/{n}" for n in range(min(count, MAX_LISTED_ERRORS))
    ]


def test_pointers_and_messages_are_cut() -> None:
    (error,) = list_errors([FieldError("/" + "x" * 100_000, "y" * 100_000)])["errors"]
    assert len(error["pointer"]) == MAX_POINTER_CHARS
    assert len(error["message"]) == MAX_MESSAGE_CHARS


def test_library_and_service_list_equally_many_errors() -> None:
    assert bounds.MAX_ERRORS == MAX_LISTED_ERRORS
