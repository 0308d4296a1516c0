"""The transport `python`: functions that the operator installed beside the service, never code from a spec.

They are entry points of the group `plangate.tools`, `(args, ctx)` for tools and `(actions, ctx)` for dispatchers,
sync or async, and run in the process of the service with its rights.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from plangate.context import CallContext, plain
from plangate.local_calls import dispatch_fields, error_text
from plangate.spec.transports import PythonTransport

from app.tools.models import Attempt, CallOutcome, NotSent, Uncertain

GROUP = "plangate.tools"


def installed() -> dict[str, EntryPoint]:
    """The functions that specs may name."""
    return {point.name: point for point in entry_points(group=GROUP)}


class PythonSender:
    def __init__(self, points: Mapping[str, EntryPoint]) -> None:
        self._points = points
        self._loaded: dict[str, Callable[[Any, Any], Any]] = {}

    async def send(self, attempt: Attempt) -> CallOutcome:
        transport = attempt.call.transport
        assert isinstance(transport, PythonTransport)
        try:
            function = self._function(transport.entry_point)
        except Exception as error:  # noqa: BLE001 - whatever somebody else's module raises as it is imported
            return CallOutcome("done", error=f"Nothing was called: {error_text(error)}")
        if not attempt.may_send():
            raise NotSent("Nothing was called: the service was held up between its record and the call.")
        deadline = asyncio.timeout(attempt.timeout_s)
        given = attempt.request["args"] if "args" in attempt.request else attempt.request["actions"]
        try:
            async with deadline:
                return CallOutcome("done", output=plain(await _called(function, given, _context(attempt))))
        except Exception as error:
            if deadline.expired():
                raise Uncertain(f"it did not return within {attempt.timeout_s:g} s.") from error
            return CallOutcome("done", error=error_text(error))

    async def aclose(self) -> None:
        """There is nothing to close."""

    def _function(self, name: str) -> Callable[[Any, Any], Any]:
        if name not in self._loaded:
            if name not in self._points:
                raise LookupError(f"this process has no entry point {name!r} in the group {GROUP}")
            found = self._points[name].load()
            if not callable(found):
                raise TypeError(f"the entry point {name!r} is not a function")
            self._loaded[name] = found
        return self._loaded[name]


async def _called(function: Callable[[Any, Any], Any], given: Any, ctx: CallContext) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(given, ctx)
    result = await asyncio.to_thread(function, given, ctx)
    return await result if inspect.isawaitable(result) else result


def _context(attempt: Attempt) -> CallContext:
    asked = attempt.request["context"]
    held = {
        "tool_use_id": attempt.call.work_id,
        "query_id": attempt.call.query_id,
        "thread_id": asked.get("threadId"),
        "agent": asked.get("agent"),
        "runtime_id": asked.get("runtimeId"),
        "resource_id": attempt.tenant,
    }
    if attempt.call.purpose == "action":
        held |= dispatch_fields({**attempt.request, "attempt": attempt.number})
    return CallContext(held, {})
