"""A helper process, from inside: it answers questions that take the interpreter for long, and ends when nobody asks.
`python -m app.base.json.worker <module> <seconds>` answers with the `verbs()` of the module, for so many seconds of
processor time.

Parsed JSON takes many times the memory of its text, and what reads it holds the interpreter, so that nothing else of a
process goes on meanwhile. So large JSON has a process of its own: helpers.py starts it, asks it, and ends it when it
takes too much memory. (A limit of the system's on its memory would not do: where an allocation fails the parsers crash,
or hang.)

A message is the length of its head in four bytes, the head as JSON, and as many bytes after it as the head says in
`size`.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import resource
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from io import BufferedIOBase
from typing import Any, Final, cast

import orjson

from app.base.errors import Invalid, Malformed, TooLarge

READ_BYTES: Final = 256 * 1024


Answer = tuple[dict[str, Any], bytes]
"""The head of a message, and what goes with it."""

Verb = Callable[[Mapping[str, Any], bytearray], Answer]
"""From a question, head and bytes, to its answer."""


def main(module: str, cpu_s: int) -> None:
    """Answers what is asked until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the service ends this process itself
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    gc.disable()  # parsed JSON has no cycles, and looking for them takes longer than parsing it
    _library_without_its_front()
    verbs: Mapping[str, Verb] = importlib.import_module(module).verbs()
    incoming, outgoing = (cast(BufferedIOBase, stream.buffer) for stream in (sys.stdin, sys.stdout))
    while (message := receive(incoming)) is not None:
        head, data = message
        del message
        answer, payload = answered(verbs, head, data)
        del data
        send(outgoing, answer, payload)


def _library_without_its_front() -> None:
    """Lets single modules of the library be imported without all of it, which takes 0.3 s."""
    found = importlib.util.find_spec("plangate")
    assert found is not None
    sys.modules["plangate"] = importlib.util.module_from_spec(found)


def answered(verbs: Mapping[str, Verb], head: Mapping[str, Any], data: bytearray) -> Answer:
    """Return the answer to one request."""
    try:
        return verbs[head["ask"]](head, data)
    except Invalid as error:
        flaws = [[flaw.pointer, flaw.message] for flaw in error.errors]
        return {"error": "invalid", "detail": error.detail, "flaws": flaws}, b""
    except Malformed as error:
        return {"error": "malformed", "detail": error.detail}, b""
    except TooLarge as error:
        return {"error": "too_large", "detail": error.detail}, b""
    except MemoryError:
        return {"error": "no_memory"}, b""


def send(to: BufferedIOBase, head: Mapping[str, Any], *data: bytes | bytearray) -> None:
    """One message; its bytes arrive as one."""
    written = orjson.dumps({**head, "size": sum(map(len, data))})
    to.write(len(written).to_bytes(4, "big") + written)
    for piece in data:
        view = memoryview(piece)
        for at in range(0, len(piece), READ_BYTES):
            to.write(view[at : at + READ_BYTES])
    to.flush()


def pieces(data: bytearray, sizes: Sequence[int]) -> list[bytes]:
    """Yield what was sent as one, and empty it."""
    found, at = [], 0
    for size in sizes:
        found.append(bytes(data[at : at + size]))
        at += size
    data.clear()
    return found


def receive(source: BufferedIOBase) -> tuple[dict[str, Any], bytearray] | None:
    """One message; None where the other side has gone, be it in the middle of one."""
    length = _exactly(source, 4)
    written = None if length is None else _exactly(source, int.from_bytes(length, "big"))
    if written is None:
        return None
    head: dict[str, Any] = orjson.loads(written)
    data = _exactly(source, head["size"])
    return None if data is None else (head, data)


def _exactly(source: BufferedIOBase, size: int) -> bytearray | None:
    data = bytearray(size)
    view, at = memoryview(data), 0
    while at < size:
        read = source.readinto(view[at : at + READ_BYTES])
        if not read:
            return None
        at += read
    return data


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
