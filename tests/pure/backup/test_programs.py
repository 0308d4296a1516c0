"""Client programs chosen for a server version, and their command lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.backup.errors import BackupError
from app.backup.programs import Programs, choose, login

FOUND = [Programs(Path("/a"), "16.14"), Programs(Path("/b"), "18.4"), Programs(Path("/c"), "15.14"),
         Programs(Path("/d"), "18.6")]  # fmt: skip


@pytest.mark.parametrize(("server", "folder"), [(15, "/c"), (16, "/a"), (17, "/d"), (18, "/d")])
def test_the_oldest_suitable_programs_are_chosen(server: int, folder: str) -> None:
    assert choose(server, FOUND).folder == Path(folder)


def test_a_server_newer_than_all_programs_is_named() -> None:
    with pytest.raises(BackupError) as refused:
        choose(19, FOUND[:2])
    assert str(refused.value) == (
        "The server is PostgreSQL 19, and it needs pg_dump, pg_restore and psql of version 19 or newer. Found: 16.14 in "
        "/a, 18.4 in /b. Install the client programs of PostgreSQL 19 (Debian: postgresql-client-19)."
    )
    with pytest.raises(BackupError, match="Found: none"):
        choose(15, [])


@pytest.mark.parametrize(
    ("dsn", "url", "password"),
    [
        ("postgresql://ann:s%40e%2Fc@db:5433/p?sslmode=require", "postgresql://ann@db:5433/p?sslmode=require", "s@e/c"),
        ("postgresql://ann@/p?host=/a%20b&port=5432", "postgresql://ann@/p?host=/a%20b&port=5432", None),
        ("postgresql:///p?host=/tmp&password=x%26y", "postgresql:///p?host=/tmp", "x&y"),
        ("postgres://a:b@h1,h2:6/p", "postgres://a@h1,h2:6/p?target_session_attrs=read-write", "b"),
        ("postgresql://localhost/p", "postgresql://localhost/p", None),
    ],
)  # fmt: skip
def test_no_password_is_on_a_command_line(
    monkeypatch: pytest.MonkeyPatch, dsn: str, url: str, password: str | None
) -> None:
    monkeypatch.delenv("PGPASSWORD", raising=False)
    shown, env = login(dsn)
    assert (shown, env.get("PGPASSWORD")) == (url, password)
