"""A directory served as a workspace: what agents can do, and what they cannot reach."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import plangate
import pytest
from plangate import DirectoryWorkspace, serve_directory
from plangate.workspace import directory
from plangate.workspace.directory import WorkspaceError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "root"
    made.mkdir()
    (tmp_path / "secret.txt").write_text("sesame")
    return made


@pytest.fixture
def workspace(root: Path) -> DirectoryWorkspace:
    return serve_directory(root)


def refusal(call: Callable[[], Any]) -> tuple[str, str]:
    with pytest.raises(WorkspaceError) as refused:
        call()
    return refused.value.code, str(refused.value)


def test_files_are_written_read_and_edited(workspace: DirectoryWorkspace, root: Path) -> None:
    written = workspace.call("write", {"path": "./notes//a.md", "data": b"one\ntwo\n"})
    assert written == {"path": "notes/a.md", "sizeBytes": 8}
    assert (root / "notes/a.md").read_bytes() == b"one\ntwo\n"
    assert workspace.call("read", {"path": "notes/a.md", "offset": 2}) == "two"
    edited = workspace.call("edit", {"path": "notes/a.md", "old": "two", "new": "three"})
    assert edited == {"path": "notes/a.md", "sizeBytes": 10}
    assert (root / "notes/a.md").read_bytes() == b"one\nthree\n"
    code, message = refusal(lambda: workspace.call("edit", {"path": "notes/a.md", "old": "e", "new": "x"}))
    assert (code, message) == (
        "not_found_once",
        "The old text occurs 3 times in notes/a.md: give more of what stands around the one you mean.",
    )
    workspace.call("write", {"path": "photo.png", "data": b"\x89PNG\x00"})
    assert refusal(lambda: workspace.call("read", {"path": "photo.png"})) == (
        "not_text",
        "photo.png is not text: it has 5 bytes.",
    )
    assert refusal(lambda: workspace.call("read", {"path": "nothing"}))[0] == "not_found"
    assert refusal(lambda: workspace.call("read", {"path": "nothing/at/all"}))[0] == "not_found"
    assert refusal(lambda: workspace.call("read", {"path": "notes"})) == (
        "not_found",
        "'notes' is a directory: list it with ls.",
    )
    assert refusal(lambda: workspace.call("write", {"path": "notes", "data": b""}))[0] == "path_not_allowed"
    assert (
        refusal(lambda: workspace.call("write", {"path": "photo.png/x", "data": b""}))[0]
        == "path_not_allowed"
    )
    assert refusal(lambda: workspace.call("delete", {}))[0] == "unknown_tool"


def test_files_are_listed_found_and_searched(workspace: DirectoryWorkspace, root: Path) -> None:
    for path, text in (
        ("a.py", "import os\n"),
        ("src/b.py", "x = 1\nimport re\n"),
        ("src/deep/c.txt", "import"),
    ):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    assert workspace.call("ls", {}) == "a.py (10 bytes)\nsrc/"
    assert workspace.call("ls", {"path": "src"}) == "b.py (16 bytes)\ndeep/"
    assert workspace.call("ls", {"path": "src/b.py"}) == "src/b.py (16 bytes)"
    assert refusal(lambda: workspace.call("ls", {"path": "none"}))[0] == "not_found"
    assert workspace.call("glob", {"pattern": "**/*.py"}) == "a.py\nsrc/b.py"
    assert workspace.call("glob", {"pattern": "*.md"}) == "[No file matches.]"
    assert workspace.call("grep", {"pattern": "^import", "glob": "**/*.py"}) == (
        "a.py:1: import os\nsrc/b.py:2: import re"
    )
    assert workspace.call("grep", {"pattern": "IMPORT", "path": "src/deep", "ignoreCase": True}) == (
        "src/deep/c.txt:1: import"
    )
    assert workspace.call("grep", {"pattern": "x", "path": "src/b.py"}) == "src/b.py:1: x = 1"
    assert workspace.call("grep", {"pattern": "nothing"}) == "[No line matches.]"
    assert refusal(lambda: workspace.call("grep", {"pattern": "("}))[0] == "bad_pattern"


@pytest.mark.parametrize(
    "path", ["../secret.txt", "/etc/passwd", "a/../../secret.txt", "a\\b", "a\0b", "a\u202eb", ""]
)
def test_paths_cannot_leave_the_directory(workspace: DirectoryWorkspace, path: str) -> None:
    for tool, args in (("read", {}), ("write", {"data": b"x"}), ("edit", {"old": "s", "new": "t"})):
        assert refusal(lambda t=tool, a=args: workspace.call(t, {"path": path, **a}))[0] == "path_not_allowed"  # type: ignore[misc]


def test_links_are_not_followed(workspace: DirectoryWorkspace, root: Path) -> None:
    (root / "file").symlink_to(root.parent / "secret.txt")
    (root / "folder").symlink_to(root.parent)
    (root / "inner").mkdir()
    (root / "inner/link").symlink_to(root / "inner")
    for path in ("file", "folder/secret.txt", "inner/link/x"):
        code, message = refusal(lambda p=path: workspace.call("read", {"path": p}))  # type: ignore[misc]
        assert code == "path_not_allowed" and "is a link, and no link is followed" in message
        assert (
            refusal(lambda p=path: workspace.call("write", {"path": p, "data": b"x"}))[0]
            == "path_not_allowed"
        )  # type: ignore[misc]
    assert refusal(lambda: workspace.published_files("folder"))[0] == "path_not_allowed"
    assert (root.parent / "secret.txt").read_text() == "sesame"
    assert workspace.call("ls", {}) == "inner/"
    assert workspace.call("glob", {"pattern": "**"}) == "[No file matches.]"
    assert workspace.call("grep", {"pattern": "sesame"}) == "[No line matches.]"


def test_a_link_planted_during_a_call_is_not_followed(workspace: DirectoryWorkspace, root: Path) -> None:
    """A directory on the way becomes a link and back, for as long as files in it are read and written."""
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "file").write_text("sesame")
    (root / "inside").mkdir()
    (root / "inside/file").write_text("fine")
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            os.rename(root / "inside", root / "aside")
            with contextlib.suppress(FileExistsError):  # a write made the directory again
                os.symlink(outside, root / "inside")
                os.unlink(root / "inside")
            while (root / "aside").exists():
                shutil.rmtree(root / "inside", ignore_errors=True)
                with contextlib.suppress(OSError):
                    os.rename(root / "aside", root / "inside")
            time.sleep(random.random() / 5_000)  # so that the threads do not fall into step

    thread = threading.Thread(target=swap)
    thread.start()
    seen = set()
    try:
        for _ in range(8000):
            try:
                seen.add(workspace.call("read", {"path": "inside/file"}))
                workspace.call("write", {"path": "inside/file", "data": b"fine"})
            except WorkspaceError as error:
                seen.add(error.code)
    finally:
        over.set()
        thread.join()
    assert "sesame" not in seen and "fine" in seen
    assert (outside / "file").read_text() == "sesame"
    assert os.listdir(outside) == ["file"]


def test_pipes_and_the_git_directory_are_not_served(workspace: DirectoryWorkspace, root: Path) -> None:
    os.mkfifo(root / "pipe")
    (root / ".git/hooks").mkdir(parents=True)
    (root / ".git/config").write_text("secret")
    assert refusal(lambda: workspace.call("read", {"path": "pipe"})) == (
        "not_found",
        "'pipe' is not a regular file.",
    )
    assert refusal(lambda: workspace.call("write", {"path": "pipe", "data": b""}))[0] == "path_not_allowed"
    for path in (".git/config", ".git/hooks/pre-commit", ".GIT/config", "sub/.git/config"):
        assert refusal(lambda p=path: workspace.call("read", {"path": p}))[0] == "path_not_allowed"  # type: ignore[misc]
        assert (
            refusal(lambda p=path: workspace.call("write", {"path": p, "data": b""}))[0] == "path_not_allowed"
        )  # type: ignore[misc]
    assert workspace.call("ls", {}) == "[The workspace is empty.]"
    assert workspace.call("grep", {"pattern": "secret"}) == "[No line matches.]"


def test_a_look_alike_name_is_rejected(workspace: DirectoryWorkspace, root: Path) -> None:
    (root / "notes").mkdir()
    (root / "notes/oil.md").write_text("x")
    for path in ("notes/o\u0131l.md", "n\u043etes2/x"):
        code, _ = refusal(lambda p=path: workspace.call("write", {"path": p, "data": b""}))  # type: ignore[misc]
        assert code == "path_not_allowed"
    assert sorted(os.listdir(root)) == ["notes"] and os.listdir(root / "notes") == ["oil.md"]


def test_a_write_keeps_the_mode_and_no_temporary_file(
    workspace: DirectoryWorkspace, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "run.sh").write_text("old")
    (root / "run.sh").chmod(0o755)
    workspace.call("write", {"path": "run.sh", "data": b"new"})
    assert stat.S_IMODE((root / "run.sh").stat().st_mode) == 0o755

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert refusal(lambda: workspace.call("write", {"path": "run.sh", "data": b"x"})) == (
        "workspace_failed",
        "The workspace cannot do that: No space left on device.",
    )
    assert os.listdir(root) == ["run.sh"] and (root / "run.sh").read_text() == "new"


def test_a_read_only_directory_is_only_read(root: Path) -> None:
    (root / "a").write_text("text")
    workspace = serve_directory(root, read_only=True)
    assert workspace.call("read", {"path": "a"}) == "text"
    told = ("read_only", "The workspace is read-only, so nothing was written.")
    assert refusal(lambda: workspace.call("write", {"path": "b", "data": b""})) == told
    assert refusal(lambda: workspace.call("edit", {"path": "a", "old": "t", "new": "x"})) == told
    assert os.listdir(root) == ["a"]


def test_sizes_have_limits(
    workspace: DirectoryWorkspace, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "MAX_FILE_BYTES", 3)
    monkeypatch.setattr(directory, "EDITED_BYTES", 3)
    monkeypatch.setattr(directory, "SEARCHED_BYTES", 3)
    monkeypatch.setattr(directory, "MAX_FILES", 2)
    (root / "long").write_text("long")
    assert refusal(lambda: workspace.call("write", {"path": "a", "data": b"four"})) == (
        "file_too_large",
        "A file may have at most 3 bytes; nothing was written.",
    )
    assert refusal(lambda: workspace.call("edit", {"path": "long", "old": "l", "new": "x"})) == (
        "file_too_large",
        "long has 4 bytes; files of up to 3 can be edited.",
    )
    assert workspace.call("grep", {"pattern": "long"}) == "[1 files were too large to be searched.]"
    for name in ("b", "c"):
        (root / name).write_text("")
    assert (
        workspace.call("glob", {"pattern": "*"}) == "b\nc\n[Only 2 files were looked at: name a directory.]"
    )


def test_a_publication_names_its_files(workspace: DirectoryWorkspace, root: Path) -> None:
    (root / "out/deep").mkdir(parents=True)
    (root / "out/a").write_bytes(b"a" * 100_000)
    (root / "out/deep/b").write_text("b")
    assert workspace.published_files("out") == ["out/a", "out/deep/b"]
    assert workspace.published_files("out/a") == ["out/a"]
    assert b"".join(workspace.pieces("out/a")) == b"a" * 100_000
    assert refusal(lambda: workspace.published_files("nothing"))[0] == "not_found"


def test_only_a_directory_is_served(root: Path) -> None:
    with pytest.raises(NotADirectoryError):
        serve_directory(root / "none")
    with pytest.raises(TypeError, match="path is the path of a directory, not int"):
        serve_directory(3)  # type: ignore[arg-type]
    helper = plangate.define_specialist("helper", "m-1", "You help.")
    with pytest.raises(TypeError, match="workspace must be the return value of serve_directory, not a str"):
        plangate.create_runtime(plangate.define_runtime("acme", [helper]), workspace=str(root))  # type: ignore[arg-type]
