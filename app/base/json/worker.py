"""A process that works on large JSON, from inside: it runs the functions that it is sent, and ends when its service does.

Parsed JSON takes many times the memory of its text, and what reads it holds the interpreter, so that nothing else of a
process goes on meanwhile. So large JSON has a process of its own: process_pool.py starts it, sends it a function, and
ends it when it takes too much memory. (A limit of the system's on its memory would not do: where an allocation fails the
parsers crash, or hang.)
"""

from __future__ import annotations

import gc
import importlib.util
import os
import pickle
import pkgutil
import resource
import signal
import sys
import threading
import time
from typing import Any, BinaryIO, Final

WATCH_S: Final = 1.0


def main(max_cpu_s: int, service_pid: int) -> None:
    """Run functions until the input ends, the CPU time is used up, or the service has ended."""
    threading.Thread(target=_watch_service, args=(service_pid,), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the service ends this process itself
    resource.setrlimit(resource.RLIMIT_CPU, (max_cpu_s, max_cpu_s))
    gc.disable()  # parsed JSON has no cycles, and looking for them takes longer than parsing it
    _skip_package_init()
    run_all(sys.stdin.buffer, sys.stdout.buffer)


def _watch_service(pid: int) -> None:
    """End this process once its service has ended. The end of the input does not tell while a function runs, and a
    statement on a data source may run for minutes."""
    while os.getppid() == pid:
        time.sleep(WATCH_S)
    os._exit(1)


def _skip_package_init() -> None:
    """Let single modules of the library be imported without all of it, which takes 0.3 s."""
    spec = importlib.util.find_spec("plangate")
    assert spec is not None
    sys.modules["plangate"] = importlib.util.module_from_spec(spec)


def run_all(source: BinaryIO, to: BinaryIO) -> None:
    """Read functions with their arguments, and write the answer or the error of each."""
    state: tuple[Any, ...] = ()
    while True:
        try:
            function, args, keep = pickle.load(source)  # noqa: S301 - from the service
        except EOFError:
            return
        answer, error = None, None
        try:
            if isinstance(function, str):
                function = pkgutil.resolve_name(function)
            answer = function(*state, *args)
            if keep:
                new_state, answer = answer
                state = (new_state,)
        except Exception as caught:  # noqa: BLE001 - the service raises it
            error = caught.with_traceback(None)
        del args
        pickle.dump((answer, error), to, protocol=5)
        to.flush()
        del answer


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
