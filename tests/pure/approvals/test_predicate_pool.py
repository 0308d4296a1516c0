"""Expensive CEL predicates are evaluated in a separate process, with the same result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from app.base.json.process_pool import JsonProcessPool, ProcessLimits
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
async def test_an_evaluation_is_the_same_in_process_and_pool(
    started: list[str], expression: str, args: Mapping[str, Any], required: bool, processes: int
) -> None:
    assert await PredicatePool(JsonProcessPool()).requires_approval(expression, args, {}) is required
    assert started == ["evaluate_text"] * processes


async def test_large_arguments_are_not_read_on_the_loop() -> None:
    pool = PredicatePool(JsonProcessPool())
    with measured_callbacks() as found:
        assert not await pool.requires_approval("size(args.rows) > 1000000", {"rows": MANY * 3}, {})
    assert found.over(0.1) == []


async def test_a_predicate_that_needs_too_much_memory_requires_approval() -> None:
    pool = PredicatePool(JsonProcessPool(ProcessLimits(memory_bytes=1)))
    assert await pool.requires_approval("size(args.rows) > 1000000", {"rows": MANY}, {})
