"""Adjacent deltas of one turn become one event; the order does not change."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.events import CustomEvent, TextEvent
from app.journal.hub import MAX_RING_BYTES, QueryFeed
from app.journal.models import (
    HEAD_BYTES,
    LARGE_EVENT_BYTES,
    Delta,
    Event,
    LargeEvent,
    Page,
    Scope,
    StoredEvent,
    Work,
    event,
)
from app.journal.store import merge_records
from app.journal.writer import merge_deltas

SCOPES = [Scope("qry_1", "thr_1", f"wrk_{n}", None, "a") for n in range(2)]
DELTAS = st.builds(
    Delta,
    st.sampled_from(["text", "reasoning"]),
    st.sampled_from(SCOPES),
    st.integers(1, 2),
    st.text(max_size=4),
)
EVENTS = st.builds(lambda n: event(SCOPES[0], CustomEvent, event_type="n", data=n), st.integers(0, 9))


def read(item: Event) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(item.body)
    return found


@given(st.lists(DELTAS | EVENTS, max_size=30))
def test_adjacent_deltas_are_merged_in_order(items: list[Event | Delta]) -> None:
    def key(item: Event | Delta) -> Any:
        return id(item) if isinstance(item, Event) else (item.type, item.scope, item.turn)

    wanted = [list(run) for _, run in groupby(items, key)]
    got = merge_deltas(items)
    assert len(got) == len(wanted)
    for one, run in zip(got, wanted, strict=True):
        if isinstance(run[0], Event):
            assert one is run[0]
            continue
        told = read(one)
        assert told["text"] == "".join(d.text for d in run if isinstance(d, Delta))
        assert (told["type"], told["turn"], told["workId"]) == (
            run[0].type,
            run[0].turn,
            run[0].scope.work_id,
        )


def test_an_event_is_always_one_line() -> None:
    body = event(SCOPES[0], TextEvent, turn=1, text="a\nb\rc\u2028d\x85").body
    assert b"\n" not in body
    assert b"\r" not in body
    assert StoredEvent(7, "text", body).envelope().startswith(b'{"seq":7,"type":"text"')


def test_updates_of_one_record_are_merged() -> None:
    opened = Work("w", "p", "tool_call", "n", "a", "running", model="m", input=b"in")
    closed = Work("w", "p", "tool_call", "n", "a", "succeeded", output=b"out")
    (merged,) = merge_records([opened, closed])
    assert (merged.status, merged.input, merged.output, merged.model) == ("succeeded", b"in", b"out", "m")


def numbered(first: int, count: int, size: int = 10) -> Page:
    return Page([StoredEvent(first + n, "text", b"x" * size) for n in range(count)], complete=True)


def filled(channel: QueryFeed, first: int, count: int, size: int = 10) -> None:
    channel.add(first, [Event("text", b"x" * size)] * count)


def test_a_channel_returns_later_events_or_reports_a_gap() -> None:
    channel = QueryFeed()
    assert channel.after(0) is None
    filled(channel, 3, 4)
    assert channel.after(1) is None
    assert channel.after(2) == numbered(3, 4)
    assert channel.after(5) == numbered(6, 1)
    assert channel.after(6) == Page([], complete=True)
    assert channel.after(7) is None
    filled(channel, 9, 1)
    assert channel.after(6) is None, "somebody else wrote 7 and 8"
    assert channel.after(8) == numbered(9, 1)
    channel.clear()
    assert channel.after(9) is None, "somebody else may have written 10"


def test_a_channel_is_bounded() -> None:
    channel = QueryFeed()
    for n in range(100):
        filled(channel, 1 + n, 1, 10_000)
    sizes = [len(e.body) for e in channel.ring if isinstance(e, StoredEvent)]
    assert channel.size == sum(sizes) <= MAX_RING_BYTES
    assert channel.ring[-1].seq == 100


def test_a_channel_bounds_its_pages() -> None:
    channel = QueryFeed()
    filled(channel, 1, 10, 10_000)
    first = channel.after(0)
    assert first is not None
    assert ([e.seq for e in first.events], first.complete) == ([1, 2, 3], False)
    last = channel.after(8)
    assert last is not None
    assert ([e.seq for e in last.events], last.complete) == ([9, 10], True)


def test_a_channel_does_not_keep_large_events() -> None:
    channel = QueryFeed()
    filled(channel, 1, 1)
    filled(channel, 2, 1, LARGE_EVENT_BYTES + 1)
    large = LargeEvent(2, "text", LARGE_EVENT_BYTES + 1, b"x" * HEAD_BYTES)
    assert channel.after(1) == Page([large], complete=True)
    assert channel.size == 10
