"""Errors of operator commands: one line that names what to change."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from app.api import serving
from app.commands.main import main
from app.settings import Settings


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("PLANGATE_", "OTEL_")) or name == "DATABASE_URL":
            monkeypatch.delenv(name)


def said(monkeypatch: pytest.MonkeyPatch, *words: str) -> str | int | None:
    monkeypatch.setattr(sys, "argv", ["plangate", *words])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code


def test_verify_creates_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    assert said(monkeypatch, "verify", "--data-dir", str(nowhere)) == (
        f"plangate: There is no database in {nowhere} to verify. Say with --data-dir where the service keeps its data, "
        "or set DATABASE_URL and PLANGATE_SECRET_KEY as the service has them."
    )
    assert not nowhere.exists()


def test_a_missing_file_is_not_an_outage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    heads = tmp_path / "heads.json"
    told = said(monkeypatch, "verify", "--data-dir", str(tmp_path), "--against", str(heads))
    assert told == f"plangate: {heads} cannot be used: No such file or directory."


def test_a_data_directory_must_be_a_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told = said(monkeypatch, "migrate", "--data-dir", str(tmp_path / "file"))
    assert told == f"plangate: {tmp_path / 'file'} cannot be used: File exists."


def test_a_tilde_is_expanded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "file").write_text("")
    expected = f"plangate: {tmp_path / 'file'} cannot be used: File exists."
    assert said(monkeypatch, "migrate", "--data-dir=~/file") == expected
    monkeypatch.setenv("PLANGATE_DATA_DIR", "~/file")
    assert said(monkeypatch, "migrate") == expected


def test_an_invalid_setting_is_named_as_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PLANGATE_SLOTS", "many")
    told = said(monkeypatch, "migrate", "--data-dir", str(tmp_path))
    assert told == (
        "plangate: a setting is not valid: PLANGATE_SLOTS: Input should be a valid integer, unable to parse string as "
        "an integer"
    )


def test_an_unknown_log_level_is_rejected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PLANGATE_LOG_LEVEL", "verbose")
    told = said(monkeypatch, "migrate", "--data-dir", str(tmp_path))
    assert str(told).startswith(
        "plangate: a setting is not valid: PLANGATE_LOG_LEVEL: String should match pattern"
    )
    monkeypatch.setenv("PLANGATE_LOG_LEVEL", "WARNING")
    assert Settings().log_level == "WARNING"


def test_an_invalid_port_is_rejected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(monkeypatch, "serve", "--port", "70000", "--data-dir", str(tmp_path)) == 2
    assert "Input should be less than or equal to 65535" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("DATABASE_URL", "", "must begin with postgresql://; without a database, leave the variable out"),
        ("DATABASE_URL", "mysql://ann:secret@db/x", "must begin with postgresql://"),
        ("PLANGATE_MIGRATE_URL", "db", "must begin with postgresql://"),
        ("PLANGATE_LISTEN_URL", "db", "must begin with postgresql://"),
        ("PLANGATE_ALLOW_HOSTS", "http://x/", "'http://x/' is not a host or host:port"),
        ("PLANGATE_PROVIDER_ENVS", "KEY", "must be VARIABLE=host, separated by commas"),
    ],
)
def test_an_invalid_setting_says_what_is_expected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, value: str, told: str
) -> None:
    monkeypatch.setenv(name, value)
    refused = str(said(monkeypatch, "migrate", "--data-dir", str(tmp_path)))
    assert refused.startswith(f"plangate: a setting is not valid: {name}: {told}")
    assert "secret" not in refused


def test_an_unusable_address_names_the_setting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            SystemExit, match=r"Is another Plangate running\? Choose another PLANGATE_WORKER_PORT\."
        ):
            serving._listen("127.0.0.1", port, "PLANGATE_WORKER_PORT")
    with pytest.raises(SystemExit, match="PLANGATE_HOST, or --host, is to be an address of this machine"):
        serving._listen("192.0.2.1", 0)
