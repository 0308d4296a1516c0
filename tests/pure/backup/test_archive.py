"""The directory of a backup exists completely or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.backup import archive
from app.backup.errors import BackupError


def test_a_backup_gets_its_name_when_complete(tmp_path: Path) -> None:
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


def test_leftovers_of_a_killed_backup_are_replaced(tmp_path: Path) -> None:
    left = tmp_path / "backup.partial"
    (left / archive.BLOBS / "aa").mkdir(parents=True)
    (left / archive.DUMP).write_bytes(b"half")
    with archive.new_folder(tmp_path / "backup") as folder:
        assert os.listdir(folder.path) == []


def test_foreign_files_are_not_deleted(tmp_path: Path) -> None:
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
def test_an_unusable_directory_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "there").mkdir()
    with (
        pytest.raises(BackupError, match=r"exists already|does not exist"),
        archive.new_folder(tmp_path / name),
    ):
        pass
    assert os.listdir(tmp_path) == ["there"]


def test_a_directory_that_is_not_a_backup_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="is not a backup: it has no manifest"):
        archive.read_manifest(tmp_path)
    (tmp_path / archive.MANIFEST).write_text('{"format": 1')
    with pytest.raises(BackupError, match="is damaged"):
        archive.read_manifest(tmp_path)
