"""Large bodies are parsed with the garbage collector paused, because JSON has no cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from app.base.errors import Malformed
from app.base.json.limits import LIMITS
from app.base.json.parsing import Parser

BRACKETS = b"[" + b"[]," * LIMITS.inline_parse_bytes + b"[]]"


@pytest.fixture
def collections() -> Iterator[list[str]]:
    """The phases of the collections that begin from now on."""
    seen: list[str] = []

    def note(phase: str, _info: dict[str, int]) -> None:
        seen.append(phase)

    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)


async def test_garbage_collection_pauses_during_large_parses(collections: list[str]) -> None:
    parser = Parser()
    await parser.parse(b"[" + b"0," * LIMITS.inline_parse_bytes + b"0]")
    collections.clear()
    value = await parser.parse(BRACKETS)
    assert len(value) == LIMITS.inline_parse_bytes + 1  # type: ignore[arg-type]
    assert collections.count("start") <= 2  # those of the moment after
    assert gc.isenabled()


async def test_the_collector_runs_again_after_a_malformed_body() -> None:
    with pytest.raises(Malformed):
        await Parser().parse(BRACKETS[:-1])
    assert gc.isenabled()
