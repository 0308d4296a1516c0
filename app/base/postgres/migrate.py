"""Brings the schema up to date. Many processes may start at once: one migrates, the others wait for it."""

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

MIGRATION_LOCK = 7_046_029_254  # any number that nobody else in this database uses


class SchemaIsNewer(Unavailable):
    """This version cannot work with the database any more."""

    kind, title = "schema_is_newer", "The schema is of a newer version"


def migrations_folder() -> Path:
    """Beside the package in a checkout, inside it in an installed wheel."""
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
            "The database has the schema of a newer version of Plangate: start that version. Processes of this one that run go "
            "on, and no more of them can be started."
        ) from error


async def migrate(dsn: str, revision: str = "head") -> None:
    """Applies every migration that this database has not seen, up to that revision. The login must own the schema."""
    engine = create_async_engine(
        "postgresql+asyncpg://", async_creator=lambda: asyncpg.connect(dsn, timeout=10)
    )
    try:
        async with engine.connect() as connection:
            await connection.run_sync(_upgrade, revision)
    finally:
        await engine.dispose()


def execute_sql_file(name: str) -> None:
    """For migrations: sends migrations/sql/`name` as it is, in the migration's transaction. asyncpg prepares single
    statements only, so it goes over the simple protocol."""
    connection = op.get_bind()
    connection.exec_driver_sql("SELECT 1")  # asyncpg begins lazily: make sure that the transaction is open
    raw: Any = connection.connection.driver_connection
    await_only(raw.execute((migrations_folder() / "sql" / name).read_text(encoding="utf-8")))


def schema_revisions() -> list[str]:
    """Return the revisions of the schema that this code knows, oldest first."""
    return sorted(p.name.split("_")[0] for p in (migrations_folder() / "versions").glob("[0-9]*.py"))


async def schema_is_current(raw: Any) -> bool:
    """Whether the database has the newest migration that this code knows."""
    known = schema_revisions()
    found = await raw.fetchval("SELECT version_num FROM alembic_version")
    return bool(known) and found == known[-1]
