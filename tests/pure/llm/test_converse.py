"""Bedrock's Converse API: requests that botocore's service model accepts, and turns from its events."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from botocore.eventstream import EventStream
from botocore.parsers import create_parser
from botocore.serialize import create_serializer
from botocore.validate import ParamValidator
from pydantic import ValidationError

from app.llm.bedrock import uses_messages_api
from app.llm.converse import _events, request_body
from app.llm.converse_turn import REDACTED, SIGNATURE, ConverseTurn
from app.llm.eventstream import FrameReader
from app.llm.iam_keys import IamKeys
from app.llm.messages import (
    Message,
    ModelRequest,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolDefinition,
    ToolResultPart,
    ToolUse,
    TurnDone,
    Usage,
)
from app.llm.provider import BrokenTurn, ContextOverflow, ProviderNotBuilt
from tests.processes.aimock.vendor_server import c_event, c_frame, c_whole, converse_stream

MODEL = "us.amazon.nova-pro-v1:0"
TOOL = ToolDefinition("look", "Looks.", {"type": "object", "properties": {"a": {"type": "integer"}}})
HELLO = Message("user", (Text("Hello"),))
CALL = Message("assistant", (Text("Let me see."), ToolUse("t1", "look", '{"a": 1}')))
RESULT = Message("user", (ToolResultPart("t1", "seen"),))


def request(*messages: Message, tools: tuple[ToolDefinition, ...] = (TOOL,), **settings: Any) -> ModelRequest:
    return ModelRequest(MODEL, settings.pop("system", "Be brief."), tools, messages or (HELLO,), **settings)


REQUESTS = [
    request(),
    request(tools=(), system=""),
    request(HELLO, CALL, RESULT),
    request(HELLO, CALL, Message("user", (ToolResultPart("t1", "", is_error=True), Text("Go on")))),
    request(HELLO, CALL, RESULT, tools=()),
    request(HELLO, HELLO, Message("assistant", (Text(" "), Text("yes"))), HELLO),
    request(Message("user", (Text("x"),)), Message("assistant", (ToolUse("t1", "look", "{broken"),)), RESULT),
    request(max_output_tokens=100, notes="Today is Monday."),
    request(thinking={"reasoningConfig": {"type": "enabled"}}),
    request(
        max_output_tokens=100, extra={"inferenceConfig": {"temperature": 0.5}, "requestMetadata": {"a": "b"}}
    ),
    request(HELLO, Message("assistant", (Thinking("hm", {SIGNATURE: "sig"}), *CALL.blocks)), RESULT),
    request(
        HELLO, Message("assistant", (Thinking("hm", {"signature": "of another API"}), Text("yes"))), HELLO
    ),
]


@pytest.mark.parametrize("made", REQUESTS)
def test_a_request_equals_botocores(made: ModelRequest) -> None:
    body = request_body(made)
    params = {"modelId": made.model, **body}
    report = ParamValidator().validate(params, converse_stream().input_shape)
    assert not report.has_errors(), report.generate_report()
    sent = create_serializer("rest-json").serialize_to_request(params, converse_stream())
    assert json.loads(sent["body"]) == body
    roles = [message["role"] for message in body["messages"]]
    assert all(one != other for one, other in pairwise(roles))


def test_the_parts_of_a_request() -> None:
    body = request_body(
        request(HELLO, CALL, Message("user", (Text("Go on"), ToolResultPart("t1", " ", is_error=True))))
    )
    assert body["system"] == [{"text": "Be brief."}]
    spec = {"name": "look", "description": "Looks.", "inputSchema": {"json": TOOL.input_schema}}
    assert body["toolConfig"] == {"tools": [{"toolSpec": spec}]}
    assert body["messages"][1]["content"][1] == {
        "toolUse": {"toolUseId": "t1", "name": "look", "input": {"a": 1}}
    }
    result = {"toolUseId": "t1", "content": [{"text": "(empty)"}], "status": "error"}
    assert body["messages"][2]["content"] == [{"toolResult": result}, {"text": "Go on"}]
    assert "inferenceConfig" not in body


def test_model_settings_reach_the_request() -> None:
    made = request(max_output_tokens=100, thinking={"k": 1}, extra={"inferenceConfig": {"temperature": 0.5}})
    body = request_body(made)
    assert body["inferenceConfig"] == {"maxTokens": 100, "temperature": 0.5}
    assert body["additionalModelRequestFields"] == {"k": 1}


def test_reasoning_is_returned_only_to_its_own_api() -> None:
    mine = Message(
        "assistant", (Thinking("hm", {SIGNATURE: "s"}), Thinking("", {REDACTED: "eA=="}), Text("yes"))
    )
    content = request_body(request(HELLO, mine, HELLO))["messages"][1]["content"]
    assert content[0] == {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}}
    assert content[1] == {"reasoningContent": {"redactedContent": "eA=="}}
    others = Message("assistant", (Thinking("hm", {"signature": "s"}), Thinking("hm"), Text("yes")))
    assert request_body(request(HELLO, others, HELLO))["messages"][1]["content"] == [{"text": "yes"}]


# --- turns


def turn(events: list[tuple[str, Any]]) -> tuple[list[Any], TurnDone]:
    made = ConverseTurn(MODEL)
    deltas = [part for event in events for part in made.feed(event)]
    return deltas, made.result()


def parsed_by_botocore(events: list[tuple[str, Any]]) -> list[dict[str, Any]]:
    """The events as botocore reads their frames: what it does not know is missing."""

    class Raw:
        def stream(self) -> Any:
            yield b"".join(c_frame(kind, payload) for kind, payload in events)

        def close(self) -> None:
            pass

    parser = create_parser("rest-json")._event_stream_parser
    shape = converse_stream().output_shape.members["stream"]
    return [dict(event) for event in EventStream(Raw(), shape, parser, "ConverseStream")]


ENDS_BADLY = ("model_context_window_exceeded", "malformed_tool_use", "malformed_model_output")

REASONING: list[tuple[str, Any]] = [
    ("messageStart", {"role": "assistant"}),
    ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"reasoningContent": {"text": "Let "}}}),
    ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"reasoningContent": {"text": "me think"}}}),
    ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"reasoningContent": {"signature": "sig"}}}),
    ("contentBlockStop", {"contentBlockIndex": 0}),
    ("contentBlockDelta", {"contentBlockIndex": 1, "delta": {"text": "Yes"}}),
    ("contentBlockStop", {"contentBlockIndex": 1}),
    ("messageStop", {"stopReason": "end_turn"}),
    (
        "metadata",
        {
            "usage": {
                "inputTokens": 10,
                "outputTokens": 7,
                "totalTokens": 22,
                "cacheReadInputTokens": 3,
                "cacheWriteInputTokens": 2,
            },
            "metrics": {"latencyMs": 900},
        },
    ),
]


REDACTED_REASONING: list[tuple[str, Any]] = [
    *REASONING[:1],
    ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"reasoningContent": {"redactedContent": b"x"}}}),
    *REASONING[4:],
]


@pytest.mark.parametrize("events", [c_whole(), c_whole(tools=2), REASONING, REDACTED_REASONING])
def test_the_events_match_the_service_model(events: list[tuple[str, Any]]) -> None:
    """Each event is written by botocore's serializer, which rejects what the API does not have, and botocore's parser
    reads the same from its frame."""
    assert parsed_by_botocore(events) == [{kind: payload} for kind, payload in events]


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"words": "x"}}),
        ("contentBlockDelta", {"contentBlockIndex": "0", "delta": {"text": "x"}}),
        ("contentBlockDelta", {"delta": {"text": "x"}}),
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "x", "toolUse": {"input": "{}"}}}),
        ("messageStop", {"stopReason": "finished"}),
        ("metadata", {"usage": {"inputTokens": 1}, "metrics": {"latencyMs": 1}}),
    ],
)
def test_an_event_that_the_api_does_not_have_cannot_be_built(kind: str, payload: Any) -> None:
    with pytest.raises(AssertionError):
        c_event(kind, payload)


def samples(shape: Any) -> list[Any]:
    """Values of a shape: of a union one for each of its members, else with all members."""
    match shape.type_name:
        case "structure" if getattr(shape, "is_document_type", False):
            return [{"any": ["document"]}]
        case "structure" if shape.is_tagged_union:
            return [{name: value} for name, member in shape.members.items() for value in samples(member)]
        case "structure":
            members = {name: samples(member) for name, member in shape.members.items()}
            count = max((len(values) for values in members.values()), default=1)
            return [{name: values[n % len(values)] for name, values in members.items()} for n in range(count)]
        case "list":
            return [[value] for value in samples(shape.member)]
        case "map":
            return [{"key": value} for value in samples(shape.value)]
        case "string":
            return list(shape.enum) or ["x" * shape.metadata.get("min", 1)]
        case "blob":
            return [b"x"]
        case "boolean":
            return [True]
        case "integer" | "long":
            return [shape.metadata.get("min", 1)]
        case "float" | "double":
            return [0.5]
        case other:
            raise AssertionError(f"the service model has a type without a sample: {other}")


def events_of_the_api() -> list[tuple[str, Any]]:
    """Events of every type of the service model, with every member and every value of an enumeration."""
    members = converse_stream().output_shape.members["stream"].members
    return [
        (kind, payload)
        for kind, shape in members.items()
        if not shape.metadata.get("exception")
        for payload in samples(shape)
    ]


@pytest.mark.parametrize("event", events_of_the_api(), ids=lambda event: event[0])
def test_every_event_of_the_service_model_is_read(event: tuple[str, Any]) -> None:
    """Events that the adapter has no use for are skipped; those of a call follow its start."""
    kind, payload = event
    (frame,) = FrameReader(1_000_000).feed(c_frame(kind, payload))
    ((read_kind, read),) = _events(frame)
    assert (read_kind, read) == (kind, c_event(kind, payload))
    start = {"start": {"toolUse": {"toolUseId": "t", "name": "look"}}, "contentBlockIndex": 0}
    before = [("contentBlockStart", start)] if "toolUse" in payload.get("delta", ()) else []
    if kind == "contentBlockStop":
        before = [("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "x"}})]
    if kind == "metadata":
        before = [("messageStop", {"stopReason": "end_turn"})]
    made = ConverseTurn(MODEL)
    for each in (*before, (kind, read)):
        list(made.feed(each))
    if kind == "messageStop" and read["stopReason"] not in ENDS_BADLY:
        assert made.result().stop_reason in ("end_turn", "tool_use", "max_tokens", "refusal")
    if kind == "metadata":
        usage = payload["usage"]
        assert (made.usage.input_tokens, made.usage.output_tokens) == (
            usage["inputTokens"],
            usage["outputTokens"],
        )


def test_a_turn_of_text_and_calls() -> None:
    deltas, done = turn(c_whole(tools=2))
    assert deltas == [TextDelta("Hello "), TextDelta("there")]
    calls = (ToolUse("t1", "look", '{"a": 1}'), ToolUse("t2", "look", "{}"))
    assert done == TurnDone((Text("Hello there"), *calls), "tool_use", Usage(10, 7), MODEL)


def test_reasoning_and_cached_tokens_are_counted() -> None:
    deltas, done = turn(REASONING)
    assert deltas == [ThinkingDelta("Let "), ThinkingDelta("me think"), TextDelta("Yes")]
    assert done.blocks == (Thinking("Let me think", {SIGNATURE: "sig"}), Text("Yes"))
    assert done.usage == Usage(10, 7, 3, 2)


@pytest.mark.parametrize("cut", range(len(c_whole(tools=1)) - 2))
def test_a_turn_without_its_end_is_rejected(cut: int) -> None:
    with pytest.raises(BrokenTurn):
        turn(c_whole(tools=1)[:cut])


def test_a_call_that_bedrock_carries_out_itself_is_skipped() -> None:
    tool = {"toolUseId": "s1", "name": "nova_grounding", "type": "server_tool_use"}
    result = {"toolUseId": "s1", "status": "success"}
    events = [
        ("contentBlockStart", {"contentBlockIndex": 5, "start": {"toolUse": tool}}),
        ("contentBlockDelta", {"contentBlockIndex": 5, "delta": {"toolUse": {"input": "{}"}}}),
        ("contentBlockStop", {"contentBlockIndex": 5}),
        ("contentBlockStart", {"contentBlockIndex": 6, "start": {"toolResult": result}}),
        ("contentBlockDelta", {"contentBlockIndex": 6, "delta": {"toolResult": [{"text": "found"}]}}),
        ("contentBlockStop", {"contentBlockIndex": 6}),
    ]
    _, done = turn([*((kind, c_event(kind, payload)) for kind, payload in events), *c_whole()])
    assert (done.blocks, done.stop_reason) == ((Text("Hello there"),), "end_turn")


def test_a_turn_without_usage_is_accepted() -> None:
    _, done = turn(c_whole()[:-1])
    assert (done.blocks, done.usage) == ((Text("Hello there"),), Usage())


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("stop_sequence", "end_turn"),
        ("max_tokens", "max_tokens"),
        ("guardrail_intervened", "refusal"),
        ("content_filtered", "refusal"),
    ],
)
def test_stop_reasons_are_mapped(reason: str, stop: str) -> None:
    _, done = turn([*c_whole()[:-2], ("messageStop", {"stopReason": reason})])
    assert done.stop_reason == stop


@pytest.mark.parametrize(
    ("reason", "fault"),
    [
        ("model_context_window_exceeded", ContextOverflow),
        ("malformed_tool_use", BrokenTurn),
        ("of_tomorrow", BrokenTurn),
    ],
)
def test_unusable_stop_reasons_are_errors(reason: str, fault: type[Exception]) -> None:
    with pytest.raises(fault):
        turn([*c_whole()[:-2], ("messageStop", {"stopReason": reason})])


def test_a_truncated_call_is_never_complete() -> None:
    events = c_whole(tools=1)
    at = next(n for n, (kind, _) in enumerate(events) if kind == "contentBlockStart")
    _, done = turn([*events[: at + 1], ("messageStop", {"stopReason": "max_tokens"})])
    assert done.blocks[-1] == ToolUse("t1", "look", "")


@pytest.mark.parametrize(
    ("event", "fault"),
    [
        (("contentBlockDelta", {"contentBlockIndex": 0}), ValidationError),
        (("contentBlockDelta", {"contentBlockIndex": -1, "delta": {"text": "x"}}), ValidationError),
        (("contentBlockDelta", []), ValidationError),
        (
            ("contentBlockStart", {"contentBlockIndex": 9, "start": {"toolUse": {"name": "x"}}}),
            ValidationError,
        ),
        (("contentBlockStart", {"contentBlockIndex": 0, "start": {}}), BrokenTurn),
        (("contentBlockDelta", {"contentBlockIndex": 9, "delta": {"toolUse": {"input": "{}"}}}), BrokenTurn),
        (("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "after its stop"}}), BrokenTurn),
        (("contentBlockStop", {"contentBlockIndex": 9}), BrokenTurn),
        (("messageStop", {}), ValidationError),
    ],
)
def test_a_malformed_event_breaks_the_turn(event: tuple[str, Any], fault: type[Exception]) -> None:
    with pytest.raises(fault):
        turn([*c_whole()[:-2], event])


def test_an_event_after_the_stop_breaks_the_turn() -> None:
    with pytest.raises(BrokenTurn, match="continued after its end"):
        turn([*c_whole()[:-1], ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "x"}})])


def test_events_of_later_versions_are_skipped() -> None:
    _, done = turn([("ofTomorrow", {"x": 1}), *c_whole()])
    assert done.blocks == (Text("Hello there"),)


# --- models and keys


@pytest.mark.parametrize(
    ("model", "messages"),
    [
        ("anthropic.claude-sonnet-4-20250514-v1:0", True),
        ("us.anthropic.claude-opus-4-1-20250805-v1:0", True),
        ("arn:aws:bedrock:us-east-1:123456789012:inference-profile/eu.anthropic.claude-opus-4-v1:0", True),
        ("model-1", True),
        ("amazon.nova-pro-v1:0", False),
        ("us.amazon.nova-pro-v1:0", False),
        ("meta.llama3-3-70b-instruct-v1:0", False),
        ("openai.gpt-oss-120b-1:0", False),
        ("mistral.mistral-large-2407-v1:0", False),
        ("mistral.not-anthropic-v1:0", False),
        ("arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abcd1234", False),
        ("arn:aws:bedrock:us-east-1::foundation-model/amazon.nova-lite-v1:0", False),
    ],
)
def test_claude_models_use_the_anthropic_api(model: str, messages: bool) -> None:
    assert uses_messages_api(model) is messages


EXPORTED = {
    "Version": 1,
    "AccessKeyId": "AKIAEXAMPLE",
    "SecretAccessKey": "secret/words+",
    "Expiration": "2030",
}


def test_iam_keys_have_the_form_of_the_cli_export() -> None:
    assert IamKeys.from_key(json.dumps(EXPORTED)) == IamKeys("AKIAEXAMPLE", "secret/words+")
    temporary = json.dumps({**EXPORTED, "SessionToken": "token=="}, indent=2)
    assert IamKeys.from_key(f"\n{temporary}\n") == IamKeys("AKIAEXAMPLE", "secret/words+", "token==")
    assert IamKeys.from_key("ABSKQmVkcm9ja0FQSUtleS1leGFtcGxl") is None
    assert "secret" not in repr(IamKeys("AKIAEXAMPLE", "secret/words+", "token=="))


@pytest.mark.parametrize(
    "text",
    [
        '{"AccessKeyId": "AKIAEXAMPLE", "SecretAccessKey": "secret words"}',
        '{"AccessKeyId": "AKIAEXAMPLE", "SecretAccessKey": 5}',
        '{"AccessKeyId": "AKIAEXAMPLE\\n", "SecretAccessKey": "words"}',
        '{"AccessKeyId": "AKIAEXAMPLE", "SecretAccessKey": ""}',
        '{"AccessKeyId": "AKIAEXAMPLE", "SecretAccessKey": "words", "SessionToken": "é"}',
        '{"SecretAccessKey": "words"}',
        '{"AccessKeyId": "AKIAEXAMPLE"}',
        '{"words": ',
        "{" * 100_000,
    ],
)
def test_invalid_iam_keys_are_reported_without_their_text(text: str) -> None:
    with pytest.raises(ProviderNotBuilt, match="aws configure export-credentials") as refused:
        IamKeys.from_key(text)
    assert "words" not in str(refused.value)
    assert "AKIAEXAMPLE" not in str(refused.value)
