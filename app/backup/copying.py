"""Copying bodies from one store to another: many at once, each streamed and checked against its digest."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from app.backup.archive import Body
from app.base.blobs.store import BlobLost, BlobStore

AT_ONCE = 8


async def copy_bodies(
    bodies: Iterator[Body], source: BlobStore, target: BlobStore
) -> tuple[int, int, list[Body]]:
    """Copy bodies. Return how many, their bytes, and those that the source has lost.

    Raises:
        StoreUnavailable: one of the stores cannot be read or written; nothing else is begun then.
    """
    count = size = 0
    lost: list[Body] = []

    async def work() -> None:
        nonlocal count, size
        for body in bodies:
            try:
                await _copy(body, source, target)
            except BlobLost:
                lost.append(body)
            else:
                count += 1
                size += body.size

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(work())
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from failures
    return count, size, lost


async def _copy(body: Body, source: BlobStore, target: BlobStore) -> None:
    async with target.spool() as spool:
        async for piece in source.read(body.tenant, bytes.fromhex(body.digest), body.size):
            await spool.write(piece)
        await target.keep(body.tenant, spool)
