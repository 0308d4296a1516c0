"""The builtin toolkit `agents`, and `references` as a model sees it."""

from __future__ import annotations

from typing import Any

import orjson

from app.agents.toolkit import Answer, Outcome, ToolCall, ToolError
from app.base.database import Tx
from app.base.errors import PlangateError
from app.references.service import MAX_REFERENCE_BYTES, References

RESOLVE_MAX_BYTES = 64 * 1024


async def call_agent(call: ToolCall) -> Outcome:
    """Runs a routed agent and answers with its final text."""
    target = call.run.runtime.agents.get(call.args["agent"])
    if target is None or target.name not in (call.agent.routes or ()):
        routes = ", ".join(call.agent.routes or ()) or "none"
        return ToolError(f"{call.args['agent']!r} is not a route of {call.agent.name}. Its routes: {routes}.")
    prompt = call.args["prompt"]
    text = prompt if isinstance(prompt, str) else orjson.dumps(prompt).decode()
    outcome = await call.sub_agent(call.run, target, text, call.scope, call.depth + 1)
    if call.to_path and target.output_schema is not None and isinstance(outcome, Answer):
        return Answer(orjson.loads(outcome.value))  # its structured output, not the text of it
    return outcome


class ReferenceTools:
    """`resolveRef` and `glimpseRef`."""

    def __init__(self, references: References) -> None:
        self._references = references

    async def resolve(self, call: ToolCall) -> Outcome:
        kind, id, path = call.args["kind"], call.args["id"], call.args.get("path")
        limit = MAX_REFERENCE_BYTES if call.to_path else RESOLVE_MAX_BYTES

        async def read(tx: Tx) -> Any:
            return await self._references.resolve_for_model(tx, kind, id, path, limit)

        return await self._answer(call, read)

    async def glimpse(self, call: ToolCall) -> Outcome:
        async def read(tx: Tx) -> Any:
            return await self._references.glimpse(tx, call.args["kind"], call.args["id"])

        return await self._answer(call, read)

    async def _answer(self, call: ToolCall, read: Any) -> Outcome:
        try:
            return Answer(await call.run.look(read))
        except PlangateError as error:
            return ToolError(error.detail, error.kind)
