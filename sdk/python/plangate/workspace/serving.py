"""Serving a workspace: the calls of its tools, and the upload of what an agent publishes."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

if TYPE_CHECKING:
    from plangate.client import ServiceClient
    from plangate.workspace.directory import DirectoryWorkspace

PUBLISH: Final = "publish"
"""Copies what is at a path into the service. Not a tool: the service calls it before it publishes an artifact."""


class ServedWorkspace:
    """The handler of the calls of a workspace."""

    def __init__(self, workspace: DirectoryWorkspace, client: ServiceClient) -> None:
        self._workspace = workspace
        self._client = client

    async def __call__(self, call: dict[str, Any], ctx: Any) -> dict[str, Any]:
        """Return `{"result"}`, or `{"error"}` if the workspace refuses the call."""
        # Imported late: a program that serves no directory does not load the patterns' engine.
        from plangate.workspace.directory import WorkspaceError  # noqa: PLC0415

        tool, args = call["tool"], dict(call["args"])
        try:
            if tool == PUBLISH:
                return {"result": await self._upload(args["path"], ctx["work_id"])}
            if "base64" in args:
                args["data"] = base64.b64decode(args.pop("base64"))
            return {"result": await asyncio.to_thread(self._workspace.call, tool, args)}
        except WorkspaceError as error:
            return {"error": {"code": error.code, "message": str(error)}}

    async def _upload(self, path: str, work_id: str) -> list[str]:
        """Copy the files at a path into the service, and return their paths."""
        files = await asyncio.to_thread(self._workspace.published_files, path)
        for file in files:
            where = f"/tool-calls/{quote(work_id, safe='')}/files/{quote(file, safe='/')}"
            await self._client.request("PUT", where, data=_body(partial(self._workspace.pieces, file)))
        return list(files)


def _body(pieces: Callable[[], Iterator[bytes]]) -> Callable[[], AsyncIterator[bytes]]:
    """Return a function that reads the body from its start, for each attempt to send it."""

    async def body() -> AsyncIterator[bytes]:
        iterator = pieces()
        while (piece := await asyncio.to_thread(next, iterator, None)) is not None:
            yield piece

    return body
