"""Build the span of an ended work record. Pure: the same record gives the same span in any process."""

from __future__ import annotations

import re
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
class EndedRecord:
    """A work record that has ended, with what its span needs of its query and runtime.

    `error` is a JSON object. `input`, `output` and `prompt` are None unless the operator wants content on spans.
    """

    id: str
    parent_id: str | None
    kind: str
    name: str
    agent: str
    status: str
    query_id: str
    thread_id: str
    tool_invocation_id: str | None
    provider: str | None
    model: str | None
    prompt_cache_key: str | None
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    cost_usd: float | None
    price_date: str | None
    attempts: int
    error: bytes | None
    started_at: datetime
    ended_at: datetime
    runtime_id: str
    runtime_name: str
    traceparent: str | None
    stop_reason: str | None
    input: bytes | None
    output: bytes | None
    prompt: str | None


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


@dataclass(frozen=True, slots=True)
class Count:
    """A number for operators, by its name and the value of its label."""

    name: str
    label: str
    value: float


def span_from_record(tenant: str, record: EndedRecord, *, content: bool) -> Span:
    """Return the span of a work record that has ended.

    Without `content`, it contains nothing that a person, a model or a tool wrote, except names of agents,
    tools, models and runtimes, as in the spec.
    """
    kind = record.kind
    error = _error_type(record)
    attributes: dict[str, Value | None] = {
        names.WORK_ID: record.id,
        names.WORK_KIND: kind,
        names.WORK_STATUS: record.status,
        names.QUERY_ID: record.query_id,
        names.TENANT: tenant,
        names.CONVERSATION: record.thread_id,
        names.AGENT: record.agent or None,
        **_ATTRIBUTES_BY_KIND.get(kind, _other_attributes)(record),
    }
    if record.attempts != 1:
        attributes[names.ATTEMPTS] = record.attempts
    if error is not None:
        attributes[names.ERROR_TYPE] = error
    if content:
        attributes.update(_content(record))
    start = _ns(record.started_at)
    return Span(
        trace_id(record.query_id),
        span_id(record.id),
        None if record.parent_id is None else span_id(record.parent_id),
        _name(record),
        "client" if kind == "model_call" else "internal",
        start,
        max(start, _ns(record.ended_at)),
        {k: v for k, v in attributes.items() if v is not None},
        error,
        truncate(_error_message(record)) if content and error is not None else None,
        parse_traceparent(record.traceparent or "") if kind == "query" else None,
        known_as(record.provider, record.model)
        if record.price_date and record.provider and record.model
        else None,
    )


def _name(record: EndedRecord) -> str:
    what = {
        "query": (names.INVOKE_WORKFLOW, record.runtime_name),
        "agent": (names.INVOKE_AGENT, record.agent),
        "model_call": (names.CHAT, record.model or record.name),
        "tool_call": (names.EXECUTE_TOOL, _tool(record)),
    }.get(record.kind, (record.kind, record.name))
    return " ".join(what)[:MAX_NAME_CHARS]


def _query_attributes(record: EndedRecord) -> dict[str, Value | None]:
    return {
        names.OPERATION: names.INVOKE_WORKFLOW,
        names.WORKFLOW: record.runtime_name,
        names.RUNTIME_ID: record.runtime_id,
    }


def _agent_attributes(_record: EndedRecord) -> dict[str, Value | None]:
    return {names.OPERATION: names.INVOKE_AGENT}


def _model_call_attributes(record: EndedRecord) -> dict[str, Value | None]:
    cache_reads, cache_writes = record.cache_read_tokens, record.cache_write_tokens
    reason = record.stop_reason
    return {
        names.OPERATION: names.CHAT,
        names.PROVIDER: provider_name(record.provider),
        names.REQUEST_MODEL: record.model or record.name,
        names.REQUEST_STREAM: True,
        names.FINISH_REASONS: None if reason is None else (FINISH_REASONS.get(reason, reason),),
        names.INPUT_TOKENS: record.input_tokens
        + cache_reads
        + cache_writes,  # the conventions include cached ones
        names.OUTPUT_TOKENS: record.output_tokens,
        names.CACHE_READ_TOKENS: cache_reads or None,
        names.CACHE_WRITE_TOKENS: cache_writes or None,
        names.REASONING_TOKENS: record.reasoning_tokens or None,
        names.COST_USD: record.cost_usd,
        names.PRICE_DATE: record.price_date,
        names.CACHE_KEY: record.prompt_cache_key,
    }


def _tool_call_attributes(record: EndedRecord) -> dict[str, Value | None]:
    return {
        names.OPERATION: names.EXECUTE_TOOL,
        names.TOOL: _tool(record),
        names.TOOL_CALL: (record.tool_invocation_id or "")[:MAX_NAME_CHARS] or None,
        names.TOOL_TYPE: "function",
    }


def _tool(record: EndedRecord) -> str:
    """Return the name of the tool. A name that does not exist is text of the model and is replaced."""
    return names.OTHER if _error_type(record) == "unknown_tool" else str(record.name)[:MAX_NAME_CHARS]


def _other_attributes(_record: EndedRecord) -> dict[str, Value | None]:
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


def _error_type(record: EndedRecord) -> str | None:
    """Return the `error.type` of a record that did not succeed: a code of this service, never someone's
    text."""
    if record.status == "succeeded":
        return None
    if record.status == "unknown":
        return "outcome_unknown"
    code = _error_body(record).get("code")
    if isinstance(code, str) and ERROR_CODE.fullmatch(code):
        return code
    return "cancelled" if record.status == "cancelled" else names.OTHER


def _error_message(record: EndedRecord) -> str:
    return str(_error_body(record).get("message", ""))


def _error_body(record: EndedRecord) -> dict[str, Any]:
    try:
        body = orjson.loads(record.error or b"{}")
    except orjson.JSONDecodeError:
        return {}
    return body if isinstance(body, dict) else {}


# -- content -----------------------------------------------------------------------------------------------------


def _content(record: EndedRecord) -> dict[str, Value | None]:
    """Return input and output of the work.

    A model call has its output only: its input is the agent's prompt and earlier turns and results, each on a
    span of its own.
    """
    input, output = _text(record.input), _text(record.output)
    match record.kind:
        case "query":
            return {
                names.INPUT_MESSAGES: _messages("user", [_part(record.prompt)]) if record.prompt else None,
                names.OUTPUT_MESSAGES: None
                if output is None
                else _messages("assistant", [_part(_unquote(output))]),
            }
        case "agent":
            return {
                names.INPUT_MESSAGES: None if input is None else _messages("user", [_part(input)]),
                names.OUTPUT_MESSAGES: None if output is None else _messages("assistant", [_part(output)]),
            }
        case "model_call" if record.output is not None:
            blocks, reason = load_turn(record.output)
            return {
                names.OUTPUT_MESSAGES: _messages(
                    "assistant", [_block(b) for b in blocks], FINISH_REASONS.get(reason, reason)
                )
            }
        case "tool_call" | "action":
            return {
                names.TOOL_ARGUMENTS: None if input is None else truncate(input),
                names.TOOL_RESULT: None if output is None else truncate(output),
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
