"""The loop: any transcript leads to a defined step, and an open call is answered before the next turn."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from app.agents.loop import (
    CallModel,
    CheckAnswer,
    FailRun,
    FinishRun,
    OpenTurn,
    RunTools,
    Transcript,
    Turn,
    next_step,
    transcript_messages,
    with_objection,
)
from app.calls.models import TurnCall
from app.llm.messages import Message, Text, Thinking, ToolResultPart, ToolUse

STOPS = st.sampled_from(["end_turn", "tool_use", "max_tokens", "refusal"])
TEXTS = st.text(max_size=5)


@st.composite
def turns(draw: st.DrawFn, number: int, last: bool) -> Turn:
    blocks: list[Text | Thinking | ToolUse] = []
    blocks += [Text(t) for t in draw(st.lists(TEXTS, max_size=2))]
    blocks += [Thinking(t) for t in draw(st.lists(TEXTS, max_size=1))]
    calls = []
    for n in range(draw(st.integers(0 if last else 1, 3))):
        use = ToolUse(f"call-{number}-{n}", "tool", "{}")
        blocks.append(use)
        answered = not last or draw(st.booleans())
        answer = draw(TEXTS) if answered else None
        calls.append(TurnCall(f"wrk-{number}-{n}", use, n, answer, draw(st.booleans())))
    return Turn(number, tuple(blocks), draw(STOPS), tuple(calls))


@st.composite
def transcripts(draw: st.DrawFn) -> Transcript:
    count = draw(st.integers(0, 5))
    made = tuple(draw(turns(n, n == count)) for n in range(1, count + 1))
    opened = draw(st.none() | st.just(OpenTurn("wrk-open", count + 1, 2)))
    return Transcript(draw(TEXTS), made, opened)


@given(transcripts(), st.integers(1, 7))
def test_every_transcript_leads_to_the_next_step(transcript: Transcript, most: int) -> None:
    step = next_step(transcript, most)
    last = transcript.turns[-1] if transcript.turns else None
    unanswered = [c for c in last.calls if c.answer is None] if last else []
    if unanswered:
        assert step == RunTools(tuple(unanswered))
    elif last is not None and not last.calls:
        text = "".join(b.text for b in last.blocks if isinstance(b, Text))
        if last.stop_reason == "refusal":
            assert isinstance(step, FailRun)
            assert step.code == "model_refused"
        else:
            reason = "max_tokens" if last.stop_reason == "max_tokens" else "end_turn"
            assert step == FinishRun(text, reason)  # type: ignore[arg-type]
    elif len(transcript.turns) >= most:
        assert isinstance(step, FailRun)
        assert (step.code, str(most) in step.message) == ("max_turns", True)
    else:
        assert step == CallModel(
            len(transcript.turns) + 1, transcript_messages(transcript), transcript.open_turn
        )


@given(transcripts())
def test_a_model_call_requires_results_for_all_calls(transcript: Transcript) -> None:
    step = next_step(transcript, 100)
    if not isinstance(step, CallModel):
        return
    said = list(step.messages)
    assert said[0] == Message("user", (Text(transcript.prompt),))
    for at, message in enumerate(said):
        uses = [b.id for b in message.blocks if isinstance(b, ToolUse)]
        if uses:
            assert message.role == "assistant"
            answers = said[at + 1]
            assert answers.role == "user"
            assert [b.tool_use_id for b in answers.blocks if isinstance(b, ToolResultPart)] == uses
        assert message.blocks


@given(transcripts())
def test_results_for_open_calls_advance_the_loop(transcript: Transcript) -> None:
    step = next_step(transcript, 100)
    if not isinstance(step, RunTools):
        return
    last = transcript.turns[-1]
    calls = tuple(replace(c, answer="done") if c.answer is None else c for c in last.calls)
    answered = replace(transcript, turns=(*transcript.turns[:-1], replace(last, calls=calls)))
    assert isinstance(next_step(answered, 100), CallModel)


def test_each_answer_is_checked_once_against_an_output_schema() -> None:
    first = Turn(1, (Text("one"),), "end_turn")
    transcript = Transcript("count", (first,), has_output_schema=True)
    assert next_step(transcript, 2) == CheckAnswer("one")
    rejected = with_objection(transcript, "one is no number.")
    asked = (Message("user", (Text("count"),)), Message("assistant", (Text("one"),)))
    corrected = (*asked, Message("user", (Text("one is no number."),)))
    assert next_step(rejected, 2) == CallModel(2, corrected, None, "one is no number.")
    assert next_step(rejected, 1) == FailRun("max_turns", "The agent did not finish within its 1 turns.")
    again = replace(rejected, turns=(*rejected.turns, Turn(2, (Text("1"),), "end_turn")))
    assert next_step(again, 2) == CheckAnswer("1")
    accepted = with_objection(again, None)
    assert next_step(accepted, 2) == FinishRun("1", "end_turn")
    assert transcript_messages(accepted) == (*corrected, Message("assistant", (Text("1"),)))


def test_a_refusal_is_not_checked_against_the_output_schema() -> None:
    turn = Turn(1, (Text("No."),), "refusal")
    step = next_step(Transcript("p", (turn,), has_output_schema=True), 2)
    assert step == FailRun("model_refused", "No.")


def test_a_recorded_answer_is_not_checked_again() -> None:
    turn = Turn(1, (Text("one"),), "end_turn", objection="No.")
    step = next_step(Transcript("p", (turn,), OpenTurn("wrk", 2, 1), has_output_schema=True), 2)
    assert isinstance(step, CallModel)
    assert (step.messages[-1], step.objection) == (Message("user", (Text("No."),)), "No.")


def test_a_turn_without_output_has_text() -> None:
    use = ToolUse("a", "tool", "{}")
    silent = Turn(1, (), "tool_use", (TurnCall("wrk", use, 0, "x"),))
    assert transcript_messages(Transcript("p", (silent,)))[1] == Message("assistant", (Text("(no output)"),))
