"""Rebuild one agent's transcript from its work records. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import orjson
from plangate.spec.toolkits import RESOLVE

from app.agents.loop import OpenTurn, Transcript, Turn
from app.agents.prompt_window import PromptRecord
from app.calls.models import TurnCall
from app.engine.models import WorkEntry, WorkTree
from app.llm.codec import load_turn
from app.llm.messages import ToolUse

SHOWN_BYTES_FIELD: Final = "shownBytes"
"""In the record of a `resolveRef`: how many bytes of the value its model was shown."""

NOT_HERE: Final = "The value is no longer available here. Resolve the reference again if you need it."


@dataclass(frozen=True, slots=True)
class ResolvedRecord:
    """The record of a `resolveRef`: the handle, glimpse and size, and the note to the model before the answer."""

    note: str
    handle: dict[str, Any]


def read_resolved(output: str) -> ResolvedRecord | None:
    """Return the record of a `resolveRef` that showed a value, or None if it showed none."""
    note, newline, text = output.rpartition("\n")
    try:
        handle = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(handle, dict) or not handle.get(SHOWN_BYTES_FIELD) or "kind" not in handle:
        return None
    return ResolvedRecord(note + newline, handle)


def unavailable_text(record: ResolvedRecord, why: str) -> str:
    """Return the text that a model reads in place of a value that it was shown earlier."""
    handle = {name: value for name, value in record.handle.items() if name != SHOWN_BYTES_FIELD}
    return record.note + orjson.dumps({**handle, "note": why}).decode()


def load_transcript(tree: WorkTree, agent_work_id: str, prompt: str) -> Transcript:
    """Return one agent's run from its records. The newest model call may be open: it is repeated."""
    turns: list[Turn] = []
    open_turn: OpenTurn | None = None
    calls = sorted(tree.below(agent_work_id, "tool_call"), key=lambda r: r.position)
    for row in sorted(tree.below(agent_work_id, "model_call"), key=lambda r: r.position):
        if turns and row.input is not None:
            turns[-1] = replace(turns[-1], objection=PromptRecord.load(row.input).objection)
        if row.status != "succeeded" or row.output is None:
            open_turn = OpenTurn(row.id, row.position, row.attempts, row.usage, row.cost_usd)
            continue
        open_turn = None
        blocks, stop_reason = load_turn(row.output)
        uses = [b for b in blocks if isinstance(b, ToolUse)]
        mine, calls = calls[: len(uses)], calls[len(uses) :]
        turns.append(
            Turn(
                row.position,
                blocks,
                stop_reason,
                tuple(_call_from_record(work, use) for work, use in zip(mine, uses, strict=True)),
            )
        )
    return Transcript(prompt, tuple(turns), open_turn)


def _call_from_record(row: WorkEntry, use: ToolUse) -> TurnCall:
    if not row.over:
        return TurnCall(row.id, use, row.position)
    if row.error is not None:
        return TurnCall(row.id, use, row.position, str(orjson.loads(row.error)["message"]), True)
    output = (row.output or b"").decode()
    resolved = read_resolved(output) if row.name == RESOLVE else None
    if resolved is None:
        return TurnCall(row.id, use, row.position, output)
    return TurnCall(row.id, use, row.position, unavailable_text(resolved, NOT_HERE), False, output)
