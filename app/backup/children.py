"""Run the client programs of Postgres: report their errors, and leave none of them running."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import IO, Any

from app.backup.errors import BackupError

LAST_LINES = 5


class Child:
    """A running program and its standard error."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, errors: IO[bytes]) -> None:
        self.process = process
        self._name = name
        self._errors = errors

    async def succeed(self) -> None:
        """Wait until the program ends. Raise BackupError with the last lines of its standard error if it failed."""
        code = await self.process.wait()
        if code != 0:
            raise self.failure(code)

    def failure(self, code: int) -> BackupError:
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()[-LAST_LINES:]
        text = "\n  ".join(lines) or "(no output)"
        return BackupError(f"{self._name} failed (exit {code}):\n  {text}")


@contextlib.asynccontextmanager
async def running(
    program: Path,
    *arguments: str,
    env: Mapping[str, str],
    stdin: int | None = None,
    stdout: int | None = None,
    inherited: tuple[int, ...] = (),
) -> AsyncIterator[Child]:
    """Run a program for the duration of the block, and kill it if it is still running then. Only its owner can read the
    files that it writes."""
    with tempfile.TemporaryFile() as errors:
        process = await asyncio.create_subprocess_exec(
            program,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL if stdin is None else stdin,
            stdout=asyncio.subprocess.DEVNULL if stdout is None else stdout,
            stderr=errors,
            env=env,
            umask=0o077,
            pass_fds=inherited,
            limit=1024 * 1024,
        )
        try:
            yield Child(program.name, process, errors)
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
            _close(process)


def _close(process: Any) -> None:
    """Close the pipes of the program now: asyncio leaves those of a killed process to the garbage collector."""
    process._transport.close()
