"""Notes of a run come after the system prompt, outside the vendor's cache."""

from __future__ import annotations

from dataclasses import replace

from app.llm import anthropic, openai
from app.llm.messages import Message, ModelRequest, Text

PLAIN = ModelRequest("m", "You help.", (), (Message("user", (Text("hi"),)),))
NOTED = replace(PLAIN, notes="There is †input.a.")


def test_anthropic_gets_a_separate_block_without_a_breakpoint() -> None:
    before, after = anthropic.request_body(PLAIN)["system"], anthropic.request_body(NOTED)["system"]
    assert after == [*before, {"type": "text", "text": "There is †input.a."}]
    assert "cache_control" in before[-1]
    assert anthropic.request_body(replace(NOTED, system=""))["system"] == after[1:]


def test_openai_gets_a_second_system_message() -> None:
    before, after = (openai.request_body(request, "max_tokens")["messages"] for request in (PLAIN, NOTED))
    assert after == [before[0], {"role": "system", "content": "There is †input.a."}, *before[1:]]
