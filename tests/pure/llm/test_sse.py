"""Server-sent events: independent of chunk boundaries, and bounded."""

from __future__ import annotations

import random
import time

import pytest

from app.llm.provider import TooMuchSent
from app.llm.sse import SseEvent, SseReader

LIMIT = 1000


def read(*chunks: bytes) -> list[SseEvent]:
    reader = SseReader(LIMIT)
    return [event for chunk in chunks for event in reader.feed(chunk)]


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_events_are_the_same_wherever_the_bytes_are_cut(end: str) -> None:
    lines = [
        ": a comment", "event: first", "data: {", "data:é }", "", "", "data", "", "id: 7", "retry: 9", "",
        "event: empty", "", "other: x", "data:  two blanks", "event", "", "data: cut",
    ]  # fmt: skip
    data = ("\N{ZERO WIDTH NO-BREAK SPACE}" + end.join(lines) + end).encode()
    whole = read(data)
    assert whole == [
        SseEvent("first", "{\né }"),
        SseEvent(None, ""),
        SseEvent("empty", ""),
        SseEvent(None, " two blanks"),
    ]
    chance = random.Random(3)
    for _ in range(300):
        cuts = sorted(chance.randrange(len(data)) for _ in range(chance.randrange(20)))
        assert read(*(data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True))) == whole


@pytest.mark.parametrize("begin", [b"data: ", b": ", b"", b"event: "])
def test_a_line_is_bounded_before_its_end(begin: bytes) -> None:
    whole = begin + b"x" * (LIMIT - len(begin))
    read(whole + b"\n")
    for chunks in ([whole + b"x"], [whole, b"x"], [b"y"] * (LIMIT + 1), [whole + b"x\n\n"]):
        with pytest.raises(TooMuchSent, match="a line of more than 1000 bytes") as much:
            read(*chunks)
        assert much.value.bound == "line"


def test_an_event_of_many_lines_is_bounded() -> None:
    read(b"data: 345\n" * 100 + b"\n")
    with pytest.raises(TooMuchSent, match="an event of more than 1000 bytes"):
        read(b"data: 345\n" * 100, b"data:\n" * 21)


def test_many_events_of_the_largest_size_are_read() -> None:
    event = b"data: " + b"x" * (LIMIT - 6) + b"\n\n"
    assert len(read(event * 100)) == 100


def test_the_cost_of_lines_without_an_event_is_linear() -> None:
    """The SDK's decoder copies what it has of an event with every line, which is quadratic."""
    reader = SseReader(1024 * 1024)
    began = time.process_time()
    for _ in range(32):
        assert not list(reader.feed(b":\n" * 32 * 1024))
    assert time.process_time() - began < 20
