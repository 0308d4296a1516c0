"""The builtin toolkit `agents`, and `references` as a model sees it."""

from __future__ import annotations

import orjson

from app.agents.toolkit import Answer, Outcome, ToolCall, ToolError
from app.base.errors import PlangateError
from app.references.service import References
from app.references.values import MAX_REFERENCE_BYTES

RESOLVE_MAX_BYTES = 64 * 1024


async def call_agent(call: ToolCall) -> Outcome:
    """Runs a routed agent and answers with its final text, and with what it published if it did."""
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


class ReferenceTools:
    """`resolveRef` and `glimpseRef`."""

    def __init__(self, references: References) -> None:
        self._references = references

    async def resolve(self, call: ToolCall) -> Outcome:
        kind, id, path = call.args["kind"], call.args["id"], call.args.get("path")
        limit = MAX_REFERENCE_BYTES if call.to_path else RESOLVE_MAX_BYTES
        try:
            reference, data = await call.run.look(
                lambda tx: self._references.for_model(tx, kind, id, path, limit)
            )
            part = await self._references.shown(reference, data, path, limit)
        except PlangateError as error:
            return ToolError(error.detail, error.kind)
        await call.run.durably(
            lambda tx: self._references.note(
                tx, call.scope.work_id, "resolve", [reference], 0 if call.to_path else part.shown_bytes
            )
        )
        return Answer(part.content)

    async def glimpse(self, call: ToolCall) -> Outcome:
        kind, id = call.args["kind"], call.args["id"]
        try:
            reference = await call.run.look(lambda tx: self._references.glimpse(tx, kind, id))
        except PlangateError as error:
            return ToolError(error.detail, error.kind)
        return Answer(reference.wire())
