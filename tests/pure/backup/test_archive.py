"""The directory of a backup: whole under its name, or not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.backup import archive
from app.backup.errors import BackupError


def test_a_directory_gets_its_name_when_it_is_whole(tmp_path: Path) -> None:
    to = tmp_path / "backup"
    with archive.new_folder(to) as folder:
        (folder.path / archive.DUMP).write_bytes(b"all")
        assert not to.exists()
    assert os.listdir(tmp_path) == ["backup"]
    assert (to.stat().st_mode & 0o777, (to / archive.DUMP).read_bytes()) == (0o700, b"all")


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), archive.new_folder(tmp_path / "backup") as folder:
        (folder.path / archive.BLOBS / "aa").mkdir(parents=True)
        (folder.path / archive.DUMP).write_bytes(b"half")
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == []


def test_what_a_killed_backup_left_is_replaced(tmp_path: Path) -> None:
    left = tmp_path / "backup.partial"
    (left / archive.BLOBS / "aa").mkdir(parents=True)
    (left / archive.DUMP).write_bytes(b"half")
    with archive.new_folder(tmp_path / "backup") as folder:
        assert os.listdir(folder.path) == []


def test_files_of_somebody_else_are_not_deleted(tmp_path: Path) -> None:
    (tmp_path / "backup.partial").mkdir()
    (tmp_path / "backup.partial" / "letters").write_text("mine")
    with (
        pytest.raises(BackupError, match=r"no backup wrote \(letters\)"),
        archive.new_folder(tmp_path / "backup"),
    ):
        pass
    assert (tmp_path / "backup.partial" / "letters").read_text() == "mine"


def test_two_backups_do_not_write_to_one_directory(tmp_path: Path) -> None:
    to = tmp_path / "backup"
    with archive.new_folder(to) as folder:
        (folder.path / archive.DUMP).write_bytes(b"first")
        with pytest.raises(BackupError, match="Another backup is being written"), archive.new_folder(to):
            pass
    assert (to / archive.DUMP).read_bytes() == b"first"


@pytest.mark.parametrize("name", ["there", "none/below"])
def test_a_place_that_cannot_be_used_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "there").mkdir()
    with (
        pytest.raises(BackupError, match=r"exists already|does not exist"),
        archive.new_folder(tmp_path / name),
    ):
        pass
    assert os.listdir(tmp_path) == ["there"]


def test_a_directory_that_is_no_backup_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="is not a backup: it has no manifest"):
        archive.read_manifest(tmp_path)
    (tmp_path / archive.MANIFEST).write_text('{"format": 1')
    with pytest.raises(BackupError, match="is damaged"):
        archive.read_manifest(tmp_path)
