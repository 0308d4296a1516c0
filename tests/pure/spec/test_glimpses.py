"""The neutral glimpse: its three forms, always valid JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plangate.spec.glimpses import glimpse
from pydantic import BaseModel, Field, RootModel


class Basket(BaseModel):
    total: Decimal
    made_at: datetime = Field(alias="madeAt")


class Size(Enum):
    BIG = "big"


@dataclass
class Line:
    name: str
    basket: Basket | None = None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": Decimal("1E+3"), 2: (1, 2)}, {"a": "1000", "2": [1, 2]}),
        ([1, 2, 3, 4], {"count": 4, "sample": [1, 2, 3]}),
        ((), {"count": 0, "sample": []}),
        (range(5), {"count": 5, "sample": [0, 1, 2]}),
        ({3, 1, 2}, {"count": 3, "sample": [1, 2, 3]}),
        ("text", {"value": "text"}),
        (b"ab", {"value": "b'ab'"}),
        (None, {"value": None}),
        (True, {"value": True}),
        (Decimal("0.10"), {"value": "0.10"}),
        (Decimal("1E-7"), {"value": "0.0000001"}),
        (float("nan"), {"value": "nan"}),
        (date(2026, 1, 2), {"value": "2026-01-02"}),
        (time(3, 4), {"value": "03:04:00"}),
        (Size.BIG, {"value": "big"}),
        (UUID(int=0), {"value": "00000000-0000-0000-0000-000000000000"}),
        (
            Basket(total=Decimal("2.50"), madeAt=datetime(2026, 1, 2, 3)),
            {"total": "2.50", "madeAt": "2026-01-02T03:00:00"},
        ),
        (Line("a"), {"name": "a", "basket": None}),
        (
            [Line("a", Basket(total=Decimal(1), madeAt=datetime(2026, 1, 2)))],
            {
                "count": 1,
                "sample": [{"name": "a", "basket": {"total": "1", "madeAt": "2026-01-02T00:00:00"}}],
            },
        ),
        (RootModel[list[int]]([5, 6]), {"count": 2, "sample": [5, 6]}),
        ({Size.BIG: 1, None: 2}, {"big": 1, "null": 2}),
    ],
)
def test_shapes(value: Any, expected: dict[str, Any]) -> None:
    assert glimpse(value) == expected


def test_max_items() -> None:
    assert glimpse([1, 2], max_items=0) == {"count": 2, "sample": []}
    assert glimpse([1, 2], max_items=9) == {"count": 2, "sample": [1, 2]}
    with pytest.raises(ValueError, match="max_items is -1; a sample cannot have fewer than 0 items"):
        glimpse([1], max_items=-1)


def test_a_recursive_value_is_rejected() -> None:
    knot: list[Any] = []
    knot.append(knot)
    with pytest.raises(ValueError, match="contains itself"):
        glimpse(knot)


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.decimals()
    | st.dates()
    | st.binary()
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10
)


@given(values, st.integers(0, 5))
def test_a_glimpse_is_json(value: Any, max_items: int) -> None:
    made = glimpse(value, max_items=max_items)
    assert json.loads(json.dumps(made, allow_nan=False)) == made
