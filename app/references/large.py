"""Large documents: taken apart by a process of their own each (child.py), two at a time.

What the service holds of one is its text, until the child has it, and its canonical form; the parsed value is in the
child, with a bound on its memory. Why so, with what was measured: docs/decisions/0011.
"""

from __future__ import annotations

import asyncio
import os
import select
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from io import BufferedIOBase
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import orjson

from app.base.errors import Flaw, Invalid, Malformed, PlangateError, TooLarge, TooManyRequests
from app.base.parsing import MAX_CONTAINERS
from app.references.child import receive, send
from app.references.values import MAX_REFERENCE_BYTES, Asked, Part

T = TypeVar("T")

LARGE_BYTES: Final = 1024 * 1024
"""From here on a document is large."""

AT_ONCE: Final = 2
TURN_S: Final = 4.0
"""How long a document waits for its turn: a request is answered within five seconds."""

CHILD_BYTES: Final = 16 * MAX_REFERENCE_BYTES
"""The memory of a child beyond which it is ended. Most values take 5 to 10 times their size, with what the service
itself holds of them; only what has next to nothing in its parts takes more than 12."""

LOOK_EVERY_MS: Final = 5

PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
KEPT_ENVIRONMENT: Final = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL")


class LargeDocuments:
    """The turns of a process."""

    def __init__(self, child_bytes: int = CHILD_BYTES, turn_s: float = TURN_S) -> None:
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._child_bytes = child_bytes
        self._turn_s = turn_s

    @asynccontextmanager
    async def taken_apart(self, body: bytearray) -> AsyncIterator[LargeDocument]:
        """A request body, which is empty then. Raises Malformed, TooLarge, TooManyRequests."""
        async with self._child(self._turn_s) as child:
            answer, _ = await child.asked("fields", body, mostContainers=MAX_CONTAINERS)
            yield LargeDocument(child, answer["fields"], answer["hasValue"])

    async def part(self, stored: bytes, path: str, limit: int) -> Part:
        """What `values.part_of` gives of a stored value. Raises Invalid, TooLarge."""
        async with self._child(None) as child:
            answer, _ = await child.asked("part", stored, path=path, limit=limit)
            return Part(answer["content"], answer["shownBytes"])

    @asynccontextmanager
    async def _child(self, turn_s: float | None) -> AsyncIterator[_Child]:
        try:
            async with asyncio.timeout(turn_s):
                await self._turns.acquire()
        except TimeoutError:
            raise TooManyRequests("Many large values are on their way; send this one again.") from None
        try:
            child = _Child(await asyncio.to_thread(_started), self._child_bytes)
            try:
                yield child
            finally:
                child.process.kill()
                await asyncio.to_thread(_ended, child.process)
        finally:
            self._turns.release()


class LargeDocument:
    """A parsed request body in a child: its small fields are here, its value is there."""

    def __init__(self, child: _Child, fields: dict[str, Any] | None, has_value: bool) -> None:
        self._child = child
        self.fields = fields
        """Of the object that the body is; None where it is none."""
        self.has_value = has_value

    async def packed(self, asked: Asked, glimpse: Any) -> tuple[bytearray, bytes]:
        """What `values.packed` gives of the value; once. Raises Invalid, TooLarge."""
        answer, data = await self._child.asked(
            "pack",
            kind=asked.kind,
            schema=asked.schema,
            fields=asked.fields,
            maxBytes=asked.max_bytes,
            glimpse=glimpse,
        )
        self._child.process.kill()  # what it holds is not needed while the value is stored
        return data, orjson.dumps(answer["glimpse"])


class _Child:
    def __init__(self, process: subprocess.Popen[bytes], most_bytes: int) -> None:
        self.process = process
        self._most_bytes = most_bytes
        self._to, self._source = (cast(BufferedIOBase, stream) for stream in (process.stdin, process.stdout))

    async def asked(
        self, ask: str, data: bytes | bytearray = b"", **head: Any
    ) -> tuple[dict[str, Any], bytearray]:
        """The answer to a question. A bytearray that goes with it is emptied once it is there."""
        answer = await asyncio.to_thread(self._exchanged, {"ask": ask, **head}, data)
        if answer is None:
            status = await asyncio.to_thread(self.process.wait)
            if status >= 0:
                raise RuntimeError(
                    f"the process that takes large values apart ended by itself, with {status}"
                )
            raise _no_memory()  # a signal ended it: ours, the limit on its time, the system's
        if "error" in answer[0]:
            raise _refusal(answer[0])
        return answer

    def _exchanged(
        self, head: dict[str, Any], data: bytes | bytearray
    ) -> tuple[dict[str, Any], bytearray] | None:
        with suppress(BrokenPipeError):
            send(self._to, head, data)
            if isinstance(data, bytearray):
                data.clear()
            self._watch()
            return receive(self._source)
        return None

    def _watch(self) -> None:
        """Returns when there is an answer, or the end of the child, if it takes too much memory."""
        answers = select.poll()
        answers.register(self._source, select.POLLIN)
        while not answers.poll(LOOK_EVERY_MS):
            if _memory_bytes(self.process.pid) > self._most_bytes:
                self.process.kill()
                return


def _started() -> subprocess.Popen[bytes]:
    """A child with the modules of this process and nothing else of it: not its secrets, not its directory."""
    here = str(Path(__file__).resolve().parents[2])
    kept = {name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "app.references.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**kept, "PYTHONPATH": os.pathsep.join([here, *filter(None, sys.path)])},
    )


def _memory_bytes(pid: int) -> int:
    """What a process holds now; 0 where the system does not say it so."""
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


def _no_memory() -> TooLarge:
    return TooLarge(
        "The value has so many parts that taking it apart needs more memory or time than the service gives to one. "
        "Store it in several references."
    )


def _refusal(answer: dict[str, Any]) -> PlangateError:
    kinds: dict[str, Callable[[], PlangateError]] = {
        "malformed": lambda: Malformed(answer["detail"]),
        "too_large": lambda: TooLarge(answer["detail"]),
        "invalid": lambda: Invalid(answer["detail"], [Flaw(*flaw) for flaw in answer["flaws"]]),
        "no_memory": _no_memory,
    }
    return kinds[answer["error"]]()
