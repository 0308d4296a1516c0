"""Complete turns and their requests, against a server that sends scripted bytes."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterator
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

import pytest

from app.llm.messages import (
    Message,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolResultPart,
    ToolUse,
    TurnDone,
    Usage,
)
from app.llm.provider import ProviderNotBuilt
from app.llm.registry import build_provider
from tests.processes.aimock.vendor_server import (
    CLAUDES,
    KEY,
    O_DONE,
    PLACES,
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
    request,
    turn_of,
    whole,
)


@pytest.fixture
async def server() -> AsyncIterator[VendorServer]:
    running = VendorServer()
    await running.start()
    yield running
    await running.stop()


# --- Turns that come to their end ---


@pytest.mark.parametrize("kind", VENDORS)
async def test_text_is_streamed_and_whole_at_the_end(kind: str, server: VendorServer) -> None:
    server.answers = [Answer(whole(kind))]
    *deltas, done = await parts_of(provider_for(kind, server))
    assert deltas == [TextDelta("Hello there")]
    assert isinstance(done, TurnDone)
    assert (done.blocks, done.stop_reason) == ((Text("Hello there"),), "end_turn")
    assert done.model == ("model-1" if kind == "bedrock" else "model-1-exact")


async def test_tokens_that_arrive_together_are_merged(server: VendorServer) -> None:
    """Each slice of 100 events becomes one delta, and so one event of the journal."""
    reasoning = [o_chunk({"reasoning_content": text}) for text in ("Hm", "m.")]
    text = [o_chunk({"content": f"{n} "}) for n in range(250)]
    server.answers = [Answer(["".join([*reasoning, *text, o_chunk({}, "stop"), O_DONE])])]
    provider = provider_for("openai", server)
    *deltas, _ = [part async for part in provider.stream(request())]
    await provider.aclose()
    assert deltas[0] == ThinkingDelta("Hmm.")
    assert len(deltas) <= 4  # other tasks get a turn after each 100 events
    assert "".join(d.text for d in deltas[1:] if isinstance(d, TextDelta)) == "".join(
        f"{n} " for n in range(250)
    )


@pytest.mark.parametrize("kind", CLAUDES)
async def test_anthropic_counts_cached_tokens(kind: str, server: VendorServer) -> None:
    start = a_start(cache_read_input_tokens=100, cache_creation_input_tokens=20)
    end = a_end(output_tokens_details={"thinking_tokens": 4})
    server.answers = [Answer([start, *a_text(0, "x"), *end])]
    assert (await turn_of(provider_for(kind, server))).usage == Usage(10, 7, 100, 20, 4)


async def test_openai_counts_cached_tokens_and_accepts_missing_usage(server: VendorServer) -> None:
    server.answers = [Answer(whole("openai")), Answer([o_chunk({"content": "x"}, "stop")])]
    assert (await turn_of(provider_for("openai", server))).usage == Usage(10, 7, 20, 0, 3)
    assert (await turn_of(provider_for("openai", server))).usage == Usage()


async def test_a_connection_is_used_again(server: VendorServer) -> None:
    for kind in VENDORS:
        server.connections = 0
        server.answers = [Answer(whole(kind)) for _ in range(3)]
        provider = provider_for(kind, server)
        for _ in range(3):
            assert [part async for part in provider.stream(request())]
        await provider.aclose()
        assert server.connections == 1


@pytest.mark.parametrize("kind", VENDORS)
async def test_parallel_calls_keep_their_arguments_separate(kind: str, server: VendorServer) -> None:
    spaced = '{ "a" : 1.0,\n "b":"\\u00fc"}'
    if kind in CLAUDES:
        events = [a_start(), *a_text(0, "Two."), *a_tool(1, "t1", "first", spaced[:5], spaced[5:])]
        events += [*a_tool(2, "t2", "second", ""), *a_end("tool_use")]
    else:
        events = [o_chunk({"content": "Two."}), o_call(0, "t1", "first", spaced[:5])]
        events += [o_call(1, "t2", "second", ""), o_call(0, None, None, spaced[5:])]
        events += [o_chunk({}, "tool_calls"), O_DONE]
    server.answers = [Answer(events)]
    done = await turn_of(provider_for(kind, server))
    assert done.stop_reason == "tool_use"
    assert done.blocks == (Text("Two."), ToolUse("t1", "first", spaced), ToolUse("t2", "second", "{}"))


async def test_openai_accepts_calls_with_missing_or_equal_indexes(server: VendorServer) -> None:
    for index in (None, 0):
        events = [o_call(index, "t1", "first", '{"a":'), o_call(index, "t1", None, "1}")]
        events += [o_call(index, "t2", "second", "{}"), o_chunk({}, "stop"), O_DONE]
        server.answers = [Answer(events)]
        done = await turn_of(provider_for("openai", server))
        assert done.blocks == (ToolUse("t1", "first", '{"a":1}'), ToolUse("t2", "second", "{}"))
        assert done.stop_reason == "tool_use"


@pytest.mark.parametrize("kind", VENDORS)
async def test_invalid_tool_json_is_passed_on_unchanged(kind: str, server: VendorServer) -> None:
    server.answers = [Answer(calling(kind, '{"a": tru'))]
    done = await turn_of(provider_for(kind, server))
    assert done.blocks == (ToolUse("t1", "first", '{"a": tru'),)
    assert done.stop_reason == "tool_use"


@pytest.mark.parametrize("kind", VENDORS)
@pytest.mark.parametrize("written", ["", '{"a": '])
async def test_a_call_cut_by_the_limit_never_becomes_json(
    kind: str, written: str, server: VendorServer
) -> None:
    server.answers = [Answer(calling(kind, written, end="length"))]
    done = await turn_of(provider_for(kind, server))
    assert done.stop_reason == "max_tokens"
    assert done.blocks == (ToolUse("t1", "first", written),)
    with pytest.raises(ValueError, match="Expecting"):
        json.loads(written)


@pytest.mark.parametrize("kind", CLAUDES)
async def test_anthropic_thinking_is_sent_back_unchanged(kind: str, server: VendorServer) -> None:
    thinking = a_block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "Let me "},
        {"type": "thinking_delta", "thinking": "see."},
        {"type": "signature_delta", "signature": "c2ln"},
    )
    redacted = a_block(1, {"type": "redacted_thinking", "data": "c2VjcmV0"})
    call = a_tool(2, "t1", "first", "{}")
    server.answers = [Answer([a_start(), *thinking, *redacted, *call, *a_end("tool_use")])]
    server.answers += [Answer(whole(kind))]
    budget = {"type": "enabled", "budget_tokens": 2000}
    *deltas, done = await parts_of(provider_for(kind, server), request(thinking=budget))
    assert deltas == [ThinkingDelta("Let me see.")]
    assert isinstance(done, TurnDone)
    history = (
        Message("user", (Text("Hello"),)),
        Message("assistant", (Thinking("of another vendor"), *done.blocks)),
        Message("user", (Text("And?"), ToolResultPart("t1", "42"))),
    )
    await turn_of(provider_for(kind, server), request(*history, thinking=budget))
    sent = server.seen[1].body
    assert sent["thinking"] == budget
    assert sent["max_tokens"] > 2000
    assert sent["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "Let me see.", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "c2VjcmV0"},
        {"type": "tool_use", "id": "t1", "name": "first", "input": {}},
    ]
    assert [block["type"] for block in sent["messages"][2]["content"]] == ["tool_result", "text"]


async def test_openai_reasoning_is_thinking(server: VendorServer) -> None:
    events = [o_chunk({"reasoning_content": "Hm."}), o_chunk({"content": "Yes"}, "stop"), O_DONE]
    server.answers = [Answer(events)]
    *deltas, done = await parts_of(provider_for("openai", server))
    assert deltas == [ThinkingDelta("Hm."), TextDelta("Yes")]
    assert isinstance(done, TurnDone)
    assert done.blocks == (Thinking("Hm."), Text("Yes"))


@pytest.mark.parametrize(
    ("kind", "events", "stop_reason"),
    [
        *((kind, [a_start(), *a_text(0, "x"), *a_end("stop_sequence")], "end_turn") for kind in CLAUDES),
        *((kind, [a_start(), *a_text(0, "No."), *a_end("refusal")], "refusal") for kind in CLAUDES),
        *((kind, [a_start(), *a_text(0, "x"), *a_end("max_tokens")], "max_tokens") for kind in CLAUDES),
        ("openai", [o_chunk({"content": "x"}, "length")], "max_tokens"),
        ("openai", [o_chunk({"refusal": "No."}, "stop")], "refusal"),
        ("openai", [o_chunk({"content": ""}, "content_filter")], "refusal"),
    ],
)
async def test_stop_reasons_are_mapped(
    kind: str, events: list[str], stop_reason: str, server: VendorServer
) -> None:
    server.answers = [Answer(events)]
    assert (await turn_of(provider_for(kind, server))).stop_reason == stop_reason


# --- What is sent ---


class Tripwire(MetaPathFinder):
    """Notes who is imported of those that would find the operator's accounts; nobody is found."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in ("boto3", "botocore", "google"):
            self.asked.append(name)


