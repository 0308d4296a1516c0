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
from dataclasses import dataclass, is_dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from app.base.errors import TooLarge, TooManyRequests
from app.base.threads import run_in_thread

T = TypeVar("T")

PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
INHERITED_VARIABLES: Final = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL")
TOO_COMPLEX: Final = "The value needs more memory or time than the service gives to a single one. Split it, or make it simpler."


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """What one process may use, and how many run at once."""

    memory_bytes: int = 512 * 1024 * 1024
    """A process that uses more memory is ended. This is a backstop: parsers take 5 to 12 times the text."""

    cpu_s: int = 20
    """Seconds of processor time after which the system ends a process."""

    wait_s: float = 4.0
    """How long a request waits for a process, so that it is answered within five seconds."""

    poll_ms: int = 5
    """How often the memory of a process is measured."""

    at_once: int = 2
    """Processes for requests, and as many for the work of queries, which so does not wait behind uploads."""


class JsonProcessPool:
    """Starts the processes."""

    def __init__(self, limits: ProcessLimits | None = None) -> None:
        self._limits = limits or ProcessLimits()
        slots = self._limits.at_once
        self._requests, self._work = asyncio.Semaphore(slots), asyncio.Semaphore(slots)

    @asynccontextmanager
    async def open(self, *, request: bool = False) -> AsyncIterator[JsonProcess]:
        """Provide a process for the length of the block. With `request`, a request waits for it: raise TooManyRequests
        if none is free in time."""
        turns = self._requests if request else self._work
        try:
            async with asyncio.timeout(self._limits.wait_s if request else None):
                await turns.acquire()
        except TimeoutError:
            raise TooManyRequests("Too many large values are being processed; retry.") from None
        async with AsyncExitStack() as ending:
            ending.callback(turns.release)
            started = await asyncio.to_thread(_start, self._limits.cpu_s)
            ending.push_async_callback(asyncio.to_thread, _stop, started)
            ending.callback(started.kill)
            yield JsonProcess(started, self._limits, ending.aclose)


class JsonProcess:
    """A process that runs functions of this code base, one after the other."""

    def __init__(
        self, process: subprocess.Popen[bytes], limits: ProcessLimits, end: Callable[[], Awaitable[None]]
    ) -> None:
        self._process = process
        self._limits = limits
        self.end = end
        """End the process before its block does: what it holds is no longer needed."""
        self._to, self._source = (cast(BufferedIOBase, stream) for stream in (process.stdin, process.stdout))

    async def run(self, function: Callable[..., T] | str, *args: Any) -> T:
        """Return `function(*args)`, or `function(kept, *args)` after `keep`. The function is one of a module, or its name
        (`module:function`) if this process cannot import it. What it takes and returns is pickled: pass what is large as
        bytes, since unpickling many objects holds the GIL. A bytearray is emptied once it has been sent. Raise what the
        function raises, or TooLarge."""
        return cast(T, await self._request(function, args, keep=False))

    async def keep(self, function: Callable[..., tuple[Any, T]] | str, *args: Any) -> T:
        """Run a function that returns a value, which stays in the process, and an answer, which comes back."""
        return cast(T, await self._request(function, args, keep=True))

    async def _request(self, function: Callable[..., Any] | str, args: tuple[Any, ...], *, keep: bool) -> Any:
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
        while not answers.poll(self._limits.poll_ms):
            if _memory_bytes(self._process.pid) > self._limits.memory_bytes:
                self._process.kill()
                return


class _AnswerReader(pickle.Unpickler):
    """Reads answers, which hold plain values, exceptions and data classes of this code base. A process in which hostile
    data has found a way to run code gets no further."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "builtins" or module.startswith("app."):
            resolved = super().find_class(module, name)
            if isinstance(resolved, type) and (issubclass(resolved, Exception) or is_dataclass(resolved)):
                return resolved
        raise pickle.UnpicklingError(f"a worker process returned a {module}.{name}, which is not allowed")


def _start(max_cpu_s: int) -> subprocess.Popen[bytes]:
    """Start a process with the modules of this one and nothing else of it: not its secrets, not its
    directory."""
    here = str(Path(__file__).resolve().parents[3])
    inherited = {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "app.base.json.worker", str(max_cpu_s), str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**inherited, "PYTHONPATH": os.pathsep.join([here, *filter(None, sys.path)])},
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
