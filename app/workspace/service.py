"""The verbs of workspaces: write, read, delete, list, copy."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Final

from app.base.blobs.store import BlobStore, ByteRange, Spool, StoreUnavailable
from app.base.clock import uptime_s
from app.base.errors import Conflict, NotFound, PreconditionFailed, TooLarge, TooManyRequests
from app.base.ids import is_id
from app.base.postgres.database import Database, Tx
from app.workspace import paths, store
from app.workspace.models import Condition, FileAuthor, FileRow, StoredBody, WorkspaceLimits, guess_media_type

MAX_BLOBS_PER_COLLECTION: Final = 100
SWEEP_INTERVAL_S: Final = 3600.0
MAX_UPLOAD_S: Final = 24 * 3600.0
"""An upload that takes longer than this is taken for one that was cut off."""


class FileTooLarge(TooLarge):
    kind, title = "file_too_large", "The file is too large"


class WorkspaceFull(Conflict):
    """The workspace has as many files, or bytes, as it may."""

    kind, title = "workspace_full", "The workspace is full"


class StorageFull(Conflict):
    """The files of the tenant have as many bytes as they may."""

    kind, title = "storage_full", "The tenant has no room for more files"


class FileChanged(PreconditionFailed):
    """Somebody else wrote the file meanwhile."""

    kind, title = "file_changed", "The file is another version now"


class Workspaces:
    """`limits` are those of each workspace."""

    def __init__(self, db: Database, blobs: BlobStore, limits: WorkspaceLimits | None = None) -> None:
        self.blobs = blobs
        self.limits = limits or WorkspaceLimits()
        self._db = db
        self._sweep_at = 0.0
        self._upload_bytes: Counter[str] = Counter()  # bytes of uploads by their tenant

    # -- bodies ----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def open_upload(self, tenant: str) -> AsyncIterator[Upload]:
        """A body on its way in; what is not kept at the end of the block is gone."""
        async with self.blobs.spool() as spool:
            try:
                yield Upload(self, tenant, spool)
            finally:
                self._upload_bytes -= Counter({tenant: spool.size})  # and forgets whoever has none

    def reserve_upload_bytes(self, tenant: str, size: int) -> None:
        """So many bytes more of the tenant come in: on the disk, and counted nowhere else. Raises TooManyRequests."""
        if self._upload_bytes[tenant] + size > self.limits.bytes:
            raise TooManyRequests(
                f"The tenant has uploads of {self.limits.bytes} bytes under way, as many as it may: nothing was written. "
                "Send this one again when others are done."
            )
        self._upload_bytes[tenant] += size

    async def keep(self, tenant: str, data: bytes) -> StoredBody:
        """Puts a small body into the blob store. Raises FileTooLarge, TooManyRequests, StorageFull."""
        async with self.open_upload(tenant) as upload:
            await upload.write(data)
            return await upload.keep()

    async def store_body(self, tenant: str, spool: Spool) -> StoredBody:
        body = StoredBody(await spool.end(), spool.size)
        async with self._db.transaction(tenant) as tx:
            found = await store.reserve_body(tx, body.digest, body.size)
            if found["doubtful"]:
                raise StoreUnavailable(
                    "A body of the same bytes is being deleted, and the blob store has not said that it is gone: nothing was "
                    "written. Send it again in a minute.",
                    retry_after_s=60,
                )
            if found["too_much"]:
                raise StorageFull(
                    f"With this file those of the tenant would have {found['blob_bytes']} bytes, all versions together, more "
                    f"than {found['most']}: nothing was written. Delete threads, or ask the operator for more."
                )
        await self.blobs.keep(tenant, spool)
        return body

    def stream_body(
        self, tenant: str, body: StoredBody, part: ByteRange | None = None
    ) -> AsyncGenerator[bytes, None]:
        """In pieces; no transaction is open meanwhile."""
        return self.blobs.read(tenant, body.digest, body.size, part)

    async def read_body(self, tenant: str, body: StoredBody) -> bytes:
        """For bodies that the caller knows to be small."""
        return b"".join([piece async for piece in self.stream_body(tenant, body)])

    async def collect(self) -> int:
        """Removes bodies that nothing names; gives how many. Raises StoreUnavailable for one that cannot be deleted: the next
        time it stands behind the others."""
        if uptime_s() >= self._sweep_at:
            self._sweep_at = uptime_s() + SWEEP_INTERVAL_S
            await self.blobs.sweep(MAX_UPLOAD_S)
        gone = 0
        for tenant, digest in await store.due_blobs(self._db, MAX_BLOBS_PER_COLLECTION):
            gone += await self._collect(tenant, bytes.fromhex(digest))
        return gone

    async def _collect(self, tenant: str, digest: bytes) -> bool:
        async with self._db.transaction(tenant) as tx:
            if not await store.lock_unnamed(tx, digest):
                return False
            if await store.is_named(tx, digest):
                await store.mark_named(tx, digest)
                return False
            try:
                await self.blobs.delete(tenant, digest)
            except StoreUnavailable as error:
                failed = error
                await store.postpone(tx, digest)
            else:
                await store.delete_blob(tx, digest)
                return True
        raise failed

    # -- files -----------------------------------------------------------------------------------------------

    async def write(
        self,
        tx: Tx,
        thread_id: str,
        path: str,
        body: StoredBody,
        author: FileAuthor,
        *,
        media_type: str | None = None,
        expected_version: int | None = None,
        condition: Condition | None = None,
    ) -> tuple[FileRow, bool]:
        """The new version of a file, and whether the file is new; the same body again is no new version. `path` is a
        normal one, `body` is in the blob store. `over` is the version that must be the present one, 0 for none; `when` must hold of
        it. One call writes once. Raises NotFound, PathNotAllowed, FileTooLarge, WorkspaceFull, FileChanged."""
        if (
            author.work_id is not None
            and (made := await store.version_of_call(tx, author.work_id)) is not None
        ):
            return made, made.version == 1
        await lock_thread(tx, thread_id)
        counts = await store.lock(tx, thread_id)
        held = await store.file(tx, thread_id, path)
        present = held is not None and held.digest is not None
        if expected_version is not None and expected_version != (
            held.version if held is not None and present else 0
        ):
            now = f"its version {held.version} is" if held is not None and present else "no file is"
            raise FileChanged(
                f"{path!r} was to be version {expected_version}, and {now} there now: read it again."
            )
        self._validate_condition(path, held, condition)
        kind = media_type or guess_media_type(path)
        if held is not None and held.digest == body.digest and held.media_type == kind:
            return held, False
        skeleton = paths.skeleton(path)
        if not present:
            await self._validate_free_path(tx, thread_id, path)
        more = body.size - (held.size_bytes if held is not None else 0)
        self._validate_limits(path, body, counts["files"] + (not present), counts["bytes"] + more)
        number = held.version + 1 if held is not None else 1
        row = await store.add_version(tx, thread_id, path, number, body.digest, body.size, kind, author)
        await store.mark_named(tx, body.digest)
        await store.set_current_version(tx, thread_id, path, number, skeleton)
        await store.add_counts(tx, thread_id, int(not present), more)
        return row, not present

    async def _validate_free_path(self, tx: Tx, thread_id: str, path: str) -> None:
        folders = paths.ancestors(path)
        above = await store.first_file_among(tx, thread_id, folders)
        if above is not None:
            raise paths.path_error(path, f"{above!r} is a file, and nothing can be below it")
        below = await store.first_file_below(tx, thread_id, path)
        if below is not None:
            raise paths.path_error(path, f"it is a directory, with {below!r} in it")
        names = [*folders, path]
        found = await store.find_lookalike(tx, thread_id, names, [paths.skeleton(name) for name in names])
        if found is not None:
            name, there = found
            alike = "/".join(there.split("/")[: name.count("/") + 1])
            what = "it" if name == path else f"its directory {name!a}"
            raise paths.path_error(path, f"{what} looks like {alike!a}, which is there already")

    def _validate_limits(self, path: str, body: StoredBody, files: int, size: int) -> None:
        self.validate_size(body.size)
        if files > self.limits.files:
            raise WorkspaceFull(
                f"The workspace has {self.limits.files} files, as many as it may: {path!r} was not written. Delete some."
            )
        if size > self.limits.bytes:
            raise WorkspaceFull(
                f"With {path!r} the workspace would have {size} bytes, more than {self.limits.bytes}: it was not written. "
                "Delete files, or write less."
            )

    def validate_size(self, size: int) -> None:
        """Raises FileTooLarge."""
        if size > self.limits.file_bytes:
            raise FileTooLarge(f"A file may have {self.limits.file_bytes} bytes; nothing was written.")

    @staticmethod
    def _validate_condition(path: str, held: FileRow | None, condition: Condition | None) -> None:
        digest = held.digest if held is not None else None
        if condition is None or condition.holds(digest):
            return
        now = f"its version {held.version} is" if held is not None and digest is not None else "no file is"
        raise FileChanged(f"{path!r} is not what the request is about, {now} there now: read it again.")

    async def delete(
        self, tx: Tx, thread_id: str, path: str, author: FileAuthor, condition: Condition | None = None
    ) -> FileRow:
        """Deletes the file from the present, if `when` holds of it; its versions stay. Raises NotFound, FileChanged."""
        await lock_thread(tx, thread_id)
        await self.get_file(tx, thread_id, path)
        await store.lock(tx, thread_id)
        held = await self.get_file(tx, thread_id, path)
        self._validate_condition(path, held, condition)
        number = held.version + 1
        row = await store.add_version(tx, thread_id, path, number, None, 0, held.media_type, author)
        await store.set_current_version(tx, thread_id, path, number, paths.skeleton(path), deleted=True)
        await store.add_counts(tx, thread_id, -1, -held.size_bytes)
        return row

    async def find_file(
        self, tx: Tx, thread_id: str, path: str, version: int | None = None
    ) -> FileRow | None:
        """The file, or what it was in a version; None where there is none."""
        row = (
            await store.file(tx, thread_id, path)
            if version is None
            else await store.version(tx, thread_id, path, version)
        )
        return row if row is not None and row.digest is not None else None

    async def get_file(self, tx: Tx, thread_id: str, path: str, version: int | None = None) -> FileRow:
        """The same. Raises NotFound, which says what is there instead."""
        await require_thread(tx, thread_id)
        row = await self.find_file(tx, thread_id, path, version)
        if row is not None:
            return row
        if version is not None:
            raise NotFound(
                f"There is no version {version} of {path!r} in the workspace, or it is a deletion."
            )
        if await store.first_file_below(tx, thread_id, path) is not None:
            raise NotFound(f"{path!r} is a directory: list it with the prefix {path + '/'!r}.")
        raise NotFound(f"There is no file {path!r} in the workspace.")

    async def list_files(self, tx: Tx, thread_id: str, prefix: str, after: str, limit: int) -> list[FileRow]:
        """Present files whose path begins with the prefix, in the order of their paths. Raises NotFound."""
        await require_thread(tx, thread_id)
        return await store.list_files(tx, thread_id, prefix, after, limit)

    async def fork(self, tx: Tx, thread_id: str, to: str, at: datetime | None) -> None:
        """Copies the files of a thread, as they are or were at a moment, into a new thread: rows, no bodies."""
        await store.lock(tx, to)
        made = await store.fork(tx, thread_id, to, at)
        await store.add_counts(tx, to, made["files"], made["bytes"])


class Upload:
    """A body on its way in, no larger than a file may be."""

    def __init__(self, workspaces: Workspaces, tenant: str, spool: Spool) -> None:
        self._workspaces = workspaces
        self._tenant = tenant
        self._spool = spool

    async def write(self, data: bytes) -> None:
        """Raises FileTooLarge, TooManyRequests."""
        self._workspaces.validate_size(self._spool.size + len(data))
        self._workspaces.reserve_upload_bytes(self._tenant, len(data))
        await self._spool.write(data)

    async def keep(self) -> StoredBody:
        """The body, in the blob store. Nothing names it yet: within a day something must. Raises StorageFull."""
        return await self._workspaces.store_body(self._tenant, self._spool)


async def require_thread(tx: Tx, thread_id: str) -> None:
    if not is_id("thr_", thread_id) or not await store.thread_exists(tx, thread_id):
        raise NotFound(f"There is no thread {thread_id!r}.")


async def lock_thread(tx: Tx, thread_id: str) -> None:
    """For who writes to a thread: nobody deletes it until the transaction ends. Raises NotFound."""
    if not is_id("thr_", thread_id) or not await store.hold_thread(tx, thread_id):
        raise NotFound(f"There is no thread {thread_id!r}.")
