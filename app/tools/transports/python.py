"""The transport `python`: functions that the operator installed with the service, never code from a spec.

They are entry points of the group `plangate.tools`: `(args, ctx)` for tools and `(actions, ctx)` for dispatchers,
sync or async. They run in the process of the service with its permissions.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any

from plangate.context import CallContext, to_jsonable
from plangate.handler_calls import dispatch_fields, error_text
from plangate.spec.transports import PythonTransport

from app.base.threads import run_in_thread
from app.tools.models import (
    Attempt,
    NotDelivered,
    OutcomeUnknown,
    parse_request,
    result_from_value,
)
from app.tools.results import ToolError, ToolResult

GROUP = "plangate.tools"

Function = Callable[[Any, Any], Any]


@cache
def installed_functions() -> Mapping[str, EntryPoint]:
    """Return the functions that specs may name: those of the packages that were installed when this was first called."""
    return MappingProxyType({point.name: point for point in entry_points(group=GROUP)})


class PythonSender:
    def __init__(self, points: Mapping[str, EntryPoint]) -> None:
        self._points = points
        self._loaded: dict[str, Function] = {}

    async def send(self, attempt: Attempt) -> ToolResult:
        transport = attempt.call.transport
        assert isinstance(transport, PythonTransport)
        attempt = replace(attempt, request=await parse_request(attempt.request))
        name = transport.entry_point
        try:
            if name not in self._loaded:
                self._loaded[name] = await asyncio.to_thread(self._load, name)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever somebody else's module raises
            return ToolError(f"Nothing was called: {error_text(error)}", had_no_effect=True)
        if not attempt.may_send():
            raise NotDelivered(
                "Nothing was called: the deadline of the call passed before the service could call it."
            )
        deadline = asyncio.timeout(attempt.timeout_s)
        argument = attempt.request["args"] if "args" in attempt.request else attempt.request["actions"]
        try:
            async with deadline:
                result = to_jsonable(await _call_function(self._loaded[name], argument, _context(attempt)))
        except (Exception, SystemExit) as error:
            if deadline.expired():
                raise OutcomeUnknown(f"it did not return within {attempt.timeout_s:g} s.") from error
            return ToolError(error_text(error))
        return await asyncio.to_thread(result_from_value, attempt.call.name, result)

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""

    def _load(self, name: str) -> Function:
        if name not in self._points:
            raise LookupError(f"this process has no entry point {name!r} in the group {GROUP}")
        function: Function = self._points[name].load()
        if not callable(function):
            raise TypeError(f"the entry point {name!r} is not a function")
        return function


async def _call_function(function: Function, argument: Any, ctx: CallContext) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(argument, ctx)
    result = await run_in_thread(lambda: function(argument, ctx))
    return await result if inspect.isawaitable(result) else result


def _context(attempt: Attempt) -> CallContext:
    context = attempt.request["context"]
    fields = {
        "tool_use_id": context.get("toolUseId") or attempt.call.work_id,
        "work_id": attempt.call.work_id,
        "query_id": attempt.call.query_id,
        "thread_id": context.get("threadId"),
        "agent": context.get("agent"),
        "runtime_id": context.get("runtimeId"),
        "resource_id": attempt.tenant,
    }
    if attempt.call.purpose == "action":
        fields |= dispatch_fields({**attempt.request, "attempt": attempt.number})
    return CallContext(fields, {})
