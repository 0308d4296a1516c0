"""Definitions of MCP servers as tool specs."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plangate.spec.models import ToolSpec
from plangate.spec.transports import McpTransport

from app.tools.models import Attempt, OutgoingCall
from app.tools.results import Answer, ToolError
from app.tools.transports.mcp.tools import RemoteTool, arguments, difference, meta, outcome, specs

SERVER = McpTransport(url="https://mcp.example/x", headers={"x-team": "blue"})
OBJECT = {"type": "object"}


def attempt(request: dict[str, Any], purpose: Literal["tool", "action"] = "tool", number: int = 1) -> Attempt:
    call = OutgoingCall("wrk_1", "qry_1", purpose, "add", "", b"", "never", 1_000, SERVER, "key-1")
    return Attempt("acme", "default", call, request, number, lambda: True)


def remote(name: str = "add", **parts: Any) -> RemoteTool:
    return RemoteTool(name, parts.pop("description", ""), parts.pop("input_schema", OBJECT), **parts)


# -- definitions -----------------------------------------------------------------------------------------------


def test_the_digest_covers_exactly_the_definition() -> None:
    definition = {
        "annotations": {},
        "description": "",
        "inputSchema": OBJECT,
        "name": "add",
        "outputSchema": None,
    }
    plain = json.dumps(definition, separators=(",", ":"), sort_keys=True).encode()
    assert remote().digest() == hashlib.sha256(plain).hexdigest()
    others = [
        remote("sub"),
        remote(description="x"),
        remote(input_schema={"type": "object", "minProperties": 1}),
        remote(input_schema={"type": "object", "minProperties": 1.0}),
        remote(output_schema=OBJECT),
        remote(annotations={"readOnlyHint": False}),
    ]
    assert len({tool.digest() for tool in [remote(), *others]}) == 7
    ordered = remote(input_schema={"type": "object", "title": "T"})
    assert ordered.digest() == remote(input_schema={"title": "T", "type": "object"}).digest()


@pytest.mark.parametrize(
    ("names", "taken"),
    [
        (["add", "a-b_C9"], ["add", "a-b_C9"]),
        (["git.log/all", "git_log_all", "git log all"], ["git_log_all", "git_log_all_2", "git_log_all_3"]),
        (["9lives", "-x", ""], ["_9lives", "_-x", "_"]),
        (["ä" * 70, "ö" * 70], ["_" * 64, "_" * 62 + "_2"]),
    ],
)
def test_valid_names_are_kept(names: list[str], taken: list[str]) -> None:
    made = specs([remote(name) for name in names], SERVER)
    assert [tool["name"] for tool in made] == taken
    for name, tool in zip(names, made, strict=True):
        assert tool["transport"].get("tool", tool["name"]) == name


@given(st.lists(st.text(min_size=1, max_size=80), max_size=8))
def test_every_name_yields_a_tool_spec(names: list[str]) -> None:
    made = specs([remote(name) for name in names], SERVER)
    assert len({tool["name"] for tool in made}) == len(made)
    for tool in made:
        ToolSpec.model_validate(tool)


def test_annotations_are_copied() -> None:
    (tool,) = specs(
        [remote(annotations={"readOnlyHint": True, "idempotentHint": False, "title": "T"})], SERVER
    )
    assert tool["annotations"] == {"readOnly": True}
    (tool,) = specs([remote(annotations={"readOnlyHint": "yes"})], SERVER)
    assert "annotations" not in tool
    assert tool["transport"] == {
        "kind": "mcp",
        "url": "https://mcp.example/x",
        "headers": {"x-team": "blue"},
        "definitionDigest": remote(annotations={"readOnlyHint": "yes"}).digest(),
    }


@pytest.mark.parametrize(
    ("ours", "theirs", "told"),
    [
        ({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}, None),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, None),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, "/a/b is 2 there and 1 here"),
        ({"a": 1}, {"a": 1.0}, "/a is 1.0 there and 1 here"),
        ({"a": 1}, {"a": True}, "/a is true there and 1 here"),
        ({"x/y": {"~": 1}}, {"x/y": {}}, "/x~1y/~0 is absent there and 1 here"),
        ({}, {"title": "T"}, '/title is "T" there and absent here'),
        ({"required": ["a", "b"]}, {"required": ["b", "a"]}, '/required/0 is "b" there and "a" here'),
        ({"required": ["a"]}, {"required": []}, '/required is [] there and ["a"] here'),
        ([], {}, "it is {} there and [] here"),
        ({"a": "x" * 100}, {"a": ""}, f'/a is "" there and "{"x" * 78}… here'),
    ],
)
def test_the_first_difference_of_two_schemas(ours: Any, theirs: Any, told: str | None) -> None:
    assert difference(ours, theirs) == told


# -- calls -----------------------------------------------------------------------------------------------------


def test_the_arguments_and_metadata_of_a_call() -> None:
    assert arguments(attempt({"args": {"n": 1}, "context": {"queryId": "q"}})) == {"n": 1}
    action = {
        "planId": "pln_1",
        "specName": "Routing",
        "revision": 2,
        "digest": "d",
        "idempotencyKey": "key-1",
        "actions": [{"kind": "book"}],
        "inputs": None,
        "attempt": 1,
        "resolvedRefs": {},
        "context": {"queryId": "q"},
    }
    assert arguments(attempt(action, "action", number=3)) == {
        "planId": "pln_1",
        "revision": 2,
        "digest": "d",
        "actions": [{"kind": "book"}],
        "resolvedRefs": {},
        "inputs": None,
        "attempt": 3,
    }
    assert arguments(attempt({**action, "args": {"seat": "1A"}}, "action")) == {"seat": "1A"}
    assert meta(attempt({})) == {
        "plangate/idempotencyKey": "key-1",
        "plangate/queryId": "qry_1",
        "plangate/workId": "wrk_1",
    }


def words(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


@pytest.mark.parametrize(
    ("result", "tool", "action"),
    [
        ({"content": []}, None, None),
        ({"content": words("hi")}, "hi", "hi"),
        ({"content": words('{"entitiesAffected": 1}')}, '{"entitiesAffected": 1}', {"entitiesAffected": 1}),
        ({"content": words("[1]")}, "[1]", "[1]"),
        ({"content": words("a", "b")}, words("a", "b"), words("a", "b")),
        ({"content": words("a"), "structuredContent": {"n": 1}}, {"n": 1}, {"n": 1}),
        ({"content": words("a"), "structuredContent": 0}, 0, 0),
        ({"content": words("a"), "structuredContent": None}, "a", "a"),
        (
            {"content": [{"type": "resource_link", "uri": "x:/y", "name": "y"}]},
            [{"type": "resource_link", "uri": "x:/y", "name": "y"}],
            [{"type": "resource_link", "uri": "x:/y", "name": "y"}],
        ),
    ],
)
def test_results(result: dict[str, Any], tool: Any, action: Any) -> None:
    assert outcome(attempt({}), result) == Answer(tool)
    assert outcome(attempt({}, "action"), result) == Answer(action)


@pytest.mark.parametrize(
    ("result", "told"),
    [
        ({"isError": True, "content": words("no seat", "try 1B")}, "no seat\ntry 1B"),
        ({"isError": True, "content": [], "structuredContent": {"n": 1}}, "it failed without a word"),
        ({"isError": True, "content": words("a\0b")}, "a\N{REPLACEMENT CHARACTER}b"),
        ({"isError": True, "content": words("x" * 3_000)}, "x" * 2_000),
        (
            {"resultType": "input_required", "requestState": "s"},
            "add asks for input in mid-call, which the service does not give.",
        ),
        (
            {"content": words("a\0b")},
            "add ran, but its result cannot be kept: A string contains NUL (\\u0000), which cannot be stored. It is at "
            'byte 0 (line 1, byte 1 of it), JSON pointer "".',
        ),
        (
            {"content": [], "structuredContent": {"n": float("nan")}},
            "add ran, but its result cannot be kept: The number at /n is nan, which JSON cannot hold.",
        ),
        (
            {"content": [], "structuredContent": 2**64},
            "add ran, but its result cannot be kept: The value cannot be written as JSON: Integer exceeds 64-bit range",
        ),
    ],
)
def test_errors(result: dict[str, Any], told: str) -> None:
    assert outcome(attempt({}), result) == ToolError(told)
