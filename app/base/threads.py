"""Blocking work in a thread of its own, which ends with the process: one that hangs takes no place that others need, and
holds up no shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar, cast

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """What `work` returns or raises. It goes on to its end when nobody waits any more."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[T | None, BaseException | None]] = loop.create_future()

    def tell(outcome: tuple[T | None, BaseException | None]) -> None:
        if not ended.done():
            ended.set_result(outcome)

    def run() -> None:
        outcome: tuple[T | None, BaseException | None]
        try:
            outcome = (work(), None)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - raised again where the result is awaited
            outcome = (None, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(tell, outcome)

    threading.Thread(target=contextvars.copy_context().run, args=(run,), daemon=True).start()
    result, error = await ended
    if error is not None:
        raise error
    return cast(T, result)
