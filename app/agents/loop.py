"""The loop: a transcript in, the next step out. Pure: no clock, no database, no model.

A transcript is rebuilt from the work records of one agent's run. The runner takes the steps and decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from app.calls.models import TurnCall
from app.llm.messages import Message, StopReason, Text, Thinking, ToolResultPart, ToolUse, Usage

OutputBlock = Text | Thinking | ToolUse


@dataclass(frozen=True, slots=True)
class Turn:
    """A completed model turn, and the calls that it requested."""

    number: int
    blocks: tuple[OutputBlock, ...]
    stop_reason: StopReason
    calls: tuple[TurnCall, ...] = ()
    objection: str | None = None  # to its answer, if that was not accepted
    is_accepted: bool = False  # its answer matches the outputSchema


@dataclass(frozen=True, slots=True)
class OpenTurn:
    """A model call that was begun and never closed, because of a crash or a fault. It is repeated."""

    work_id: str
    number: int
    attempts: int
    usage: Usage = field(default_factory=Usage)  # of all attempts so far
    cost_usd: float | None = None  # of all attempts so far


@dataclass(frozen=True, slots=True)
class Transcript:
    """One agent's run so far. What the agent remembers of earlier runs is not part of it (memory.py)."""

    prompt: str
    turns: tuple[Turn, ...] = ()
    open_turn: OpenTurn | None = None
    has_output_schema: bool = False


@dataclass(frozen=True, slots=True)
class CallModel:
    """Request turn `number` from the model. `messages` are the run's own. `retry_of` is the open record of a failed
    attempt. `objection` is the last message, if the turn before had no valid answer."""

    number: int
    messages: tuple[Message, ...]
    retry_of: OpenTurn | None = None
    objection: str | None = None


@dataclass(frozen=True, slots=True)
class RunTools:
    """Run these calls in parallel."""

    calls: tuple[TurnCall, ...]


@dataclass(frozen=True, slots=True)
class CheckAnswer:
    """Check a final answer against the agent's outputSchema, and record the result with `with_objection`."""

    text: str


@dataclass(frozen=True, slots=True)
class FinishRun:
    text: str
    reason: Literal["end_turn", "max_tokens", "refusal"]


@dataclass(frozen=True, slots=True)
class FailRun:
    code: str
    message: str


Step = CallModel | RunTools | CheckAnswer | FinishRun | FailRun


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
            objection = last.objection
            if objection is None:
                is_unchecked = transcript.has_output_schema and not last.is_accepted
                if is_unchecked and last.stop_reason != "refusal":
                    return CheckAnswer(_text(last))
                return _final_step(last)
    number = len(transcript.turns) + 1
    if number > max_turns:
        return FailRun("max_turns", f"The agent did not finish within its {max_turns} turns.")
    return CallModel(number, transcript_messages(transcript), transcript.open_turn, objection)


def with_objection(transcript: Transcript, objection: str | None) -> Transcript:
    """Return the transcript with an objection to the answer in its last turn, or, without one, with the answer
    accepted."""
    *earlier, last = transcript.turns
    checked = replace(last, objection=objection, is_accepted=objection is None)
    return replace(transcript, turns=(*earlier, checked))


def _text(turn: Turn) -> str:
    return "".join(b.text for b in turn.blocks if isinstance(b, Text))


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
            answers = (ToolResultPart(c.use.id, c.answer or "", c.is_error, c.on_record) for c in turn.calls)
            out.append(Message("user", tuple(answers)))
        elif turn.objection is not None:
            out.append(Message("user", (Text(turn.objection),)))
    return tuple(out)
