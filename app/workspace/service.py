"""Write, read, delete, list and copy files of workspaces."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Final

from app.base.blobs.store import BlobStore, ByteRange, Spool, StoreUnavailable
from app.base.clock import uptime_s
from app.base.errors import Conflict, NotFound, PreconditionFailed, TooLarge, TooManyRequests
from app.base.ids import is_id
from app.base.postgres.database import Database, Tx
from app.workspace import paths, store
from app.workspace.models import (
    Condition,
    FileAuthor,
    FileRow,
    ReservedBody,
    StoredBody,
    WorkspaceCounts,
    WorkspaceLimits,
    guess_media_type,
)

MAX_BLOBS_PER_COLLECTION: Final = 100
SWEEP_INTERVAL_S: Final = 3600.0
MAX_UPLOAD_S: Final = 24 * 3600.0
"""A longer upload counts as interrupted."""


class FileTooLarge(TooLarge):
    kind, title = "file_too_large", "The file is too large"


class WorkspaceFull(Conflict):
    """The workspace has reached its maximum number of files or bytes."""

    kind, title = "workspace_full", "The workspace is full"


class StorageFull(Conflict):
    """The files of the tenant have reached their maximum size."""

    kind, title = "storage_full", "The tenant has no room for more files"


class FileChanged(PreconditionFailed):
    """The file was changed meanwhile."""

    kind, title = "file_changed", "The file is another version now"


class FilesElsewhere(Conflict):
    """The files of the thread are not in the service."""

    kind, title = "files_elsewhere", "The files of the thread are not in the service"


class Workspaces:
    """Operations on workspaces. `limits` apply to each workspace."""

    def __init__(
        self,
        db: Database,
        blobs: BlobStore,
        limits: WorkspaceLimits | None = None,
        *,
        is_elsewhere: Callable[[Tx, str], Awaitable[bool]] | None = None,
    ) -> None:
        """`is_elsewhere` returns whether the files of a thread are on a machine of the user."""
        self._is_elsewhere = is_elsewhere
        self.blobs = blobs
        self.limits = limits or WorkspaceLimits()
        self._db = db
        self._sweep_at = 0.0
        self._upload_bytes: Counter[str] = Counter()  # bytes of uploads by their tenant

    async def require_own(self, tx: Tx, thread_id: str) -> None:
        """Raise NotFound if there is no such thread, FilesElsewhere if its files are on a machine of the user."""
        await require_thread(tx, thread_id)
        if self._is_elsewhere is not None and await self._is_elsewhere(tx, thread_id):
            raise FilesElsewhere(
                "The files of this thread are on a machine of the user (`workspace` of its runtime), not in the service. "
                "Its published artifacts are here: GET /artifacts?threadId=."
            )

    # -- bodies ----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def open_upload(self, tenant: str) -> AsyncIterator[Upload]:
        """Open an upload; what is not stored at the end of the block is discarded."""
        async with self.blobs.spool() as spool:
            try:
                yield Upload(self, tenant, spool)
            finally:
                self._upload_bytes -= Counter({tenant: spool.size})  # also removes tenants without uploads

    def reserve_upload_bytes(self, tenant: str, size: int) -> None:
        """Reserve disk space for bytes of a tenant's upload, which count nowhere else. Raise
        TooManyRequests."""
        if self._upload_bytes[tenant] + size > self.limits.bytes:
            raise TooManyRequests(
                f"The tenant's uploads in progress have reached the maximum of {self.limits.bytes} bytes; nothing was "
                "written. Retry when others have finished."
            )
        self._upload_bytes[tenant] += size

    async def keep(self, tenant: str, data: bytes) -> StoredBody:
        """Store a small body. Raise FileTooLarge, TooManyRequests, StorageFull."""
        async with self.open_upload(tenant) as upload:
            await upload.write(data)
            return await upload.keep()

    async def store_body(self, tenant: str, spool: Spool) -> StoredBody:
        body = StoredBody(await spool.end(), spool.size)
        async with self._db.transaction(tenant) as tx:
            reserved = await self.reuse_body(tx, body)
            if reserved.too_much:
                raise StorageFull(
                    f"With this file, all versions of the tenant's files would have {reserved.blob_bytes} bytes, more than "
                    f"{reserved.most}; nothing was written. Delete threads, or ask the operator to raise the limit."
                )
        await self.blobs.keep(tenant, spool)
        return body

    async def reuse_body(self, tx: Tx, body: StoredBody) -> ReservedBody:
        """Keep a stored body for a day, so that a file can point to it. Raise StoreUnavailable."""
        reserved = await store.reserve_body(tx, body=body)
        if reserved.doubtful:
            raise StoreUnavailable(
                "The same content is just being deleted from the blob store; nothing was written. "
                "Retry in a minute.",
                retry_after_s=60,
            )
        return reserved

    @staticmethod
    async def mark_named(tx: Tx, body: StoredBody) -> None:
        """Keep a stored body as long as a file or an artifact names it."""
        await store.mark_named(tx, digest=body.digest)

    def stream_body(
        self, tenant: str, body: StoredBody, part: ByteRange | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Yield a body in pieces. No transaction is open meanwhile."""
        return self.blobs.read(tenant, body.digest, body.size, part)

    async def read_body(self, tenant: str, body: StoredBody) -> bytes:
        """Return a body that the caller knows to be small."""
        return b"".join([piece async for piece in self.stream_body(tenant, body)])

    async def collect(self) -> int:
        """Delete bodies that nothing references; return how many. Raise StoreUnavailable if one cannot be
        deleted.

        That body is then tried again after the others.
        """
        if uptime_s() >= self._sweep_at:
            self._sweep_at = uptime_s() + SWEEP_INTERVAL_S
            await self.blobs.sweep(MAX_UPLOAD_S)
        due = await store.due_blobs(self._db, limit=MAX_BLOBS_PER_COLLECTION)
        return sum([await self._collect(tenant, digest) for tenant, digest in due])

    async def _collect(self, tenant: str, digest: bytes) -> bool:
        async with self._db.transaction(tenant) as tx:
            if not await store.lock_unnamed(tx, digest=digest):
                return False
            if await store.is_named(tx, digest=digest):
                await store.mark_named(tx, digest=digest)
                return False
            try:
                await self.blobs.delete(tenant, digest)
            except StoreUnavailable as error:
                failed = error
                await store.postpone(tx, digest=digest)
            else:
                await store.delete_blob(tx, digest=digest)
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
        """Write a file; return its version and whether the file is new. The same body again creates no new
        version.

        `path` is normalized, `body` is in the blob store. `expected_version` must be the current version, 0
        for none; `condition` must hold for it. A call writes only once. Raise NotFound, PathNotAllowed,
        FileTooLarge, WorkspaceFull, FileChanged.
        """
        if author.work_id is not None:
            earlier = await self.version_of_call(tx, author.work_id)
            if earlier is not None:
                return earlier, earlier.version == 1
        await lock_thread(tx, thread_id)
        counts = await store.lock(tx, thread_id=thread_id)
        last = await store.file(tx, thread_id=thread_id, path=path)
        current = last if last is not None and last.digest is not None else None
        present = "no file is" if current is None else f"its version {current.version} is"
        if expected_version not in (None, 0 if current is None else current.version):
            raise FileChanged(
                f"{path!r} was to be version {expected_version}, and {present} there now. Read it again."
            )
        _validate_condition(path, current, condition)
        kind = media_type or guess_media_type(path)
        if current is not None and current.digest == body.digest and current.media_type == kind:
            return current, False
        if current is None:
            await self._validate_free_path(tx, thread_id, path)
        more = WorkspaceCounts(
            int(current is None), body.size - (0 if current is None else current.size_bytes)
        )
        self._validate_limits(path, body, counts.files + more.files, counts.bytes + more.bytes)
        number = 1 if last is None else last.version + 1
        row = await store.add_version(
            tx, thread_id=thread_id, path=path, number=number, body=body, media_type=kind, author=author
        )
        await self.mark_named(tx, body)
        skeleton = paths.skeleton(path)
        await store.set_current_version(tx, thread_id=thread_id, path=path, number=number, skeleton=skeleton)
        await store.add_counts(tx, thread_id=thread_id, counts=more)
        return row, current is None

    @staticmethod
    async def version_of_call(tx: Tx, work_id: str) -> FileRow | None:
        """Return the version that a call wrote, or None."""
        return await store.version_of_call(tx, work_id=work_id)

    async def _validate_free_path(self, tx: Tx, thread_id: str, path: str) -> None:
        folders = paths.ancestors(path)
        above = await store.first_file_among(tx, thread_id=thread_id, paths=folders)
        if above is not None:
            raise paths.path_error(path, f"{above!r} is a file, and nothing can be below it")
        below = await store.first_file_below(tx, thread_id=thread_id, folder=path)
        if below is not None:
            raise paths.path_error(path, f"it is a directory, with {below!r} in it")
        names = [*folders, path]
        skeletons = [paths.skeleton(name) for name in names]
        lookalike = await store.find_lookalike(tx, thread_id=thread_id, names=names, skeletons=skeletons)
        if lookalike is not None:
            name, other = lookalike
            alike = "/".join(other.split("/")[: name.count("/") + 1])
            what = "it" if name == path else f"its directory {name!a}"
            raise paths.path_error(path, f"{what} looks like {alike!a}, which is there already")

    def _validate_limits(self, path: str, body: StoredBody, files: int, size: int) -> None:
        self.validate_size(body.size)
        if files > self.limits.files:
            raise WorkspaceFull(
                f"The workspace has the maximum of {self.limits.files} files; {path!r} was not written. Delete some."
            )
        if size > self.limits.bytes:
            raise WorkspaceFull(
                f"With {path!r} the workspace would have {size} bytes, more than {self.limits.bytes}; it was not written. "
                "Delete files, or write less."
            )

    def validate_size(self, size: int) -> None:
        """Raise FileTooLarge if this size exceeds the maximum size of a file."""
        if size > self.limits.file_bytes:
            raise FileTooLarge(
                f"A file may have at most {self.limits.file_bytes} bytes; nothing was written."
            )

    async def delete(
        self, tx: Tx, thread_id: str, path: str, author: FileAuthor, condition: Condition | None = None
    ) -> FileRow:
        """Delete the current file if `condition` holds; its versions stay. Raise NotFound, FileChanged."""
        await lock_thread(tx, thread_id)
        await self.get_file(tx, thread_id, path)
        await store.lock(tx, thread_id=thread_id)
        current = await self.get_file(tx, thread_id, path)
        _validate_condition(path, current, condition)
        number, skeleton = current.version + 1, paths.skeleton(path)
        row = await store.add_version(
            tx,
            thread_id=thread_id,
            path=path,
            number=number,
            body=None,
            media_type=current.media_type,
            author=author,
        )
        await store.set_current_version(
            tx, thread_id=thread_id, path=path, number=number, skeleton=skeleton, deleted=True
        )
        await store.add_counts(tx, thread_id=thread_id, counts=WorkspaceCounts(-1, -current.size_bytes))
        return row

    async def find_file(
        self, tx: Tx, thread_id: str, path: str, version: int | None = None
    ) -> FileRow | None:
        """Return the file, or one of its versions, or None."""
        row = (
            await store.file(tx, thread_id=thread_id, path=path)
            if version is None
            else await store.version(tx, thread_id=thread_id, path=path, number=version)
        )
        return row if row is not None and row.digest is not None else None

    async def get_file(self, tx: Tx, thread_id: str, path: str, version: int | None = None) -> FileRow:
        """Return the file, or one of its versions. Raise NotFound, which describes what exists instead."""
        await require_thread(tx, thread_id)
        row = await self.find_file(tx, thread_id, path, version)
        if row is not None:
            return row
        if version is not None:
            raise NotFound(
                f"There is no version {version} of {path!r} in the workspace, or it is a deletion."
            )
        if await store.first_file_below(tx, thread_id=thread_id, folder=path) is not None:
            raise NotFound(f"{path!r} is a directory: list it with the prefix {path + '/'!r}.")
        raise NotFound(f"There is no file {path!r} in the workspace.")

    async def list_files(self, tx: Tx, thread_id: str, prefix: str, after: str, limit: int) -> list[FileRow]:
        """Return current files whose path begins with the prefix, ordered by path. Raise NotFound."""
        await require_thread(tx, thread_id)
        return await store.list_files(tx, thread_id=thread_id, prefix=prefix, after=after, limit=limit)

    async def fork(self, tx: Tx, thread_id: str, to: str, at: datetime | None) -> None:
        """Copy the files of a thread, current or as of a time, to a new thread: rows only, no bodies. Of a thread whose
        files are on a machine of the user, copy what was published."""
        await store.lock(tx, thread_id=to)
        elsewhere = self._is_elsewhere is not None and await self._is_elsewhere(tx, thread_id)
        counts = await store.fork(tx, thread_id=thread_id, to=to, at=at, published_only=elsewhere)
        await store.add_counts(tx, thread_id=to, counts=counts)


