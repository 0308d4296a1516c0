"""From a work record to its span: ids, names, errors, and optional content."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
from opentelemetry.semconv.attributes import error_attributes
from plangate.spec.vendors import VENDORS

from app.base import traces
from app.base.ids import min_id, new_id, with_prefix
from app.llm.codec import dump_turn
from app.llm.messages import Text, Thinking, ToolUse
from app.telemetry import names
from app.telemetry.spans import (
    MAX_CONTENT_CHARS,
    MAX_NAME_CHARS,
    TRUNCATION_MARK,
    EndedRecord,
    span_from_record,
)

QUERY = new_id("qry_")
BEGAN = datetime(2026, 11, 22, 1, 2, 3, 456789, tzinfo=UTC)
SECRET = "sk-hostile-4711"


def record_of(kind: str = "agent", **parts: Any) -> EndedRecord:
    """A record as the store reads it."""
    record = EndedRecord(
        id=new_id("wrk_"),
        parent_id=with_prefix("wrk_", QUERY),
        kind=kind,
        name="solo",
        agent="solo",
        status="succeeded",
        query_id=QUERY,
        thread_id="thr_1",
        tool_invocation_id=None,
        provider=None,
        model=None,
        prompt_cache_key=None,
        input_tokens=0,
        output_tokens=0,
        cache_read_tokens=0,
        cache_write_tokens=0,
        reasoning_tokens=0,
        cost_usd=None,
        price_date=None,
        attempts=1,
        error=None,
        started_at=BEGAN,
        ended_at=BEGAN + timedelta(seconds=2),
        runtime_id="rt_1",
        runtime_name="travel",
        traceparent=None,
        stop_reason=None,
        input=None,
        output=None,
        prompt=None,
    )
    return replace(record, **parts)


# -- ids


def query_id(trace: int) -> str:
    """Return the only query id with this trace id: 26 characters of Crockford's base32 are its 128 bits."""
    digits = "0123456789abcdefghjkmnpqrstvwxyz"
    return "qry_" + "".join(digits[trace >> shift & 31] for shift in range(125, -1, -5))


def test_the_trace_is_the_query_and_the_root_span_shares_its_id() -> None:
    root = span_from_record(
        "acme", record_of("query", id=with_prefix("wrk_", QUERY), parent_id=None), content=False
    )
    child = span_from_record("acme", record_of(), content=False)
    assert query_id(root.trace_id) == QUERY
    assert root.trace_id == child.trace_id
    assert root.parent_id is None
    assert child.parent_id == root.span_id == root.trace_id % 2**64
    assert child.span_id != root.span_id


@given(st.integers(0, 2**48 - 1))
def test_a_trace_id_converts_to_the_query_id(ms: int) -> None:
    query = min_id("qry_", ms)[:-16] + new_id("qry_")[-16:]  # as an id that was created then
    assert 0 <= traces.trace_id(query) < 2**128
    assert query_id(traces.trace_id(query)) == query


def test_a_span_id_is_never_zero() -> None:
    assert traces.span_id("wrk_" + "0" * 26) == 1


def test_a_called_service_can_continue_the_trace() -> None:
    work = new_id("wrk_")
    header = traces.traceparent(QUERY, work)
    assert traces.parse_traceparent(header) == (traces.trace_id(QUERY), traces.span_id(work))


@pytest.mark.parametrize(
    "header",
    [
        "",
        "00",
        "00-" + "0" * 32 + "-" + "1" * 16 + "-01",
        "00-" + "1" * 32 + "-" + "0" * 16 + "-01",
        "00-" + "A" * 32 + "-" + "1" * 16 + "-01",
        "ff-" + "1" * 32 + "-" + "1" * 16 + "-01",
        "00-" + "1" * 32 + "-" + "1" * 16 + "-01\n",
        "00-" + "1" * 32 + "-" + "1" * 16 + "-01-more",
    ],
)
def test_an_invalid_traceparent_is_ignored(header: str) -> None:
    assert traces.parse_traceparent(header) is None


# -- names


def test_attribute_names_follow_the_conventions() -> None:
    theirs = {
        value
        for module in (gen_ai_attributes, gen_ai_metrics, error_attributes)
        for value in vars(module).values()
        if isinstance(value, str)
    }
    ours = {v for k, v in vars(names).items() if isinstance(v, str) and v.startswith(("gen_ai.", "error."))}
    assert len(ours) > 20
    assert ours <= theirs


