"""A client program that serves tools and then ends, as tests/processes/test_ending_programs.py requires.

    python -m tests.processes.ending_program HOW [CLOSE_WITHIN_S]

It prints a line when the runtime is open, one for each handler that begins, and one when it starts to close. HOW is
`signal` (nothing is said about signals), `sigterm` (its handler is the one of the guide), or, with a line of input,
`end`, `exit` and `cancel`. With `claimed` what it claims does not begin before it closes.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from plangate import (
    DefinedRuntime,
    create_runtime,
    define_runtime,
    define_specialist,
    define_tool,
    local_calls,
)
from plangate.client import ServiceClient

TENANT = "endings"
TOOLS = {
    "soon": {},
    "soon_in_a_thread": {},
    "stuck_safe": {"replay": "safe"},
    "stuck_never": {},
    "stubborn_thread": {"replay": "safe"},
    "short_safe": {"replay": "safe", "timeout_ms": 2_000},
    "short_never": {"timeout_ms": 2_000},
}


def system(handler: Callable[[str], Any]) -> DefinedRuntime:
    """One agent with all tools; `handler` gives the function of each name."""
    tools = [define_tool(name, {}, handler=handler(name), **parts) for name, parts in TOOLS.items()]
    agent = define_specialist("solo", "m-1", "You help.", tools=tools)
    return define_runtime(TENANT, [agent], interpreter="scripted")


class Handlers:
    """Those of `soon` answer when the program closes, those of `stuck` never, that of `stubborn` when there is a file."""

    def __init__(self) -> None:
        self.closing = asyncio.Event()
        self.closing_thread = threading.Event()

    def of(self, name: str) -> Any:
        async def on_the_loop(args: Any, ctx: Any) -> str:
            say(f"begun {name}")
            await (self.closing if name == "soon" else asyncio.Event()).wait()
            return "by the one that ended"

        def in_a_thread(args: Any, ctx: Any) -> str:
            say(f"begun {name}")
            if name == "soon_in_a_thread":
                self.closing_thread.wait()
            else:
                while not Path(os.environ["LET_GO"]).exists():
                    time.sleep(0.02)
            return "by the one that ended"

        return in_a_thread if name.endswith("thread") else on_the_loop

    def close(self) -> None:
        """Says so when the runtime closes already: a signal that comes then does not find the program's own code."""
        self.closing.set()
        self.closing_thread.set()
        asyncio.get_running_loop().call_soon(say, "closing")


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())  # whole lines, from threads too


def hold_claims(closing: asyncio.Event) -> None:
    """What is claimed does not begin: the answer is kept until the program closes."""
    ask = ServiceClient.request

    async def request(self: ServiceClient, method: str, where: str, *args: Any, **named: Any) -> Any:
        answer = await ask(self, method, where, *args, **named)
        if where.endswith("/claim") and answer["calls"]:
            say("claimed")
            await closing.wait()
        return answer

    ServiceClient.request = request  # type: ignore[method-assign]


async def main(how: str) -> None:
    handlers = Handlers()
    if how == "claimed":
        hold_claims(handlers.closing)
    task = asyncio.current_task()
    assert task is not None
    stop = asyncio.Event()
    if how == "sigterm":
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with create_runtime(system(handlers.of)):
        say("open")
        try:
            if how in ("end", "exit", "cancel"):
                await asyncio.to_thread(sys.stdin.readline)
            if how == "end":
                return
            if how == "exit":
                sys.exit(3)
            if how == "cancel":
                task.cancel()
            await stop.wait()
        finally:
            handlers.close()


if __name__ == "__main__":
    # A shell starts what runs in its background with SIGINT ignored, and a process keeps that from its parent.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if len(sys.argv) > 2:
        local_calls.CLOSE_WITHIN_S = float(sys.argv[2])
    asyncio.run(main(sys.argv[1]))
