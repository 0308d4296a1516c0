"""Brings the schema up to date. Many processes may start at once: one migrates, the others wait for it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import create_async_engine

MIGRATION_LOCK = 7_046_029_254  # any number that nobody else in this database uses


def migrations_folder() -> Path:
    """Beside the package in a checkout, inside it in an installed wheel."""
    app = Path(__file__).resolve().parents[1]
    installed = app / "_migrations"
    return installed if installed.is_dir() else app.parent / "migrations"


def _upgrade(connection: Connection) -> None:
    connection.exec_driver_sql(f"SELECT pg_advisory_lock({MIGRATION_LOCK})")
    connection.exec_driver_sql("SET lock_timeout = '10s'")
    connection.commit()
    config = Config()
    config.set_main_option("script_location", str(migrations_folder()))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


async def migrate(dsn: str) -> None:
    """Applies every migration that this database has not seen. The login must own the schema."""
    engine = create_async_engine("postgresql+asyncpg://" + dsn.split("://", 1)[1])
    try:
        async with engine.connect() as connection:
            await connection.run_sync(_upgrade)
    finally:
        await engine.dispose()


def migrate_sync(dsn: str) -> None:
    asyncio.run(migrate(dsn))


async def schema_is_current(raw: Any) -> bool:
    """Whether the database has the newest migration that this code knows."""
    known = sorted(p.name.split("_")[0] for p in (migrations_folder() / "versions").glob("[0-9]*.py"))
    found = await raw.fetchval("SELECT version_num FROM alembic_version")
    return bool(known) and found == known[-1]
