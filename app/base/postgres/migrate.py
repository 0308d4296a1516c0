"""Upgrade the database schema. If several processes start at once, one migrates and the others wait."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import asyncpg
from alembic import command, op
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.util import await_only

from app.base.errors import Unavailable

MIGRATION_LOCK = 7_046_029_254  # any number that is unused in this database


class SchemaIsNewer(Unavailable):
    """The database schema is newer than this version supports."""

    kind, title = "schema_is_newer", "The database schema is newer than this version"


def migrations_folder() -> Path:
    """Return the migrations folder: next to the package in a checkout, inside it in an installed wheel."""
    app = Path(__file__).resolve().parents[2]
    installed = app / "_migrations"
    return installed if installed.is_dir() else app.parent / "migrations"


def _upgrade(connection: Connection, revision: str) -> None:
    connection.exec_driver_sql(f"SELECT pg_advisory_lock({MIGRATION_LOCK})")
    connection.exec_driver_sql("SET lock_timeout = '10s'")
    connection.commit()
    config = Config()
    config.set_main_option("script_location", str(migrations_folder()))
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, revision)
    except CommandError as error:
        if "Can't locate revision" not in str(error):
            raise
        raise SchemaIsNewer(
            "The database has the schema of a newer version of Plangate; start that version. "
            "Running processes of this version keep working; new ones cannot start."
        ) from error


async def migrate(dsn: str, revision: str = "head") -> None:
    """Apply all migrations up to `revision` that this database does not have. The login must own the
    schema."""
    engine = create_async_engine(
        "postgresql+asyncpg://", async_creator=lambda: asyncpg.connect(dsn, timeout=10)
    )
    try:
        async with engine.connect() as connection:
            await connection.run_sync(_upgrade, revision)
    finally:
        await engine.dispose()


def execute_sql_file(name: str) -> None:
    """Execute migrations/sql/`name` in the migration's transaction.

    asyncpg prepares single statements only, so the file is sent over the simple protocol.
    """
    connection = op.get_bind()
    connection.exec_driver_sql("SELECT 1")  # asyncpg begins lazily: make sure that the transaction is open
    raw: Any = connection.connection.driver_connection
    await_only(raw.execute((migrations_folder() / "sql" / name).read_text(encoding="utf-8")))


def schema_revisions() -> list[str]:
    """Return the schema revisions that this code knows, oldest first."""
    return sorted(p.name.split("_")[0] for p in (migrations_folder() / "versions").glob("[0-9]*.py"))


async def schema_is_current(raw: Any) -> bool:
    """Return whether the database has the newest migration that this code knows."""
    known = schema_revisions()
    found = await raw.fetchval("SELECT version_num FROM alembic_version")
    return bool(known) and found == known[-1]
