"""Bodies in a directory round-trip, and planted files are not read."""

from __future__ import annotations

import asyncio
import hashlib
import os
import resource
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.base.blobs.local import LocalBlobs
from app.base.blobs.store import BUFFER_BYTES, PIECE_BYTES, BlobFile, BlobLost, StoreUnavailable
from app.deployment import prepare_blobs

SIZES = (0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3_000_000)


@pytest.fixture
def blobs(tmp_path: Path) -> LocalBlobs:
    made = LocalBlobs(tmp_path / "blobs")
    made.prepare()
    return made


async def kept(blobs: LocalBlobs, data: bytes, tenant: str = "acme") -> bytes:
    async with blobs.spool() as spool:
        for at in range(0, len(data), 70_000):
            await spool.write(data[at : at + 70_000])
        await blobs.keep(tenant, spool)
    assert (spool.size, spool.digest) == (len(data), hashlib.sha256(data).digest())
    return spool.digest


async def whole(blobs: LocalBlobs, digest: bytes, size: int, tenant: str = "acme") -> bytes:
    return b"".join([piece async for piece in blobs.read(tenant, digest, size)])


def files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file() or path.is_symlink()]


@pytest.mark.parametrize("size", SIZES)
async def test_bodies_round_trip(blobs: LocalBlobs, size: int) -> None:
    data = os.urandom(size)
    digest = await kept(blobs, data)
    assert await whole(blobs, digest, size) == data
    assert await kept(blobs, data) == digest
    assert len(files(blobs._root)) == 1
    await blobs.delete("acme", digest)
    await blobs.delete("acme", digest)
    assert files(blobs._root) == []
    with pytest.raises(BlobLost, match="is missing"):
        await whole(blobs, digest, size)


async def test_a_part_of_a_body(blobs: LocalBlobs) -> None:
    data = os.urandom(2 * PIECE_BYTES + 1)
    digest = await kept(blobs, data)
    for begin, end in (
        (0, 1),
        (PIECE_BYTES - 1, PIECE_BYTES + 1),
        (1, len(data)),
        (len(data) - 1, len(data)),
    ):
        pieces = [piece async for piece in blobs.read("acme", digest, len(data), (begin, end))]
        assert b"".join(pieces) == data[begin:end]
    with pytest.raises(BlobLost):
        await anext(blobs.read("acme", digest, len(data) + 1, (0, 1)))


async def test_pieces_are_small(blobs: LocalBlobs) -> None:
    digest = await kept(blobs, bytes(3_000_000))
    assert max([len(p) async for p in blobs.read("acme", digest, 3_000_000)]) == PIECE_BYTES


async def test_tenants_are_apart_and_every_name_is_a_hash(blobs: LocalBlobs) -> None:
    digest = await kept(blobs, b"x", "acme")
    with pytest.raises(BlobLost):
        await whole(blobs, digest, 1, "other")
    await blobs.delete("other", digest)
    assert await whole(blobs, digest, 1) == b"x"
    (path,) = files(blobs._root)
    names = path.relative_to(blobs._root).parts
    assert names == (hashlib.sha256(b"acme").hexdigest()[:32], digest.hex()[:2], digest.hex())
    assert path.stat().st_mode & 0o777 == 0o600
    assert all(p.stat().st_mode & 0o077 == 0 for p in [blobs._root, *blobs._root.rglob("*")])


async def test_an_abandoned_body_leaves_nothing(blobs: LocalBlobs) -> None:
    with pytest.raises(RuntimeError, match="cut"):
        async with blobs.spool() as spool:
            await spool.write(b"x" * 2_000_000)
            raise RuntimeError("cut")
    assert files(blobs._root) == []


async def test_broken_uploads_are_swept(blobs: LocalBlobs) -> None:
    digest = await kept(blobs, b"kept")
    old, new = blobs._root / "incoming" / "old", blobs._root / "incoming" / "new"
    for path in (old, new):
        path.write_bytes(b"x")
    os.utime(old, (time.time() - 7200, time.time() - 7200))
    (blobs._root / "incoming" / "folder").mkdir()
    assert await blobs.sweep(3600) == 1
    assert new.exists()
    assert not old.exists()
    assert await whole(blobs, digest, 4) == b"kept"


