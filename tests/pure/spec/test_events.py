"""The catalog of events: every type with its fields, and tolerant readers."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from plangate.api import models
from plangate.api.record import Record, convert
from pydantic import TypeAdapter, ValidationError

from app.events import (
    EVENT_MODELS,
    EVENT_TYPES,
    TERMINAL_TYPES,
    Envelope,
    Event,
    PlanStatusChangeEvent,
    TextEvent,
)

ADAPTER: TypeAdapter[Event] = TypeAdapter(Event)

ENVELOPE: dict[str, Any] = {
    "seq": 7,
    "queryId": "qry_1",
    "threadId": "thr_1",
    "workId": "wrk_2",
    "parentWorkId": None,
    "agent": "helper",
    "at": "2026-01-02T03:04:05.678Z",
}
USAGE = {
    "inputTokens": 1,
    "outputTokens": 2,
    "cacheReadTokens": 3,
    "cacheWriteTokens": 4,
    "reasoningTokens": 5,
}
APPROVAL = {
    "id": "apr_1",
    "kind": "plan",
    "target": "pln_1",
    "digest": "ab",
    "glimpses": {"args": {"n": 1}},
    "queryId": "qry_1",
    "workId": "wrk_2",
    "agent": "helper",
    "threadId": "thr_1",
    "runtimeId": "rt_1",
    "resourceId": "acme",
    "requestedBy": "ann",
    "status": "pending",
    "requestedAt": "2026-01-02T03:04:05.678Z",
    "expiresAt": "2026-01-09T03:04:05.678Z",
    "decidedAt": None,
    "decidedBy": None,
    "votes": [{"principal": "bob", "decision": "approve", "at": "2026-01-02T03:04:06.000Z"}],
    "decision": None,
    "feedback": None,
    "partial": None,
}
ARTIFACT = {
    "id": "art_1",
    "version": 1,
    "channel": "analysis",
    "kind": "report",
    "path": "tasks/wrk_2/a.md",
    "targetAvailable": True,
    "targetChanged": False,
    "isDirectory": False,
    "title": "A",
    "summary": "B",
    "mediaType": "text/markdown",
    "sizeBytes": 3,
    "digest": {"algorithm": "sha256", "value": "ab"},
    "createdAt": "2026-01-02T03:04:05.678Z",
    "producer": {
        "workId": "wrk_2",
        "parentWorkId": "wrk_1",
        "kind": "agent",
        "queryId": "qry_1",
        "threadId": "thr_1",
        "agent": "helper",
        "model": "m-1",
    },
    "status": "active",
    "replaces": "art_0",
    "parentArtifactIds": ["art_0"],
    "competesWith": ["art_2"],
    "tags": ["t"],
    "metadata": {"k": [1]},
}
WORK = {
    "id": "wrk_2",
    "parentId": "wrk_1",
    "kind": "model_call",
    "name": "m-1",
    "agent": "helper",
    "status": "succeeded",
    "startedAt": "2026-01-02T03:04:05.678Z",
    "endedAt": "2026-01-02T03:04:05.679Z",
    "durationMs": 1,
    "model": "m-1",
    "usage": USAGE,
    "costUsd": 0.25,
    "attempts": 1,
    "error": {"message": "m", "code": "c"},
}
CATALOGUE: list[tuple[str, dict[str, Any]]] = [
    ("query-status", {"from": None, "to": "queued"}),
    ("query-status", {"from": "running", "to": "waiting", "reason": "approval"}),
    ("step-start", {"turn": 1}),
    ("step-retry", {"turn": 1, "reason": "interrupted"}),
    ("text", {"text": "Hi\r\n\u2028\0", "turn": 1}),
    ("reasoning", {"text": "Hm", "turn": 1}),
    ("context-trimmed", {"data": {"turns": 2, "tokens": 900}}),
    (
        "tool-invocation",
        {"toolInvocationId": "t1", "toolName": "look", "args": {"id": "†state.x"}, "state": "call"},
    ),
    (
        "tool-invocation",
        {"toolInvocationId": "t1", "toolName": "look", "args": "{", "state": "result", "result": [1, None]},
    ),
    (
        "tool-invocation",
        {
            "toolInvocationId": "t1",
            "toolName": "look",
            "args": {},
            "state": "error",
            "error": {"message": "no", "code": "tool_error"},
        },
    ),
    (
        "tool-progress",
        {"toolName": "look", "label": "Half", "phaseIndex": 1, "totalPhases": 2, "milestone": True},
    ),
    ("tool-agent", {"agentName": "helper", "state": "call"}),
    ("tool-agent", {"agentName": "helper", "state": "result", "artifacts": [ARTIFACT]}),
    ("data-tool-agent", {"data": {"agentName": "helper", "model": "m-1", "usage": USAGE, "costUsd": 0.5}}),
    ("approval-required", {"data": APPROVAL}),
    (
        "approval-comment",
        {
            "data": {
                "id": "cmt_1",
                "approvalId": "apr_1",
                "principal": "bea",
                "count": 2,
                "createdAt": "2026-01-01T00:00:00Z",
            }
        },
    ),
    (
        "approval-decision",
        {"data": {"id": "apr_1", "outcome": {"outcome": "revise"}, "feedback": "less", "decidedBy": "ann"}},
    ),
    ("approval-decision", {"data": {"id": "apr_1", "outcome": {"outcome": "expired"}, "decidedBy": None}}),
    (
        "plan-status-change",
        {
            "data": {
                "planId": "pln_1",
                "revision": 2,
                "from": "draft",
                "to": "pending_approval",
                "label": "Proposed",
            }
        },
    ),
    (
        "action-status-change",
        {"data": {"planId": "pln_1", "index": 0, "kind": "refund", "from": "pending", "to": "dispatched"}},
    ),
    ("reference-created", {"data": {"kind": "Basket", "id": "r1", "glimpse": {"n": 1}, "sizeBytes": 9}}),
    ("state-write", {"data": {"path": "totals.net", "method": "set", "write": "w1"}}),
    ("artifact-published", {"data": ARTIFACT}),
    (
        "artifact-decision",
        {
            "data": {
                "id": "ard_1",
                "kind": "choose",
                "artifactId": "art_1",
                "over": ["art_2"],
                "reason": "Shorter.",
                "createdAt": "2026-01-02T03:04:05.678Z",
                "principal": "ann",
                "producer": {"workId": "wrk_1", "kind": "host", "threadId": "thr_1"},
            }
        },
    ),
    (
        "work-start",
        {"data": {"id": "w", "parentId": None, "kind": "query", "name": "q", "status": "running"}},
    ),
    ("work-end", {"data": WORK}),
    ("custom", {"eventType": "mine", "data": {"any": ["thing"]}}),
    ("data-cost-summary", {"data": {"usage": USAGE, "costUsd": None, "modelCalls": 3}}),
    ("data-latency-summary", {"data": {"elapsedMs": 12}}),
    ("finish", {"finishReason": "stop", "usage": USAGE, "output": {"answer": 1}}),
    ("error", {"error": {"message": "cancelled", "code": "cancelled"}}),
]


@pytest.mark.parametrize(("kind", "fields"), CATALOGUE)
def test_every_event_survives_the_round_trip(kind: str, fields: dict[str, Any]) -> None:
    wire = {**ENVELOPE, "type": kind, **fields}
    parsed = ADAPTER.validate_python(wire)
    assert type(parsed) is EVENT_MODELS[kind]
    assert parsed.model_dump(mode="json", exclude_unset=True) == wire
    event = convert(models.Event, json.loads(json.dumps(wire)))
    assert (type(event).__name__, event.type) == (type(parsed).__name__, kind)
    assert event == wire and json.loads(json.dumps(event)) == wire
    for name in type(parsed).model_fields:
        assert hasattr(event, name), "an attribute of the record is missing"


def test_every_type_has_a_model() -> None:
    assert list(EVENT_TYPES) == list(dict.fromkeys(kind for kind, _ in CATALOGUE))
    assert set(EVENT_TYPES) > TERMINAL_TYPES


def test_every_model_documents_its_type_and_occasion() -> None:
    for kind, model in EVENT_MODELS.items():
        assert model.model_fields["type"].is_required()
        assert get_args(model.model_fields["type"].annotation) == (kind,)
        assert issubclass(model, Envelope)
        assert model.__doc__


def test_the_type_must_be_there() -> None:
    with pytest.raises(ValidationError, match="Unable to extract tag using discriminator 'type'"):
        ADAPTER.validate_python({**ENVELOPE, "text": "Hi", "turn": 1})


@pytest.mark.parametrize("missing", ["seq", "queryId", "workId", "text", "turn"])
def test_a_known_event_needs_its_fields(missing: str) -> None:
    wire = {**ENVELOPE, "type": "text", "text": "Hi", "turn": 1}
    del wire[missing]
    with pytest.raises(ValidationError, match=missing):
        ADAPTER.validate_python(wire)


def test_unknown_fields_are_ignored() -> None:
    parsed = ADAPTER.validate_python({**ENVELOPE, "type": "text", "text": "Hi", "turn": 1, "mood": "good"})
    assert isinstance(parsed, TextEvent)
    assert not hasattr(parsed, "mood")


def test_clients_keep_events_and_fields_of_later_versions() -> None:
    wire = {**ENVELOPE, "type": "from-the-future", "data": {"a": 1}}
    event = convert(models.Event, wire)
    assert type(event) is Record and event == wire
    assert (event.type, event.seq, event.query_id, event.data) == ("from-the-future", 7, "qry_1", {"a": 1})
    text = convert(models.Event, {**ENVELOPE, "type": "text", "text": "Hi", "turn": 1, "mood": "good"})
    assert (type(text), text.mood) == (models.TextEvent, "good")
    with pytest.raises(AttributeError, match="TextEvent has no 'tool_name'; its fields: seq, queryId"):
        _ = text.tool_name


def test_records_hold_records() -> None:
    wire = {**ENVELOPE, "type": "approval-required", "data": {**APPROVAL, "from": 1}}
    event = convert(models.Event, wire)
    assert isinstance(event.data, models.ApprovalInfo) and event.data is event["data"]
    assert event.data.votes[0].principal == "bob" and event.data.from_ == 1
    assert event.data.original_args is None, "an optional field that was left out"
    assert event.data.glimpses.args == {"n": 1}
    plan = convert(models.Subject, {"kind": "plan", "references": []})
    assert (type(plan), type(convert(models.Subject, {"kind": "tool"}))) == (
        models.PlanSubject,
        models.ToolSubject,
    )


def test_events_are_frozen() -> None:
    parsed = ADAPTER.validate_python({**ENVELOPE, "type": "text", "text": "Hi", "turn": 1})
    with pytest.raises(ValidationError, match="frozen"):
        parsed.seq = 8


def test_python_names_are_accepted() -> None:
    made = PlanStatusChangeEvent.model_validate(
        {
            "type": "plan-status-change",
            "seq": 1,
            "query_id": "qry_1",
            "thread_id": "thr_1",
            "work_id": "wrk_1",
            "parent_work_id": None,
            "agent": None,
            "at": "2026-01-02T03:04:05.678Z",
            "data": {"plan_id": "pln_1", "revision": 1, "from_": None, "to": "draft", "label": "draft"},
        }
    )
    assert made.data.from_ is None
    assert made.model_dump(mode="json")["data"]["from"] is None


def test_the_json_schema_discriminates_types() -> None:
    schema = ADAPTER.json_schema(mode="serialization")
    union = schema if "discriminator" in schema else schema["$defs"]["Event"]
    assert set(union["discriminator"]["mapping"]) == set(EVENT_TYPES)
    for model in EVENT_MODELS.values():
        definition = schema["$defs"][model.__name__]
        assert {"type", *ENVELOPE} <= set(definition["required"])
        assert all("_" not in name for name in definition["properties"])


def test_optional_fields_may_be_missing_from_the_wire() -> None:
    required = EVENT_MODELS["query-status"].model_json_schema(mode="serialization")["required"]
    assert "from" in required
    assert "reason" not in required
