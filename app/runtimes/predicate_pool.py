"""Evaluate predicates off the event loop: CEL holds the interpreter until it is done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from app.base.errors import TooLarge
from app.base.json.low_memory import loads_trusted
from app.base.json.process_pool import JsonProcessPool
from app.runtimes import predicates
from app.runtimes.predicates import MAX_EVALUATION_NS, evaluate, worst_case_ns

MAX_INLINE_NS: Final = 20_000_000
"""A longer evaluation runs in a process of its own."""

MAX_INLINE_BYTES: Final = 16 * 1024
"""So does one with larger arguments: passing a million small numbers to CEL takes 2 s."""


class PredicatePool:
    """Evaluates expressions, expensive ones in separate processes."""

    def __init__(self, processes: JsonProcessPool) -> None:
        self._processes = processes

    async def requires_approval(
        self, expression: str, args: Mapping[str, Any], ctx: Mapping[str, Any], text: bytes | None = None
    ) -> bool:
        """Return whether this call needs an approval. `text` is its arguments as JSON, if they are large."""
        text = text or orjson.dumps(args)
        worst = worst_case_ns(expression, args, len(text))
        if worst > MAX_EVALUATION_NS:
            return True
        if worst <= MAX_INLINE_NS and len(text) <= MAX_INLINE_BYTES:
            await predicates.load()
            return evaluate(expression, args, ctx)
        try:
            async with self._processes.open() as process:
                return await process.run(evaluate_text, expression, text, dict(ctx))
        except TooLarge:  # out of memory or time: a person decides
            return True


def evaluate_text(expression: str, text: bytes, ctx: Mapping[str, Any]) -> bool:
    """Return whether a call with these arguments, as JSON, needs an approval."""
    return evaluate(expression, loads_trusted(text), ctx)
