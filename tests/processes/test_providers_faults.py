"""Faults within a turn, against a server that sends scripted bytes."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from app.base.egress_policy import EgressPolicy
from app.llm.client import ModelBounds, ModelTraffic, egress_client
from app.llm.messages import (
    Text,
    TextDelta,
    Usage,
)
from app.llm.provider import (
    BrokenTurn,
    ContextOverflow,
    NotAuthorized,
    Overloaded,
    ProviderFault,
    RateLimited,
    RequestRejected,
    ServerFault,
    Unreachable,
)
from tests.processes.aimock.vendor_server import (
    CLAUDES,
    KEY,
    O_DONE,
    VENDORS,
    Answer,
    VendorServer,
    a_block,
    a_end,
    a_start,
    a_text,
    a_tool,
    calling,
    o_call,
    o_chunk,
    parts_of,
    provider_for,
    refusal,
    request,
    sse,
    turn_of,
    whole,
)


@pytest.fixture
async def server() -> AsyncIterator[VendorServer]:
    running = VendorServer()
    await running.start()
    yield running
    await running.stop()


# --- Turns that do not ---


@pytest.mark.parametrize("kind", VENDORS)
@pytest.mark.parametrize("end", ["whole", "cut", "reset"])
async def test_a_truncated_stream_is_not_a_turn(kind: str, end: str, server: VendorServer) -> None:
    """Wherever it is cut, before the event that ends the turn, with whatever the connection does then."""
    for events in (whole(kind), calling(kind, '{"a": 1}')):
        last = next(
            i for i, event in enumerate(events) if "message_stop" in event or '"finish_reason": "' in event
        )
        for cut in range(last + 1):
            server.answers = [Answer(events[:cut], end=end)]
            with pytest.raises(BrokenTurn if end == "whole" else Unreachable) as fault:
                await parts_of(provider_for(kind, server))
            assert fault.value.retryable


@pytest.mark.parametrize("kind", CLAUDES)
async def test_anthropic_reports_the_usage_of_a_failed_attempt(kind: str, server: VendorServer) -> None:
    server.answers = [Answer([a_start(), *a_text(0, "x")])]
    with pytest.raises(BrokenTurn) as fault:
        await parts_of(provider_for(kind, server))
    assert fault.value.usage == Usage(10, 1)


BROKEN_CHUNKS = [
    'event: content_block_delta\ndata: {"type": "content_bl\n\n',
    "event: content_block_delta\ndata: 17\n\n",
    'event: content_block_delta\ndata: {"index": 0}\n\n',
    sse("content_block_delta", index=0, delta={"type": "text_delta", "text": 5}),
    sse("content_block_delta", index=0, delta={"type": "text_delta"}),
    sse("content_block_delta", index=9, delta={"type": "text_delta", "text": "x"}),
    sse("content_block_start", index=0, content_block={"type": "text"}),
    sse("message_start"),
    "event: message_delta\ndata: " + "[" * 100_000 + "\n\n",
]


@pytest.mark.parametrize(
    ("kind", "chunk"),
    [
        *((kind, chunk) for kind in CLAUDES for chunk in BROKEN_CHUNKS),
        ("openai", 'data: {"choices": [\n\n'),
        ("openai", "data: 17\n\n"),
        ("openai", 'data: {"choices": {}}\n\n'),
        ("openai", 'data: {"choices": [{"index": 0, "delta": {"content": {"a": 1}}}]}\n\n'),
        ("openai", "data: " + "[" * 100_000 + "\n\n"),
    ],
)
async def test_a_malformed_chunk_breaks_the_turn(kind: str, chunk: str, server: VendorServer) -> None:
    opening = [a_start(), *a_text(0, "x")[:2]] if kind in CLAUDES else [o_chunk({"content": "x"})]
    ending = a_end() if kind in CLAUDES else [o_chunk({}, "stop"), O_DONE]
    server.answers = [Answer([*opening, chunk, *ending])]
    with pytest.raises(BrokenTurn):
        await parts_of(provider_for(kind, server))


@pytest.mark.parametrize(
    ("events", "fault", "says"),
    [
        ([a_start(), *a_text(0, "x"), *a_end(None)], BrokenTurn, "in the middle"),
        ([a_start(), *a_text(0, "x"), *a_end("bored")], BrokenTurn, "bored"),
        ([*a_text(0, "x"), *a_end()], BrokenTurn, "in the middle"),
        ([a_start(), *a_tool(0, "t", "first", stop=False), *a_end("tool_use")], BrokenTurn, "of a block"),
        ([a_start(), *a_tool(0, "", "first"), *a_end("tool_use")], BrokenTurn, "without its id"),
        ([a_start(), *a_end("pause_turn")], RequestRejected, "not supported"),
        ([a_start(), *a_block(0, {"type": "server_tool_use"})], RequestRejected, "server_tool_use"),
        ([a_start(), *a_end("model_context_window_exceeded")], ContextOverflow, "window"),
    ],
)
@pytest.mark.parametrize("kind", CLAUDES)
async def test_unusable_anthropic_turns_are_errors(
    kind: str, events: list[str], fault: type[ProviderFault], says: str, server: VendorServer
) -> None:
    server.answers = [Answer(events)]
    with pytest.raises(fault, match=says):
        await parts_of(provider_for(kind, server))


@pytest.mark.parametrize(
    ("events", "fault", "says"),
    [
        ([o_chunk({"content": "x"}, "bored")], BrokenTurn, "bored"),
        ([o_call(0, "t", None, "{}"), o_chunk({}, "tool_calls")], BrokenTurn, "without a name"),
        ([o_chunk({"function_call": {"name": "first", "arguments": "{}"}})], RequestRejected, "tool_calls"),
        ([o_chunk({"content": "x"}, "stop"), o_call(0, "t", "first", "{}")], BrokenTurn, "after its end"),
        ([json.dumps({"choices": [{"message": {"content": "no stream"}}]})], BrokenTurn, "in the middle"),
    ],
)
async def test_unusable_openai_turns_are_errors(
    events: list[str], fault: type[ProviderFault], says: str, server: VendorServer
) -> None:
    server.answers = [Answer(events)]
    with pytest.raises(fault, match=says):
        await parts_of(provider_for("openai", server))


CLAUDES_ERRORS: list[tuple[dict[str, Any], type[ProviderFault]]] = [
    ({"type": "overloaded_error", "message": "Overloaded"}, Overloaded),
    ({"type": "api_error", "message": "Internal"}, ServerFault),
    ({"type": "rate_limit_error", "message": "too many tokens a minute"}, RateLimited),
    ({"type": "timeout_error", "message": "late"}, Unreachable),
    ({"type": "authentication_error", "message": "key"}, NotAuthorized),
    ({"type": "invalid_request_error", "message": "bad"}, RequestRejected),
    ({"type": "never_heard_of", "message": "?"}, ServerFault),
]


@pytest.mark.parametrize(
    ("kind", "error", "fault"),
    [
        *((kind, error, fault) for kind in CLAUDES for error, fault in CLAUDES_ERRORS),
        ("openai", {"type": "server_error", "message": "The server had an error"}, ServerFault),
        ("openai", {"code": 503, "message": "No capacity"}, Overloaded),
        ("openai", {"code": "rate_limit_exceeded", "message": "Slow down"}, RateLimited),
        ("openai", {"code": "context_length_exceeded", "message": "long"}, ContextOverflow),
        ("openai", {"message": "?"}, ServerFault),
    ],
)
async def test_an_error_inside_a_stream_ends_the_turn(
    kind: str, error: dict[str, Any], fault: type[ProviderFault], server: VendorServer
) -> None:
    if kind in CLAUDES:
        events = [a_start(), *a_text(0, "x"), sse("error", error=error), *a_end()]
    else:
        events = [o_chunk({"content": "x"}), f"data: {json.dumps({'error': error})}\n\n", O_DONE]
    server.answers = [Answer(events)]
    with pytest.raises(fault) as raised:
        await parts_of(provider_for(kind, server))
    assert type(raised.value) is fault
    assert str(error["message"]) in raised.value.message


# --- Answers that are no stream ---


@pytest.mark.parametrize("kind", VENDORS)
@pytest.mark.parametrize(
    ("status", "error", "fault"),
    [
        (400, {"type": "invalid_request_error", "message": "tools.0: bad"}, RequestRejected),
        (400, {"message": "prompt is too long: 210000 tokens > 200000 maximum"}, ContextOverflow),
        (400, {"message": "This model's maximum context length is 8192 tokens."}, ContextOverflow),
        (400, {"message": "input length and `max_tokens` exceed context limit"}, ContextOverflow),
        (400, {"message": "request (43 tokens) exceeds the available context size"}, ContextOverflow),
        (400, {"message": "The input token count (12) exceeds the maximum"}, ContextOverflow),
        (401, {"type": "authentication_error", "message": "invalid key"}, NotAuthorized),
        (402, {"type": "billing_error", "message": "pay"}, RequestRejected),
        (403, {"type": "permission_error", "message": "no"}, NotAuthorized),
        (404, {"type": "not_found_error", "message": "model: nope"}, RequestRejected),
        (413, {"type": "request_too_large", "message": "too large"}, RequestRejected),
        (418, {"message": "teapot"}, RequestRejected),
        (422, {"message": "no"}, RequestRejected),
        (429, {"type": "rate_limit_error", "message": "too many tokens"}, RateLimited),
        (
            429,
            {"code": "insufficient_quota", "details": {"error_code": "enforced_spend_limit_reached"}},
            RequestRejected,
        ),
        (500, {"type": "api_error", "message": "Internal"}, ServerFault),
        (502, "<html>Bad gateway</html>", ServerFault),
        (503, {"message": "no capacity"}, Overloaded),
        (529, {"type": "overloaded_error", "message": "Overloaded"}, Overloaded),
        (599, "", ServerFault),
    ],
)
async def test_an_error_response_has_its_code(
    kind: str, status: int, error: Any, fault: type[ProviderFault], server: VendorServer
) -> None:
    body = error if isinstance(error, str) else {"type": "error", "error": error}
    server.answers = [refusal(status, body)]
    with pytest.raises(fault) as raised:
        await parts_of(provider_for(kind, server))
    assert type(raised.value) is fault
    assert len(server.seen) == 1, "an adapter makes one attempt"
    assert KEY not in raised.value.message


IN_AN_HOUR = "in an hour, as a date"


@pytest.mark.parametrize("kind", VENDORS)
async def test_a_redirect_is_not_followed(kind: str, server: VendorServer) -> None:
    for status in (301, 307):
        server.answers = [refusal(status, "", location=f"{server.url}/elsewhere")]
        with pytest.raises(RequestRejected, match="redirects"):
            await parts_of(provider_for(kind, server))
    assert len(server.seen) == 2


@pytest.mark.parametrize("kind", VENDORS)
@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        ({"retry-after": "7"}, 7, 7),
        ({"retry-after": "0.5"}, 0.5, 0.5),
        ({"retry-after": "7", "retry-after-ms": "1500"}, 1.5, 1.5),
        ({"retry-after": IN_AN_HOUR}, 3500, 3601),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0, 0),
        ({"retry-after": "soon"}, None, None),
        ({"retry-after": "-3"}, None, None),
        ({"retry-after": "nan"}, None, None),
        ({}, None, None),
    ],
)
async def test_retry_after_of_the_vendor_is_reported(
    kind: str, headers: dict[str, str], least: float | None, most: float | None, server: VendorServer
) -> None:
    if headers.get("retry-after") == IN_AN_HOUR:
        headers = {"retry-after": format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)}
    server.answers = [refusal(429, {"error": {"type": "rate_limit_error", "message": "slow"}}, **headers)]
    with pytest.raises(RateLimited) as fault:
        await parts_of(provider_for(kind, server))
    wait = fault.value.retry_after_s
    if least is None or most is None:
        assert wait is None
    else:
        assert wait is not None
        assert least <= wait <= most


# --- Connections ---


@pytest.mark.parametrize("kind", VENDORS)
async def test_silence_is_unreachable(kind: str, server: VendorServer) -> None:
    for events in ([], whole(kind)[:2]):
        server.answers = [Answer(events, end="hang")]
        began = time.monotonic()
        with pytest.raises(Unreachable, match="sent nothing for too long"):
            await parts_of(provider_for(kind, server, idleTimeoutS=0.3))
        assert time.monotonic() - began < 5


@pytest.mark.parametrize("kind", VENDORS)
async def test_an_open_connection_does_not_delay_the_turn(kind: str, server: VendorServer) -> None:
    server.answers = [Answer(whole(kind), end="hang")]
    began = time.monotonic()
    assert (await turn_of(provider_for(kind, server))).blocks == (Text("Hello there"),)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("kind", VENDORS)
async def test_a_refused_connection_is_reported(kind: str, server: VendorServer) -> None:
    await server.stop()
    with pytest.raises(Unreachable):
        await parts_of(provider_for(kind, server))


@pytest.mark.parametrize("kind", VENDORS)
async def test_cancelling_closes_the_connection(kind: str, server: VendorServer) -> None:
    server.answers = [Answer(whole(kind)[:3], end="hang")]
    provider = provider_for(kind, server)
    task = asyncio.create_task(parts_of(provider))
    await asyncio.wait_for(server.asked.wait(), 5)
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(server.gone.wait(), 5)


@pytest.mark.parametrize("kind", VENDORS)
async def test_leaving_the_iteration_closes_the_connection(kind: str, server: VendorServer) -> None:
    server.answers = [Answer(whole(kind)[:3], end="hang")]
    provider = provider_for(kind, server)
    async with aclosing(provider.stream(request())) as stream:
        first = await anext(stream)
        assert isinstance(first, TextDelta)
        assert first.text.startswith("Hello")
    await asyncio.wait_for(server.gone.wait(), 5)
    await provider.aclose()
    gc.collect()


# --- Behind the checked transport ---


@pytest.mark.parametrize("kind", VENDORS)
async def test_a_forbidden_address_is_rejected_with_the_reason(kind: str, server: VendorServer) -> None:
    async with egress_client(EgressPolicy(), ModelTraffic()) as client:
        provider = provider_for(kind, server, http_client=client)
        with pytest.raises(RequestRejected, match=r"loopback.*PLANGATE_ALLOW_HOSTS"):
            await parts_of(provider)
        assert not client.is_closed
    assert not server.seen


@pytest.mark.parametrize("kind", VENDORS)
async def test_an_allowed_host_answers_through_the_checked_transport(kind: str, server: VendorServer) -> None:
    server.answers = [Answer(whole(kind))]
    policy = EgressPolicy.from_hosts([f"127.0.0.1:{server.port}"])
    async with egress_client(policy, ModelTraffic()) as client:
        provider = provider_for(kind, server, http_client=client)
        assert (await turn_of(provider)).blocks == (Text("Hello there"),)


@pytest.mark.parametrize("kind", VENDORS)
async def test_an_endless_answer_is_stopped(kind: str, server: VendorServer) -> None:
    server.answers = [Answer([*whole(kind)[:2], *[": more\n" * 100] * 100])]
    policy = EgressPolicy.from_hosts(["127.0.0.1"])
    traffic = ModelTraffic(ModelBounds(line_bytes=9_000, bytes_per_token=100))
    async with egress_client(policy, traffic) as client:
        provider = provider_for(kind, server, http_client=client)
        with pytest.raises(RequestRejected, match="more than 10000 bytes"):
            await parts_of(provider, request(max_output_tokens=10))
