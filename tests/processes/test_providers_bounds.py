"""Providers that send too much, in every vendor's format: the turn ends."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import time
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

import pytest

from app.base.egress_policy import EgressPolicy, requests_of
from app.base.http11 import MAX_HEAD_BYTES
from app.base.metrics import Metrics
from app.llm.client import ModelBounds, ModelClient, ModelTraffic, egress_client, open_client
from app.llm.messages import Text, TextDelta
from app.llm.provider import BrokenTurn, ProviderFault, RequestRejected
from tests.processes.aimock.vendor_server import (
    CLAUDES,
    VENDORS,
    Answer,
    VendorServer,
    a_end,
    a_start,
    a_text,
    calling,
    framed_event,
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

SMALL = ModelBounds(line_bytes=20_000, bytes_per_token=1_000)  # 10 tokens: 30,000 bytes
TOO_LONG = r"more than 20000 bytes, which the service does not read \(PLANGATE_MODEL_LINE_BYTES\)"
TOO_MUCH = r"more than 30000 bytes, which the service does not read \(PLANGATE_MODEL_BYTES_PER_TOKEN\)"
CLIENTS = ("open", "checked")
ASKED = request(max_output_tokens=10)


@pytest.fixture
async def server() -> AsyncIterator[VendorServer]:
    running = VendorServer()
    await running.start()
    yield running
    await running.stop()


def client_of(name: str, traffic: ModelTraffic) -> ModelClient:
    return (
        open_client(traffic)
        if name == "open"
        else egress_client(EgressPolicy.from_hosts(["127.0.0.1"]), traffic)
    )


def traffic_of(**bounds: Any) -> ModelTraffic:
    return ModelTraffic(ModelBounds(**bounds), Metrics())


def opening(kind: str) -> list[str]:
    """The beginning of a turn, in which text may follow."""
    return [a_start(), *a_text(0, "x")[:2]] if kind in CLAUDES else [o_chunk({"content": "x"})]


def delta(kind: str, text: str) -> str:
    if kind in CLAUDES:
        return sse("content_block_delta", index=0, delta={"type": "text_delta", "text": text})
    return o_chunk({"content": text})


def frame_begin(length: int) -> bytes:
    lengths = length.to_bytes(4, "big") + (0).to_bytes(4, "big")
    return lengths + zlib.crc32(lengths).to_bytes(4, "big")


def faults(kind: str) -> dict[str, tuple[Iterable[str | bytes], str]]:
    """What is sent after the beginning of a turn, without an end, and which bound it meets."""
    long = b"data: " if kind != "bedrock" else frame_begin(20_001)
    found: dict[str, tuple[Iterable[str | bytes], str]] = {
        "a line or frame": (itertools.chain([long], itertools.repeat(b"x" * 1000)), TOO_LONG),
        "text": (itertools.repeat(delta(kind, "x" * 100)), TOO_MUCH),
        "events that say nothing": (
            itertools.repeat(sse("ping") if kind in CLAUDES else o_chunk(usage=None)),
            TOO_MUCH,
        ),
        "what is no event": (
            itertools.repeat(b":\n" if kind != "bedrock" else framed_event(": x")),
            TOO_MUCH,
        ),
        "blank lines": (itertools.repeat(b"\n\n" if kind != "bedrock" else framed_event("\n")), TOO_MUCH),
        "pieces of one byte": (
            itertools.chain(
                [b"data: " if kind != "bedrock" else frame_begin(19_000)], itertools.repeat(b"x")
            ),
            TOO_MUCH,
        ),
    }
    if kind != "bedrock":
        found["an event of many lines"] = (itertools.repeat(b"data: " + b"x" * 500 + b"\n"), TOO_LONG)
        found["a line of spaces"] = (itertools.repeat(b" " * 1000), TOO_LONG)
        found["a line that names the event"] = (
            itertools.chain([b"event: "], itertools.repeat(b"x" * 1000)),
            TOO_LONG,
        )
    return found


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(("kind", "fault"), [(kind, fault) for kind in VENDORS for fault in faults(kind)])
async def test_exceeding_any_bound_ends_the_turn(
    kind: str, fault: str, client: str, server: VendorServer
) -> None:
    sent, says = faults(kind)[fault]
    server.answers = [Answer(itertools.chain(opening(kind), sent))]  # type: ignore[arg-type]
    traffic = ModelTraffic(SMALL, Metrics())
    async with client_of(client, traffic) as http, asyncio.timeout(30):
        with pytest.raises(RequestRejected, match=says) as refused:
            await parts_of(provider_for(kind, server, http_client=http), ASKED)
        assert not refused.value.retryable
        await server.gone.wait()  # the connection is closed
    bound = "line" if says == TOO_LONG else "bytes"
    cut = traffic.metrics.registry.get_sample_value("plangate_model_streams_ended_total", {"bound": bound})
    assert cut == 1
    assert traffic.open_streams == 0


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("status", [400, 429, 500, 503])
@pytest.mark.parametrize("kind", VENDORS)
async def test_an_endless_error_is_not_read_to_its_end(
    kind: str, status: int, client: str, server: VendorServer
) -> None:
    headers = {"content-type": "application/json"}
    server.answers = [Answer(itertools.repeat(b"x" * 1000), status, headers)]  # type: ignore[arg-type]
    async with client_of(client, ModelTraffic(SMALL)) as http, asyncio.timeout(30):
        with pytest.raises(RequestRejected, match="more than 20000 bytes"):
            await parts_of(provider_for(kind, server, http_client=http), ASKED)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("kind", VENDORS)
async def test_endless_heads_are_not_read_to_their_end(kind: str, client: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            while True:
                writer.write(b"HTTP/1.1 100 \r\n\r\n" * 100)
                await writer.drain()
        except ConnectionError:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    server = VendorServer()
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with client_of(client, ModelTraffic()) as http, asyncio.timeout(30):
        with pytest.raises(RequestRejected, match=f"more than {MAX_HEAD_BYTES} bytes of headers"):
            await parts_of(provider_for(kind, server, http_client=http))
    listening.close()


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("kind", VENDORS)
async def test_a_compressed_answer_is_not_read(kind: str, client: str, server: VendorServer) -> None:
    """A few bytes can be any number of them."""
    headers = {"content-type": "text/event-stream", "content-encoding": "gzip"}
    server.answers = [Answer(whole(kind), headers=headers)]  # type: ignore[arg-type]
    async with client_of(client, ModelTraffic()) as http:
        with pytest.raises(RequestRejected, match="compressed"):
            await parts_of(provider_for(kind, server, http_client=http))
    assert server.seen[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("kind", VENDORS)
async def test_endless_data_after_the_turn_is_ignored(kind: str, server: VendorServer) -> None:
    noise, _ = faults(kind)["what is no event"]
    server.answers = [Answer(itertools.chain(whole(kind)[:4] if kind == "openai" else whole(kind), noise))]  # type: ignore[arg-type]
    async with client_of("open", ModelTraffic(SMALL)) as http, asyncio.timeout(30):
        turn = await turn_of(provider_for(kind, server, http_client=http), ASKED)
    assert turn.blocks == (Text("Hello there"),)


@pytest.mark.parametrize("kind", VENDORS)
async def test_a_turn_within_the_bounds_is_read_whole(kind: str, server: VendorServer) -> None:
    """100 bytes a token, and one delta just below the bound of a line."""
    texts = ["x" * 100] * 100 + ["y" * 600_000]
    ending = a_end() if kind in CLAUDES else [o_chunk({}, "stop")]
    events = [a_start(), *a_text(0, *texts)] if kind in CLAUDES else [o_chunk({"content": t}) for t in texts]
    server.answers = [Answer([*events, *ending])]
    async with client_of("open", ModelTraffic()) as http:
        parts = await parts_of(provider_for(kind, server, http_client=http), request(max_output_tokens=101))
    assert "".join(part.text for part in parts if isinstance(part, TextDelta)) == "".join(texts)


@pytest.mark.parametrize(
    ("kind", "settings", "limit"),
    [
        ("anthropic", {"max_output_tokens": 7}, 7),
        ("anthropic", {"max_output_tokens": 7, "extra": {"max_tokens": 9}}, 9),
        ("anthropic", {}, 16_384),
        ("anthropic", {"thinking": {"type": "enabled", "budget_tokens": 1000}}, 17_384),
        ("openai", {"max_output_tokens": 7}, 7),
        ("openai", {"extra": {"max_completion_tokens": 9}}, 9),
        ("openai", {"max_output_tokens": 7, "extra": {"max_tokens": 8}}, 8),
        ("openai", {}, None),
        ("openai", {"extra": {"max_tokens": "many"}}, None),
    ],
)
def test_the_bound_follows_from_the_tokens_requested(
    kind: str, settings: dict[str, Any], limit: int | None
) -> None:
    server = VendorServer()
    server.url = "http://127.0.0.1:9"
    asked: Any = provider_for(kind, server)
    assert asked._output_tokens(request(**settings)) == limit


def test_bounds_never_exceed_the_maximum() -> None:
    bounds = ModelBounds(line_bytes=100, bytes_per_token=10)
    assert [bounds.turn_bytes(tokens) for tokens in (0, 1, -5)] == [100, 110, 100]
    assert bounds.turn_bytes(None) == bounds.turn_bytes(10**12) == 64 * 1024 * 1024


async def test_calls_without_number_end_the_turn(server: VendorServer) -> None:
    """Each piece of a call is compared with the calls before it."""
    endless = (o_call(n, f"t{n}", "first", "") for n in itertools.count())
    server.answers = [Answer(endless)]  # type: ignore[arg-type]
    async with client_of("open", ModelTraffic()) as http, asyncio.timeout(30):
        with pytest.raises(BrokenTurn, match="more than 1000 calls"):
            await parts_of(provider_for("openai", server, http_client=http))


# --- The rate of a tenant ---


@pytest.mark.parametrize("kind", VENDORS)
async def test_a_fast_provider_is_slowed_and_does_not_fail(kind: str, server: VendorServer) -> None:
    events = [*opening(kind), *[delta(kind, "x" * 1000)] * 40]
    events += [sse("content_block_stop", index=0), *a_end()] if kind in CLAUDES else [o_chunk({}, "stop")]
    server.answers = [Answer(events)] * 2  # type: ignore[list-item]
    now = [0.0]

    async def sleep(seconds: float) -> None:
        now[0] += seconds
        await asyncio.sleep(0)

    bounds = ModelBounds(tenant_bytes_per_s=20_000)
    traffic = ModelTraffic(bounds, Metrics(), clock=lambda: now[0], sleep=sleep)
    async with client_of("open", traffic) as http:
        with requests_of("acme"):
            turns = [turn_of(provider_for(kind, server, http_client=http)) for _ in range(2)]
            done = await asyncio.gather(*turns)
    assert [turn.blocks for turn in done] == [(Text("x" + "x" * 40_000),)] * 2
    read = traffic.metrics.registry.get_sample_value("plangate_model_stream_bytes_total")
    held_back = traffic.metrics.registry.get_sample_value("plangate_model_stream_throttled_seconds_total")
    assert read is not None
    assert held_back is not None
    assert now[0] >= read / 20_000 - 1  # the first second is free
    assert held_back >= now[0]
    assert traffic._paid_until.keys() == {"acme"}


async def test_the_rate_of_one_tenant_does_not_slow_another() -> None:
    traffic = traffic_of(tenant_bytes_per_s=1)
    busy = asyncio.create_task(traffic.throttle("acme", 1_000_000))
    await asyncio.sleep(0)
    await traffic.throttle("other", 1)
    assert not busy.done()
    busy.cancel()


async def test_the_rates_of_idle_tenants_are_forgotten() -> None:
    traffic = traffic_of(remembered_tenants=3)
    for n in range(3):
        await traffic.throttle(f"t{n}", 100)
    traffic._paid_until = dict.fromkeys(traffic._paid_until, time.monotonic() - 2)
    await traffic.throttle("late", 100)
    assert list(traffic._paid_until) == ["late"]


# --- How many at once ---


class Gate:
    """A provider's server that answers no request before `expected` of them have come."""

    def __init__(self, kind: str, expected: int) -> None:
        self._expected = expected
        self._answer = b"".join(
            framed_event(event) if kind == "bedrock" else event.encode() for event in whole(kind)
        )
        self._all_came = asyncio.Event()
        self.came = 0
        self.second = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        await reader.readexactly(int(head.partition("content-length: ")[2].split("\r\n")[0]))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        self.came += 1
        if self.came == 2:
            self.second.set()
        if self.came == self._expected:
            self._all_came.set()
        await self._all_came.wait()
        writer.write(self._answer)
        await writer.drain()
        writer.close()


