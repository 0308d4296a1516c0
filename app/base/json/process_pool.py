"""JsonProcess processes, from outside: one for one large piece of JSON, so many at a time (helper.py; why so, with what was
measured: docs/decisions/0011)."""

from __future__ import annotations

import asyncio
import os
import select
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from io import BufferedIOBase
from pathlib import Path
from typing import Any, Final, cast

from app.base.errors import FieldError, Invalid, Malformed, PlangateError, TooLarge, TooManyRequests
from app.base.json.worker import receive, send
from app.base.threads import run_in_thread

AT_ONCE: Final = 2
CPU_S: Final = 20
"""Seconds of processor time after which the system ends a process."""

LOOK_EVERY_MS: Final = 5
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
KEPT_ENVIRONMENT: Final = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL")
TOO_COMPLEX: Final = (
    "The value exceeds the processing limit for a single value. Split it into several references."
)


class JsonProcessPool:
    """The turns of a process at helpers of one kind."""

    def __init__(
        self,
        module: str,
        most_bytes: int,
        too_complex: str | None = None,
        *,
        at_once: int = AT_ONCE,
        cpu_s: int = CPU_S,
    ) -> None:
        """Set up the pool. `module` has the functions of the processes; a process that uses more than
        `most_bytes` of memory or `cpu_s` seconds of processor time is ended, and `too_complex` is then the
        error message. At most `at_once` processes run at the same time."""
        self._too_complex = TOO_COMPLEX if too_complex is None else too_complex
        self._module = module
        self._most_bytes = most_bytes
        self._cpu_s = cpu_s
        self._turns = asyncio.Semaphore(at_once)

    @asynccontextmanager
    async def one(self, turn_s: float | None = None) -> AsyncIterator[JsonProcess]:
        """Provide a process for the length of the block. Raise TooManyRequests if none is free in time."""
        try:
            async with asyncio.timeout(turn_s):
                await self._turns.acquire()
        except TimeoutError:
            raise TooManyRequests("Too many large values are being processed; retry.") from None
        try:
            started = await asyncio.to_thread(_started, self._module, self._cpu_s)
            helper = JsonProcess(started, self._most_bytes, self._too_complex)
            try:
                yield helper
            finally:
                helper.end()
                await asyncio.to_thread(_ended, helper.process)
        finally:
            self._turns.release()


class JsonProcess:
    def __init__(
        self, process: subprocess.Popen[bytes], most_bytes: int, too_complex: str = TOO_COMPLEX
    ) -> None:
        self.process = process
        self._too_complex = too_complex
        self._most_bytes = most_bytes
        self._to, self._source = (cast(BufferedIOBase, stream) for stream in (process.stdin, process.stdout))

    async def asked(
        self, ask: str, *data: bytes | bytearray, **head: Any
    ) -> tuple[dict[str, Any], bytearray]:
        """Return the answer to a request. A bytearray that is passed along is emptied once it has arrived."""
        answer = await run_in_thread(lambda: self._exchanged({"ask": ask, **head}, data))
        if answer is None:
            status = await asyncio.to_thread(self.process.wait)
            if status >= 0:
                raise RuntimeError(f"a JSON process ended unexpectedly, with {status}")
            raise TooLarge(self._too_complex)  # a signal ended it: ours, the limit on its time, the system's
        if "error" in answer[0]:
            raise _refusal(answer[0], self._too_complex)
        return answer

    def _exchanged(
        self, head: dict[str, Any], data: Sequence[bytes | bytearray]
    ) -> tuple[dict[str, Any], bytearray] | None:
        with suppress(BrokenPipeError):
            send(self._to, head, *data)
            for piece in data:
                if isinstance(piece, bytearray):
                    piece.clear()
            self._watch()
            return receive(self._source)
        return None

    def _watch(self) -> None:
        """Return when there is an answer, or when the process was ended because it used too much memory."""
        answers = select.poll()
        answers.register(self._source, select.POLLIN)
        while not answers.poll(LOOK_EVERY_MS):
            if _memory_bytes(self.process.pid) > self._most_bytes:
                self.process.kill()
                return

    def end(self) -> None:
        """End the process: what it holds is no longer needed."""
        self.process.kill()


def _started(module: str, cpu_s: int) -> subprocess.Popen[bytes]:
    """Start a process with the modules of this one and nothing else of it: not its secrets, not its
    directory."""
    here = str(Path(__file__).resolve().parents[3])
    kept = {name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "app.base.json.worker", module, str(cpu_s)],
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


def _ended(process: subprocess.Popen[bytes]) -> None:
    process.wait()
    for stream in (process.stdin, process.stdout):
        assert stream is not None
        with suppress(BrokenPipeError):
            stream.close()


def _refusal(answer: dict[str, Any], too_complex: str) -> PlangateError:
    kinds: dict[str, Callable[[], PlangateError]] = {
        "malformed": lambda: Malformed(answer["detail"]),
        "too_large": lambda: TooLarge(answer["detail"]),
        "invalid": lambda: Invalid(answer["detail"], [FieldError(*flaw) for flaw in answer["flaws"]]),
        "no_memory": lambda: TooLarge(too_complex),
    }
    return kinds[answer["error"]]()
