"""A service on this machine for the life of the program: started as a child with the first runtime that needs it."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path
from typing import ClassVar, Final

from plangate.errors import ServiceNotInstalled, ServiceNotStarted

log = logging.getLogger("plangate.service")

START_WITHIN_S: Final = 120.0  # the first start makes a database
END_WITHIN_S: Final = 15.0
MAX_LOG_LINES: Final = 40

_URL_PREFIX: Final = "Plangate listens on "
_KEY_FILE_MARKER: Final = "key of this machine is in "


class LocalService:
    """One `plangate serve` that is a child of this process. `acquire` starts it or gives the one there is.

    It stays when nobody uses it any more, so that who comes next need not wait for a start, and ends with this
    process. Other data, in another PLANGATE_DATA_DIR, need a child of their own: then those that nobody uses end.
    """

    _running: ClassVar[list[LocalService]] = []
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self.url = ""
        self.api_key = ""
        self._data_dir = _data_dir()
        self._parent = os.getpid()
        self._users = 0
        self._lines: deque[str] = deque(maxlen=MAX_LOG_LINES)
        self._ready = threading.Event()
        folder = _service_folder()
        child = str(Path(__file__).with_name("serve_child.py"))
        command = ["serve", "--host", "127.0.0.1", "--port", "0"]
        self._process = subprocess.Popen(
            [sys.executable, "-P", child, str(self._parent), str(folder), *command],
            stdin=subprocess.PIPE,  # ends when this process does, however it ends
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_environment(),
            text=True,
            errors="replace",
            start_new_session=True,  # an interrupt from the keyboard is for the program, which then ends the child
        )
        self._reader = threading.Thread(target=self._read, name="plangate-service", daemon=True)
        self._reader.start()

    # -- shared ----------------------------------------------------------------------------------------------

    @classmethod
    def acquire(cls) -> LocalService:
        """Return the service of this process for the data of the environment, started if needed.

        Blocks until it listens.

        Raises:
            ServiceNotInstalled: if there is nothing to start.
            ServiceNotStarted: if it ended, or did not listen within two minutes.
        """
        with cls._lock:
            for service in [service for service in cls._running if not service._is_needed()]:
                service._stop()
            mine = [service for service in cls._running if service._data_dir == _data_dir()]
            service = mine[0] if mine else cls._start()
            service._users += 1
            return service

    @classmethod
    def _start(cls) -> LocalService:
        service = cls()
        try:
            service._wait()
        except ServiceNotStarted:
            service._end()
            raise
        cls._running.append(service)
        atexit.register(service._end)
        return service

    def _is_needed(self) -> bool:
        return self.exit_reason() is None and (self._users > 0 or self._data_dir == _data_dir())

    def _stop(self) -> None:
        LocalService._running.remove(self)
        self._end()
        atexit.unregister(self._end)

    def release(self) -> None:
        """Release one use of the service."""
        with self._lock:
            self._users -= 1

    def exit_reason(self) -> str | None:
        """Return why the child ended, or None while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        return (
            f"The service that was started here has ended (exit code {code}). It last said:\n{self._tail()}"
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    # -- the child -------------------------------------------------------------------------------------------

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            text = line.rstrip("\n")
            self._lines.append(text)
            log.debug("%s", text)
            if text.startswith(_URL_PREFIX):
                self.url = text.removeprefix(_URL_PREFIX).strip()
            elif _KEY_FILE_MARKER in text:
                with contextlib.suppress(OSError):
                    path = Path(text.partition(_KEY_FILE_MARKER)[2].strip())
                    self.api_key = path.read_text(encoding="utf-8").strip()
                self._ready.set()
        self._ready.set()

    def _wait(self) -> None:
        in_time = self._ready.wait(START_WITHIN_S)
        if self.url and self.api_key:
            return
        what = "ended before it listened" if in_time else f"did not listen within {START_WITHIN_S:.0f} s"
        raise ServiceNotStarted(f"The service that was started here {what}. It said:\n{self._tail()}")

    def _end(self) -> None:
        """SIGTERM, time to end, SIGKILL: to this one child."""
        if os.getpid() != self._parent:
            return  # a fork of the process whose child it is
        process = self._process
        process.terminate()
        try:
            process.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdin is not None:
            process.stdin.close()  # not before: the end of its input would be a second signal to the child
        self._reader.join(1.0)
        if process.stdout is not None and not self._reader.is_alive():
            process.stdout.close()

    def _tail(self) -> str:
        return "\n".join(f"  {line}" for line in self._lines) or "  (nothing)"


def _service_folder() -> Path:
    """Return the folder with the package of the service. A package `app` of another project is ignored."""
    for entry in sys.path:
        folder = Path(entry or os.curdir)
        if (folder / "app" / "api" / "serving.py").is_file():
            return folder.resolve()
    raise ServiceNotInstalled(
        "No url was given (nor PLANGATE_URL), and the service is not installed here to be started: "
        "`pip install plangate-server`, or pass the url of a service that runs."
    )


def _data_dir() -> str | None:
    folder = os.environ.get("PLANGATE_DATA_DIR")
    return os.path.abspath(folder) if folder else None


def _environment() -> dict[str, str]:
    """Return the environment of the child, without DATABASE_URL, which may be the program's.

    Its database is in PLANGATE_DATA_DIR or the default place.
    """
    return {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
