"""The loop: any transcript leads to a defined step, and an open call is answered before the next turn."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from app.agents.loop import (
    CallModel,
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
from app.llm.messages import Message, Text, Thinking, ToolResult, ToolUse

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
def test_every_transcript_leads_to_the_step_that_its_last_turn_asks_for(
    transcript: Transcript, most: int
) -> None:
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
def test_a_model_is_asked_only_with_every_call_answered_right_after_its_turn(transcript: Transcript) -> None:
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
            assert [b.tool_use_id for b in answers.blocks if isinstance(b, ToolResult)] == uses
        assert message.blocks


@given(transcripts())
def test_answering_what_is_open_leads_on(transcript: Transcript) -> None:
    step = next_step(transcript, 100)
    if not isinstance(step, RunTools):
        return
    last = transcript.turns[-1]
    calls = tuple(replace(c, answer="done") if c.answer is None else c for c in last.calls)
    answered = replace(transcript, turns=(*transcript.turns[:-1], replace(last, calls=calls)))
    assert isinstance(next_step(answered, 100), CallModel)


def test_what_is_said_to_an_answer_is_decided_once_and_stays() -> None:
    asked: list[str] = []

    def objection(text: str) -> str | None:
        asked.append(text)
        return None if text == "1" else f"{text} is no number."

    first = Turn(1, (Text("one"),), "end_turn")
    step = next_step(Transcript("count", (first,), None, objection), 2)
    said = (Message("user", (Text("count"),)), Message("assistant", (Text("one"),)))
    told = (*said, Message("user", (Text("one is no number."),)))
    assert step == CallModel(2, told, None, "one is no number.")
    kept = with_objection(Transcript("count", (first,), None, objection), step.objection)
    again = replace(kept, turns=(*kept.turns, Turn(2, (Text("1"),), "end_turn")))
    assert next_step(again, 2) == FinishRun("1", "end_turn")
    assert transcript_messages(again) == (*told, Message("assistant", (Text("1"),)))
    assert asked == ["one", "1"]


def test_what_is_on_record_of_an_answer_is_not_judged_again() -> None:
    turn = Turn(1, (Text("one"),), "end_turn", objection="No.")
    step = next_step(Transcript("p", (turn,), OpenTurn("wrk", 2, 1), lambda _: None), 2)
    assert isinstance(step, CallModel)
    assert (step.messages[-1], step.objection) == (Message("user", (Text("No."),)), "No.")


def test_a_turn_without_output_still_says_something() -> None:
    use = ToolUse("a", "tool", "{}")
    silent = Turn(1, (), "tool_use", (TurnCall("wrk", use, 0, "x"),))
    assert transcript_messages(Transcript("p", (silent,)))[1] == Message("assistant", (Text("(no output)"),))
