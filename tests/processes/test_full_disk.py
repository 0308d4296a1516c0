"""A service whose disk is full: it serves reads, says that writes fail, and recovers by itself."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.processes.acceptance.house import eventually
from tests.support import specs
from tests.support.service import folder, serving

pytestmark = pytest.mark.long


@contextlib.contextmanager
def small_disk(at: Path) -> Iterator[Path]:
    """A file system that a service fits in."""
    disk = at / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=120m,mode=711", "tmpfs", disk], check=False)
    if mounted.returncode != 0:
        pytest.skip("this system lets nobody mount a file system")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def fill(disk: Path) -> Path:
    """Write a file until nothing more can be written."""
    filler = disk / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as out:
        while out.write(b"x" * 4096):
            pass
    return filler


@pytest.mark.root
def test_a_full_disk_fails_writes_and_leaves_reads() -> None:
    with folder() as at, small_disk(at) as disk, serving(disk) as service:
        headers = {"Authorization": f"Bearer {service.key}"}
        with httpx.Client(base_url=service.url, headers=headers, timeout=30) as client:

            def writes() -> bool | None:
                response = client.get("/readyz")
                return response.json()["writes"] if response.status_code == 200 else None

            assert client.get("/runtimes").status_code == 200, "the first request of a tenant writes"
            eventually(lambda: writes() is True, "it takes writes")
            filler = fill(disk)
            eventually(lambda: writes() is False, "it says that writes fail")
            assert client.get("/readyz?need=writes").status_code == 503
            assert client.post("/runtimes", json=specs.mock()).status_code == 503
            assert client.get("/runtimes").status_code == 200
            filler.unlink()
            eventually(lambda: writes() is True, "it takes writes again")
            assert client.get("/readyz?need=writes").status_code == 200
            assert client.post("/runtimes", json=specs.mock()).status_code == 201
