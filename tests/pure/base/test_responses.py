"""Responses built from rows: fields that a model takes, and errors."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import Enum
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from pydantic import Field, JsonValue

from app.base.responses import View, to_wire


class Status(Enum):
    OPEN = "open"


class Part(View):
    part_name: str


class Whole(View):
    id: str
    digest: str
    status: str
    made_at: datetime
    ended_at: datetime | None
    result: JsonValue
    parts: list[Part]
    from_: str = Field(alias="from")
    note: str | None = None


class Total(View):
    id: str
    part: Part


ROW: dict[str, Any] = {
    "id": "a",
    "digest": b"\x00\xff",
    "status": Status.OPEN,
    "made_at": datetime(2026, 11, 23, tzinfo=UTC),
    "ended_at": None,
    "result": b'{"n": 1.0}',
    "parts": [{"partName": "x"}, SimpleNamespace(part_name="y")],
    "not_in_the_model": 1,
}


def test_fields_come_from_the_columns_of_their_names() -> None:
    shown = to_wire(Whole, ROW, from_="b")
    assert orjson.dumps(shown) == (
        b'{"id":"a","digest":"00ff","status":"open","madeAt":"2026-11-23T00:00:00.000Z","endedAt":null,'
        b'"result":{"n": 1.0},"parts":[{"partName":"x"},{"partName":"y"}],"from":"b"}'
    )
    assert to_wire(Whole, SimpleNamespace(**ROW, note="c"), from_="b")["note"] == "c"


def test_a_model_in_a_model_comes_from_the_same_row_if_there_is_no_such_column() -> None:
    assert to_wire(Total, {"id": "a", "part_name": "x"}) == {"id": "a", "part": {"partName": "x"}}


def test_a_required_field_without_a_value_is_an_error() -> None:
    with pytest.raises(LookupError, match=r"Whole\.from_ has no value"):
        to_wire(Whole, ROW)
