"""The runtimes of these tests."""

from __future__ import annotations

import json
from typing import Any

TENANT = {"resourceId": "local", "version": "1"}
MODEL = {"id": "m", "provider": "scripted"}
NOTICES = {
    "type": "object",
    "properties": {
        "actions": {
            "type": "array",
            "items": {
                "oneOf": [
                    {
                        "type": "object",
                        "properties": {"kind": {"const": kind}, "to": {"type": "string"}},
                        "required": ["kind", "to"],
                        "additionalProperties": False,
                    }
                    for kind in ("notify", "call")
                ],
                "discriminator": {"propertyName": "kind"},
            },
        }
    },
    "required": ["actions"],
}
LOOKUP = {
    "name": "lookup",
    "description": "Looks something up",
    "inputSchema": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
}


def talker(name: str, provider: dict[str, Any]) -> dict[str, Any]:
    """One agent that talks to a model, without tools."""
    agent = {
        "name": "talker",
        "role": "specialist",
        "model": {"id": "model-1", "provider": "slow"},
        "systemPrompt": "You talk.",
    }
    return {"name": name, "tenant": TENANT, "agents": [agent], "providers": {"slow": provider}}


def notices(replay: str = "never", *, graph: bool = False, **tool: Any) -> dict[str, Any]:
    """A coordinator, a planner and an executor that follow a script; a tool and a dispatcher of the client. `graph`:
    one dispatch an action, else one a plan."""
    dispatcher = {"kind": "client", "replay": replay}
    dispatchers: dict[str, Any] = (
        {"actionDispatchers": {"notify": dispatcher, "call": dispatcher}}
        if graph
        else {"actionDispatcher": dispatcher}
    )
    name = f"notices-{replay}-{'graph' if graph else 'batch'}-{'-'.join(tool) or 'plain'}"
    common = {"model": MODEL, "plan": "Notices"}
    return {
        "name": name,
        "tenant": TENANT,
        "interpreter": "scripted",
        "agents": [
            {
                "name": "boss",
                "role": "coordinator",
                "model": MODEL,
                "routes": ["planner", "doer"],
                "systemPrompt": "You route.",
            },
            {
                "name": "planner",
                "role": "planner",
                "tools": ["lookup"],
                "systemPrompt": "You plan.",
                **common,
            },
            {"name": "doer", "role": "executor", "systemPrompt": "You do.", **common},
        ],
        "tools": [{**LOOKUP, **tool}],
        "plans": [{"name": "Notices", "schema": NOTICES}],
        **dispatchers,
    }


def author() -> dict[str, Any]:
    """One agent that follows a script and has files and artifacts."""
    agent = {"name": "author", "role": "specialist", "model": MODEL, "toolkits": ["workspace", "artifacts"]}
    return {"name": "author", "tenant": TENANT, "interpreter": "scripted", "agents": [agent]}


def call_agent(agent: str, *steps: dict[str, Any]) -> dict[str, Any]:
    return {"tool": "call_agent", "args": {"agent": agent, "prompt": json.dumps({"script": list(steps)})}}


def store(actions: int = 2) -> dict[str, Any]:
    kinds = ("notify", "call")
    body = {"actions": [{"kind": kinds[n % 2], "to": f"person {n}"} for n in range(actions)]}
    return {"tool": "storePlan", "args": {"specName": "Notices", "planId": "p1", "body": body}}


EXECUTE = {"tool": "executePlan", "args": {"planId": "p1"}}
LOOK_UP = {"tool": "lookup", "args": {"q": "who"}}


def plan_and_execute(actions: int = 2, *before: dict[str, Any]) -> dict[str, Any]:
    """The prompt of a query that stores a plan and executes it, through two sub-agents."""
    steps = [call_agent("planner", *before, store(actions)), call_agent("doer", EXECUTE)]
    return {"script": steps}
