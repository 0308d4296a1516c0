"""Neutral glimpses that the service makes, truncated if too large."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plangate import glimpse as library_glimpse

from app.base.errors import Invalid
from app.references import glimpses
from app.references.glimpses import CUT, MAX_GLIMPSE_BYTES

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
)


@given(JSON)
def test_the_neutral_glimpse_equals_the_librarys(value: Any) -> None:
    assert glimpses.neutral_glimpse(value) == library_glimpse(value)


@given(JSON)
def test_fitting_values_are_not_truncated(value: Any) -> None:
    made = glimpses.neutral_glimpse(value)
    if len(json.dumps(made, ensure_ascii=False).encode()) <= MAX_GLIMPSE_BYTES // 2:
        assert json.loads(glimpses.fit_glimpse(made)) == made


def test_a_glimpse_of_the_most_bytes_is_not_cut() -> None:
    fits = {"text": "x" * (MAX_GLIMPSE_BYTES - len('{"text":""}'))}
    data = glimpses.fit_glimpse(fits)
    assert (len(data), json.loads(data)) == (MAX_GLIMPSE_BYTES, fits)
    more = json.loads(glimpses.fit_glimpse({"text": fits["text"] + "x"}))
    assert more == {"text": "x" * 300 + f"{CUT} (4086 characters)", CUT: "cut to 4096 bytes"}


def test_truncations_are_marked() -> None:
    value = {
        "name": "n" * 5000,
        "rows": [{"id": n, "deep": [[[n, n]]]} for n in range(1000)],
        "few": [1, 2],
        **{f"field {n}": n for n in range(40)},
    }
    made = json.loads(glimpses.fit_glimpse(glimpses.neutral_glimpse(value)))
    assert made["name"] == "n" * 300 + f"{CUT} (5000 characters)"
    assert made["rows"] == [*({"id": n, "deep": [f"{CUT} 1 items"]} for n in range(5)), f"{CUT} 995 more"]
    assert made["few"] == [1, 2]
    assert made[CUT] == "cut to 4096 bytes, 11 more fields"
    assert "field 28" in made
    assert "field 29" not in made


@pytest.mark.parametrize(
    "build_value",
    [
        lambda: "\u0001" * 100_000,
        lambda: "\N{PILE OF POO}" * 100_000,
        lambda: '"\\' * 100_000,
        lambda: ["\u0001" * 4000] * 10,
        lambda: {"\u0001" * 500 + str(n): {"\u0001" * 500: ["\u0001" * 500]} for n in range(100)},
        lambda: {str(n): n for n in range(1_000_000)},
        lambda: [[[[[["x" * 50] * 100] * 100] * 100]]],
    ],
    ids=["escapes", "wide", "quotes", "sample", "keys", "many fields", "deep"],
)
def test_any_value_has_a_glimpse_that_fits(build_value: Callable[[], Any]) -> None:
    data = glimpses.fit_glimpse(glimpses.neutral_glimpse(build_value()))
    assert len(data) <= MAX_GLIMPSE_BYTES
    assert json.loads(data)[CUT].startswith("cut to 4096 bytes")


def test_fields_with_equal_truncated_names_are_counted() -> None:
    rows = {"k" * 400 + str(n): n for n in range(10, 30)}
    made = json.loads(glimpses.fit_glimpse(rows))
    assert list(made.values()) == [29, "cut to 4096 bytes, 19 more fields"]
    inner = json.loads(glimpses.fit_glimpse({"rows": rows}))["rows"]
    assert list(inner.values()) == [29, "19 more"]


def test_a_callers_large_glimpse_is_rejected() -> None:
    assert glimpses.check_glimpse({"n": 1}) == b'{"n":1}'
    with pytest.raises(Invalid, match=r"^A glimpse has at most 4096 bytes of JSON; this one has 4097\.$"):
        glimpses.check_glimpse("x" * 4095)


def test_a_failing_glimpse_says_why() -> None:
    assert glimpses.declared_glimpse({"count": "length(rows)"}, {"rows": [1, 2]}) == {"count": 2}
    with pytest.raises(
        Invalid, match=r"^The declared glimpse of this kind cannot be computed from this value: "
    ):
        glimpses.declared_glimpse({"count": "length(rows)"}, {"rows": 5})
