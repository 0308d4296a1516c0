"""Output of `plangate watch`: one line per relevant event, and never a value."""

from __future__ import annotations

from typing import Any

import pytest
from plangate.cli.watch import PRINTED_TYPES, Watcher

from app.events import EVENT_TYPES
from tests.pure.cli.test_terminal_text import HOSTILE, harmless

USAGE = {
    "inputTokens": 1000,
    "outputTokens": 200,
    "cacheReadTokens": 34,
    "cacheWriteTokens": 0,
    "reasoningTokens": 0,
}
SECRET = "what stands in the file"
SILENT = {"step-start", "reasoning", "tool-agent", "data-tool-agent"}


def event(type_: str, work: str = "wrk_1", **fields: Any) -> dict[str, Any]:
    at = {"seq": 1, "queryId": "qry_1", "threadId": "thr_1", "workId": work, "parentWorkId": "wrk_0"}
    return {"type": type_, **at, "agent": "clerk", "at": "2026-11-21T17:32:34.000Z", **fields}


ARTIFACT = {
    "id": "art_1",
    "channel": "design",
    "path": "tasks/1/plan.md",
    "title": "The plan",
    "summary": SECRET,
    "producer": {"workId": "wrk_agent", "agent": "clerk"},
}
APPROVAL = {"id": "apr_1", "kind": "tool", "target": "pay", "glimpses": {"args": SECRET}}
PLAN = {"planId": "pln_1", "revision": 2, "from": "draft", "to": "approved", "label": "Approved"}
ACTION = {"planId": "pln_1", "index": 0, "kind": "book", "from": "pending", "to": "dispatched"}
KEPT = {"kind": "Seats", "id": "0123456789abcdef0123", "glimpse": SECRET, "sizeBytes": 20_000}
RUN = {"id": "wrk_agent", "parentId": None, "kind": "agent", "name": "clerk", "status": "succeeded"}
CALL = {
    "id": "wrk_m",
    "parentId": "wrk_agent",
    "kind": "model_call",
    "name": "m",
    "status": "succeeded",
    "usage": USAGE,
}
TOOL = {"toolInvocationId": "u1", "toolName": "write", "args": {"content": SECRET}}
ERROR = {"code": "tool_error", "message": "it broke"}

COMMENT = {
    "id": "cmt_1",
    "approvalId": "apr_1",
    "principal": "bea",
    "count": 2,
    "createdAt": "2026-01-01T00:00:00Z",
}
LINES: list[tuple[dict[str, Any], str | None]] = [
    (event("query-status", **{"from": None, "to": "queued"}), "the query is queued"),
    (event("query-status", to="waiting", reason="approval"), "the query is waiting: approval"),
    (
        event("query-status", to="waiting", reason="limit_reached", limit="maxTurns"),
        "the query is waiting: limit_reached (maxTurns): plangate queries resume qry_1 --max-turns N, higher than it was",
    ),
    (event("step-retry", turn=1, reason="overloaded"), "asks its model again: overloaded"),
    (
        event("context-trimmed", data={"turns": 2, "tokens": 9}),
        "its prompt leaves out the oldest 2 turns of its memory",
    ),
    (event("work-start", data=RUN), "begins"),
    (event("work-start", data={**RUN, "kind": "plan_execution", "name": "Routing"}), "carries out Routing"),
    (event("work-start", data={**RUN, "kind": "tool_call"}), None),
    (event("work-end", data=RUN), "ends"),
    (event("work-end", data={**RUN, "status": "failed", "error": ERROR}), "failed: tool_error: it broke"),
    (
        event("work-end", data={**CALL, "status": "failed", "error": ERROR}),
        "its model failed: tool_error: it broke",
    ),
    (event("work-end", data=CALL), None),
    (event("work-end", data={**RUN, "kind": "plan_execution", "name": "Routing"}), "Routing: succeeded"),
    (event("tool-invocation", **TOOL, state="call"), "calls write"),
    (event("tool-invocation", **TOOL, state="result", result=SECRET), "write: done"),
    (event("tool-invocation", **TOOL, state="error", error=ERROR), "write: tool_error: it broke"),
    (
        event("tool-progress", toolName="find", label="rows", phaseIndex=2, totalPhases=5),
        "find: rows (2/5)",
    ),
    (event("tool-progress", toolName="find", label="rows"), "find: rows"),
    (
        event("approval-required", data=APPROVAL),
        "needs an approval of tool pay: plangate approvals approve apr_1",
    ),
    (event("approval-comment", data=COMMENT), "apr_1: bea wrote comment 2"),
    (
        event(
            "approval-decision",
            data={"id": "apr_1", "outcome": {"outcome": "reject"}, "feedback": "no", "decidedBy": "ann"},
        ),
        "apr_1: reject by ann: no",
    ),
    (event("approval-decision", data={"id": "apr_1", "outcome": {"outcome": "expired"}}), "apr_1: expired"),
    (event("plan-status-change", data=PLAN), "plan pln_1, revision 2: Approved"),
    (event("action-status-change", data=ACTION), "action 0, book: dispatched"),
    (
        event("action-status-change", data={**ACTION, "to": "unknown"}),
        "action 0, book: unknown: plangate plans settle pln_1 0 OUTCOME, once somebody has looked",
    ),
    (event("reference-created", data=KEPT), "keeps Seats 0123456789abcdef (20.0 kB) out of prompts"),
    (event("state-write", data={"path": "a.b", "method": "set", "write": 1}), "writes a.b (set)"),
    (event("artifact-published", data=ARTIFACT), "published tasks/1/plan.md (design, art_1)"),
    (
        event("artifact-decision", data={"kind": "withdraw", "artifactId": "art_1", "reason": "Wrong."}),
        "withdrew art_1: Wrong.",
    ),
    (event("custom", eventType="mine", data=SECRET), "tells mine"),
    (
        event("data-cost-summary", data={"usage": USAGE, "costUsd": 0.25, "modelCalls": 3}),
        "used 3 model calls, 1,234 tokens, $0.2500",
    ),
    (
        event("data-cost-summary", data={"usage": USAGE, "costUsd": None, "modelCalls": 1}),
        "used 1 model call, 1,234 tokens, no price is known",
    ),
    (
        event("data-cost-summary", data={"usage": dict.fromkeys(USAGE, 0), "costUsd": None, "modelCalls": 1}),
        "used 1 model call, 0 tokens, $0.00",
    ),
    (event("data-latency-summary", data={"elapsedMs": 12_300}), "took 12.3 s"),
    (event("error", error=ERROR), "the query ended: tool_error: it broke"),
    (
        event("error", error={"code": "c", "message": "x" * 900}),
        "the query ended: c: " + "x" * 900,
    ),
    (event("step-start", turn=1), None),
    (event("a-type-of-tomorrow", data=SECRET), None),
]