@pytest.mark.parametrize(
    ("kind", "client"), [("openai", "open"), ("anthropic", "open"), ("bedrock", "checked")]
)
async def test_300_streams_are_open_at_once(kind: str, client: str) -> None:
    """Of 150 that started together, 100 began and 50 waited for a connection."""
    gate = Gate(kind, 300)
    listening = await asyncio.start_server(gate, "127.0.0.1", 0, backlog=300)
    server = VendorServer()
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with client_of(client, traffic_of(streams=601)) as http, asyncio.timeout(60):
        provider = provider_for(kind, server, http_client=http)
        with requests_of("acme"):
            done = await asyncio.gather(*(turn_of(provider) for _ in range(300)))
    listening.close()
    assert {turn.blocks for turn in done} == {(Text("Hello there"),)}


async def test_one_tenant_cannot_take_all_streams() -> None:
    """Half of them, whatever a tenant's runtimes say of parallel calls."""
    gate = Gate("openai", 3)
    listening = await asyncio.start_server(gate, "127.0.0.1", 0)
    server = VendorServer()
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    traffic = traffic_of(streams=4)
    async with client_of("open", traffic) as http, asyncio.timeout(30):
        provider = provider_for("openai", server, http_client=http)
        with requests_of("acme"):
            acme = [asyncio.create_task(turn_of(provider)) for _ in range(5)]
        await gate.second.wait()
        assert traffic.open_streams == 2
        with requests_of("other"):
            await turn_of(provider)  # the third: all are answered
        await asyncio.gather(*acme)
    listening.close()


