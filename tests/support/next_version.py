"""A next version of the schema for tests of upgrades: one more column and one changed function."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from app.base.postgres import migrate

REVISION = '''
"""The next version."""

from alembic import op

from app.base.postgres.migrate import apply_code

revision = "1002"
down_revision = "1001"


def upgrade() -> None:
    op.execute("ALTER TABLE threads ADD title text")
    apply_code()
'''


def install_next_version(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let this process have a copy of migrations/ with another revision and another `tenant_ids`."""
    migrations = folder / "migrations"
    shutil.copytree(migrate.migrations_folder(), migrations)
    (migrations / "versions/1002_next.py").write_text(REVISION, "utf-8")
    function = migrations / "functions/tenant_ids.sql"
    function.write_text(
        function.read_text("utf-8").replace("t.tenant_id FROM", "upper(t.tenant_id) FROM"), "utf-8"
    )
    monkeypatch.setattr(migrate, "migrations_folder", lambda: migrations)
