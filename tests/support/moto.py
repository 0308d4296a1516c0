"""An independent S3 implementation: the moto server."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator

import httpx

from tests.support.programs import moto_server

READY_S = 60.0


@contextlib.contextmanager
def bucket(name: str) -> Iterator[str]:
    """The address of an S3 with an empty bucket."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [str(moto_server()), "-H", "127.0.0.1", "-p", str(port)],
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
