"""Running the client programs of Postgres: their errors in words, and none of them left behind."""

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
    """A program that runs, and what it says on standard error."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, errors: IO[bytes]) -> None:
        self.process = process
        self._name = name
        self._errors = errors

    async def succeed(self) -> None:
        """Wait for its end. Raises BackupError with its last lines if it failed."""
        code = await self.process.wait()
        if code != 0:
            raise self.failure(code)

    def failure(self, code: int) -> BackupError:
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()[-LAST_LINES:]
        said = "\n  ".join(lines) or "(it said nothing)"
        return BackupError(f"{self._name} failed (exit {code}):\n  {said}")


@contextlib.asynccontextmanager
async def running(
    program: Path,
    *arguments: str,
    env: Mapping[str, str],
    stdin: int | None = None,
    stdout: int | None = None,
    inherited: tuple[int, ...] = (),
) -> AsyncIterator[Child]:
    """Run a program for the block; kill it if it outlives the block. What it writes is for its owner alone."""
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
    """Close its pipes now: asyncio leaves those of a killed process to the garbage collector."""
    process._transport.close()