SECRET = b"what is outside"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_bytes(SECRET)
    return folder


PLANTED: dict[str, Callable[[Path, Path], object]] = {
    "a link": lambda at, outside: at.symlink_to(outside / "secret"),
    "a hard link": lambda at, outside: os.link(outside / "secret", at),
    "a link to nowhere": lambda at, outside: at.symlink_to(outside / "nothing"),
    "a pipe": lambda at, outside: os.mkfifo(at),
    "a folder": lambda at, outside: at.mkdir(),
    "other bytes": lambda at, outside: at.write_bytes(bytes(len(SECRET))),
}


@pytest.mark.parametrize("what", PLANTED)
async def test_a_planted_file_is_not_read(blobs: LocalBlobs, outside: Path, what: str) -> None:
    data = os.urandom(len(SECRET))
    digest = await kept(blobs, data)
    (path,) = files(blobs._root)
    path.unlink()
    PLANTED[what](path, outside)
    with pytest.raises(BlobLost) as error:
        await whole(blobs, digest, len(SECRET))
    assert error.value.kind == "blob_lost"
    assert digest.hex() in error.value.detail
    if what != "a folder":  # keeping the body again puts it in the place of what was planted
        await kept(blobs, data)
        assert await whole(blobs, digest, len(data)) == data
    assert files(outside) == [outside / "secret"]
    assert (outside / "secret").read_bytes() == SECRET


class OvertakenBlobs(LocalBlobs):
    """Somebody does something between a look into a folder and what follows it."""

    def __init__(self, root: Path, does: Callable[[], object]) -> None:
        super().__init__(root)
        self._does = does

    @contextmanager
    def _open_folder(self, *names: str, create: bool = False) -> Iterator[int]:
        with super()._open_folder(*names, create=create) as fd:
            yield fd
        self._does()


@pytest.mark.parametrize("again", [True, False])
async def test_a_body_rewritten_or_deleted_during_a_read_is_read(blobs: LocalBlobs, again: bool) -> None:
    data = b"kept"
    digest = await kept(blobs, data)
    (path,) = files(blobs._root)

    def meanwhile() -> None:
        if again:  # as `keep` does
            other = path.with_name("other")
            other.write_bytes(data)
            other.rename(path)
        else:
            path.unlink()

    assert await whole(OvertakenBlobs(blobs._root, meanwhile), digest, len(data)) == data


async def test_canceling_an_open_leaves_no_descriptor() -> None:
    loop, began, go_on, closed = (
        asyncio.get_running_loop(),
        asyncio.Event(),
        threading.Event(),
        asyncio.Event(),
    )
    other_end, opened = os.pipe()
    loop.add_reader(other_end, closed.set)

    def slowly() -> int:
        loop.call_soon_threadsafe(began.set)
        go_on.wait(10)
        return opened

    opening = asyncio.create_task(BlobFile.open(slowly))
    await began.wait()
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    go_on.set()
    async with asyncio.timeout(10):
        await closed.wait()
    loop.remove_reader(other_end)
    os.close(other_end)


async def test_a_link_to_the_very_body_is_not_followed(blobs: LocalBlobs, outside: Path) -> None:
    digest = await kept(blobs, SECRET)
    (path,) = files(blobs._root)
    path.unlink()
    path.symlink_to(outside / "secret")
    with pytest.raises(BlobLost, match="is missing"):
        await whole(blobs, digest, len(SECRET))


@pytest.mark.parametrize("place", ["incoming", "tenant", "shard"])
async def test_linked_folders_are_not_followed(blobs: LocalBlobs, outside: Path, place: str) -> None:
    data = b"to be kept"
    digest = await kept(blobs, data)
    (path,) = files(blobs._root)
    folder = {"incoming": blobs._root / "incoming", "tenant": path.parents[1], "shard": path.parent}[place]
    folder.rename(outside / "moved")
    folder.symlink_to(outside / "moved")
    before = sorted(files(outside))
    with pytest.raises(StoreUnavailable, match=r"^The blob store is unavailable: "):
        await kept(blobs, data)
    if place != "incoming":
        with pytest.raises(BlobLost):
            await whole(blobs, digest, len(data))
        with pytest.raises(StoreUnavailable):
            await blobs.delete("acme", digest)
    else:
        with pytest.raises(StoreUnavailable):
            await blobs.sweep(0)
    assert sorted(files(outside)) == before


