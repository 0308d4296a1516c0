"""Minimal runtime specs for tests."""

from __future__ import annotations

import json
from typing import Any

Spec = dict[str, Any]
NUMBER: Spec = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def agent(name: str = "solo", role: str = "specialist", **parts: Any) -> Spec:
    return {"name": name, "role": role, "model": "m", "systemPrompt": f"You are {name}.", **parts}


def spec(*agents: Spec, tenant: str = "acme", name: str = "default", **parts: Any) -> Spec:
    return {
        "name": name,
        "tenant": {"resourceId": tenant, "version": "1"},
        "agents": list(agents) or [agent()],
        **parts,
    }


def mock(text: str = "Hello there.", **parts: Any) -> Spec:
    """One agent that answers `text`."""
    return spec(interpreter="mock", mockResponse=text, **parts)


def tool(name: str, **parts: Any) -> Spec:
    return {"name": name, "inputSchema": NUMBER, "transport": "client", **parts}


def scripted(*tools: Spec, agents: list[Spec] | None = None, **parts: Any) -> Spec:
    """One agent that may call the tools; its prompt says which."""
    holders = agents or [agent(tools=[t["name"] for t in tools])]
    return spec(*holders, tools=list(tools), interpreter="scripted", **parts)


def script(*calls: tuple[str, dict[str, Any]]) -> str:
    """The prompt that makes these calls, one a turn."""
    return json.dumps({"script": [{"tool": name, "args": args} for name, args in calls]})


def variant(kind: str, **fields: Spec) -> Spec:
    return {
        "type": "object",
        "properties": {"kind": {"const": kind}, **fields},
        "required": ["kind", *fields],
        "additionalProperties": False,
    }


ROUTING: Spec = {
    "name": "Routing",
    "schema": {
        "type": "object",
        "properties": {
            "reason": {"type": "string"},
            "actions": {
                "type": "array",
                "items": {
                    "oneOf": [
                        variant("book", seat={"type": "string"}),
                        variant("refund", cents={"type": "integer", "minimum": 1}),
                    ],
                    "discriminator": {"propertyName": "kind"},
                },
            },
        },
        "required": ["actions"],
        "additionalProperties": False,
    },
    "displayAliases": [
        {"status": "draft", "alias": "Proposed"},
        {"status": "executed", "alias": "Done and dusted"},
    ],
}
BOOK = {"kind": "book", "seat": "12A"}
REFUND = {"kind": "refund", "cents": 500}
BODY = {"reason": "storm", "actions": [BOOK, REFUND]}


def planning(**parts: Any) -> Spec:
    """A coordinator, a planner and an executor of `Routing`, with a batch dispatcher of the user's."""
    parts = {"actionDispatcher": "client", **parts}
    return spec(
        agent("chief", "coordinator", routes=["planner", "doer"]),
        agent("planner", "planner", plan="Routing"),
        agent("doer", "executor", plan="Routing"),
        plans=[ROUTING],
        interpreter="scripted",
        **parts,
    )


def delegated(*calls: tuple[str, dict[str, Any]]) -> str:
    """A coordinator's prompt: each call is made by the agent that has it (planner: storePlan, doer: the rest)."""
    parts: list[tuple[str, dict[str, Any]]] = []
    for name, args in calls:
        who = "planner" if name == "storePlan" else "doer"
        parts.append(("call_agent", {"agent": who, "prompt": {"tool": name, "args": args}}))
    return script(*parts)


def store_and_execute(body: Spec | None = None, plan_id: str = "p1", **execute: Any) -> str:
    return delegated(
        ("storePlan", {"specName": "Routing", "planId": plan_id, "body": body or BODY}),
        ("executePlan", {"planId": plan_id, **execute}),
    )
