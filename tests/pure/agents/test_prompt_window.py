"""Which turns of memory fit a prompt: whole turns, the newest first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.agents.prompt_window import (
    KEPT_SHARE,
    DroppedTurns,
    PastTurn,
    PromptContext,
    PromptRecord,
    fixed_size,
    messages_size,
    prompt_tokens,
)
from app.llm.messages import Message, Text, Thinking, ToolDefinition, ToolResultPart, ToolUse, Usage
from app.llm.prices import window


def user(text: str) -> Message:
    return Message("user", (Text(text),))


def turn(name: str, size: int) -> PastTurn:
    """With a call and its answer: the two are never parted."""
    said = (
        user("x" * size),
        Message("assistant", (ToolUse(name, "", ""),)),
        Message("user", (ToolResultPart(name, ""),)),
        Message("assistant", (Text("done"),)),
    )
    return PastTurn(f"wrk_{name}", said, size)


def context(*sizes: int, room: int | None, **parts: object) -> PromptContext:
    past = tuple(turn(str(n), size) for n, size in enumerate(sizes))
    return PromptContext(past, room=room, tokens_per_byte=1.0, **parts)  # type: ignore[arg-type]


OWN = (user("now"),)


@pytest.mark.parametrize("room", [None, 303])
def test_the_whole_memory_is_used_while_it_fits(room: int | None) -> None:
    full = context(100, 100, 100, room=room)
    assert full.fit(OWN) == full
    assert full.prompt(OWN) == (*(m for t in full.past for m in t.messages), *OWN)


def test_the_oldest_turns_are_dropped_down_to_a_share() -> None:
    fitted = context(100, 100, 100, 100, room=402).fit(OWN)
    assert [t.work_id for t in fitted.past] == ["wrk_2", "wrk_3"]
    assert fitted.left_out == DroppedTurns(2, 200, "wrk_1")
    assert fitted.fit(OWN) == fitted


@given(st.lists(st.integers(0, 500), max_size=8), st.integers(1, 2000), st.integers(0, 600))
def test_only_whole_oldest_turns_are_dropped(sizes: list[int], room: int, own: int) -> None:
    full = context(*sizes, room=room)
    said = (user("x" * own),)
    fitted = full.fit(said)
    gone = fitted.left_out.turns
    assert fitted.past == full.past[gone:]
    assert fitted.left_out.tokens == sum(sizes[:gone])
    size = own + sum(sizes[gone:])
    if gone:
        assert own + sum(sizes) > room
        assert size + sizes[gone - 1] > room * KEPT_SHARE
        assert size <= room * KEPT_SHARE or not fitted.past
    else:
        assert size <= room or not fitted.past


@given(st.lists(st.integers(0, 500), min_size=1, max_size=8))
def test_a_rejected_prompt_loses_at_least_half_of_its_memory(sizes: list[int]) -> None:
    left: PromptContext | None = context(*sizes, room=None)
    before = sum(sizes) * 2 + 1
    while left is not None and left.past:
        turns = len(left.past)
        left = left.smaller()
        assert left is not None
        assert len(left.past) < turns
        assert sum(t.size for t in left.past) <= before / 2
        before = max(sum(t.size for t in left.past), 1)
        assert len(left.past) + left.left_out.turns == len(sizes)
    assert left is not None
    assert left.smaller() is None


def test_the_estimate_uses_the_vendors_last_count() -> None:
    cold = PromptContext()
    assert cold.measured(40_000, Usage(1_000, 9, 6_000, 1_000)).tokens_per_byte == 0.2
    assert cold.measured(4_000, Usage(900)) == cold  # too small to say anything
    assert cold.measured(100, Usage(8_000)).tokens_per_byte == 1.0
    assert cold.measured(10**7, Usage(8_000)).tokens_per_byte == 0.1


def test_sizes_are_bytes_of_text() -> None:
    said = (
        Message(
            "assistant", (Text("añ"), Thinking("hm", {"signature": "s" * 99}), ToolUse("id", "tool", "{}"))
        ),
        Message("user", (ToolResultPart("id", "漢"),)),
    )
    assert messages_size(said) == 3 + 2 + 8 + 5
    assert fixed_size("You.", [ToolDefinition("t", "does", {"type": "object"})]) == 4 + 1 + 4 + 17


@pytest.mark.parametrize(
    "given_",
    [PromptRecord(7), PromptRecord(7, DroppedTurns(2, 30, "wrk_1"), "Not JSON.")],
)
def test_records_round_trip(given_: PromptRecord) -> None:
    assert PromptRecord.load(given_.dump()) == given_


def test_the_room_is_the_window_without_the_answer() -> None:
    assert prompt_tokens(None, 100, None) is None
    assert prompt_tokens(200_000, None, None) == 200_000 - 16_384
    assert prompt_tokens(200_000, 4_000, {"type": "enabled", "budget_tokens": 9}) == 196_000
    assert prompt_tokens(200_000, None, {"type": "enabled", "budget_tokens": 10_000}) == 200_000 - 26_384
    assert prompt_tokens(8_192, None, None) == 4_096


def test_windows_come_from_the_table() -> None:
    assert window("openai", "gpt-4o-mini") == 128_000
    assert window("anthropic", "claude-sonnet-4-5") == 200_000
    assert window("openai", "a-model-of-ones-own") is None
    assert window("mock", "gpt-4o-mini") is None