async def test_a_body_changed_during_a_read_is_not_completed(blobs: LocalBlobs) -> None:
    size = PIECE_BYTES + 10
    digest = await kept(blobs, bytes(size))
    (path,) = files(blobs._root)
    pieces: AsyncIterator[bytes] = blobs.read("acme", digest, size)
    first = await anext(pieces)
    path.write_bytes(b"\1" * size)
    with pytest.raises(BlobLost, match="has changed"):
        await anext(pieces)
    assert first == bytes(PIECE_BYTES)


async def test_nothing_is_stored_in_a_missing_or_replaced_directory(
    blobs: LocalBlobs, tmp_path: Path
) -> None:
    """As after an unmount: what would be kept beside it would be lost with the next mount."""
    digest = await kept(blobs, b"one")
    (tmp_path / "blobs").rename(tmp_path / "elsewhere")
    for there in (False, True):
        if there:
            (tmp_path / "blobs").mkdir()
        with pytest.raises(StoreUnavailable, match="No such file or directory"):
            async with blobs.spool():
                pass
        with pytest.raises(
            StoreUnavailable, match="No such file or directory"
        ):  # and no body is said to be lost
            await whole(blobs, digest, 3)
        with pytest.raises(StoreUnavailable, match="No such file or directory"):  # nor to be deleted
            await blobs.delete("acme", digest)
    assert list((tmp_path / "blobs").iterdir()) == []
    (tmp_path / "blobs").rmdir()
    (tmp_path / "elsewhere").rename(tmp_path / "blobs")
    assert await whole(blobs, digest, 3) == b"one"
    await kept(blobs, b"two")
    for _ in range(2):  # nothing happens if it is not there
        await blobs.delete("acme", digest)
    with pytest.raises(BlobLost, match="is missing"):
        await whole(blobs, digest, 3)


async def test_an_unusable_store_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(
        StoreUnavailable, match=r"^The blob store is unavailable: (File exists|Not a directory)"
    ):
        async with LocalBlobs(tmp_path / "file").spool():
            pass


@pytest.mark.parametrize(
    ("where", "why"), [("file", "(File exists|Not a directory)"), ("file/below", "Not a directory")]
)
def test_an_invalid_directory_is_reported_at_startup(tmp_path: Path, where: str, why: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(
        SystemExit, match=rf"^Bodies of files cannot be kept in \S+/{where} \(PLANGATE_BLOBS\): {why}\. "
    ):
        prepare_blobs(str(tmp_path / where))


def test_an_unwritable_directory_is_reported_at_startup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may write everywhere, so the answer of the kernel is given here."""
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    with pytest.raises(
        SystemExit, match=r"\(PLANGATE_BLOBS\): Permission denied\. It has to be a directory that"
    ):
        prepare_blobs(str(tmp_path / "blobs"))


def test_a_directory_is_there_from_the_start(tmp_path: Path) -> None:
    prepare_blobs(str(tmp_path / "some" / "blobs"))
    assert (tmp_path / "some" / "blobs").stat().st_mode & 0o777 == 0o700


async def test_a_full_disk_is_reported_and_leaves_nothing(blobs: LocalBlobs) -> None:
    """A limit on the size of files stands in for the disk: both end a write in its middle."""
    digest = await kept(blobs, b"kept")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * BUFFER_BYTES, before[1]))
    try:
        async with blobs.spool() as spool:
            with pytest.raises(
                StoreUnavailable, match=r"^The blob store is unavailable: File too large\. If this"
            ):
                for _ in range(4):
                    await spool.write(bytes(BUFFER_BYTES))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path.name for path in files(blobs._root)] == [digest.hex()]
    assert await whole(blobs, digest, 4) == b"kept"
