"""Output of a followed query: one line per relevant event, never the content of a value. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from plangate.cli.terminal_text import (
    as_json,
    escape_lines,
    escape_text,
    format_duration,
    format_money,
    format_size,
    plural,
    total_tokens,
    truncate,
)

TEXT_WIDTH = 160
ERROR_WIDTH = 2000  # where a query ended: what it says is what there is to do
AGENT_WIDTH = 16
SUCCESS_TYPE = "finish"
UNKNOWN = "unknown"

Event = dict[str, Any]


@dataclass(slots=True)
class RunTotals:
    """The totals of an agent's run."""

    calls: int = 0
    tokens: int = 0
    cost_usd: float | None = None
    published: int = 0

    def line(self) -> str:
        parts = [plural(self.calls, "model call")] if self.calls else []
        parts += [plural(self.tokens, "token")] if self.tokens else []
        parts += [format_money(self.cost_usd)] if self.cost_usd is not None else []
        parts += [f"{self.published} published"] if self.published else []
        return ", ".join(parts)


@dataclass(slots=True)
class Watcher:
    """Follows the events of one query."""

    _texts: dict[str, list[str]] = field(default_factory=dict)
    _runs: dict[str, RunTotals] = field(default_factory=dict)

    def lines(self, event: Event) -> list[str]:
        """Return the lines to print for an event. An event of an unknown type has none."""
        describe = getattr(self, "_" + event["type"].replace("-", "_"), None)
        if event["type"] not in PRINTED_TYPES or describe is None:
            return []
        text = describe(event, event.get("data"))
        if text is None:
            return []
        if isinstance(text, list):
            return [str(line) for line in text]
        at = truncate(str(event["at"])[11:19], 8)
        return [f"{at}  {truncate(event.get('agent') or '-', AGENT_WIDTH).ljust(AGENT_WIDTH)}  {text}"]

    def _run(self, work_id: object) -> RunTotals:
        return self._runs.setdefault(str(work_id), RunTotals())

    def _query_status(self, event: Event, _: Any) -> str:
        why = event.get("reason")
        limit = event.get("limit")
        which = f" ({escape_text(limit)}): {resume_command(event['queryId'], limit)}" if limit else ""
        return f"the query is {escape_text(event['to'])}{f': {escape_text(why)}' if why else ''}{which}"

    def _text(self, event: Event, _: Any) -> None:
        self._texts.setdefault(event["workId"], []).append(event["text"])

    def _step_retry(self, event: Event, _: Any) -> str:
        self._texts.pop(event["workId"], None)
        return f"asks its model again: {truncate(event['reason'], TEXT_WIDTH)}"

    def _context_trimmed(self, _: Event, data: Any) -> str:
        return f"its prompt leaves out the oldest {plural(data['turns'], 'turn')} of its memory"

    def _work_start(self, _: Event, data: Any) -> str | None:
        if data["kind"] == "agent":
            return "begins"
        return f"carries out {escape_text(data['name'])}" if data["kind"] == "plan_execution" else None

    def _work_end(self, event: Event, data: Any) -> str | None:
        if data["kind"] == "model_call":
            run = self._run(data.get("parentId"))
            run.calls += 1
            run.tokens += total_tokens(data.get("usage") or {})
            if data.get("costUsd") is not None:
                run.cost_usd = (run.cost_usd or 0) + data["costUsd"]
            text = "".join(self._texts.pop(event["workId"], []))
            if data["status"] == "failed":
                return f"its model failed: {_error(data)}"
            return f"says: {truncate(text, TEXT_WIDTH)}" if text.strip() else None
        if data["kind"] == "agent":
            ended = (
                "ends" if data["status"] == "succeeded" else f"{escape_text(data['status'])}: {_error(data)}"
            )
            line = self._runs.pop(str(data["id"]), RunTotals()).line()
            return f"{ended} ({line})" if line else ended
        return (
            f"{escape_text(data['name'])}: {escape_text(data['status'])}"
            if data["kind"] == "plan_execution"
            else None
        )

    def _tool_invocation(self, event: Event, _: Any) -> str:
        name = escape_text(event["toolName"])
        if event["state"] == "call":
            return f"calls {name}"
        return f"{name}: done" if event["state"] == "result" else f"{name}: {_error(event)}"

    def _tool_progress(self, event: Event, _: Any) -> str:
        n, of = event.get("phaseIndex"), event.get("totalPhases")
        phases = f" ({escape_text(n)}/{escape_text(of)})" if n is not None and of is not None else ""
        return f"{escape_text(event['toolName'])}: {truncate(event['label'], TEXT_WIDTH)}{phases}"

    def _approval_required(self, _: Event, data: Any) -> str:
        what = f"{escape_text(data['kind'])} {truncate(data['target'], 60)}"
        return f"needs an approval of {what}: plangate approvals approve {escape_text(data['id'])}"

    def _approval_comment(self, _: Event, data: Any) -> str:
        return f"{escape_text(data['approvalId'])}: {truncate(data['principal'], 60)} wrote comment {data['count']}"

    def _approval_decision(self, _: Event, data: Any) -> str:
        by = f" by {truncate(data['decidedBy'], 60)}" if data.get("decidedBy") else ""
        feedback = f": {truncate(data['feedback'], TEXT_WIDTH)}" if data.get("feedback") else ""
        return f"{escape_text(data['id'])}: {escape_text(data['outcome']['outcome'])}{by}{feedback}"

    def _plan_status_change(self, _: Event, data: Any) -> str:
        return (
            f"plan {escape_text(data['planId'])}, revision {data['revision']}: {truncate(data['label'], 60)}"
        )

    def _action_status_change(self, _: Event, data: Any) -> str:
        text = f"action {data['index']}, {escape_text(data['kind'])}: {escape_text(data['to'])}"
        return f"{text}: {settle_command(data['planId'], data['index'])}" if data["to"] == UNKNOWN else text

    def _reference_created(self, _: Event, data: Any) -> str:
        return f"keeps {escape_text(data['kind'])} {escape_text(data['id'])[:16]} ({format_size(data['sizeBytes'])}) out of prompts"

    def _state_write(self, _: Event, data: Any) -> str:
        return f"writes {truncate(data['path'], 80)} ({escape_text(data['method'])})"

    def _artifact_published(self, event: Event, data: Any) -> str:
        self._run((data.get("producer") or {}).get("workId") or event["workId"]).published += 1
        return f"published {truncate(data['path'], 80)} ({escape_text(data['channel'])}, {escape_text(data['id'])})"

    def _artifact_decision(self, _: Event, data: Any) -> str:
        verb = "chose" if data["kind"] == "choose" else "withdrew"
        return f"{verb} {escape_text(data['artifactId'])}: {truncate(data['reason'], TEXT_WIDTH)}"

    def _custom(self, event: Event, _: Any) -> str:
        return f"tells {truncate(event['eventType'], 60)}"

    def _data_cost_summary(self, _: Event, data: Any) -> str:
        used = total_tokens(data["usage"])
        cost = format_money(data.get("costUsd")) or ("no price is known" if used else format_money(0))
        calls = plural(data.get("modelCalls") or 0, "model call")
        return f"used {calls}, {plural(used, 'token')}, {cost}"

    def _data_latency_summary(self, _: Event, data: Any) -> str | None:
        return f"took {format_duration(data['elapsedMs'])}" if "elapsedMs" in data else None

    def _finish(self, event: Event, _: Any) -> list[str]:
        return ["", *output_lines(event.get("output"))]

    def _error(self, event: Event, _: Any) -> str:
        return f"the query ended: {_error(event, ERROR_WIDTH)}"


