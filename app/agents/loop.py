"""The loop: a transcript in, the next step out. Pure: no clock, no database, no model.

A transcript is what the work records of one agent's run say. The runner does the steps and decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from app.calls.models import TurnCall
from app.llm.messages import Message, StopReason, Text, Thinking, ToolResult, ToolUse, Usage

OutputBlock = Text | Thinking | ToolUse
Objection = Callable[[str], str | None]  # why a final answer does not match the outputSchema


@dataclass(frozen=True, slots=True)
class Turn:
    """A model turn that came to its end, and the calls it asked for."""

    number: int
    blocks: tuple[OutputBlock, ...]
    stop_reason: StopReason
    calls: tuple[TurnCall, ...] = ()
    objection: str | None = None  # what was said to its answer, if that was not accepted


@dataclass(frozen=True, slots=True)
class OpenTurn:
    """A model call that was begun and never closed: a crash or a fault came between. It is repeated."""

    work_id: str
    number: int
    attempts: int
    usage: Usage = field(default_factory=Usage)  # of its attempts so far
    cost_usd: float | None = None  # of these


@dataclass(frozen=True, slots=True)
class Transcript:
    """One agent's run so far; what it remembers of earlier ones is not its own (context.py)."""

    prompt: str
    turns: tuple[Turn, ...] = ()
    open_turn: OpenTurn | None = None
    objection: Objection | None = None


@dataclass(frozen=True, slots=True)
class CallModel:
    """Ask the model for turn `number`; `messages` are the run's own. `retry_of` is the open record of an attempt that
    came to nothing; `objection` is what the messages end with, where the turn before was no answer."""

    number: int
    messages: tuple[Message, ...]
    retry_of: OpenTurn | None = None
    objection: str | None = None


@dataclass(frozen=True, slots=True)
class RunTools:
    """Bring these calls to their answers, in parallel."""

    calls: tuple[TurnCall, ...]


@dataclass(frozen=True, slots=True)
class FinishRun:
    text: str
    reason: Literal["end_turn", "max_tokens", "refusal"]


@dataclass(frozen=True, slots=True)
class FailRun:
    code: str
    message: str


Step = CallModel | RunTools | FinishRun | FailRun


def next_step(transcript: Transcript, max_turns: int) -> Step:
    """Return what to do next. Open calls are answered before the next turn; a turn without calls is the
    end."""
    objection: str | None = None
    if transcript.turns:
        last = transcript.turns[-1]
        unanswered = tuple(c for c in last.calls if c.answer is None)
        if unanswered:
            return RunTools(unanswered)
        if not last.calls:
            objection = _objection(transcript, last)
            if objection is None:
                return _final_step(last)
            transcript = with_objection(transcript, objection)
    number = len(transcript.turns) + 1
    if number > max_turns:
        return FailRun("max_turns", f"The agent did not finish within its {max_turns} turns.")
    return CallModel(number, transcript_messages(transcript), transcript.open_turn, objection)


def with_objection(transcript: Transcript, objection: str | None) -> Transcript:
    """With what was said to its last turn."""
    if objection is None:
        return transcript
    *earlier, last = transcript.turns
    return replace(transcript, turns=(*earlier, replace(last, objection=objection)))


def _text(turn: Turn) -> str:
    return "".join(b.text for b in turn.blocks if isinstance(b, Text))


def _objection(transcript: Transcript, turn: Turn) -> str | None:
    """Why a turn without calls is not the end: its answer does not match the agent's outputSchema."""
    if turn.objection is not None:  # it is on record
        return turn.objection
    if transcript.objection is None or turn.stop_reason == "refusal":
        return None
    return transcript.objection(_text(turn))


def _final_step(turn: Turn) -> Step:
    text = _text(turn)
    if turn.stop_reason == "refusal":
        return FailRun("model_refused", text or "The model declined to answer.")
    if turn.stop_reason == "max_tokens":
        return FinishRun(text, "max_tokens")
    return FinishRun(text, "end_turn")


def transcript_messages(transcript: Transcript) -> tuple[Message, ...]:
    """Return the run as the model gets it: the prompt, then each turn with the answers to its calls, or
    with the objection to its answer."""
    out = [Message("user", (Text(transcript.prompt),))]
    for turn in transcript.turns:
        out.append(Message("assistant", turn.blocks or (Text("(no output)"),)))
        if turn.calls:
            answers = (ToolResult(c.use.id, c.answer or "", c.is_error, c.on_record) for c in turn.calls)
            out.append(Message("user", tuple(answers)))
        elif turn.objection is not None:
            out.append(Message("user", (Text(turn.objection),)))
    return tuple(out)