@pytest.fixture
def operators_accounts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Tripwire]:
    """An environment full of keys, headers, addresses and accounts of the operator's."""
    for vendor in ("ANTHROPIC", "OPENAI"):
        for name in ("API_KEY", "AUTH_TOKEN", "ADMIN_KEY", "ORG_ID", "PROJECT_ID", "BASE_URL", "PROFILE"):
            monkeypatch.setenv(f"{vendor}_{name}", "http://127.0.0.1:1/leak-operator")
        monkeypatch.setenv(f"{vendor}_CUSTOM_HEADERS", "X-Leak: leak-operator\nAuthorization: leak-operator")
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "BEARER_TOKEN_BEDROCK", "PROFILE"):
        monkeypatch.setenv(f"AWS_{name}", "leak-operator")
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "CLOUD_ML_REGION", "ANTHROPIC_VERTEX_PROJECT_ID"):
        monkeypatch.setenv(name, "leak-operator")
    for name in ("BEDROCK_BASE_URL", "VERTEX_BASE_URL", "AWS_BASE_URL"):
        monkeypatch.setenv(f"ANTHROPIC_{name}", "http://127.0.0.1:1/leak-operator")
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text("[default]\naws_access_key_id = leak-operator\n")
    (tmp_path / "adc.json").write_text(json.dumps({"type": "authorized_user", "client_id": "leak-operator"}))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "adc.json"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    wire = Tripwire()
    monkeypatch.setattr(sys, "meta_path", [wire, *sys.meta_path])
    yield wire


