"""A runtime without an event loop of the program's own: every call waits for its result."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from plangate.api.models import Event
from plangate.api.record import Record
from plangate.authoring.arguments import describe_type
from plangate.errors import PlangateError
from plangate.journal import QueryEvents
from plangate.runtime import Runtime

T = TypeVar("T")

STOP_WITHIN_S: Final = 15.0


class LoopThread:
    """An event loop in a separate thread, which ends with the program."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="plangate-loop", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the work there and return its result. Leaving the wait, such as with Ctrl-C, cancels the work.

        Raises:
            PlangateError: in a handler that runs in this event loop, which would wait for itself.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise PlangateError(
                "an async handler cannot wait for the SyncRuntime that it is served by: use its ctx, or make it sync"
            )
        done = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return done.result()
        except BaseException:
            done.cancel()
            raise

    def close(self) -> None:
        """Stop the loop, and wait for its thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(STOP_WITHIN_S)


class LoopHolder:
    """The event loop of a SyncRuntime, which is started when it is first needed."""

    def __init__(self) -> None:
        self.thread: LoopThread | None = None
        self._was_closed = False

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the work in the loop and return its result. Raise PlangateError if the runtime was closed."""
        if self.thread is None:
            if self._was_closed:
                work.close()
                raise PlangateError("the runtime is not open: it was closed. Open it with `with runtime`")
            self.thread = LoopThread()
        return self.thread.wait(work)

    def reopen(self) -> None:
        self._was_closed = False

    def close(self, before: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `before` in the loop, if it was started, and end the loop."""
        self._was_closed = True
        thread, self.thread = self.thread, None
        if thread is None:
            return
        try:
            thread.wait(before())
        finally:
            thread.close()


class SyncCalls:
    """The methods of an object of the library as plain calls, each of which waits for its result."""

    def __init__(self, target: Any, holder: LoopHolder) -> None:
        self._target = target
        self._holder = holder

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        attribute = getattr(self._target, name)
        if not callable(attribute):
            return self._to_sync(attribute)

        @functools.wraps(attribute)
        def call(*args: Any, **kwargs: Any) -> Any:
            return self._to_sync(attribute(*args, **kwargs))

        return call

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(name for name in dir(self._target) if not name.startswith("_"))})

    def _to_sync(self, value: Any) -> Any:
        if inspect.iscoroutine(value):
            return self._to_sync(self._holder.wait(value))
        if isinstance(value, QueryEvents):
            return SyncEvents(value, self._holder)
        is_ours = type(value).__module__.partition(".")[0] == __name__.partition(".")[0]
        return SyncCalls(value, self._holder) if is_ours and not isinstance(value, Record) else value


class SyncEvents:
    """The events of a query, as those of `QueryEvents`: an iterator, from `SyncRuntime.query` and its siblings.

    The query is started with the first step. Leaving the loop does not end it.

    Example:
        >>> def first_text(runtime):
        ...     for event in runtime.query("Where is my bag?", "customer-17"):
        ...         if event.type == "text":
        ...             return event.text
    """

    def __init__(self, events: QueryEvents, holder: LoopHolder) -> None:
        self._events = events
        self._holder = holder

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        event = self._holder.wait(_next(self._events))
        if event is None:
            raise StopIteration
        return event

    def close(self) -> None:
        """Stop reading. The query keeps running.

        Example:
            >>> def first(runtime):
            ...     events = runtime.query("Hi", "thread-1")
            ...     try:
            ...         return next(events)
            ...     finally:
            ...         events.close()
        """
        self._holder.wait(self._events.aclose())


async def _next(events: QueryEvents) -> Event | None:
    return await anext(events, None)


class SyncRuntime(SyncCalls):
    """A runtime for scripts and notebooks: the methods of `Runtime` as plain calls, and events as a plain iterator.

    It has an event loop of its own in a thread, where the functions of the spec are served; sync handlers
    run in threads, as ever. `with` closes it, or `close`. One that is dropped without being closed logs a
    warning and is closed then.

    Args:
        runtime: From `create_runtime` or `connect`, not opened yet.

    Raises:
        TypeError: for something else.
        PlangateError: when it is used after it was closed, or from an async handler that it serves.

    Example:
        >>> helper = define_specialist("helper", "m-1", "You help.")
        >>> def ask():
        ...     with SyncRuntime(create_runtime(define_runtime("acme", [helper]))) as runtime:
        ...         for event in runtime.run_specialist("helper", "Hi"):
        ...             print(event["type"])
    """

    def __init__(self, runtime: Runtime) -> None:
        if not isinstance(runtime, Runtime):
            raise TypeError(
                f"SyncRuntime takes what create_runtime or connect returns, not {describe_type(runtime)}"
            )
        super().__init__(runtime, LoopHolder())
        weakref.finalize(self, _close_dropped, runtime, self._holder)

    def __enter__(self) -> Self:
        self._holder.reopen()
        self._holder.wait(_open(self._target))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the runtime, as `Runtime.aclose` does, and end its thread. Idempotent.

        Example:
            >>> def main(spec):
            ...     runtime = SyncRuntime(create_runtime(spec))
            ...     print(runtime.id)
            ...     runtime.close()
        """
        self._holder.close(self._target.aclose)

    def __getattr__(self, name: str) -> Any:
        if name in PROPERTIES:
            self._holder.wait(_open(self._target))
        return super().__getattr__(name)


PROPERTIES: Final = frozenset({"id", "version", "spec", "url", "signing_secret"})
"""Of a runtime that is open: reading one opens it."""


async def _open(runtime: Runtime) -> None:
    await runtime


def _close_dropped(runtime: Runtime, holder: LoopHolder) -> None:
    """Close a runtime that was dropped without being closed, which says so, and stop its event loop."""
    thread = holder.thread
    if thread is None:
        return
    runtime._finalize_dropped()

    async def close() -> None:
        try:
            await runtime.aclose()
        finally:
            thread.loop.stop()

    asyncio.run_coroutine_threadsafe(close(), thread.loop)
