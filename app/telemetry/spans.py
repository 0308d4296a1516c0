"""Build the span of an ended work record. Pure: the same record gives the same span in any process."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

import orjson
from plangate.spec.vendors import VENDORS

from app.base.traces import parse_traceparent, span_id, trace_id
from app.llm.codec import load_turn
from app.llm.messages import Text, Thinking, ToolUse
from app.llm.prices import known_as
from app.telemetry import names

MAX_NAME_CHARS: Final = 200
MAX_CONTENT_CHARS: Final = 32 * 1024  # per text on a span
TRUNCATION_MARK: Final = " (cut)"
ERROR_CODE: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
FINISH_REASONS: Final = {
    "end_turn": "stop",
    "tool_use": "tool_call",
    "max_tokens": "length",
    "refusal": "content_filter",
}

Value = str | int | float | bool | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """A span as it is exported. Times are nanoseconds of Unix time; `error` is its `error.type`."""

    trace_id: int
    span_id: int
    parent_id: int | None
    name: str
    kind: Literal["internal", "client"]
    start_ns: int
    end_ns: int
    attributes: dict[str, Value]
    error: str | None = None
    message: str | None = None  # content: the error's message
    link: tuple[int, int] | None = None  # the span of the caller that started the query
    model: str | None = None  # name of the called model in the price table
    is_repeat: bool = False  # another process ended it and may have exported it: spans with one id merge, measurements do not


def span_from_row(tenant: str, row: Mapping[str, Any], *, content: bool) -> Span:
    """Return the span of a record as `store.ended_records` reads it.

    Without `content`, it contains nothing that a person, a model or a tool wrote, except names of agents,
    tools, models and runtimes, as in the spec.
    """
    kind = row["kind"]
    error = _error_type(row)
    attributes: dict[str, Value | None] = {
        names.WORK_ID: row["id"],
        names.WORK_KIND: kind,
        names.WORK_STATUS: row["status"],
        names.QUERY_ID: row["query_id"],
        names.TENANT: tenant,
        names.CONVERSATION: row["thread_id"],
        names.AGENT: row["agent"] or None,
        **_ATTRIBUTES_BY_KIND.get(kind, _other_attributes)(row),
    }
    if row["attempts"] != 1:
        attributes[names.ATTEMPTS] = row["attempts"]
    if error is not None:
        attributes[names.ERROR_TYPE] = error
    if content:
        attributes.update(_content(row))
    start = _ns(row["started_at"])
    return Span(
        trace_id(row["query_id"]),
        span_id(row["id"]),
        None if row["parent_id"] is None else span_id(row["parent_id"]),
        _name(row),
        "client" if kind == "model_call" else "internal",
        start,
        max(start, _ns(row["ended_at"])),
        {k: v for k, v in attributes.items() if v is not None},
        error,
        truncate(_error_message(row)) if content and error is not None else None,
        parse_traceparent(row["traceparent"] or "") if kind == "query" else None,
        known_as(row["provider"], row["model"]) if row["price_date"] and row["provider"] else None,
    )


def _name(row: Mapping[str, Any]) -> str:
    what = {
        "query": (names.INVOKE_WORKFLOW, row["runtime_name"]),
        "agent": (names.INVOKE_AGENT, row["agent"]),
        "model_call": (names.CHAT, row["model"] or row["name"]),
        "tool_call": (names.EXECUTE_TOOL, _tool(row)),
    }.get(row["kind"], (row["kind"], row["name"]))
    return " ".join(what)[:MAX_NAME_CHARS]


def _query_attributes(row: Mapping[str, Any]) -> dict[str, Value | None]:
    return {
        names.OPERATION: names.INVOKE_WORKFLOW,
        names.WORKFLOW: row["runtime_name"],
        names.RUNTIME_ID: row["runtime_id"],
    }


def _agent_attributes(_row: Mapping[str, Any]) -> dict[str, Value | None]:
    return {names.OPERATION: names.INVOKE_AGENT}


def _model_call_attributes(row: Mapping[str, Any]) -> dict[str, Value | None]:
    cached, written = row["cache_read_tokens"], row["cache_write_tokens"]
    reason = row["stop_reason"]
    return {
        names.OPERATION: names.CHAT,
        names.PROVIDER: provider_name(row["provider"]),
        names.REQUEST_MODEL: row["model"] or row["name"],
        names.REQUEST_STREAM: True,
        names.FINISH_REASONS: None if reason is None else (FINISH_REASONS.get(reason, reason),),
        names.INPUT_TOKENS: row["input_tokens"] + cached + written,  # the conventions include cached ones
        names.OUTPUT_TOKENS: row["output_tokens"],
        names.CACHE_READ_TOKENS: cached or None,
        names.CACHE_WRITE_TOKENS: written or None,
        names.REASONING_TOKENS: row["reasoning_tokens"] or None,
        names.COST_USD: row["cost_usd"],
        names.PRICE_DATE: row["price_date"],
        names.CACHE_KEY: row["prompt_cache_key"],
    }


def _tool_call_attributes(row: Mapping[str, Any]) -> dict[str, Value | None]:
    return {
        names.OPERATION: names.EXECUTE_TOOL,
        names.TOOL: _tool(row),
        names.TOOL_CALL: (row["tool_invocation_id"] or "")[:MAX_NAME_CHARS] or None,
        names.TOOL_TYPE: "function",
    }


def _tool(row: Mapping[str, Any]) -> str:
    """Return the name of the tool. A name that does not exist is text of the model and is replaced."""
    return names.OTHER if _error_type(row) == "unknown_tool" else str(row["name"])[:MAX_NAME_CHARS]


def _other_attributes(_row: Mapping[str, Any]) -> dict[str, Value | None]:
    return {}


_ATTRIBUTES_BY_KIND: Final = {
    "query": _query_attributes,
    "agent": _agent_attributes,
    "model_call": _model_call_attributes,
    "tool_call": _tool_call_attributes,
}


def provider_name(kind: str | None) -> str:
    """Return the name of this kind of provider in the conventions."""
    vendor = VENDORS.get(kind or "")
    return vendor.telemetry_name if vendor else kind or names.OTHER


# -- errors ----------------------------------------------------------------------------------------------------


def _error_type(row: Mapping[str, Any]) -> str | None:
    """Return the `error.type` of a record that did not succeed: a code of this service, never someone's
    text."""
    if row["status"] == "succeeded":
        return None
    if row["status"] == "unknown":
        return "outcome_unknown"
    found = _error_body(row).get("code")
    if isinstance(found, str) and ERROR_CODE.fullmatch(found):
        return found
    return "cancelled" if row["status"] == "cancelled" else names.OTHER


def _error_message(row: Mapping[str, Any]) -> str:
    return str(_error_body(row).get("message", ""))


def _error_body(row: Mapping[str, Any]) -> dict[str, Any]:
    try:
        body = orjson.loads(row["error"] or b"{}")
    except orjson.JSONDecodeError:
        return {}
    return body if isinstance(body, dict) else {}


# -- content -----------------------------------------------------------------------------------------------------


def _content(row: Mapping[str, Any]) -> dict[str, Value | None]:
    """Return input and output of the work.

    A model call has its output only: its input is the agent's prompt and earlier turns and results, each on a
    span of its own.
    """
    given, got = _text(row["input"]), _text(row["output"])
    match row["kind"]:
        case "query":
            return {
                names.INPUT_MESSAGES: _messages("user", [_part(row["prompt"] or "")])
                if row["prompt"]
                else None,
                names.OUTPUT_MESSAGES: None
                if got is None
                else _messages("assistant", [_part(_unquote(got))]),
            }
        case "agent":
            return {
                names.INPUT_MESSAGES: None if given is None else _messages("user", [_part(given)]),
                names.OUTPUT_MESSAGES: None if got is None else _messages("assistant", [_part(got)]),
            }
        case "model_call" if row["output"] is not None:
            blocks, reason = load_turn(row["output"])
            return {
                names.OUTPUT_MESSAGES: _messages(
                    "assistant", [_block(b) for b in blocks], FINISH_REASONS.get(reason, reason)
                )
            }
        case "tool_call" | "action":
            return {
                names.TOOL_ARGUMENTS: None if given is None else truncate(given),
                names.TOOL_RESULT: None if got is None else truncate(got),
            }
    return {}


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")


def _unquote(text: str) -> str:
    """Return a query's output, which is stored as JSON, as text."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    return value if isinstance(value, str) else text


def _messages(role: str, parts: list[dict[str, Any]], finish: str | None = None) -> str:
    ended = {} if finish is None else {"finish_reason": finish}
    return orjson.dumps([{"role": role, "parts": parts, **ended}]).decode()


def _part(text: str) -> dict[str, Any]:
    return {"type": "text", "content": truncate(text)}


def _block(block: Text | Thinking | ToolUse) -> dict[str, Any]:
    match block:
        case Text(text):
            return _part(text)
        case Thinking(text, _):
            return {"type": "reasoning", "content": truncate(text)}
        case ToolUse(id, name, arguments):
            return {"type": "tool_call", "id": id, "name": name, "arguments": truncate(arguments)}


def truncate(text: str) -> str:
    """Return the text, shortened to MAX_CONTENT_CHARS and marked if it is longer."""
    return text if len(text) <= MAX_CONTENT_CHARS else text[:MAX_CONTENT_CHARS] + TRUNCATION_MARK


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _ns(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000
