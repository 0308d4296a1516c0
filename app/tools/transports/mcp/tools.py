"""The tools and results of MCP servers in the terms of the service. Pure."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from plangate.json_pointer import escape_step
from plangate.spec.transports import McpTransport

from app.base.json import strict_json
from app.tools.models import Attempt, result_from_value
from app.tools.results import ToolError, ToolResult

MAX_ERROR_CHARS = 2_000
MAX_NAME_CHARS = 64
ACTION_FIELDS = ("planId", "revision", "digest", "actions", "resolvedRefs", "inputs")
META = "plangate/"
"""Before the names of what goes along with a call in its `_meta`."""


@dataclass(frozen=True, slots=True)
class RemoteTool:
    """A tool as its server defines it."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None = None
    annotations: Mapping[str, Any] = field(default_factory=dict)

    def digest(self) -> str:
        """Return the digest of exactly this definition. Raise NotJson if JSON cannot represent it."""
        definition = {
            "name": self.name,
            "description": self.description,
            "inputSchema": self.input_schema,
            "outputSchema": self.output_schema,
            "annotations": self.annotations,
        }
        return hashlib.sha256(strict_json.canonical(definition)).hexdigest()

    def spec(self, name: str, server: McpTransport) -> dict[str, Any]:
        """Return a ToolSpec for the tool under this name, with the hints that the server gives: the author
        decides whether to believe them."""
        promises = {
            ours: True
            for ours, theirs in (("readOnly", "readOnlyHint"), ("idempotent", "idempotentHint"))
            if self.annotations.get(theirs) is True
        }
        transport = server.to_wire() | {"definitionDigest": self.digest()}
        return {
            "name": name,
            **({"description": self.description} if self.description else {}),
            "inputSchema": self.input_schema,
            **({"outputSchema": self.output_schema} if self.output_schema else {}),
            **({"annotations": promises} if promises else {}),
            "transport": transport | ({"tool": self.name} if name != self.name else {}),
        }


def specs(tools: Iterable[RemoteTool], server: McpTransport) -> list[dict[str, Any]]:
    """Return ToolSpecs for the tools of a server, each under a unique name that a spec accepts."""
    specs_by_name: dict[str, dict[str, Any]] = {}
    times: Counter[str] = Counter()
    for tool in tools:
        plain = _plain_name(tool.name)
        name = plain
        while name in specs_by_name:
            times[plain] += 1
            number = f"_{times[plain] + 1}"
            name = plain[: MAX_NAME_CHARS - len(number)] + number
        specs_by_name[name] = tool.spec(name, server)
    return list(specs_by_name.values())


def _plain_name(remote: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", remote)
    return (plain if re.match(r"[A-Za-z_]", plain) else f"_{plain}")[:MAX_NAME_CHARS]


def difference(ours: Any, theirs: Any, pointer: str = "") -> str | None:
    """Return the first difference of two JSON values in words, or None if they are equal."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        for key in sorted({*ours, *theirs}):
            place = f"{pointer}/{escape_step(key)}"
            if key not in ours:
                return f"{place} is {_short(theirs[key])} there and absent here"
            if key not in theirs:
                return f"{place} is absent there and {_short(ours[key])} here"
            inside = difference(ours[key], theirs[key], place)
            if inside is not None:
                return inside
        return None
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        items = (
            difference(a, b, f"{pointer}/{n}") for n, (a, b) in enumerate(zip(ours, theirs, strict=True))
        )
        return next((item for item in items if item is not None), None)
    if strict_json.canonical(ours) == strict_json.canonical(theirs):
        return None
    return f"{pointer or 'it'} is {_short(theirs)} there and {_short(ours)} here"


def _short(value: Any) -> str:
    text = strict_json.dumps(value).decode()
    return text if len(text) <= 80 else f"{text[:79]}…"


def arguments(attempt: Attempt) -> dict[str, Any]:
    """Return the arguments of a call: those of the tool, or approved actions in the form for dispatchers."""
    request = attempt.request
    if "args" in request:
        args: dict[str, Any] = request["args"]
        return args
    return {**{name: request.get(name) for name in ACTION_FIELDS}, "attempt": attempt.number}


def meta(attempt: Attempt) -> dict[str, Any]:
    """Return the metadata that is sent along, for receivers that track calls."""
    call = attempt.call
    return {
        f"{META}idempotencyKey": call.idempotency_key,
        f"{META}queryId": call.query_id,
        f"{META}workId": call.work_id,
    }


def outcome(attempt: Attempt, result: Mapping[str, Any]) -> ToolResult:
    """Return the result of a call from the result of its `tools/call`."""
    name = attempt.call.name
    if result.get("resultType") == "input_required":
        return ToolError(f"{name} asks for input in mid-call, which the service does not give.")
    content: list[Any] = result.get("content") or []
    if result.get("isError"):
        return ToolError(_error(content))
    return result_from_value(name, _output(result, content, as_object=attempt.call.purpose == "action"))


def _output(result: Mapping[str, Any], content: list[Any], *, as_object: bool) -> Any:
    if result.get("structuredContent") is not None:
        return result["structuredContent"]
    if not content:
        return None
    if len(content) > 1 or content[0].get("type") != "text":
        return content
    text = content[0]["text"]
    if as_object:
        try:
            parsed = orjson.loads(text)
        except orjson.JSONDecodeError:
            return text
        return parsed if isinstance(parsed, dict) else text
    return text


def _error(content: list[Any]) -> str:
    texts = [str(block.get("text", "")) for block in content if block.get("type") == "text"]
    return readable_text("\n".join(texts)) or "it failed without a word"


def readable_text(text: str) -> str:
    """Return a text of the server for use in a message."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").strip()[:MAX_ERROR_CHARS]