def test_operations_and_providers_follow_the_conventions() -> None:
    source = gen_ai_attributes.__file__
    with open(source, encoding="utf-8") as file:
        text = file.read()  # its enums warn that they moved when they are used
    for value in (
        names.CHAT,
        names.INVOKE_AGENT,
        names.EXECUTE_TOOL,
        names.INVOKE_WORKFLOW,
        *(vendor.telemetry_name for vendor in VENDORS.values()),
    ):
        assert f' = "{value}"\n' in text, value


@pytest.mark.parametrize(
    ("parts", "name", "kind"),
    [
        ({"kind": "query", "name": "agent"}, "invoke_workflow travel", "internal"),
        ({"kind": "agent"}, "invoke_agent solo", "internal"),
        ({"kind": "model_call", "name": "m-1", "model": "m-1"}, "chat m-1", "client"),
        ({"kind": "tool_call", "name": "find"}, "execute_tool find", "internal"),
        ({"kind": "plan_execution", "name": "Routing"}, "plan_execution Routing", "internal"),
        ({"kind": "action", "name": "actions.Routing"}, "action actions.Routing", "internal"),
    ],
)
def test_a_span_is_named_for_its_operation(parts: dict[str, Any], name: str, kind: str) -> None:
    span = span_from_record("acme", record_of(**parts), content=False)
    assert (span.name, span.kind) == (name, kind)


def test_every_span_names_its_tenant_and_agent() -> None:
    record = record_of(attempts=3)
    span = span_from_record("acme", record, content=False)
    assert span.attributes == {
        "plangate.work.id": record.id,
        "plangate.work.kind": "agent",
        "plangate.work.status": "succeeded",
        "plangate.query.id": QUERY,
        "plangate.tenant": "acme",
        "plangate.attempts": 3,
        "gen_ai.conversation.id": "thr_1",
        "gen_ai.agent.name": "solo",
        "gen_ai.operation.name": "invoke_agent",
    }
    assert span.start_ns == 1795309323456789000
    assert span.end_ns == span.start_ns + 2_000_000_000


def test_a_model_call_span_includes_cached_tokens() -> None:
    record = record_of(
        "model_call",
        model="claude",
        provider="bedrock",
        input_tokens=100,
        cache_read_tokens=40,
        cache_write_tokens=2,
        output_tokens=7,
        reasoning_tokens=3,
        cost_usd=0.25,
        price_date="genai-prices 0.2",
        prompt_cache_key="k",
        stop_reason="max_tokens",
    )
    found = span_from_record("acme", record, content=False).attributes
    assert found["gen_ai.provider.name"] == "aws.bedrock"
    assert found["gen_ai.request.model"] == "claude"
    assert found["gen_ai.usage.input_tokens"] == 142
    assert found["gen_ai.usage.cache_read.input_tokens"] == 40
    assert found["gen_ai.usage.cache_creation.input_tokens"] == 2
    assert found["gen_ai.usage.output_tokens"] == 7
    assert found["gen_ai.usage.reasoning.output_tokens"] == 3
    assert found["gen_ai.response.finish_reasons"] == ("length",)
    assert found["plangate.cost_usd"] == 0.25
    assert found["plangate.price_date"] == "genai-prices 0.2"


def test_a_model_without_a_price_has_no_cost() -> None:
    found = span_from_record(
        "acme", record_of("model_call", model="m", provider="mock", input_tokens=1), content=False
    )
    assert "plangate.cost_usd" not in found.attributes
    assert found.attributes["gen_ai.provider.name"] == "mock"


def test_a_span_never_ends_before_it_begins() -> None:
    span = span_from_record("acme", record_of(ended_at=BEGAN - timedelta(seconds=1)), content=False)
    assert span.end_ns == span.start_ns


def test_names_have_an_end() -> None:
    span = span_from_record(
        "acme", record_of("tool_call", name="n" * 5000, tool_invocation_id="i" * 5000), content=False
    )
    assert len(span.name) == MAX_NAME_CHARS
    assert all(len(str(value)) <= MAX_NAME_CHARS for value in span.attributes.values())


# -- errors