class Upload:
    """An incoming body, limited to the maximum size of a file."""

    def __init__(self, workspaces: Workspaces, tenant: str, spool: Spool) -> None:
        self._workspaces = workspaces
        self._tenant = tenant
        self._spool = spool

    async def write(self, data: bytes) -> None:
        """Append to the body. Raise FileTooLarge, TooManyRequests."""
        self._workspaces.validate_size(self._spool.size + len(data))
        self._workspaces.reserve_upload_bytes(self._tenant, len(data))
        await self._spool.write(data)

    async def keep(self) -> StoredBody:
        """Store the body. Something must reference it within a day. Raise StorageFull."""
        return await self._workspaces.store_body(self._tenant, self._spool)


async def require_thread(tx: Tx, thread_id: str) -> None:
    if not is_id("thr_", thread_id) or not await store.thread_exists(tx, thread_id=thread_id):
        raise NotFound(f"There is no thread {thread_id!r}.")


async def lock_thread(tx: Tx, thread_id: str) -> None:
    """Keep a thread from being deleted until the transaction ends. Raise NotFound."""
    if not is_id("thr_", thread_id) or not await store.lock_thread(tx, thread_id=thread_id):
        raise NotFound(f"There is no thread {thread_id!r}.")


def _validate_condition(path: str, current: FileRow | None, condition: Condition | None) -> None:
    if condition is None or condition.holds(None if current is None else current.digest):
        return
    present = "no file is" if current is None else f"its version {current.version} is"
    raise FileChanged(f"{path!r} has changed since you read it: {present} there now. Read it again.")