@pytest.mark.parametrize(("told", "line"), LINES, ids=lambda v: v["type"] if isinstance(v, dict) else "")
def test_the_line_of_an_event(told: dict[str, Any], line: str | None) -> None:
    expected = [] if line is None else [f"17:32:34  clerk             {line}"]
    assert Watcher().lines(told) == expected
    assert SECRET not in "".join(expected)


def test_every_event_type_is_printed_or_explicitly_omitted() -> None:
    assert set(EVENT_TYPES) == PRINTED_TYPES | SILENT
    assert {told["type"] for told, _ in LINES} >= PRINTED_TYPES - {"text", "finish"}


def test_the_text_of_a_turn_is_printed_once_complete() -> None:
    watcher = Watcher()
    for text in ("Dear ", "Ann,\n", "x" * 300):
        assert watcher.lines(event("text", "wrk_m", text=text, turn=1)) == []
    (line,) = watcher.lines(event("work-end", "wrk_m", data=CALL))
    assert line.endswith("says: Dear Ann, " + "x" * 147 + "...")
    assert watcher.lines(event("work-end", "wrk_m", data=CALL)) == []


def test_the_text_of_a_retried_turn_is_dropped() -> None:
    watcher = Watcher()
    watcher.lines(event("text", "wrk_m", text="wrong", turn=1))
    watcher.lines(event("step-retry", "wrk_m", turn=1, reason="overloaded"))
    watcher.lines(event("text", "wrk_m", text="right", turn=1))
    (line,) = watcher.lines(event("work-end", "wrk_m", data=CALL))
    assert line.endswith("says: right")


def test_the_end_of_a_run_shows_its_outcome() -> None:
    watcher = Watcher()
    watcher.lines(event("work-end", "wrk_m", data={**CALL, "costUsd": 0.25}))
    watcher.lines(event("work-end", "wrk_n", data=CALL))
    for _ in range(3):
        watcher.lines(event("artifact-published", "wrk_tool", data=ARTIFACT))
    (line,) = watcher.lines(event("work-end", "wrk_agent", data=RUN))
    assert line.endswith("ends (2 model calls, 2,468 tokens, $0.2500, 3 published)")


@pytest.mark.parametrize(
    ("output", "lines"),
    [
        ("Two\nlines", ["", "Two", "lines"]),
        ({"a": ["\x1b"]}, ["", "{", '  "a": [', '    "\\u001b"', "  ]", "}"]),
        (None, [""]),
        ("a\x1b[2Jb", ["", "a\\x1b[2Jb"]),
    ],
)
def test_the_answer_is_printed_whole(output: Any, lines: list[str]) -> None:
    assert Watcher().lines(event("finish", finishReason="end_turn", usage=USAGE, output=output)) == lines


def hostile(value: Any) -> Any:
    """The same with every string a hostile one, but for those that say what it is."""
    if isinstance(value, dict):
        kept = ("type", "state")
        return {k: v if k in kept else hostile(v) for k, v in value.items()}
    return HOSTILE if isinstance(value, str) else value


@pytest.mark.parametrize("told", [told for told, _ in LINES], ids=lambda told: told["type"])
def test_event_strings_are_escaped_for_the_terminal(told: dict[str, Any]) -> None:
    bad = hostile(told)
    for kind in ("agent", "model_call", "plan_execution"):
        if told["type"].startswith("work-"):
            bad["data"]["kind"] = kind
        assert all(harmless(line) and "\n" not in line for line in Watcher().lines(bad))
