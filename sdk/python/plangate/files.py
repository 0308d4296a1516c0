"""The files of a thread from Python: reading, writing, listing and publishing them, as bytes or text."""

from __future__ import annotations

from typing import Any

from plangate.api.calls import Api
from plangate.api.models import ArtifactInfo, FileView
from plangate.api.requests import read_items
from plangate.artifacts import Artifacts, to_bytes
from plangate.client import file_segments
from plangate.context import Bridge
from plangate.thread_ids import resolve_thread_id

FileRecords = list[FileView]


class Files:
    """`runtime.files(thread_id)`: the workspace of a thread, which its agents share.

    A file has versions: each write makes one, and the earlier ones stay readable. A record has `path`, `version`,
    `sizeBytes`, `digest`, `mediaType`, `writtenBy` and `at`.

    Example:
        >>> async def exchange(runtime):
        ...     files = runtime.files("customer-17")
        ...     await files.write("photos/front.png", b"...")
        ...     for record in await files.list("reports/"):
        ...         print(record["path"], await files.read_text(record["path"]))
    """

    def __init__(self, api: Api, thread_id: str, artifacts: Artifacts) -> None:
        self._api = api
        self._thread_id = thread_id
        self._artifacts = artifacts

    async def read(self, path: str, *, version: int | None = None) -> bytes:
        """Return the bytes of a file; all are held in memory.

        Args:
            path: In the workspace.
            version: An earlier version; None is the current one.

        Raises:
            ValueError: at once, for an empty path.
            NotFound: if there is no such file, version or thread.
            InvalidRequest: if the path is not allowed.
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def photo(runtime):
            ...     return await runtime.files("customer-17").read("photos/front.png")
        """
        file_segments(path)
        return await self._api.read_file(await self._thread(), path, version=version)

    async def read_text(self, path: str, *, version: int | None = None) -> str:
        """Return a file as text in UTF-8.

        Args:
            path, version: As for `read`.

        Raises:
            ValueError, NotFound, InvalidRequest, ServiceUnavailable: as `read`.
            UnicodeDecodeError: (a ValueError) if the file is not text in UTF-8.

        Example:
            >>> async def report(runtime):
            ...     return await runtime.files("customer-17").read_text("reports/today.md")
        """
        return (await self.read(path, version=version)).decode()

    async def write(self, path: str, content: bytes | str, *, media_type: str | None = None) -> FileView:
        """Write a file and return its record. The same content again makes no new version.

        It needs a key with `data:write`.

        Args:
            path: In the workspace; directories on the way to it are made.
            content: Text is sent as UTF-8.
            media_type: By default what the name says.

        Raises:
            TypeError: at once, for content that is neither bytes nor text.
            InvalidRequest: if the path is not allowed.
            NotFound: if there is no such thread.
            Conflict: if the workspace or the tenant has no room.
            TooLarge: if a file may not have so many bytes.
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def attach(runtime, png):
            ...     return await runtime.files("customer-17").write("photos/front.png", png)
        """
        data = to_bytes(content, "the content of a file")
        file_segments(path)
        return await self._api.write_file(await self._thread(), path, data, media_type=media_type)

    async def list(self, prefix: str = "", *, limit: int = 1000) -> FileRecords:
        """List the records of the current files, ordered by path.

        Args:
            prefix: What the paths begin with; a directory ends with `/`. By default all files.
            limit: How many at most.

        Raises:
            InvalidRequest: if the prefix is not allowed.
            NotFound: if there is no such thread.
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def reports(runtime):
            ...     return [file["path"] for file in await runtime.files("customer-17").list("reports/")]
        """
        return await read_items(
            self._api.list_files, await self._thread(), prefix=prefix or None, limit=limit
        )

    async def delete(self, path: str) -> FileView:
        """Delete a file and return the record of its deletion. Its versions stay readable.

        It needs a key with `data:write`.

        Args:
            path: In the workspace.

        Raises:
            ValueError, NotFound, InvalidRequest, ServiceUnavailable: as `read`.

        Example:
            >>> async def tidy(runtime):
            ...     await runtime.files("customer-17").delete("drafts/old.md")
        """
        file_segments(path)
        return await self._api.delete_file(await self._thread(), path)

    async def publish(self, channel: str, path: str, **parts: Any) -> ArtifactInfo:
        """Publish a file or a directory as it is now, and return the record, as `Artifacts.publish` does.

        Args:
            channel, path: As for `Artifacts.publish`.
            parts: Its other arguments, such as `title` and `summary`.

        Raises:
            ValueError, InvalidRequest, NotFound, ServiceUnavailable: as `Artifacts.publish`.

        Example:
            >>> async def hand_over(runtime):
            ...     return await runtime.files("customer-17").publish("handoff", "notes", title="Notes")
        """
        return await self._artifacts.publish(self._thread_id, channel, path, **parts)

    async def _thread(self) -> str:
        return await resolve_thread_id(self._api, self._thread_id)


class CallFiles:
    """`ctx.files`: `runtime.files` of the thread of a call. In an async handler each call is awaited; in a sync one it
    returns its result."""

    def __init__(self, files: Files, bridge: Bridge) -> None:
        self._files = files
        self._bridge = bridge

    def read(self, path: str, *, version: int | None = None) -> Any:
        """Return the bytes of a file, as `Files.read` does."""
        return self._bridge.run(self._files.read(path, version=version))

    def read_text(self, path: str, *, version: int | None = None) -> Any:
        """Return a file as text, as `Files.read_text` does."""
        return self._bridge.run(self._files.read_text(path, version=version))

    def write(self, path: str, content: bytes | str, *, media_type: str | None = None) -> Any:
        """Write a file, as `Files.write` does. A call that is repeated after a crash makes no new version."""
        return self._bridge.run(self._files.write(path, content, media_type=media_type))

    def list(self, prefix: str = "", *, limit: int = 1000) -> Any:
        """List the files, as `Files.list` does."""
        return self._bridge.run(self._files.list(prefix, limit=limit))

    def delete(self, path: str) -> Any:
        """Delete a file, as `Files.delete` does."""
        return self._bridge.run(self._files.delete(path))

    def publish(self, channel: str, path: str, **parts: Any) -> Any:
        """Publish as `Files.publish` does. What is published belongs to the agent's run that made the call."""
        return self._bridge.run(self._files.publish(channel, path, **parts))
