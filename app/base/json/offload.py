"""Work on JSON: small values on the event loop, larger ones in a thread, the largest in a process.

A thread helps only where Python's own code runs, since the event loop gets its turn between two of its instructions.
A call into C keeps the interpreter until it returns. So a function for a thread may write JSON with orjson (16 MiB in
30 ms) and compute digests, and parses what is large with `loads`. What keeps the interpreter for longer, or
needs much memory, goes to a process of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import orjson

from app.base.json import low_memory
from app.base.json.limits import LIMITS
from app.base.json.process_pool import JsonProcessPool

T = TypeVar("T")


async def offload(
    function: Callable[..., T],
    *bodies: Any,
    size: int | None = None,
    processes: JsonProcessPool | None = None,
    request: bool = False,
) -> T:
    """Return `function(*bodies)`, computed in a thread if a body is large: bytes or a JSON value. `size` is the size of
    all bodies as JSON, for bodies that are neither, or if it is known.

    With `processes`, a function over more than `LIMITS.process_bytes` runs in a process (`JsonProcess.run`); then `size`
    is needed, and `request` says whether a request waits for it. Raise TooLarge or TooManyRequests, as the pool does.
    """
    small = all(map(is_small, bodies)) if size is None else size <= LIMITS.inline_bytes
    if small:
        return function(*bodies)
    if processes is None or size is None or size <= LIMITS.process_bytes:
        return await asyncio.to_thread(function, *bodies)
    async with processes.open(request=request) as process:
        return await process.run(function, *bodies)


def is_small(body: Any) -> bool:
    """Return whether work on these bytes, or on this JSON value, takes almost no time."""
    if isinstance(body, bytes | bytearray):
        return len(body) <= LIMITS.inline_bytes
    left, stack = LIMITS.inline_parts, [body]
    while stack and left > 0:
        item = stack.pop()
        left -= 1
        if isinstance(item, str):
            left -= len(item) // 64
        elif isinstance(item, list | dict):
            left -= len(item)
            if left > 0:
                stack += item if isinstance(item, list) else item.values()
    return left > 0


def weight(body: Any) -> int:
    """Return the `size` to pass to `offload` for work on a body that comes with others of a known size: above
    `LIMITS.inline_bytes` if it is large, else 0."""
    return 0 if is_small(body) else LIMITS.inline_bytes + 1


def loads(body: bytes) -> Any:
    """Parse JSON that the service wrote itself. For a function that `offload` calls."""
    return low_memory.loads_cooperative(body) if len(body) > LIMITS.inline_bytes else orjson.loads(body)
