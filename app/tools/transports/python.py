"""The transport `python`: functions that the operator installed beside the service, never code from a spec.

They are entry points of the group `plangate.tools`, `(args, ctx)` for tools and `(actions, ctx)` for dispatchers,
sync or async, and run in the process of the service with its rights.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from plangate.context import CallContext, to_jsonable
from plangate.local_calls import dispatch_fields, error_text
from plangate.spec.transports import PythonTransport

from app.base.threads import run_in_thread
from app.tools.models import (
    Attempt,
    CallOutcome,
    NotDelivered,
    OutcomeUnknown,
    outcome_from_value,
    parse_request,
)

GROUP = "plangate.tools"

Function = Callable[[Any, Any], Any]


def installed_functions() -> dict[str, EntryPoint]:
    """Return the functions that specs may name."""
    return {point.name: point for point in entry_points(group=GROUP)}


class PythonSender:
    def __init__(self, points: Mapping[str, EntryPoint]) -> None:
        self._points = points
        self._loaded: dict[str, Function] = {}

    async def send(self, attempt: Attempt) -> CallOutcome:
        transport = attempt.call.transport
        assert isinstance(transport, PythonTransport)
        attempt = replace(attempt, request=await parse_request(attempt.request))
        name = transport.entry_point
        try:
            if name not in self._loaded:
                self._loaded[name] = await asyncio.to_thread(self._load, name)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever somebody else's module raises
            return CallOutcome("done", error=f"Nothing was called: {error_text(error)}", took_nothing=True)
        if not attempt.may_send():
            raise NotDelivered("Nothing was called: the service was held up between its record and the call.")
        deadline = asyncio.timeout(attempt.timeout_s)
        given = attempt.request["args"] if "args" in attempt.request else attempt.request["actions"]
        try:
            async with deadline:
                result = to_jsonable(await _call_function(self._loaded[name], given, _context(attempt)))
        except (Exception, SystemExit) as error:
            if deadline.expired():
                raise OutcomeUnknown(f"it did not return within {attempt.timeout_s:g} s.") from error
            return CallOutcome("done", error=error_text(error))
        return await asyncio.to_thread(outcome_from_value, attempt.call.name, result)

    async def aclose(self) -> None:
        """There is nothing to close."""

    def _load(self, name: str) -> Function:
        if name not in self._points:
            raise LookupError(f"this process has no entry point {name!r} in the group {GROUP}")
        found: Function = self._points[name].load()
        if not callable(found):
            raise TypeError(f"the entry point {name!r} is not a function")
        return found


async def _call_function(function: Function, given: Any, ctx: CallContext) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(given, ctx)
    result = await run_in_thread(lambda: function(given, ctx))
    return await result if inspect.isawaitable(result) else result


def _context(attempt: Attempt) -> CallContext:
    asked = attempt.request["context"]
    held = {
        "tool_use_id": asked.get("toolUseId") or attempt.call.work_id,
        "work_id": attempt.call.work_id,
        "query_id": attempt.call.query_id,
        "thread_id": asked.get("threadId"),
        "agent": asked.get("agent"),
        "runtime_id": asked.get("runtimeId"),
        "resource_id": attempt.tenant,
    }
    if attempt.call.purpose == "action":
        held |= dispatch_fields({**attempt.request, "attempt": attempt.number})
    return CallContext(held, {})
