"""A scripted model in place of a vendor's."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from plangate.spec.models import AgentSpec

from app.llm.messages import ModelRequest, StopReason, Text, ToolUse, TurnDone, Usage
from app.runtimes.models import Runtime
from tests.support.world import World

Answer = Callable[[ModelRequest], TurnDone]


class Model:
    """Gives what `answer` makes of a request; `heard` has the requests, in order."""

    def __init__(self, answer: Answer, kind: str = "mock") -> None:
        self.answer = answer
        self.kind = kind
        self.heard: list[ModelRequest] = []

    async def of(self, runtime: Runtime, agent: AgentSpec) -> tuple[Any, str]:
        return self, self.kind

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        self.heard.append(request)
        yield self.answer(request)


def thinks(world: World, answer: Answer, kind: str = "mock") -> Model:
    """Every agent of this process is this model, of a vendor of this kind, from now on."""
    model = Model(answer, kind)
    world.services.providers.of = model.of  # type: ignore[method-assign]
    return model


def says(text: str, usage: Usage | None = None) -> TurnDone:
    return TurnDone((Text(text),), "end_turn", usage or Usage(), "m")


def calls(
    *uses: tuple[str, Any], usage: Usage | None = None, stop_reason: StopReason = "tool_use"
) -> TurnDone:
    """A turn that makes these calls together; arguments that are a text are written as they are."""
    written = (
        ToolUse(f"u{n}", name, args if isinstance(args, str) else json.dumps(args))
        for n, (name, args) in enumerate(uses, start=1)
    )
    return TurnDone(tuple(written), stop_reason, usage or Usage(), "m")


def turn_of(request: ModelRequest) -> int:
    """Which turn of its run a model without memory is asked for, from 1."""
    return len(request.messages) // 2 + 1


def results(request: ModelRequest) -> list[str]:
    """What the model reads of the calls that it made in its last turn."""
    return [block.content for block in request.messages[-1].blocks]  # type: ignore[union-attr]
