"""The events of queries that a process keeps in memory."""

from __future__ import annotations

import asyncio

import pytest

from app.journal import hub as hubs
from app.journal.hub import Hub, Watcher
from app.journal.models import Event

QUERY = ("acme", "qry_1")


def event(number: int) -> Event:
    return Event("text.delta", b'{"n": %d}' % number)


def bodies(hub: Hub) -> list[bytes] | None:
    """Return what a new reader finds in memory."""
    watcher = Watcher()
    feed = hub.subscribe(QUERY, watcher)
    page = feed.after(0)
    hub.unsubscribe(QUERY, feed, watcher)
    return None if page is None else [found.body for found in page.events if not isinstance(found, tuple)]


async def test_the_first_events_of_a_query_are_kept_until_its_first_reader_leaves() -> None:
    hub = Hub()
    hub.hold_first_events(QUERY, [event(1)])
    hub.publish(QUERY, 2, [event(2)])
    assert hub.awaited_events(hub.watched_queries()) == {}
    assert hub.awaited_events(hub.watched_queries()) == {}, "quiet for a while"
    assert bodies(hub) == [event(1).body, event(2).body]
    assert hub.watched_queries() == []
    assert bodies(hub) is None


async def test_events_that_nobody_reads_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "FIRST_READER_WAIT_S", 0.01)
    hub = Hub()
    hub.hold_first_events(QUERY, [event(1)])
    await asyncio.sleep(0.05)
    assert hub.watched_queries() == []
    hub.hold_first_events(QUERY, [event(1)])
    reader = Watcher()
    feed = hub.subscribe(QUERY, reader)
    await asyncio.sleep(0.05)
    assert hub.watched_queries() == [QUERY], "it has a reader"
    hub.unsubscribe(QUERY, feed, reader)
    assert hub.watched_queries() == []


async def test_a_feed_is_not_referenced_by_its_timer_after_its_reader_left() -> None:
    hub = Hub()
    hub.hold_first_events(QUERY, [event(1)])
    reader = Watcher()
    feed = hub.subscribe(QUERY, reader)
    timer = feed.hold
    assert timer is not None
    hub.unsubscribe(QUERY, feed, reader)
    assert timer.cancelled()
