"""A directory on this machine as a workspace: the same tools, paths and limits as a workspace of the service.

No link is followed: every directory on the way to a file is opened by its name in the one above it, with O_NOFOLLOW. A
link that is planted while a call runs leads nowhere either.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from plangate.workspace import paths, regex
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

MAX_FILE_BYTES: Final = 2 * 1024**3
MAX_FILES: Final = 10_000
"""Files that one call looks at, and that one publication may have."""

READ_BYTES: Final = 64 * 1024
HIDDEN: Final = frozenset({".git"})
"""Names that are not served: a program that runs on this machine may execute what is in them."""

_TEMPORARY: Final = ".plangate-"
_OPEN_DIRECTORY: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_OPEN_FILE: Final = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class WorkspaceError(Exception):
    """A workspace refuses a call.

    Args:
        code: What kind of error it is, such as `not_found`; for the model.
        message: What is wrong; for the model.

    Example:
        >>> WorkspaceError("read_only", "The workspace is read-only.").code
        'read_only'
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class DirectoryWorkspace:
    """A directory that agents read, and write unless it is `read_only`. From `serve_directory`.

    `root` is its path, with links resolved. A runtime calls its methods; a program can call them to try a
    directory out.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     workspace = serve_directory(folder)
        ...     workspace.call("write", {"path": "a.txt", "data": b"text"})
        ...     workspace.call("read", {"path": "a.txt"})
        {'path': 'a.txt', 'sizeBytes': 4}
        'text'
    """

    def __init__(self, root: Path, *, read_only: bool) -> None:
        self.root = root
        self.read_only = read_only
        self._writing = threading.Lock()

    def call(self, tool: str, args: dict[str, Any]) -> Any:
        """Return the result of a tool of the toolkit `workspace`.

        Args:
            tool: `read`, `write`, `edit`, `ls`, `glob` or `grep`.
            args: Its arguments; of `write`, `path` and the bytes as `data`.

        Raises:
            WorkspaceError: if the workspace refuses the call; `code` and the message are for the model.

        Example:
            >>> def names(workspace):
            ...     return workspace.call("ls", {}).splitlines()
        """
        verbs = {
            "read": self._read,
            "write": self._write,
            "edit": self._edit,
            "ls": self._ls,
            "glob": self._glob,
            "grep": self._grep,
        }
        verb = verbs.get(tool)
        if verb is None:
            raise WorkspaceError("unknown_tool", f"This workspace has no tool {tool!r}.")
        try:
            return verb(args)
        except paths.PathRejected as error:
            raise WorkspaceError("path_not_allowed", str(error)) from error
        except PatternRejected as error:
            raise WorkspaceError("bad_pattern", f"The pattern cannot be used: {error}.") from error
        except OSError as error:
            raise WorkspaceError(
                "workspace_failed", f"The workspace cannot do that: {error.strerror}."
            ) from error

    # -- one file --------------------------------------------------------------------------------------------

    def _read(self, args: dict[str, Any]) -> str:
        path = paths.normalize(args["path"])
        window = LineWindow(args.get("offset", 1), args.get("limit", MAX_LINES))
        with self._file(path) as file:
            try:
                while piece := os.read(file, READ_BYTES):
                    if window.feed(piece):
                        break
            except NotText:
                size = os.fstat(file).st_size
                raise WorkspaceError("not_text", f"{path} is not text: it has {size} bytes.") from None
        return window.text()

    def _write(self, args: dict[str, Any]) -> dict[str, Any]:
        path, data = paths.normalize(args["path"]), args["data"]
        self._check_writable()
        if len(data) > MAX_FILE_BYTES:
            raise WorkspaceError(
                "file_too_large", f"A file may have at most {MAX_FILE_BYTES} bytes; nothing was written."
            )
        with self._writing:
            self._replace(path, data)
        return {"path": path, "sizeBytes": len(data)}

    def _edit(self, args: dict[str, Any]) -> dict[str, Any]:
        path = paths.normalize(args["path"])
        self._check_writable()
        with self._writing:
            with self._file(path) as file:
                size = os.fstat(file).st_size
                if size > EDITED_BYTES:
                    raise WorkspaceError(
                        "file_too_large",
                        f"{path} has {size} bytes; files of up to {EDITED_BYTES} can be edited.",
                    )
                data = _read_all(file)
            try:
                text = decode_text(data)
            except NotText:
                raise WorkspaceError(
                    "not_text", f"{path} is not text in UTF-8 and cannot be edited."
                ) from None
            edited = replace_once(text, args["old"], args["new"])
            if isinstance(edited, int):
                raise WorkspaceError("not_found_once", match_count_error(path, edited))
            self._replace(path, edited.encode())
        return {"path": path, "sizeBytes": len(edited.encode())}

    def _check_writable(self) -> None:
        if self.read_only:
            raise WorkspaceError("read_only", "The workspace is read-only, so nothing was written.")

    def _replace(self, path: str, data: bytes) -> None:
        """Write a file in one step: a reader sees the old content or the new one."""
        *folders, name = self._names(path)
        with self._directory(path, folders, create=True) as folder:
            try:
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                self._check_lookalike(folder, path, name)
                mode = 0o644
            else:
                if not stat.S_ISREG(status.st_mode):
                    what = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
                    raise paths.path_error(path, f"it is {what}")
                mode = stat.S_IMODE(status.st_mode)
            temporary = _TEMPORARY + secrets.token_hex(8)
            file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
            try:
                with os.fdopen(file, "wb") as stream:
                    stream.write(data)
                    os.fchmod(stream.fileno(), mode)
                os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=folder)
                raise

    @staticmethod
    def _check_lookalike(folder: int, path: str, name: str) -> None:
        """Raise PathRejected for a new name that looks like an existing one."""
        skeleton = paths.skeleton(name)
        alike = next((n for n in os.listdir(folder) if n != name and paths.skeleton(n) == skeleton), None)
        if alike is not None:
            raise paths.path_error(path, f"{name!a} looks like {alike!a}, which is there already")

    # -- many ------------------------------------------------------------------------------------------------

    def _ls(self, args: dict[str, Any]) -> str:
        prefix = paths.folder_prefix(args.get("path"))
        names = self._names(prefix[:-1]) if prefix else []
        try:
            with self._directory(prefix, names) as folder:
                entries = list(_entries(folder))
        except NotADirectoryError:
            with self._file(prefix[:-1]) as file:
                return f"{prefix[:-1]} ({os.fstat(file).st_size} bytes)"
        lines = [f"{name}/" if size is None else f"{name} ({size} bytes)" for name, size in sorted(entries)]
        return truncate_lines(lines, LISTED) or "[The workspace is empty.]"

    def _glob(self, args: dict[str, Any]) -> str:
        pattern = regex.compile_glob(args["pattern"])
        files, notes = self._walk("")
        matches = [path for path, _ in files if pattern.matches(path)]
        return "\n".join(
            [*([truncate_lines(matches, LISTED)] if matches else ["[No file matches.]"]), *notes]
        )

    def _grep(self, args: dict[str, Any]) -> str:
        pattern = Pattern(args["pattern"], ignore_case=args.get("ignoreCase", False))
        among = regex.compile_glob(args["glob"]) if "glob" in args else None
        prefix = paths.folder_prefix(args.get("path"))
        files, notes = self._walk(prefix)
        matches: list[str] = []
        skipped, left = 0, SEARCHED_ALL_BYTES
        for path, size in files:
            if among is not None and not among.matches(path):
                continue
            if size > min(left, SEARCHED_BYTES):
                skipped += 1
                continue
            left -= size
            with contextlib.suppress(WorkspaceError), self._file(path) as file:  # gone meanwhile
                matches += matching_lines(pattern, path, _read_all(file), MATCHES + 1 - len(matches))
            if (fitting := count_fitting_lines(matches, MATCHES)) < len(matches):
                matches[fitting:] = [
                    f"[More lines match than {fitting}: make the pattern or the path narrower.]"
                ]
                break
        if skipped:
            matches.append(f"[{skipped} files were too large to be searched.]")
        return "\n".join([*(matches or ["[No line matches.]"]), *notes])

    def _walk(self, prefix: str) -> tuple[list[tuple[str, int]], list[str]]:
        """Return the files below a folder (or the file itself) with their sizes, ordered by path, and a note if
        there are too many to look at."""
        matches: list[tuple[str, int]] = []
        left = [prefix]
        while left:
            at = left.pop()
            try:
                with self._directory(at, self._names(at[:-1]) if at else []) as folder:
                    entries = sorted(_entries(folder), reverse=True)
            except NotADirectoryError:
                if at != prefix:
                    continue  # replaced meanwhile
                with self._file(at[:-1]) as file:
                    return [(at[:-1], os.fstat(file).st_size)], []
            except WorkspaceError:
                if at == prefix:
                    raise
                continue
            matches += [(f"{at}{name}", size) for name, size in entries if size is not None]
            if len(matches) > MAX_FILES:
                note = f"[Only {MAX_FILES} files were looked at: name a directory.]"
                return sorted(matches)[:MAX_FILES], [note]
            left += [f"{at}{name}/" for name, size in entries if size is None]
        return sorted(matches), []

    def published_files(self, path: str) -> list[str]:
        """Return the paths of the files at a path, or below it if it is a directory.

        Args:
            path: In the workspace.

        Raises:
            WorkspaceError: if nothing is there, or there are more than 10,000 files.

        Example:
            >>> def count(workspace):
            ...     return len(workspace.published_files("reports"))
        """
        try:
            files, notes = self._walk(paths.normalize(path) + "/")
        except paths.PathRejected as error:
            raise WorkspaceError("path_not_allowed", str(error)) from error
        if notes:
            raise WorkspaceError("too_many_files", f"{path} has more than {MAX_FILES} files: publish less.")
        if not files:
            raise WorkspaceError(
                "not_found",
                f"There is nothing at {path!r} in the workspace: write it first, then publish it.",
            )
        return [file for file, _ in files]

    def pieces(self, path: str) -> Iterator[bytes]:
        """Yield a file in pieces.

        Args:
            path: In the workspace.

        Raises:
            WorkspaceError: if it is not there.

        Example:
            >>> def size(workspace):
            ...     return sum(len(piece) for piece in workspace.pieces("photo.png"))
        """
        with self._file(path) as file:
            while piece := os.read(file, READ_BYTES):
                yield piece

    # -- the way to a file -----------------------------------------------------------------------------------

    @staticmethod
    def _names(path: str) -> list[str]:
        """Return the names of a normalized path. Raise PathRejected for one that is not served."""
        names = path.split("/")
        for name in names:
            if not _is_visible(name):
                raise paths.path_error(path, f"{name!r} is not served")
        return names

    @contextmanager
    def _directory(self, path: str, names: list[str], *, create: bool = False) -> Iterator[int]:
        """Open a directory below the root, step by step. Raise WorkspaceError if there is none, NotADirectoryError
        if its last name is a file, PathRejected if a link is on the way."""
        folder = os.open(self.root, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        try:
            for n, name in enumerate(names):
                inner = self._step(folder, path, name, last=n == len(names) - 1, create=create)
                os.close(folder)
                folder = inner
            yield folder
        finally:
            os.close(folder)

    def _step(self, folder: int, path: str, name: str, *, last: bool, create: bool) -> int:
        try:
            return os.open(name, _OPEN_DIRECTORY, dir_fd=folder)
        except FileNotFoundError:
            if not create:
                raise WorkspaceError(
                    "not_found", f"There is no {path.rstrip('/')!r} in the workspace."
                ) from None
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                raise paths.path_error(path, f"{name!r} is a link, and no link is followed") from None
            if create:
                raise paths.path_error(path, f"{name!r} is a file, and nothing can be below it") from None
            if last:
                raise NotADirectoryError from None
            raise WorkspaceError("not_found", f"There is no {path!r} in the workspace.") from None
        self._check_lookalike(folder, path, name)
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o755, dir_fd=folder)
        return os.open(name, _OPEN_DIRECTORY, dir_fd=folder)

    @contextmanager
    def _file(self, path: str) -> Iterator[int]:
        """Open a regular file for reading. Raise WorkspaceError, which describes what exists instead."""
        *folders, name = self._names(path)
        try:
            with self._directory(path, folders) as folder:
                file = os.open(name, _OPEN_FILE, dir_fd=folder)
        except (FileNotFoundError, NotADirectoryError):
            raise WorkspaceError("not_found", f"There is no file {path!r} in the workspace.") from None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise paths.path_error(path, f"{name!r} is a link, and no link is followed") from None
            raise
        try:
            mode = os.fstat(file).st_mode
            if stat.S_ISDIR(mode):
                raise WorkspaceError("not_found", f"{path!r} is a directory: list it with ls.")
            if not stat.S_ISREG(mode):
                raise WorkspaceError("not_found", f"{path!r} is not a regular file.")
            yield file
        finally:
            os.close(file)