@pytest.mark.parametrize(
    ("status", "error", "told"),
    [
        ("succeeded", None, None),
        ("failed", {"code": "bad_arguments", "message": SECRET}, "bad_arguments"),
        ("failed", {"code": SECRET.upper(), "message": "x"}, "_OTHER"),
        ("failed", {"code": {"a": SECRET}}, "_OTHER"),
        ("failed", [SECRET], "_OTHER"),
        ("failed", None, "_OTHER"),
        ("cancelled", None, "cancelled"),
        ("cancelled", {"code": "interrupted", "message": "x"}, "interrupted"),
        ("unknown", {"code": "x", "message": SECRET}, "outcome_unknown"),
    ],
)
def test_an_error_has_our_code(status: str, error: Any, told: str | None) -> None:
    record = record_of(status=status, error=None if error is None else json.dumps(error).encode())
    span = span_from_record("acme", record, content=False)
    assert span.error == told
    assert span.attributes.get("error.type") == told
    assert span.message is None
    assert SECRET.lower() not in repr(span).lower()


def test_an_error_that_is_not_json_has_a_generic_code() -> None:
    assert (
        span_from_record("acme", record_of(status="failed", error=SECRET.encode()), content=False).error
        == "_OTHER"
    )


def test_an_invented_tool_is_not_named() -> None:
    error = json.dumps({"code": "unknown_tool", "message": "x"}).encode()
    span = span_from_record(
        "acme", record_of("tool_call", name=SECRET, status="failed", error=error), content=False
    )
    assert span.name == "execute_tool _OTHER"
    assert SECRET not in repr(span)


# -- content

HOSTILE = {
    "input": SECRET.encode(),
    "output": SECRET.encode(),
    "prompt": SECRET,
}


@pytest.mark.parametrize(
    "kind", ["query", "agent", "model_call", "tool_call", "action", "plan_execution", "predicate"]
)
def test_without_content_a_span_has_no_text(kind: str) -> None:
    record = record_of(
        kind,
        name="n",
        status="failed",
        error=json.dumps({"code": "c", "message": SECRET}).encode(),
        **HOSTILE,
    )
    span = span_from_record("acme", record, content=False)
    assert SECRET not in repr(span)
    assert not names.CONTENT & span.attributes.keys()


def test_with_content_an_agent_span_has_prompt_and_answer() -> None:
    found = span_from_record("acme", record_of(input=b"Go to Oslo", output=b"Done"), content=True).attributes
    assert json.loads(str(found["gen_ai.input.messages"])) == [
        {"role": "user", "parts": [{"type": "text", "content": "Go to Oslo"}]}
    ]
    assert json.loads(str(found["gen_ai.output.messages"])) == [
        {"role": "assistant", "parts": [{"type": "text", "content": "Done"}]}
    ]


def test_with_content_a_query_span_has_prompt_and_answer() -> None:
    found = span_from_record(
        "acme", record_of("query", prompt="Go", output=b'"Done"'), content=True
    ).attributes
    assert json.loads(str(found["gen_ai.input.messages"]))[0]["parts"][0]["content"] == "Go"
    assert json.loads(str(found["gen_ai.output.messages"]))[0]["parts"][0]["content"] == "Done"


def test_with_content_a_model_call_span_has_its_turn() -> None:
    blocks = (Thinking("hm", {"signature": SECRET}), Text("I look"), ToolUse("t1", "find", '{"n":1}'))
    record = record_of("model_call", model="m", provider="mock", output=dump_turn(blocks, "tool_use"))
    span = span_from_record("acme", record, content=True)
    assert json.loads(str(span.attributes["gen_ai.output.messages"])) == [
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": "hm"},
                {"type": "text", "content": "I look"},
                {"type": "tool_call", "id": "t1", "name": "find", "arguments": '{"n":1}'},
            ],
            "finish_reason": "tool_call",
        }
    ]
    assert SECRET not in repr(span)


def test_with_content_a_tool_span_has_arguments_and_result() -> None:
    error = json.dumps({"code": "tool_error", "message": "no such flight"}).encode()
    span = span_from_record(
        "acme", record_of("tool_call", status="failed", input=b'{"n":1}', error=error), content=True
    )
    assert span.attributes["gen_ai.tool.call.arguments"] == '{"n":1}'
    assert span.message == "no such flight"
    done = span_from_record("acme", record_of("tool_call", input=b"{}", output=b"7"), content=True)
    assert done.attributes["gen_ai.tool.call.result"] == "7"


def test_long_content_is_truncated() -> None:
    found = span_from_record("acme", record_of("tool_call", output=b"x" * 10**6), content=True).attributes
    assert found["gen_ai.tool.call.result"] == "x" * MAX_CONTENT_CHARS + TRUNCATION_MARK
