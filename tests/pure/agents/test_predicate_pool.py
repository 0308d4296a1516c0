"""Predicates as data: what may take long is evaluated in a process of its own, with the same answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from app.base.json.process_pool import JsonProcessPool
from app.runtimes.predicate_pool import PredicatePool
from tests.support.callbacks import measured_callbacks
from tests.support.json_processes import note_functions

MANY = [{"id": n, "name": f"item {n}"} for n in range(30_000)]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The functions that processes ran."""
    return note_functions(monkeypatch)


@pytest.mark.parametrize(
    ("expression", "args", "required", "processes"),
    [
        ("args.n > 3", {"n": 5}, True, 0),
        ("args.n > 3", {"n": 2}, False, 0),
        ("args.rows[0].id > 3", {"rows": MANY}, False, 1),
        ("size(args.rows) > 20000", {"rows": MANY}, True, 1),
        ("args.nothing.here", {"rows": MANY}, True, 1),  # an error asks a person
        ("args.a.all(x, args.a.all(y, x != y))", {"a": [1] * 100}, False, 1),
        ("args.rows.all(x, x.id >= 0) && args.rows.all(x, x.id >= 0)", {"rows": MANY}, True, 0),  # too costly
    ],
)
async def test_an_evaluation_gives_the_same_wherever_it_runs(
    started: list[str], expression: str, args: Mapping[str, Any], required: bool, processes: int
) -> None:
    assert await PredicatePool(JsonProcessPool()).requires_approval(expression, args, {}) is required
    assert started == ["evaluate_text"] * processes


async def test_large_arguments_are_not_read_on_the_loop() -> None:
    pool = PredicatePool(JsonProcessPool())
    with measured_callbacks() as found:
        assert not await pool.requires_approval("size(args.rows) > 1000000", {"rows": MANY * 3}, {})
    assert found.over(0.1) == []


async def test_what_takes_too_much_memory_asks_a_person() -> None:
    pool = PredicatePool(JsonProcessPool(max_bytes=1))
    assert await pool.requires_approval("size(args.rows) > 1000000", {"rows": MANY}, {})
