"""The built-in toolkit `agents`."""

from __future__ import annotations

import orjson

from app.calls.toolkit import ToolCall
from app.tools.results import Answer, ToolError, ToolResult


async def call_agent(call: ToolCall) -> ToolResult:
    """Run a routed agent and return its final text, with the artifacts that it published."""
    target = call.run.runtime.agents.get(call.args["agent"])
    if target is None or target.name not in (call.agent.routes or ()):
        routes = ", ".join(call.agent.routes or ()) or "none"
        return ToolError(f"{call.args['agent']!r} is not a route of {call.agent.name}. Its routes: {routes}.")
    prompt = call.args["prompt"]
    text = prompt if isinstance(prompt, str) else orjson.dumps(prompt).decode()
    outcome = await call.sub_agent(call.run, target, text, call.scope, call.depth + 1)
    if isinstance(outcome, ToolError) or not (call.to_path or outcome.artifacts):
        return outcome
    structured = target.output_schema is not None  # its structured output, not the text of it
    result = orjson.loads(outcome.value) if structured else outcome.value
    if outcome.artifacts:
        return Answer({"result": result, "artifacts": list(outcome.artifacts)})
    return Answer(result)