@pytest.mark.parametrize("kind", VENDORS)
async def test_the_environment_adds_nothing(
    kind: str, server: VendorServer, operators_accounts: Tripwire
) -> None:
    """The operator's keys and headers must not travel to a host that a tenant chose."""
    server.answers = [Answer(whole(kind))] * 2
    await turn_of(provider_for(kind, server))
    await turn_of(provider_for(kind, server, api_key=None))
    for seen in server.seen:
        assert "leak" not in json.dumps([seen.path, seen.headers, seen.body])
    assert KEY in server.seen[0].headers["authorization"]
    assert server.seen[1].headers["authorization"] == "Bearer none"
    assert not operators_accounts.asked


@pytest.mark.parametrize("kind", VENDORS)
def test_without_a_key_no_operator_account_is_used(kind: str, operators_accounts: Tripwire) -> None:
    with pytest.raises(ProviderNotBuilt, match="has no key"):
        build_provider(kind, options=PLACES.get(kind))
    assert not operators_accounts.asked


@pytest.mark.parametrize("kind", CLAUDES)
async def test_claudes_body(kind: str, server: VendorServer) -> None:
    history = (
        Message("user", (Text("Go"),)),
        Message("assistant", (Text(""), ToolUse("t1", "first", '{"a": tru'), ToolUse("t2", "second", "{}"))),
        Message("user", (ToolResultPart("t1", "not JSON", True), ToolResultPart("t2", "{}"))),
        Message("assistant", (Thinking("unsigned"),)),
    )
    server.answers = [Answer(whole(kind))]
    await turn_of(provider_for(kind, server), request(*history, extra={"temperature": 0.2}))
    body, ephemeral = server.seen[0].body, {"type": "ephemeral"}
    assert body["max_tokens"] == 16_384
    assert body["temperature"] == 0.2
    assert "thinking" not in body
    assert body["system"] == [{"type": "text", "text": "Be brief.", "cache_control": ephemeral}]
    assert [tool.get("cache_control") for tool in body["tools"]] == [None, ephemeral]
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Go"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "t1", "name": "first", "input": {"INVALID_JSON": '{"a": tru'}},
                {"type": "tool_use", "id": "t2", "name": "second", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "not JSON", "is_error": True},
                {"type": "tool_result", "tool_use_id": "t2", "content": "{}"},
            ],
        },
    ]


