"""Programs of the service, forked from a process that has loaded it: a start costs 0.3 CPU-seconds instead of 2.

The process does what `python -m MODULE ARGUMENTS` does, with an environment, files and a session of its own. Tests of
how the interpreter starts, or of what a start costs, use `subprocess`.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import resource
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
# The last one would load the others lazily.
LOADED = [
    "app.api.serving",
    "app.commands.admin",
    "app.commands.backups",
    "app.tenancy.floor",
    "app.commands.main",
]
_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload([*LOADED, __name__])


class Forked:
    """A process, with those methods of `subprocess.Popen` that tests call. Its standard input is /dev/null; `stdout` and
    `stderr` are descriptors."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str],
        stdout: int,
        stderr: int,
        open_files: tuple[int, int] | None = None,
    ) -> None:
        umask = os.umask(0o077)
        os.umask(umask)
        self._process: ForkServerProcess = _forks.Process(
            target=_run,
            args=(_Output(stdout, stderr), module, list(arguments), dict(env), umask, open_files),
            daemon=True,
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run(module: str, *arguments: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as error:
        ended = Forked(module, arguments, env=env, stdout=out.fileno(), stderr=error.fileno()).wait()
        out.seek(0)
        error.seek(0)
        return subprocess.CompletedProcess([module, *arguments], ended, out.read(), error.read())


class _Output:
    """Descriptors 1 and 2 of the other process."""

    def __init__(self, *descriptors: int) -> None:
        self._descriptors = descriptors

    def __getstate__(self) -> list[Any]:
        return [DupFd(descriptor) for descriptor in self._descriptors]

    def __setstate__(self, duplicates: list[Any]) -> None:
        for number, duplicate in enumerate(duplicates, 1):
            descriptor = duplicate.detach()
            os.dup2(descriptor, number)
            os.close(descriptor)


def _run(
    _output: _Output,
    module: str,
    arguments: list[str],
    env: dict[str, str],
    umask: int,
    open_files: tuple[int, int] | None,
) -> None:
    os.setsid()
    os.umask(umask)
    os.chdir(ROOT)
    os.environ.clear()
    os.environ.update(env)
    if open_files is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, open_files)
    sys.path[:0] = [place for place in env.get("PYTHONPATH", "").split(os.pathsep) if place]
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()
