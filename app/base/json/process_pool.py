"""Processes of their own for functions that work on large JSON, one process for one piece of work (worker.py; why so,
with what was measured: docs/decisions/0011)."""

from __future__ import annotations

import asyncio
import os
import pickle
import select
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import is_dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from app.base.errors import TooLarge, TooManyRequests
from app.base.threads import run_in_thread

T = TypeVar("T")

AT_ONCE: Final = 2
MAX_CPU_S: Final = 20
"""Seconds of processor time after which the system ends a process."""

MAX_PROCESS_BYTES: Final = 512 * 1024 * 1024
"""A process that uses more memory is ended: this is a backstop, as the parsers take 5 to 12 times the text."""

MAX_WAIT_S: Final = 4.0
"""How long a request waits for a process: it is answered within five seconds."""

LOOK_EVERY_MS: Final = 5
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
KEPT_ENVIRONMENT: Final = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL")
TOO_COMPLEX: Final = "The value needs more memory or time than the service gives to a single one. Split it, or make it simpler."


class JsonProcessPool:
    """Starts the processes: `at_once` of them for requests and as many for the work of queries, which so does not wait
    behind uploads."""

    def __init__(
        self,
        max_bytes: int = MAX_PROCESS_BYTES,
        max_wait_s: float = MAX_WAIT_S,
        max_cpu_s: int = MAX_CPU_S,
        at_once: int = AT_ONCE,
    ) -> None:
        self._max_bytes = max_bytes
        self._max_wait_s = max_wait_s
        self._max_cpu_s = max_cpu_s
        self._requests, self._work = asyncio.Semaphore(at_once), asyncio.Semaphore(at_once)

    @asynccontextmanager
    async def open(self, *, request: bool = False) -> AsyncIterator[JsonProcess]:
        """Provide a process for the length of the block. With `request`, a request waits for it: raise TooManyRequests
        if none is free in time."""
        turns = self._requests if request else self._work
        try:
            async with asyncio.timeout(self._max_wait_s if request else None):
                await turns.acquire()
        except TimeoutError:
            raise TooManyRequests("Too many large values are being processed; retry.") from None
        async with AsyncExitStack() as ending:
            ending.callback(turns.release)
            started = await asyncio.to_thread(_start, self._max_cpu_s)
            ending.push_async_callback(asyncio.to_thread, _stop, started)
            ending.callback(started.kill)
            yield JsonProcess(started, self._max_bytes, ending.aclose)


class JsonProcess:
    """A process that runs functions of this code base, one after the other."""

    def __init__(
        self, process: subprocess.Popen[bytes], max_bytes: int, end: Callable[[], Awaitable[None]]
    ) -> None:
        self._process = process
        self._max_bytes = max_bytes
        self.end = end
        """End the process before its block does: what it holds is no longer needed."""
        self._to, self._source = (cast(BufferedIOBase, stream) for stream in (process.stdin, process.stdout))

    async def run(self, function: Callable[..., T] | str, *args: Any) -> T:
        """Return `function(*args)`, or `function(kept, *args)` after `keep`. The function is one of a module, or its name
        (`module:function`) if this process cannot import it. What it takes and returns is pickled: pass what is large as
        bytes, since unpickling many objects holds the GIL. A bytearray is emptied once it has been sent. Raise what the
        function raises, or TooLarge."""
        return cast(T, await self._ask(function, args, keep=False))

    async def keep(self, function: Callable[..., tuple[Any, T]] | str, *args: Any) -> T:
        """Run a function that returns a value, which stays in the process, and an answer, which comes back."""
        return cast(T, await self._ask(function, args, keep=True))

    async def _ask(self, function: Callable[..., Any] | str, args: tuple[Any, ...], *, keep: bool) -> Any:
        answered = await run_in_thread(lambda: self._exchange((function, args, keep)))
        if answered is None:
            status = await asyncio.to_thread(self._process.wait)
            if status >= 0:
                raise RuntimeError(f"a JSON process ended unexpectedly, with {status}")
            raise TooLarge(TOO_COMPLEX)  # a signal ended it: ours, the limit on its time, the system's
        answer, error = answered
        if isinstance(error, MemoryError):
            raise TooLarge(TOO_COMPLEX)
        if error is not None:
            raise error
        return answer

    def _exchange(self, message: tuple[Any, tuple[Any, ...], bool]) -> tuple[Any, Exception | None] | None:
        with suppress(BrokenPipeError, EOFError):
            pickle.dump(message, self._to, protocol=5)
            self._to.flush()
            for arg in message[1]:
                if isinstance(arg, bytearray):
                    arg.clear()
            self._watch()
            try:
                answered: tuple[Any, Exception | None] = _AnswerReader(self._source).load()
                return answered
            except pickle.UnpicklingError:  # it ended in the middle of its answer, or gave none of ours
                self._process.kill()
        return None

    def _watch(self) -> None:
        """Return when there is an answer, or when the process was ended because it used too much memory."""
        answers = select.poll()
        answers.register(self._source, select.POLLIN)
        while not answers.poll(LOOK_EVERY_MS):
            if _memory_bytes(self._process.pid) > self._max_bytes:
                self._process.kill()
                return


class _AnswerReader(pickle.Unpickler):
    """Reads answers, which hold plain values, exceptions and data classes of this code base. A process in which hostile
    data has found a way to run code gets no further."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "builtins" or module.startswith("app."):
            found = super().find_class(module, name)
            if isinstance(found, type) and (issubclass(found, Exception) or is_dataclass(found)):
                return found
        raise pickle.UnpicklingError(f"an answer may not hold a {module}.{name}")


def _start(max_cpu_s: int) -> subprocess.Popen[bytes]:
    """Start a process with the modules of this one and nothing else of it: not its secrets, not its
    directory."""
    here = str(Path(__file__).resolve().parents[3])
    kept = {name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "app.base.json.worker", str(max_cpu_s)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**kept, "PYTHONPATH": os.pathsep.join([here, *filter(None, sys.path)])},
    )


def _memory_bytes(pid: int) -> int:
    """Return the memory that a process uses now, or 0 if the system does not tell."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * PAGE_BYTES
    except (OSError, IndexError):
        return 0


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.wait()
    for stream in (process.stdin, process.stdout):
        assert stream is not None
        with suppress(BrokenPipeError):
            stream.close()
