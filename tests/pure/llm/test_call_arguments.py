"""Tool calls as models write them: what is stored, and what is sent back to a vendor."""

from __future__ import annotations

import json

import pytest

from app.agents.model_calls import storable_call
from app.llm.messages import ToolUse
from app.llm.openai_turn import OpenAITurn
from app.llm.wire import arguments_object


@pytest.mark.parametrize(
    "written", ['{"n": NaN}', '{"n": 1e999}', r'{"n": "\ud800"}', '{"n": "\0"}', '{"n"', "[1]"]
)
def test_arguments_that_are_not_objects_are_wrapped(written: str) -> None:
    wrapped = arguments_object(written)
    assert wrapped == {"INVALID_JSON": written}
    json.dumps(wrapped, ensure_ascii=False, allow_nan=False).encode()  # as httpx writes a request


def test_valid_arguments_are_sent_unchanged() -> None:
    assert arguments_object('{"n": 123456789012345678901234567890}') == {"n": 123456789012345678901234567890}


def test_a_repaired_name_matches_no_tool() -> None:
    names = ["a_b", "a_b_", "c_"]
    assert storable_call(ToolUse("i\0", "a\0b", "{}"), names) == ToolUse("i_", "a_b__", "{}")
    assert storable_call(ToolUse("i", "c\udfff", "{}"), names).name == "c__"
    assert storable_call(ToolUse("i", "a_b", "{}"), names).name == "a_b"


def test_a_character_split_across_pieces_is_joined() -> None:
    turn = OpenAITurn("m")
    for piece in ('{"x":"\ud83d', '\ude00"}'):
        function = {"name": "a", "arguments": piece}
        delta = {"tool_calls": [{"index": 0, "id": "c", "function": function}]}
        list(turn.feed({"choices": [{"index": 0, "delta": delta}]}))
    list(turn.feed({"choices": [{"index": 0, "finish_reason": "tool_calls"}]}))
    (use,) = turn.result().blocks
    assert isinstance(use, ToolUse)
    assert json.loads(storable_call(use, ["a"]).arguments) == {"x": "😀"}
