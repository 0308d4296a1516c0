"""Rebuild one agent's transcript from its work records. Pure."""

from __future__ import annotations

from dataclasses import replace

import orjson

from app.agents.loop import OpenTurn, Transcript, Turn
from app.agents.prompt_window import PromptRecord
from app.calls.models import TurnCall
from app.engine.models import WorkRow, WorkTree
from app.llm.codec import load_turn
from app.llm.messages import ToolUse


def load_transcript(tree: WorkTree, agent_work_id: str, prompt: str) -> Transcript:
    """One agent's run as its records tell it. The newest model call may be open: it is repeated."""
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


def _call_from_record(row: WorkRow, use: ToolUse) -> TurnCall:
    if not row.over:
        return TurnCall(row.id, use, row.position)
    failed = row.error is not None
    return TurnCall(row.id, use, row.position, answer_text(row), failed)


def answer_text(row: WorkRow) -> str:
    """Return what the model reads of a closed tool call."""
    if row.error is not None:
        return str(orjson.loads(row.error)["message"])
    return (row.output or b"").decode()