VERTEX_PATH = "/v1/projects/my-project/locations/europe-west1/publishers/anthropic/models/model-1"
VERSION = {"anthropic_version": "2026-10-21"}


@pytest.mark.parametrize(
    ("kind", "path", "in_body"),
    [
        ("anthropic", "/v1/messages", {"model": "model-1", "stream": True}),
        ("bedrock", "/model/model-1/invoke-with-response-stream", VERSION),
        ("vertex", f"{VERTEX_PATH}:streamRawPredict", {"stream": True, **VERSION}),
    ],
)
async def test_anthropic_requests_use_the_configured_address(
    kind: str, path: str, in_body: dict[str, Any], server: VendorServer
) -> None:
    """The platforms want the model in the path and not in the body, and the version of the API in the body."""
    server.answers = [Answer(whole(kind))]
    await turn_of(provider_for(kind, server))
    seen = server.seen[0]
    assert seen.path == path
    assert {k: v for k, v in seen.body.items() if k in ("model", "stream", "anthropic_version")} == in_body
    assert seen.headers["authorization"] == f"Bearer {KEY}"
    assert "x-api-key" not in seen.headers


@pytest.mark.parametrize("kind", VENDORS)
async def test_the_parameters_of_a_model_are_sent(kind: str, server: VendorServer) -> None:
    thinking = {"effort": "low"} if kind == "openai" else {"type": "enabled", "budget_tokens": 2000}
    extra = {"temperature": 0.2, "metadata": {"user_id": "u"}, "top_p": None}
    server.answers = [Answer(whole(kind))]
    await turn_of(provider_for(kind, server), request(max_output_tokens=4321, thinking=thinking, extra=extra))
    body = server.seen[0].body
    assert body["max_tokens"] == 4321
    assert {name: body[name] for name in extra} == extra
    if kind == "openai":
        assert body["reasoning_effort"] == "low"
    else:
        assert body["thinking"] == thinking


@pytest.mark.parametrize("kind", VENDORS)
async def test_extra_overrides_the_adapters_fields(kind: str, server: VendorServer) -> None:
    server.answers = [Answer(whole(kind))]
    extra = {"max_tokens": 7, "anthropic_version": "bedrock-2023-05-31"}
    await turn_of(provider_for(kind, server), request(max_output_tokens=99, extra=extra))
    assert {name: server.seen[0].body[name] for name in extra} == extra


async def test_openai_body(server: VendorServer) -> None:
    history = (
        Message("user", (Text("Go"),)),
        Message("assistant", (Thinking("hm"), Text("Well"), ToolUse("t1", "first", '{ "a":1}'))),
        Message("user", (Text("And?"), ToolResultPart("t1", "42"))),
        Message("assistant", (ToolUse("t2", "second", "{oops"),)),
        Message("user", (ToolResultPart("t2", "not JSON", True),)),
    )
    settings: dict[str, Any] = {"max_output_tokens": 99, "thinking": {"effort": "low"}, "extra": {"seed": 7}}
    server.answers = [Answer(whole("openai"))]
    await turn_of(provider_for("openai", server), request(*history, **settings))
    body = server.seen[0].body
    assert server.seen[0].path == "/v1/chat/completions"
    assert (body["max_tokens"], body["reasoning_effort"], body["seed"]) == (99, "low", 7)
    assert body["stream_options"] == {"include_usage": True}
    assert [tool["function"]["name"] for tool in body["tools"]] == ["first", "second"]
    roles = [message["role"] for message in body["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "user", "assistant", "tool"]
    assert body["messages"][2]["tool_calls"][0]["function"] == {"name": "first", "arguments": '{ "a":1}'}
    invalid = body["messages"][5]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(invalid) == {"INVALID_JSON": "{oops"}
