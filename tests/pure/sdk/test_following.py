"""Following a query over lost connections: every event once, in order, and the query started once."""

from __future__ import annotations

from typing import Any

import plangate
import pytest
from plangate import define_runtime, define_specialist

from tests.pure.sdk.fake_service import FakeService, fake_service

SPEC = define_runtime("acme", [define_specialist("helper", "m-1", "You help.")])
START, FOLLOW = ("POST", "/queries/stream"), ("GET", "/queries/qry_1/stream")


def events(*numbers: int) -> list[dict[str, Any]]:
    kinds = {1: "query-status", 6: "finish"}
    return [{"seq": n, "type": kinds.get(n, "text"), "queryId": "qry_1"} for n in numbers]


async def followed(service: FakeService, **how: Any) -> list[int]:
    async with service.runtime(SPEC) as runtime:
        asked = {"prompt": "Hi", "thread_id": "t", **how}
        return [event["seq"] async for event in runtime.query(**asked)]


async def test_a_lost_connection_is_resumed() -> None:
    async with fake_service() as service:
        service.streams = {START: [events(1, 2)], FOLLOW: [[], events(3, 4), events(5, 6)]}
        assert await followed(service) == [1, 2, 3, 4, 5, 6]
        assert len(service.bodies(*START)) == 1
        cursors = [headers.get("last-event-id") for headers in service.headers(*FOLLOW)]
        assert cursors == ["cursor-2", "cursor-2", "cursor-4"]


async def test_repeated_events_are_dropped() -> None:
    async with fake_service() as service:
        service.streams = {START: [events(1, 2, 3)], FOLLOW: [events(2, 3, 4), events(1, 2, 3, 4, 5, 6)]}
        assert await followed(service) == [1, 2, 3, 4, 5, 6]


async def test_a_gap_is_read_again() -> None:
    async with fake_service() as service:
        service.streams = {START: [events(1, 2)], FOLLOW: [events(4, 5, 6), events(3, 4, 5, 6)]}
        assert await followed(service) == [1, 2, 3, 4, 5, 6]


async def test_a_lost_start_response_starts_one_query() -> None:
    """The same key: the service gives the query that it has."""
    async with fake_service() as service:
        service.streams = {START: [[], [], events(1, 2, 3, 4, 5, 6)]}
        assert await followed(service) == [1, 2, 3, 4, 5, 6]
        keys = [headers["idempotency-key"] for headers in service.headers(*START)]
        assert len(keys) == 3
        assert len(set(keys)) == 1
        assert service.bodies(*START)[0] == service.bodies(*START)[2]


@pytest.mark.parametrize(
    ("resume", "expected"),
    [
        ("qry_1", [1, 2, 3, 4, 5, 6]),
        ({"queryId": "qry_1"}, [1, 2, 3, 4, 5, 6]),
        (events(4)[0], [5, 6]),
    ],
)
async def test_an_existing_query_is_followed(resume: Any, expected: list[int]) -> None:
    async with fake_service() as service:
        service.streams = {FOLLOW: [events(1, 2, 3), events(4, 5, 6)]}
        assert await followed(service, resume=resume) == expected
        assert service.bodies(*START) == []


async def test_a_rejection_ends_the_loop_at_once() -> None:
    async with fake_service() as service:
        detail = {"type": "conflict", "detail": "The thread has an active query."}
        service.answers[START] = lambda body: (409, detail)
        with pytest.raises(plangate.Conflict, match=r"The thread has an active query\. \(409 conflict\)"):
            await followed(service)
        assert len(service.bodies(*START)) == 1
