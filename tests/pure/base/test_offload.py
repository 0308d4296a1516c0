"""Where `offload` runs a function."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from app.base.json.limits import LIMITS
from app.base.json.offload import is_small, loads, offload


def thread_of(*_: Any) -> int:
    return threading.get_ident()


@pytest.mark.parametrize(
    ("body", "small"),
    [
        (b"x" * LIMITS.inline_bytes, True),
        (b"x" * (LIMITS.inline_bytes + 1), False),
        ({"a": [1, 2, "x" * 1000], "b": None}, True),
        ("x" * 100_000, False),
        (list(range(2_000)), False),
        ([["x"] * 90 for _ in range(90)], False),
        (7.5, True),
    ],
)
async def test_large_bodies_are_worked_on_in_a_thread(body: Any, small: bool) -> None:
    assert is_small(body) is small
    assert (await offload(thread_of, body) == threading.get_ident()) is small
    assert (await offload(thread_of, b"", body) == threading.get_ident()) is small


async def test_a_known_size_decides() -> None:
    assert await offload(thread_of, size=LIMITS.inline_bytes) == threading.get_ident()
    assert await offload(thread_of, b"", size=LIMITS.inline_bytes + 1) != threading.get_ident()


async def test_errors_are_returned_from_the_process() -> None:
    for body in (b"{", b"{" + b" " * LIMITS.inline_bytes):
        with pytest.raises(ValueError):
            await offload(loads, body)
