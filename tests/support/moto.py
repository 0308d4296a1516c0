"""An S3 that nobody here wrote: the moto server, in a virtual environment of its own below that of the tests."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import httpx

from tests.support.npm import INSTALL_S, _cache

MOTO = "moto[server,s3]==5.*"
READY_S = 60.0


def _installed() -> str:
    """Its program. The first process that asks installs it."""
    root = _cache()
    root.mkdir(parents=True, exist_ok=True)
    own = root / "moto"
    with (root / "moto.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (own / "ready").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(own)], check=True, timeout=INSTALL_S)
            pip = [str(own / "bin" / "python"), "-m", "pip", "install", "--quiet", MOTO]
            subprocess.run(pip, check=True, timeout=INSTALL_S)
            (own / "ready").touch()
    return str(own / "bin" / "moto_server")


@contextlib.contextmanager
def bucket(name: str) -> Iterator[str]:
    """The address of an S3 with an empty bucket."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [_installed(), "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + READY_S
        while True:
            with contextlib.suppress(httpx.TransportError):
                if httpx.put(f"{url}/{name}").status_code == 200:
                    break
            assert time.monotonic() < deadline, "the moto server does not answer"
            time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.wait()
