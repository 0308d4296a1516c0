"""Interpreters without a model: the script in the prompt, the fixed text, the echo."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.llm.messages import (
    Message,
    ModelRequest,
    StreamPart,
    Text,
    TextDelta,
    ToolResultPart,
    ToolUse,
    TurnDone,
)
from app.llm.provider import Provider, ProviderNotBuilt, RequestRejected
from app.llm.registry import build_provider


def user(text: str) -> Message:
    return Message("user", (Text(text),))


def result(content: str, call: int, *, is_error: bool = False) -> Message:
    return Message("user", (ToolResultPart(f"scripted-tool-{call}", content, is_error),))


async def parts_of(provider: Provider, *messages: Message) -> list[StreamPart]:
    return [part async for part in provider.stream(ModelRequest("some-model", "", (), tuple(messages)))]


async def turn_of(provider: Provider, *messages: Message) -> TurnDone:
    last = (await parts_of(provider, *messages))[-1]
    assert isinstance(last, TurnDone)
    return last


async def scripted(*messages: Message) -> TurnDone:
    return await turn_of(build_provider("scripted"), *messages)


def call_of(turn: TurnDone) -> tuple[str, str, Any]:
    (block,) = turn.blocks
    assert isinstance(block, ToolUse)
    assert turn.stop_reason == "tool_use"
    return block.id, block.name, json.loads(block.arguments)


def text_of(turn: TurnDone) -> Any:
    (block,) = turn.blocks
    assert isinstance(block, Text)
    assert turn.stop_reason == "end_turn"
    return json.loads(block.text)


async def run(script: Any, *contents: str) -> list[TurnDone]:
    """The turns of a script whose calls are answered with `contents`."""
    messages = [user(json.dumps(script))]
    turns = [await scripted(*messages)]
    for number, content in enumerate(contents, 1):
        block = turns[-1].blocks[0]
        messages += [Message("assistant", (block,)), result(content, number)]
        turns.append(await scripted(*messages))
    return turns


async def test_one_call_then_the_summary() -> None:
    first, last = await run({"tool": "lookup", "args": {"id": 7}}, '{"name": "Ada"}')
    assert call_of(first) == ("scripted-tool-1", "lookup", {"id": 7})
    assert text_of(last) == {"results": [{"tool": "lookup", "result": {"name": "Ada"}}]}


async def test_a_call_may_be_flat() -> None:
    flat = {"_tool": "greetUser", "userName": "†input.userName", "tool": 1, "script": [2], "args": {"a": 3}}
    first, second, last = await run(
        {"script": [flat, {"_tool": "b", "x": {"$result": "[0].n"}}]}, '{"n": 7}', "1"
    )
    arguments = {"userName": "†input.userName", "tool": 1, "script": [2], "args": {"a": 3}}
    assert call_of(first) == ("scripted-tool-1", "greetUser", arguments)
    assert call_of(second) == ("scripted-tool-2", "b", {"x": 7})
    assert text_of(last)["results"][1] == {"tool": "b", "result": 1}
    assert call_of((await run(flat))[0]) == ("scripted-tool-1", "greetUser", arguments)
    with pytest.raises(RequestRejected, match="At /script/0/_tool there is no name of a tool"):
        await run({"script": [{"_tool": ""}]})
    with pytest.raises(RequestRejected, match="At /x of the script, the JMESPath expression"):
        await run({"_tool": "b", "x": {"$result": "["}})


async def test_args_may_be_left_out() -> None:
    (first,) = await run({"tool": "ping"})
    assert call_of(first) == ("scripted-tool-1", "ping", {})


async def test_a_script_makes_one_call_per_turn() -> None:
    script = {"script": [{"tool": "a"}, {"tool": "b", "args": {"x": [1, 2.5, None]}}]}
    first, second, last = await run(script, "plain words", "7")
    assert call_of(first)[:2] == ("scripted-tool-1", "a")
    assert call_of(second) == ("scripted-tool-2", "b", {"x": [1, 2.5, None]})
    assert text_of(last) == {"results": [{"tool": "a", "result": "plain words"}, {"tool": "b", "result": 7}]}


async def test_an_empty_script_is_answered_at_once() -> None:
    (only,) = await run({"script": []})
    assert text_of(only) == {"results": []}


async def test_a_script_may_set_its_final_text() -> None:
    script = {"script": [{"tool": "a"}], "answer": {"total": {"$result": "[0].n"}, "at": ["x"]}}
    _, last = await run(script, '{"n": 7}')
    assert text_of(last) == {"total": 7, "at": ["x"]}
    (only,) = await run({"script": [], "answer": "Good morning."})
    assert only.blocks == (Text("Good morning."),)


async def test_results_reach_later_arguments_at_any_depth() -> None:
    script = {
        "script": [
            {"tool": "list"},
            {"tool": "use", "args": {"deep": [{"$result": "[0].items[?price > `5`] | [0].id"}], "n": 1}},
            {"tool": "all", "args": {"$result": "[1]"}},
        ]
    }
    listed = '{"items": [{"id": "cheap", "price": 1}, {"id": "dear", "price": 9}]}'
    _, second, third, _ = await run(script, listed, '{"whole": true}', "done")
    assert call_of(second)[2] == {"deep": ["dear"], "n": 1}
    assert call_of(third)[2] == {"whole": True}


async def test_results_that_are_not_json_are_text_and_failures_null() -> None:
    script = json.dumps(
        {
            "script": [
                {"tool": "a"},
                {"tool": "b"},
                {"tool": "c", "args": {"x": {"$result": "[0]"}, "y": {"$result": "[1].id"}}},
            ]
        }
    )
    messages = [
        user(script),
        Message("assistant", (ToolUse("scripted-tool-1", "a", "{}"),)),
        result("NaN", 1),
        Message("assistant", (ToolUse("scripted-tool-2", "b", "{}"),)),
        result('{"id": "never seen"}', 2, is_error=True),
    ]
    assert call_of(await scripted(*messages)) == ("scripted-tool-3", "c", {"x": "NaN", "y": None})
    messages += [
        Message("assistant", (ToolUse("scripted-tool-3", "c", "{}"),)),
        result("fine", 3),
    ]
    assert text_of(await scripted(*messages))["results"][1] == {"tool": "b", "error": {"id": "never seen"}}


async def test_an_object_prompt_is_expanded_and_serialized() -> None:
    inner = {"tool": "book", "args": {"flight": {"$result": "[0].best"}}}
    script = {"script": [{"tool": "search"}, {"tool": "call_agent", "args": {"agent": "w", "prompt": inner}}]}
    _, second, _ = await run(script, '{"best": "LH1"}', "ok")
    assert call_of(second)[2] == {
        "agent": "w",
        "prompt": '{"tool":"book","args":{"flight":"LH1"}}',
    }


async def test_a_string_prompt_is_unchanged() -> None:
    inner = '{"tool": "book", "args": {"flight": {"$result": "[0].inner"}}}'
    (first,) = await run({"tool": "call_agent", "args": {"agent": "w", "prompt": inner}})
    assert call_of(first)[2]["prompt"] == inner


async def test_a_text_value_as_prompt_is_not_quoted() -> None:
    script = {"script": [{"tool": "a"}, {"tool": "call_agent", "args": {"prompt": {"$result": "[0].text"}}}]}
    _, second, _ = await run(script, '{"text": "go on"}', "ok")
    assert call_of(second)[2] == {"prompt": "go on"}


async def test_messages_before_the_prompt_do_not_count() -> None:
    earlier = [
        user('{"tool": "old"}'),
        Message("assistant", (ToolUse("scripted-tool-1", "old", "{}"),)),
        result('{"id": "old"}', 1),
        Message("assistant", (Text("done"),)),
    ]
    script = user('{"script": [{"tool": "new"}, {"tool": "use", "args": {"x": {"$result": "[0].id"}}}]}')
    assert call_of(await scripted(*earlier, script)) == ("scripted-tool-1", "new", {})
    later = [
        Message("assistant", (ToolUse("scripted-tool-1", "new", "{}"),)),
        result('{"id": "new"}', 1),
    ]
    assert call_of(await scripted(*earlier, script, *later))[2] == {"x": "new"}


async def test_a_long_summary_is_streamed_in_pieces() -> None:
    call = ToolUse("scripted-tool-1", "a", "{}")
    messages = (user('{"tool": "a"}'), Message("assistant", (call,)), result("x" * 1000, 1))
    *deltas, done = await parts_of(build_provider("scripted"), *messages)
    assert len(deltas) > 3
    assert isinstance(done, TurnDone)
    text = "".join(part.text for part in deltas if isinstance(part, TextDelta))
    assert done.blocks == (Text(text),)


async def test_numbers_and_letters_are_unchanged() -> None:
    args = {"big": 123456789012345678901234567890, "small": -0.0, "text": "Zürich \u2028 😀"}
    (first,) = await run({"tool": "a", "args": args})
    assert call_of(first)[2] == args


@pytest.mark.parametrize(
    ("written", "sent"),
    [("NaN", "NaN"), ("-1e999", "-Infinity"), ('"\\ud800"', '"\ud800"'), ('"\\u0000"', r'"\u0000"')],
)
async def test_invalid_arguments_are_left_to_the_tool(written: str, sent: str) -> None:
    first = await scripted(user('{"tool": "a", "args": {"x": ' + written + "}}"))
    assert first.blocks[0].arguments == f'{{"x":{sent}}}'


@pytest.mark.parametrize(
    ("prompt", "says"),
    [
        ("hello", "expects a prompt that is JSON"),
        ("", "expects a prompt that is JSON"),
        ("[]", "another kind of JSON value"),
        ("{}", "no object with the name of a `tool`"),
        ('{"tool": 7}', "no object with the name of a `tool`"),
        ('{"tool": "a", "arguments": {}}', "unknown key 'arguments'"),
        ('{"tool": "a", "args": []}', "At /args there is no object"),
        ('{"script": {}}', "must be a list"),
        ('{"script": [], "tool": "a"}', "only `answer` may be beside it"),
        ('{"script": [], "answer": {"$result": "a["}}', "At /answer of the script"),
        ('{"script": [{"tool": "a"}, 5]}', "At /script/1"),
        ('{"script": [], "answer": NaN}', "The `answer` of the script is not JSON"),
        ('{"script": [], "answer": "\\ud800"}', "The `answer` of the script is not JSON"),
        ('{"tool": "a", "args": {"x": {"$result": 5}}}', "must be a JMESPath expression"),
        ('{"tool": "a", "args": {"x": {"$result": "[0"}}}', "at character 2"),
        ('{"tool": "a", "args": {"x/y": {"$result": "a b"}}}', "At /args/x~1y"),
        ('{"tool": "a", "args": {"x": {"$result": ""}}}', "cannot be empty"),
        ('{"tool": "a", "args": {"x": {"$result": "nope(@)"}}}', "Unknown function"),
        ('{"tool": "a", "args": {"x": {"$result": "length(`5`)"}}}', "length() takes"),
        ('{"tool": "a", "args": {"$result": "[0]"}}', "is not an object"),
        ("[" * 100_000, "expects a prompt that is JSON"),
        ('{"tool": "a", "args": {"x": ' + "[" * 200 + "]" * 200 + "}}", "deeper than 100 levels"),
    ],
)
async def test_an_invalid_script_is_rejected_with_the_place(prompt: str, says: str) -> None:
    with pytest.raises(RequestRejected) as refused:
        await scripted(user(prompt))
    assert says in refused.value.message
    assert not refused.value.retryable


async def test_a_malformed_expression_late_in_a_script_stops_its_first_call() -> None:
    with pytest.raises(RequestRejected, match="/script/1/args/x"):
        await run({"script": [{"tool": "a"}, {"tool": "b", "args": {"x": {"$result": "[["}}}]})


async def test_a_run_without_a_prompt_is_rejected() -> None:
    with pytest.raises(RequestRejected, match="no prompt"):
        await scripted()


async def test_mock_answers_every_turn_with_its_text() -> None:
    provider = build_provider("mock", options={"text": "All is well."})
    for _ in range(2):
        assert await parts_of(provider, user("anything")) == [
            TextDelta("All is well."),
            TurnDone((Text("All is well."),), "end_turn", (await turn_of(provider)).usage, "some-model"),
        ]


@pytest.mark.parametrize(("tokens", "deltas"), [(50, 50), (1, 1), (500, 100), (["a", "b", ""], 2)])
async def test_mock_streams_the_requested_number_of_tokens(tokens: Any, deltas: int) -> None:
    provider = build_provider("mock", options={"text": "x" * 100, "tokens": tokens})
    *streamed, done = await parts_of(provider, user("go"))
    assert len(streamed) == deltas
    assert isinstance(done, TurnDone)
    text = "".join(part.text for part in streamed if isinstance(part, TextDelta))
    assert done.blocks == (Text(text),)


async def test_noop_echoes_the_last_text_of_the_user() -> None:
    provider = build_provider("noop")
    turn = await turn_of(provider, user("first"), Message("assistant", (Text("a"),)), user("second"))
    assert turn.blocks == (Text("second"),)
    assert (await turn_of(provider)).blocks == ()


@pytest.mark.parametrize(
    ("kind", "settings", "says"),
    [
        ("gemini", {}, "no provider of kind 'gemini'"),
        ("bedrock", {"options": {"region": "us-east-1"}}, "has no key"),
        ("mock", {"options": {"txet": "x"}}, "no option 'txet'"),
        ("noop", {"options": {"text": "x"}}, "no option 'text'"),
        ("anthropic", {}, "has no key"),
        ("openai", {"api_key": ""}, "has no key"),
        ("anthropic", {"api_key": "sk-line\nbreak"}, "spaces or invalid characters"),
        ("openai", {"api_key": "sk-ümlaut"}, "spaces or invalid characters"),
        ("openai", {"api_key": "k", "base_url": "ftp://example.com"}, "must begin with https"),
        ("anthropic", {"api_key": "k", "options": {"retries": 3}}, "no option 'retries'"),
    ],
)
def test_a_provider_that_cannot_be_built_says_why_without_its_key(
    kind: str, settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(ProviderNotBuilt) as refused:
        build_provider(kind, **settings)
    assert says in str(refused.value)
    assert "sk-" not in str(refused.value)
