"""A gigabyte passes through a service without being held in memory."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from bench import machine
from tests.support.service import Service, folder, serving

pytestmark = pytest.mark.long

MIB = 1024 * 1024
SIZE = 1024 * MIB
MOST_MB = 64


@pytest.fixture
def data() -> Iterator[Path]:
    with folder() as at:
        yield at / "data"


@pytest.fixture
def service(data: Path) -> Iterator[Service]:
    with serving(data.parent) as running:
        yield running


class Watch:
    """The most memory that a process held during a block, above what it held before, in MB."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.peak = 0.0

    def __enter__(self) -> Watch:
        self._idle = machine.rss_mb(self._pid)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.01):
            self.peak = max(self.peak, machine.rss_mb(self._pid) - self._idle)


def pieces(hashed: hashlib._Hash) -> Iterator[bytes]:
    """Bytes that differ from piece to piece."""
    for n in range(SIZE // MIB):
        piece = n.to_bytes(8) * (MIB // 8)
        hashed.update(piece)
        yield piece


@pytest.mark.timeout(300)
def test_a_gigabyte_is_streamed_in_and_out(service: Service, data: Path) -> None:
    headers = {"authorization": f"Bearer {service.key}", "plangate-tenant": "acme"}
    with httpx.Client(base_url=service.url, headers=headers, timeout=120) as http:
        thread = http.post("/threads", json={"threadKey": "t"}).json()["id"]
        at = f"/threads/{thread}/files"
        assert http.put(f"{at}/small", content=b"x" * MIB).status_code == 201
        assert len(http.get(f"{at}/small").content) == MIB
        sent, got = hashlib.sha256(), hashlib.sha256()
        with Watch(service.pid) as memory:
            row = http.put(f"{at}/large", content=pieces(sent))
            assert row.status_code == 201, row.text
            with http.stream("GET", f"{at}/large") as answer:
                for piece in answer.iter_raw():
                    got.update(piece)
        assert (row.json()["sizeBytes"], row.json()["digest"]["value"]) == (SIZE, sent.hexdigest())
        assert got.digest() == sent.digest()
        kept = [path for path in (data / "blobs").rglob(sent.hexdigest()) if path.is_file()]
        assert [path.stat().st_size for path in kept] == [SIZE]  # in the default place
        assert 0 < memory.peak < MOST_MB