PRINTED_TYPES = frozenset(
    {
        "query-status",
        "text",
        "step-retry",
        "context-trimmed",
        "work-start",
        "work-end",
        "tool-invocation",
        "tool-progress",
        "approval-required",
        "approval-comment",
        "approval-decision",
        "plan-status-change",
        "action-status-change",
        "reference-created",
        "state-write",
        "artifact-published",
        "artifact-decision",
        "custom",
        "data-cost-summary",
        "data-latency-summary",
        "finish",
        "error",
    }
)
"""Those that a person reads; the others say what these do."""


def _error(of: Any, width: int = TEXT_WIDTH) -> str:
    error = of.get("error") or {}
    if not isinstance(error, dict):
        return truncate(error, width)
    return truncate(": ".join(str(error[name]) for name in ("code", "message") if error.get(name)), width)


def resume_command(query: object, limit: object) -> str:
    """Return the command that resumes a query from a limit, such as `maxTurns`."""
    option = re.sub("([A-Z])", r"-\1", escape_text(limit)).lower()
    return f"plangate queries resume {escape_text(query)} --{option} N, higher than it was"


def settle_command(plan: object, index: int) -> str:
    """Return the command that settles an action whose outcome is unknown."""
    return f"plangate plans settle {escape_text(plan)} {index} OUTCOME, once somebody has looked"


def output_lines(output: Any) -> list[str]:
    """Return the lines of a query's output."""
    if output is None:
        return []
    return escape_lines(output if isinstance(output, str) else as_json(output))
