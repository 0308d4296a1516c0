"""The built-in toolkit `workspace`: the tools for the files of a thread."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from plangate.workspace import regex
from plangate.workspace.regex import Pattern, PatternRejected
from plangate.workspace.text import (
    EDITED_BYTES,
    LISTED,
    MATCHES,
    MAX_LINES,
    SEARCHED_ALL_BYTES,
    SEARCHED_BYTES,
    LineWindow,
    NotText,
    count_fitting_lines,
    decode_text,
    match_count_error,
    matching_lines,
    replace_once,
    truncate_lines,
)

from app.agents.builtin_tools.file_sources import FileSource, FileSources
from app.base.blobs.store import BlobStoreError, StoreUnavailable
from app.base.errors import PlangateError, Unavailable
from app.base.logs.structured import structlog
from app.base.postgres.database import Tx
from app.calls.toolkit import BuiltinTool, ToolCall
from app.engine.query_run import QueryRun, retry_while_unavailable
from app.tools.results import Answer, ToolError, ToolResult
from app.workspace import paths
from app.workspace.models import FileAuthor, FileRow, StoredBody
from app.workspace.service import FileChanged, Workspaces

log = structlog.get_logger(__name__)

EDITS_TRIED: Final = 5


@dataclass(frozen=True, slots=True)
class WorkspaceToolLimits:
    """What the tools read, search and show at most."""

    list_lines: int = LISTED
    """Files or lines of a list."""
    matches: int = MATCHES
    """Lines that `grep` shows."""
    edit_bytes: int = EDITED_BYTES
    """Of a file that `edit` changes."""
    search_bytes: int = SEARCHED_BYTES
    """Of a file that `grep` reads."""
    search_total_bytes: int = SEARCHED_ALL_BYTES
    """Of all files that one `grep` reads."""


_PAGE: Final = 1000


def workspace_note(work_id: str, *, is_elsewhere: bool) -> str:
    """Return the note about its workspace that an agent with write access gets when it begins. `is_elsewhere`: the
    files are on a machine of the user."""
    if is_elsewhere:
        return (
            "# Workspace\n\nThe workspace is a directory on a machine of the user, and agents of other threads may use it at "
            "the same time. Write where the task says, and change only what the task is about."
        )
    return (
        f"# Workspace\n\nAll agents of this thread share one workspace. Write your files under tasks/{work_id}/ unless you "
        "are instructed otherwise, so that work that goes on at the same time does not collide."
    )


class WorkspaceTools:
    """The tools `read`, `write`, `edit`, `ls`, `glob` and `grep`."""

    def __init__(self, workspaces: Workspaces, sources: FileSources, limits: WorkspaceToolLimits) -> None:
        self._limits = limits
        self._workspaces = workspaces
        self._sources = sources

    def verbs(self) -> dict[str, BuiltinTool]:
        tools: dict[str, BuiltinTool] = {
            "read": self._read,
            "write": self._write,
            "edit": self._edit,
            "ls": self._ls,
            "glob": self._glob,
            "grep": self._grep,
        }
        return {name: as_builtin_tool(verb) for name, verb in tools.items()}

    # -- one file --------------------------------------------------------------------------------------------

    async def _read(self, call: ToolCall) -> ToolResult:
        row = await self._file(call, paths.normalize(call.args["path"]))
        window = LineWindow(call.args.get("offset", 1), call.args.get("limit", MAX_LINES))
        try:
            async for piece in self._workspaces.stream_body(call.run.lease.tenant, row.body):
                if window.feed(piece):
                    break
        except NotText:
            return ToolError(
                f"{row.path} is not text: it has {row.size_bytes} bytes ({row.media_type}).", "not_text"
            )
        return Answer(window.text())

    async def _write(self, call: ToolCall) -> ToolResult:
        path = paths.normalize(call.args["path"])
        source = await self._sources.read(call)
        if isinstance(source, ToolError):
            return source
        body = source.body or await store_body(self._workspaces, call.run, source.data)
        row, _ = await call.run.in_fenced_transaction(
            lambda tx: self._write_source(tx, call, path, body, source)
        )
        return Answer(file_description(row))

    async def _write_source(
        self, tx: Tx, call: ToolCall, path: str, body: StoredBody, source: FileSource
    ) -> tuple[FileRow, bool]:
        if source.artifact is not None:
            await self._sources.note(tx, call, source)
            await self._workspaces.reuse_body(tx, body)
        return await self._workspaces.write(
            tx, call.run.query.thread_id, path, body, call_author(call), media_type=source.media_type
        )

    async def _edit(self, call: ToolCall) -> ToolResult:
        path, old, new = paths.normalize(call.args["path"]), call.args["old"], call.args["new"]
        done = await call.run.read(lambda tx: self._workspaces.version_of_call(tx, call.scope.work_id))
        if done is not None:  # before a crash
            return Answer(file_description(done))
        for _ in range(EDITS_TRIED):
            row = await self._file(call, path)
            if row.size_bytes > self._limits.edit_bytes:
                return ToolError(
                    f"{path} has {row.size_bytes} bytes; files of up to {self._limits.edit_bytes} can be edited.",
                    "file_too_large",
                )
            data = await self._workspaces.read_body(call.run.lease.tenant, row.body)
            try:
                text = decode_text(data)
            except NotText:
                return ToolError(f"{path} is not text in UTF-8 and cannot be edited.", "not_text")
            edited = await asyncio.to_thread(replace_once, text, old, new)
            if isinstance(edited, int):
                return ToolError(match_count_error(path, edited), "not_found_once")
            body = await store_body(self._workspaces, call.run, edited.encode())
            try:
                return Answer(file_description(await self._replace(call, row, body)))
            except FileChanged:
                continue
        return ToolError(
            f"{path} keeps changing because other agents write to it. Read it again.", FileChanged.kind
        )

    async def _replace(self, call: ToolCall, row: FileRow, body: StoredBody) -> FileRow:
        row, _ = await call.run.in_fenced_transaction(
            lambda tx: self._workspaces.write(
                tx,
                row.thread_id,
                row.path,
                body,
                call_author(call),
                media_type=row.media_type,
                expected_version=row.version,
            )
        )
        return row

    async def _file(self, call: ToolCall, path: str) -> FileRow:
        return await call.run.read(lambda tx: self._workspaces.get_file(tx, call.run.query.thread_id, path))

    # -- many ------------------------------------------------------------------------------------------------

    async def _ls(self, call: ToolCall) -> ToolResult:
        prefix = paths.folder_prefix(call.args.get("path"))
        rows = await self._files_below(call, prefix)
        if not rows and prefix:
            row = await self._file(call, prefix[:-1])  # raises an error that names what is there instead
            return Answer(f"{row.path} ({row.size_bytes} bytes)")
        entries: dict[str, str] = {}
        for row in rows:
            name, slash, _ = row.path[len(prefix) :].partition("/")
            entries[name + slash] = name + slash if slash else f"{name} ({row.size_bytes} bytes)"
        return Answer(
            truncate_lines(entries.values(), self._limits.list_lines) or "[The workspace is empty.]"
        )

    async def _glob(self, call: ToolCall) -> ToolResult:
        pattern = regex.compile_glob(call.args["pattern"])
        rows = await self._files_below(call, "")
        matching = await asyncio.to_thread(lambda: [r.path for r in rows if pattern.matches(r.path)])
        return Answer(truncate_lines(matching, self._limits.list_lines) or "[No file matches.]")

    async def _grep(self, call: ToolCall) -> ToolResult:
        args = call.args
        pattern = Pattern(args["pattern"], ignore_case=args.get("ignoreCase", False))
        among = regex.compile_glob(args["glob"]) if "glob" in args else None
        prefix = paths.folder_prefix(args.get("path"))
        rows = await self._files_below(call, prefix)
        if not rows and prefix:
            rows = [await self._file(call, prefix[:-1])]
        lines: list[str] = []
        skipped, left = 0, self._limits.search_total_bytes
        for row in rows:
            if among is not None and not among.matches(row.path):
                continue
            if row.size_bytes > min(left, self._limits.search_bytes):
                skipped += 1
                continue
            left -= row.size_bytes
            data = await self._workspaces.read_body(call.run.lease.tenant, row.body)
            lines += await asyncio.to_thread(
                matching_lines, pattern, row.path, data, self._limits.matches + 1 - len(lines)
            )
            if (fitting := count_fitting_lines(lines, self._limits.matches)) < len(lines):
                lines[fitting:] = [
                    f"[More lines match than {fitting}: make the pattern or the path narrower.]"
                ]
                break
        if skipped:
            lines.append(f"[{skipped} files were too large to be searched.]")
        return Answer("\n".join(lines) or "[No line matches.]")

    async def _files_below(self, call: ToolCall, prefix: str) -> list[FileRow]:
        """Return all files in a folder."""
        rows: list[FileRow] = []
        while True:
            after = rows[-1].path if rows else ""
            more = await call.run.read(
                lambda tx, after=after: self._workspaces.list_files(  # type: ignore[misc]
                    tx, call.run.query.thread_id, prefix, after, _PAGE
                )
            )
            rows += more
            if len(more) < _PAGE:
                return rows


def as_builtin_tool(verb: BuiltinTool) -> BuiltinTool:
    """Wrap `verb` so that its rejections are returned to the model."""

    async def with_error_result(call: ToolCall) -> ToolResult:
        try:
            return await verb(call)
        except BlobStoreError as error:
            log.warning("blobs.failed", error=error)
            return ToolError(error.detail, error.kind)
        except PatternRejected as error:
            return ToolError(f"The pattern cannot be used: {error}.", "bad_pattern")
        except Unavailable:
            raise
        except PlangateError as error:
            return ToolError(error.detail, error.kind)

    return with_error_result


async def store_body(workspaces: Workspaces, run: QueryRun, data: bytes) -> StoredBody:
    """Store a small body in the blob store, and retry through outages of the database. Raise
    StoreUnavailable or FileTooLarge."""

    async def once() -> StoredBody | StoreUnavailable:
        try:
            return await workspaces.keep(run.lease.tenant, data)
        except StoreUnavailable as error:
            return error

    body = await retry_while_unavailable(once)
    if isinstance(body, StoreUnavailable):
        raise body
    return body


def call_author(call: ToolCall) -> FileAuthor:
    return FileAuthor(call.agent.name, call.scope.work_id, call.run.query.id)


def file_description(row: FileRow) -> dict[str, Any]:
    return {"path": row.path, "version": row.version, "sizeBytes": row.size_bytes}
