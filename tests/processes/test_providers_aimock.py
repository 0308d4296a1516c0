"""The adapters against aimock.

Not for Bedrock, whose events it leaves out of the `bytes` that Amazon wraps them in, nor for Vertex, of which
it knows no path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from app.llm.messages import (
    Message,
    ModelRequest,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolDefinition,
    ToolResultPart,
    ToolUse,
    TurnDone,
)
from app.llm.provider import Overloaded, Provider, ProviderFault, RateLimited, ServerFault
from app.llm.registry import build_provider
from tests.processes.aimock.server import calls, fails, journal, running_aimock, says, script

pytestmark = pytest.mark.long

LONG = "This sentence is long enough to be sent in a good number of pieces, one after the other."
TOOLS = (
    ToolDefinition("weather", "The weather of a city", {"type": "object"}),
    ToolDefinition("clock", "The time in a city", {"type": "object"}),
)
FIXTURES = [
    says(LONG, user="say something"),
    *script(
        calls(("weather", {"city": "Zürich", "days": [1, 2]}), ("clock", {"city": "Oslo"})),
        says("Sunny at noon."),
        userMessage="weather and time",
    ),
    fails(429, "rate_limit_error", retry_after_s=7, user="limited once", sequenceIndex=0),
    says("Now it works.", user="limited once", sequenceIndex=1),
    fails(529, "overloaded_error", user="overloaded"),
    fails(500, "api_error", user="broken"),
    {**says(LONG, user="cut off"), "truncateAfterChunks": 3},
    {**says(LONG, user="hang up"), "latency": 30, "disconnectAfterMs": 100},
    {**says(LONG, user="garbled"), "chaos": {"malformedRate": 1.0}},
    {
        "match": {"userMessage": "think first"},
        "response": {"content": "Four.", "reasoning": "Two and two.", "reasoningSignature": "c2ln"},
    },
    {"match": {"userMessage": "run out"}, "response": {"content": "Half a", "finishReason": "length"}},
]


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    with running_aimock(FIXTURES) as url:
        yield url


KINDS = ("anthropic", "openai")


def built(kind: str, url: str) -> Provider:
    return build_provider(kind, api_key="sk-test", base_url=f"{url}/v1" if kind == "openai" else url)


@pytest.fixture(params=KINDS)
def provider_at(request: pytest.FixtureRequest) -> Callable[[str], Provider]:
    return lambda url: built(request.param, url)


async def parts_of(provider: Provider, *messages: Message) -> list[Any]:
    asked = ModelRequest("any-model", "Be brief.", TOOLS, messages)
    try:
        return [part async for part in provider.stream(asked)]
    finally:
        await provider.aclose()


def user(text: str) -> Message:
    return Message("user", (Text(text),))


async def test_text_arrives_whole(base_url: str, provider_at: Callable[[str], Provider]) -> None:
    *deltas, done = await parts_of(provider_at(base_url), user("say something"))
    assert "".join(part.text for part in deltas if isinstance(part, TextDelta)) == LONG
    assert isinstance(done, TurnDone)
    assert (done.blocks, done.stop_reason) == ((Text(LONG),), "end_turn")


async def test_parallel_calls_and_their_results(
    base_url: str, provider_at: Callable[[str], Provider]
) -> None:
    asked = user("weather and time")
    done = (await parts_of(provider_at(base_url), asked))[-1]
    assert done.stop_reason == "tool_use"
    assert done.blocks == (
        ToolUse("call_weather_0", "weather", '{"city":"Zürich","days":[1,2]}'),
        ToolUse("call_clock_1", "clock", '{"city":"Oslo"}'),
    )
    results = Message(
        "user", (ToolResultPart("call_weather_0", "sunny"), ToolResultPart("call_clock_1", "no clock", True))
    )
    done = (await parts_of(provider_at(base_url), asked, Message("assistant", done.blocks), results))[-1]
    assert done.blocks == (Text("Sunny at noon."),)


async def test_a_limit_then_success() -> None:
    """The counts of aimock are of the server, so that each vendor gets its own."""
    for kind in KINDS:
        with running_aimock(FIXTURES) as url:
            provider = built(kind, url)
            with pytest.raises(RateLimited) as limited:
                await parts_of(provider, user("limited once"))
            assert limited.value.retry_after_s == 7
            assert (await parts_of(built(kind, url), user("limited once")))[-1].blocks == (
                Text("Now it works."),
            )
            assert [entry["response"]["status"] for entry in journal(url)] == [429, 200]


@pytest.mark.parametrize(("says_", "fault"), [("overloaded", Overloaded), ("broken", ServerFault)])
async def test_error_answers(
    says_: str, fault: type[ProviderFault], base_url: str, provider_at: Callable[[str], Provider]
) -> None:
    with pytest.raises(fault, match="on purpose"):
        await parts_of(provider_at(base_url), user(says_))


@pytest.mark.parametrize("how", ["cut off", "hang up", "garbled"])
async def test_a_broken_stream_is_not_a_turn(
    how: str, base_url: str, provider_at: Callable[[str], Provider]
) -> None:
    with pytest.raises(ProviderFault) as fault:
        await parts_of(provider_at(base_url), user(how))
    assert fault.value.retryable


async def test_thinking(base_url: str, provider_at: Callable[[str], Provider]) -> None:
    parts = await parts_of(provider_at(base_url), user("think first"))
    assert "".join(part.text for part in parts if isinstance(part, ThinkingDelta)) == "Two and two."
    thinking, text = parts[-1].blocks
    assert isinstance(thinking, Thinking)
    assert thinking.text == "Two and two."
    assert text == Text("Four.")


async def test_a_turn_at_its_output_limit_is_marked(
    base_url: str, provider_at: Callable[[str], Provider]
) -> None:
    assert (await parts_of(provider_at(base_url), user("run out")))[-1].stop_reason == "max_tokens"
