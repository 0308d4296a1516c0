"""Claude on Bedrock and Vertex: differences from Anthropic, against a server that sends scripted bytes."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from app.llm.messages import Text, TextDelta, ToolUse, TurnDone, Usage
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
    Answer,
    VendorServer,
    a_end,
    a_start,
    a_text,
    a_tool,
    b_chunk,
    b_exception,
    frame,
    framed_event,
    parts_of,
    provider_for,
    refusal,
    request,
    sse,
    turn_of,
    whole,
)
from tests.pure.llm.test_platforms import key_file

FRAMES = "application/vnd.amazon.eventstream"


@pytest.fixture
async def server() -> AsyncIterator[VendorServer]:
    running = VendorServer()
    await running.start()
    yield running
    await running.stop()


def framed(events: Iterable[str]) -> bytes:
    return b"".join(framed_event(event) for event in events)


def pieces(data: bytes, size: int) -> list[str | bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


# --- Bedrock: the frames ---


@pytest.mark.parametrize("size", [1, 7, 64, 100_000])
async def test_bedrock_frames_may_arrive_in_any_pieces(size: int, server: VendorServer) -> None:
    events = [a_start(), *a_text(0, "Two ", "calls."), *a_tool(1, "t1", "first", '{"a"', ": 1}")]
    events += [*a_tool(2, "t2", "second", ""), *a_end("tool_use")]
    server.answers = [Answer(pieces(framed(events), size), headers={"content-type": FRAMES})]
    *deltas, done = await parts_of(provider_for("bedrock", server))
    assert deltas == [TextDelta("Two calls.")]
    assert done == TurnDone(
        (Text("Two calls."), ToolUse("t1", "first", '{"a": 1}'), ToolUse("t2", "second", "{}")),
        "tool_use",
        Usage(10, 7),
        "model-1",
    )


async def test_unknown_bedrock_frames_are_ignored(
    server: VendorServer,
) -> None:
    metrics = {"inputTokenCount": 10, "outputTokenCount": 7, "invocationLatency": 1800}
    *events, _ = whole("bedrock")
    server.answers = [
        Answer(
            [
                frame({":event-type": "initial-response", ":message-type": "event"}, b"{}"),
                *events,
                sse("ping"),
                sse("message_stop", **{"amazon-bedrock-invocationMetrics": metrics}),
                frame({":event-type": "of-tomorrow", ":message-type": "event"}, b"\xff"),
            ]
        )
    ]
    done = await turn_of(provider_for("bedrock", server))
    assert (done.blocks, done.usage) == ((Text("Hello there"),), Usage(10, 7))


@pytest.mark.parametrize("end", ["whole", "cut", "reset"])
async def test_a_bedrock_stream_cut_inside_a_frame_is_not_a_turn(end: str, server: VendorServer) -> None:
    data = framed(whole("bedrock"))
    last = len(framed(whole("bedrock")[-1:]))
    for cut in (1, 11, 13, 60, len(data) - last - 1, len(data) - last + 5, len(data) - 1):
        server.answers = [Answer([data[:cut]], end=end)]
        with pytest.raises(BrokenTurn if end == "whole" else Unreachable) as fault:
            await parts_of(provider_for("bedrock", server))
        assert fault.value.retryable


def damaged(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


CHUNK = {":event-type": "chunk", ":message-type": "event"}


@pytest.mark.parametrize(
    ("spoilt", "says"),
    [
        (damaged(b_chunk(a_text(0, "x")[1]), 3), "the checksum of its prelude is wrong"),
        (damaged(b_chunk(a_text(0, "x")[1]), -9), "its checksum is wrong"),
        (b"<html>Who are you?</html>", "the checksum of its prelude is wrong"),
        (frame({":event-type": "chunk"}, b"{}"), "it has no known message type"),
        (frame(CHUNK, b"{}"), "it contains no bytes of an event"),
        (frame(CHUNK, b"[1]"), "it contains no bytes of an event"),
        (frame(CHUNK, b"no JSON"), "it contains no bytes of an event"),
        (frame(CHUNK, b'{"bytes": 17}'), "it contains no bytes of an event"),
        (frame(CHUNK, b'{"bytes": "\xc3\xbc"}'), "it contains no bytes of an event"),
        (frame(CHUNK, b'{"bytes": "a"}'), "it contains no bytes of an event"),
        (frame(CHUNK, b'{"bytes": "/w=="}'), "it contains no bytes of an event"),
    ],
)
async def test_a_corrupt_frame_ends_the_turn_with_its_usage(
    spoilt: bytes, says: str, server: VendorServer
) -> None:
    server.answers = [Answer([a_start(), *a_text(0, "x"), spoilt, *a_end()])]
    with pytest.raises(BrokenTurn) as fault:
        await parts_of(provider_for("bedrock", server))
    assert fault.value.message == f"A frame of the provider's stream is malformed: {says}."
    assert fault.value.usage == Usage(10, 1)


@pytest.mark.parametrize(
    ("kind", "message", "fault"),
    [
        ("throttlingException", "Too many tokens, please wait before trying again.", RateLimited),
        ("modelStreamErrorException", "The model stumbled", ServerFault),
        ("internalServerException", "Internal", ServerFault),
        ("modelTimeoutException", "late", Unreachable),
        ("serviceUnavailableException", "no capacity", Overloaded),
        ("validationException", "tools.0: bad", RequestRejected),
        ("validationException", "Input is too long for requested model.", ContextOverflow),
        ("exceptionOfTomorrow", "?", ServerFault),
    ],
)
async def test_an_exception_in_the_middle_of_bedrocks_stream(
    kind: str, message: str, fault: type[ProviderFault], server: VendorServer
) -> None:
    server.answers = [Answer([a_start(), *a_text(0, "x"), b_exception(kind, message), *a_end()])]
    with pytest.raises(fault) as raised:
        await parts_of(provider_for("bedrock", server))
    assert type(raised.value) is fault
    assert message in raised.value.message
    assert raised.value.usage == Usage(10, 1)


@pytest.mark.parametrize(
    ("spoilt", "says"),
    [
        (
            frame({":message-type": "error", ":error-code": "Failure", ":error-message": "It broke"}, b""),
            "The provider aborted the stream: It broke",
        ),
        (frame({":message-type": "error"}, b""), "The provider aborted the stream: no message"),
        (frame({":message-type": "exception"}, b"\xff"), "The provider aborted the stream: no message"),
        (frame({":message-type": "exception"}, b"[]"), "The provider aborted the stream: no message"),
        (frame({":message-type": "exception"}, b'{"Message": "So"}'), "The provider aborted the stream: So"),
    ],
)
async def test_an_error_frame_is_a_server_error(spoilt: bytes, says: str, server: VendorServer) -> None:
    server.answers = [Answer([a_start(), spoilt, *a_end()])]
    with pytest.raises(ServerFault) as raised:
        await parts_of(provider_for("bedrock", server))
    assert raised.value.message == says


# --- Error answers of either ---


@pytest.mark.parametrize(
    ("kind", "status", "body", "fault", "says"),
    [
        (
            "bedrock",
            429,
            {"message": "Too many tokens, please wait before trying again."},
            RateLimited,
            "The provider returned 429: Too many tokens, please wait before trying again.",
        ),
        (
            "bedrock",
            400,
            {"message": "Input is too long for requested model."},
            ContextOverflow,
            "The prompt is larger than the model's window: Input is too long for requested model.",
        ),
        (
            "bedrock",
            400,
            {"message": "The provided model identifier is invalid."},
            RequestRejected,
            "The provider returned 400: The provided model identifier is invalid.",
        ),
        (
            "bedrock",
            403,
            {"Message": "Authentication failed: Please make sure your API Key is valid."},
            NotAuthorized,
            "The provider returned 403: Authentication failed: Please make sure your API Key is valid.",
        ),
        ("bedrock", 408, {"message": "late"}, Unreachable, "The provider returned 408: late"),
        ("bedrock", 424, {"message": "fell"}, ServerFault, "The provider returned 424: fell"),
        ("bedrock", 503, {"message": "full"}, Overloaded, "The provider returned 503: full"),
        (
            "vertex",
            429,
            {"error": {"code": 429, "message": "Quota exceeded", "status": "RESOURCE_EXHAUSTED"}},
            RateLimited,
            "The provider returned 429: Quota exceeded",
        ),
        (
            "vertex",
            403,
            [{"error": {"code": 403, "message": "Permission denied", "status": "PERMISSION_DENIED"}}],
            NotAuthorized,
            "The provider returned 403: Permission denied",
        ),
        ("vertex", 400, [], RequestRejected, "The provider returned 400: Error code: 400 - []"),
        (
            "vertex",
            401,
            {"error": {"code": 401, "message": "Token expired", "status": "UNAUTHENTICATED"}},
            NotAuthorized,
            "The provider returned 401: Token expired",
        ),
        (
            "vertex",
            529,
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
            Overloaded,
            "The provider returned 529: Overloaded",
        ),
    ],
)
async def test_an_error_response_of_the_platform_is_mapped(
    kind: str, status: int, body: Any, fault: type[ProviderFault], says: str, server: VendorServer
) -> None:
    server.answers = [refusal(status, body)]
    with pytest.raises(fault) as raised:
        await parts_of(provider_for(kind, server))
    assert type(raised.value) is fault
    assert raised.value.message == says
    assert len(server.seen) == 1, "an adapter makes one attempt"


# --- Models in addresses ---


@pytest.mark.parametrize(
    ("kind", "model", "path"),
    [
        ("bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0", None),
        (
            "bedrock",
            "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.x",
            ":inference-profile%2Fus.anthropic.x/",
        ),
        ("bedrock", "../../secrets?x#y", "/model/..%2F..%2Fsecrets%3Fx%23y/invoke"),
        ("vertex", "claude-sonnet-4-5@20250929", None),
        ("vertex", "../../secrets?x#y", "/models/..%2F..%2Fsecrets%3Fx%23y:streamRawPredict"),
        ("vertex", "..", "/publishers/anthropic/models/..:streamRawPredict"),
        ("vertex", "a;b", "/models/a%3Bb:streamRawPredict"),
    ],
)
async def test_a_model_id_is_one_segment_of_the_path(
    kind: str, model: str, path: str | None, server: VendorServer
) -> None:
    server.answers = [Answer(whole(kind))]
    await turn_of(provider_for(kind, server), request(model=model))
    assert (path or f"/{model}") in server.seen[0].path
    assert "model" not in server.seen[0].body


@pytest.mark.parametrize("model", [".", "..", ";x", "..;x"])
async def test_a_model_id_that_leaves_its_path_is_rejected(model: str, server: VendorServer) -> None:
    with pytest.raises(RequestRejected) as refused:
        await parts_of(provider_for("bedrock", server), request(model=model))
    says = f"The model id {model!r} cannot be part of a URL; use a Bedrock model id."
    assert refused.value.message == says
    assert not server.seen


# --- Vertex ---


async def test_vertex_specific_events_are_ignored(server: VendorServer) -> None:
    usage = {"input_tokens": 9, "output_tokens": 1, "cache_read_input_tokens": None, "tiers": {"x": {}}}
    first, *rest = whole("vertex")
    server.answers = [Answer([sse("vertex_event", usage=usage), first, sse("ping"), *rest])]
    done = await turn_of(provider_for("vertex", server))
    assert (done.blocks, done.usage) == ((Text("Hello there"),), Usage(10, 7))


async def test_a_service_account_signs_its_token(server: VendorServer) -> None:
    """None of its words leave the service, and nobody is asked for a token."""
    key = rsa.generate_private_key(65537, 2048)
    server.answers = [Answer(whole("vertex"))]
    began = int(time.time())
    await turn_of(provider_for("vertex", server, api_key=key_file(key)))
    (seen,) = server.seen
    signed, _, signature = seen.headers["authorization"].removeprefix("Bearer ").rpartition(".")
    key.public_key().verify(
        base64.urlsafe_b64decode(signature + "=="), signed.encode(), padding.PKCS1v15(), hashes.SHA256()
    )
    claims = json.loads(base64.urlsafe_b64decode(signed.partition(".")[2] + "=="))
    assert began <= claims["iat"] <= time.time()
    assert "PRIVATE KEY" not in json.dumps([seen.headers, seen.body])


async def test_each_turn_has_its_own_token(server: VendorServer) -> None:
    from app.llm.vertex import VertexProvider  # noqa: PLC0415 - loads an SDK, in each process that collects the tests

    tokens = iter(["of the start", "first", "second"])
    place = {"project": "p", "region": "r", "base_url": f"{server.url}/v1"}
    provider = VertexProvider(lambda: next(tokens), None, None, **place)
    server.answers = [Answer(whole("vertex"))] * 2
    for _ in range(2):
        assert [part async for part in provider.stream(request())]
    await provider.aclose()
    assert [seen.headers["authorization"] for seen in server.seen] == ["Bearer first", "Bearer second"]
