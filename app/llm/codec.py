"""Encode turns for work records as readable JSON. Pure."""

from __future__ import annotations

from typing import Any

import orjson

from app.llm.messages import Block, StopReason, Text, Thinking, ToolResultPart, ToolUse


def dump_turn(blocks: tuple[Text | Thinking | ToolUse, ...], stop_reason: StopReason) -> bytes:
    """Return `{"blocks": [...], "stopReason": ...}`. A tool's arguments stay the text that the model
    wrote."""
    return orjson.dumps({"blocks": [_dump(b) for b in blocks], "stopReason": stop_reason})


def load_turn(data: bytes) -> tuple[tuple[Text | Thinking | ToolUse, ...], StopReason]:
    """Decode what `dump_turn` returned."""
    raw = orjson.loads(data)
    return tuple(_load(b) for b in raw["blocks"]), raw["stopReason"]


def block_wire(block: Block) -> dict[str, Any]:
    """Return a block of any message in a readable form."""
    if isinstance(block, ToolResultPart):
        return {
            "type": "tool_result",
            "toolUseId": block.tool_use_id,
            "content": block.content,
            "isError": block.is_error,
        }
    return _dump(block)


def _dump(block: Text | Thinking | ToolUse) -> dict[str, Any]:
    match block:
        case Text(text):
            return {"type": "text", "text": text}
        case Thinking(text, opaque):
            return {"type": "thinking", "text": text, "opaque": opaque}
        case ToolUse(id, name, arguments):
            return {"type": "tool_use", "id": id, "name": name, "arguments": arguments}


def _load(raw: dict[str, Any]) -> Text | Thinking | ToolUse:
    match raw["type"]:
        case "text":
            return Text(raw["text"])
        case "thinking":
            return Thinking(raw["text"], raw["opaque"])
        case "tool_use":
            return ToolUse(raw["id"], raw["name"], raw["arguments"])
        case other:
            raise ValueError(f"a work record has a block of the unknown type {other!r}")
