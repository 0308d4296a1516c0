"""Run blocking work in a separate daemon thread.

Work that hangs occupies no slot of a shared executor and does not delay shutdown.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar, cast

T = TypeVar("T")


async def run_in_thread(work: Callable[[], T]) -> T:
    """Return or raise what `work` returns or raises. If the caller is canceled, `work` still runs to its
    end."""
    loop = asyncio.get_running_loop()
    outcome_future: asyncio.Future[tuple[T | None, BaseException | None]] = loop.create_future()

    def set_outcome(outcome: tuple[T | None, BaseException | None]) -> None:
        if not outcome_future.done():
            outcome_future.set_result(outcome)

    def run() -> None:
        outcome: tuple[T | None, BaseException | None]
        try:
            outcome = (work(), None)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - raised again where the result is awaited
            outcome = (None, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(set_outcome, outcome)

    threading.Thread(target=contextvars.copy_context().run, args=(run,), daemon=True).start()
    result, error = await outcome_future
    if error is not None:
        raise error
    return cast(T, result)