def _entries(folder: int) -> Iterator[tuple[str, int | None]]:
    """Yield the names in a directory that are served, with the sizes of files, and None for directories."""
    for name in os.listdir(folder):
        if not _is_visible(name) or not _is_valid(name):
            continue
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            continue
        if stat.S_ISDIR(status.st_mode):
            yield name, None
        elif stat.S_ISREG(status.st_mode):
            yield name, status.st_size


def _is_visible(name: str) -> bool:
    return name.lower() not in HIDDEN and not name.startswith(_TEMPORARY)


def _is_valid(name: str) -> bool:
    try:
        return paths.normalize(name) == name
    except (paths.PathRejected, UnicodeEncodeError):  # a name that is not UTF-8
        return False


def _read_all(file: int) -> bytes:
    return b"".join(iter(lambda: os.read(file, READ_BYTES), b""))


def serve_directory(path: str | os.PathLike[str], *, read_only: bool = False) -> DirectoryWorkspace:
    """Return a directory of this machine as the workspace of a runtime: pass it to `create_runtime`.

    The agents of the runtime use it with the toolkit `workspace`, for as long as the runtime is open. Paths
    follow the rules of every workspace. No link is followed, and `.git` is not served. All threads of the
    runtime share the directory.

    Args:
        path: An existing directory.
        read_only: Refuse `write` and `edit`.

    Raises:
        TypeError: if the path is not one.
        NotADirectoryError: if there is no such directory.
        NotImplementedError: on a system that cannot open files relative to a directory.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     serve_directory(folder, read_only=True).read_only
        True
    """
    if os.open not in os.supports_dir_fd or not hasattr(os, "O_NOFOLLOW"):
        raise NotImplementedError("serve_directory needs a system that opens files relative to a directory")
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path is the path of a directory, not {type(path).__name__}")
    root = Path(path).resolve()
    if not root.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "there is no such directory", str(path))
    return DirectoryWorkspace(root, read_only=read_only)