# --- Values that are none ---

DIGITS = "9" * 5000
HOSTILE: list[Any] = [
    None, True, -1, 1e308, float("inf"), float("nan"), "DIGITS", "", "\ud800", "\0", "x" * 5000, [], {}, [None],
    {"": None}, [[]] * 50, 2**63,
]  # fmt: skip


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a JSON value."""
    yield at
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from places(part, (*at, key))


def replaced(value: Any, at: tuple[Any, ...], new: Any) -> Any:
    if not at:
        return new
    copy = value.copy()
    copy[at[0]] = replaced(value[at[0]], at[1:], new)
    return copy


def hostile(text: str, chance: random.Random, count: int) -> list[str]:
    """The same JSON with hostile values in some of its places."""
    value = json.loads(text)
    choices = [(at, new) for at in places(value) for new in HOSTILE]
    return [
        json.dumps(replaced(value, at, new)).replace('"DIGITS"', DIGITS)
        for at, new in chance.sample(choices, min(count, len(choices)))
    ]


@pytest.mark.parametrize("kind", VENDORS)
async def test_any_value_in_an_event_is_a_turn_or_a_fault(kind: str, server: VendorServer) -> None:
    """An integer of 5,000 digits was an internal error."""
    chance = random.Random(VENDORS.index(kind))
    failed = {"type": "error", "error": {"type": "overloaded_error", "message": "busy", "code": "x"}}
    ended = sse("error", **failed) if kind in CLAUDES else f"data: {json.dumps(failed)}\n\n"
    async with client_of("open", ModelTraffic()) as http, asyncio.timeout(60):
        provider = provider_for(kind, server, http_client=http)
        for events in (whole(kind), calling(kind, '{"a": 1}'), [*opening(kind), ended]):
            for n, event in enumerate(events):
                begin, _, data = event.partition("data: ")
                if not data.startswith("{"):
                    continue
                for text in [*hostile(data, chance, 6), DIGITS, "1e999", f'{{"a": {DIGITS}}}']:
                    changed = f"{begin}data: {text}\n\n"
                    server.answers = [Answer([*events[:n], changed, *events[n + 1 :]])]
                    with contextlib.suppress(ProviderFault):
                        await turn_of(provider)


@pytest.mark.parametrize("status", [400, 429, 500])
@pytest.mark.parametrize("kind", VENDORS)
async def test_any_error_payload_is_reported_as_a_provider_error(
    kind: str, status: int, server: VendorServer
) -> None:
    chance = random.Random(status)
    error = {"type": "x", "code": "y", "message": "z", "details": {"error_code": "w"}}
    bodies = [
        *hostile(json.dumps({"error": error}), chance, 15),
        *hostile(json.dumps(error), chance, 15),
        DIGITS,
        "[" * 100_000,
        "",
        "\0",
    ]
    async with client_of("open", ModelTraffic()) as http, asyncio.timeout(60):
        provider = provider_for(kind, server, http_client=http)
        for body in bodies:
            server.answers = [refusal(status, body)]
            with pytest.raises(ProviderFault):
                await parts_of(provider)
