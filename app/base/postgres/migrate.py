"""Upgrade the database schema. If several processes start at once, one migrates and the others wait."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from app.base.errors import Unavailable
from app.base.postgres import hosts

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncEngine

MIGRATION_LOCK = 7_046_029_254  # any number that is unused in this database
FIRST_REVISION: Final = "1001"
"""The schema of the first release. Development versions had lower ones."""
VERSION_TABLE: Final = (
    "CREATE TABLE alembic_version "
    "(version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
)
"""What Alembic executes before the first revision."""
UNRELEASED: Final = (
    "A development version of Plangate created this database, and its schema cannot be upgraded. "
    "Start with a new database: another --data-dir, or another database in DATABASE_URL."
)


class SchemaIsNewer(Unavailable):
    """The database schema is newer than this version supports."""

    kind, title = "schema_is_newer", "The database schema is newer than this version"


class SchemaIsUnreleased(Unavailable):
    """The database was created by a development version of Plangate, whose schema cannot be upgraded."""

    kind, title = "schema_is_unreleased", "The database was created by an unreleased version"


def migrations_folder() -> Path:
    """Return the migrations folder: next to the package in a checkout, inside it in an installed wheel."""
    app = Path(__file__).resolve().parents[2]
    installed = app / "_migrations"
    return installed if installed.is_dir() else app.parent / "migrations"


async def migrate(dsn: str) -> None:
    """Apply all migrations that this database does not have. The login must own the schema.

    Raises:
        SchemaIsNewer: a newer version has upgraded the database.
        SchemaIsUnreleased: a development version created the database.
    """
    connection = await hosts.connect(dsn, timeout=10)
    try:
        if await _is_empty(connection):
            await _create_schema(connection)
        if await _is_up_to_date(connection):
            return
    finally:
        await connection.close()
    engine = await asyncio.to_thread(_load, dsn)
    from sqlalchemy.exc import DBAPIError  # noqa: PLC0415 - loaded by _load

    try:
        async with engine.connect() as connection:
            await connection.run_sync(_upgrade)
    except DBAPIError as error:
        driver_error = error.orig.__cause__ if error.orig else None
        raise driver_error or error from None  # asyncpg's error, as every other connection raises it
    finally:
        await engine.dispose()


def _load(dsn: str) -> AsyncEngine:
    """Load Alembic and SQLAlchemy, which take 0.7 s and are kept off the event loop; return the engine."""
    import alembic.command  # noqa: PLC0415
    import alembic.runtime.migration  # noqa: F401, PLC0415
    from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415

    return create_async_engine("postgresql+asyncpg://", async_creator=lambda: hosts.connect(dsn, timeout=10))


async def _is_empty(connection: Any) -> bool:
    """Return whether no version of Plangate has used this database."""
    found = await connection.fetchval(
        "SELECT coalesce(to_regclass('alembic_version'), to_regclass('schema_code'))"
    )
    return found is None


async def _create_schema(connection: Any) -> None:
    """Create the schema of the first revision as Alembic does, without loading it (docs/decisions/0081)."""
    async with connection.transaction():
        await connection.execute(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
        if not await _is_empty(connection):
            return  # another process has created it meanwhile
        await connection.execute("SET LOCAL lock_timeout = '10s'")
        await connection.execute(f"{VERSION_TABLE};\n{first_schema_sql()}")
        await connection.execute("INSERT INTO alembic_version (version_num) VALUES ($1)", FIRST_REVISION)


async def _is_up_to_date(connection: Any) -> bool:
    """Return whether there is nothing to do. Most starts find it so, and need not load Alembic."""
    if await connection.fetchval("SELECT to_regclass('schema_code') IS NULL"):
        return False
    same_code = await connection.fetchval("SELECT digest FROM schema_code") == _code_digest()
    return same_code and await schema_is_current(connection)


def _upgrade(connection: Connection) -> None:
    from alembic import command  # noqa: PLC0415 - see _load
    from alembic.config import Config  # noqa: PLC0415
    from alembic.runtime.migration import MigrationContext  # noqa: PLC0415
    from alembic.util import CommandError  # noqa: PLC0415

    connection.exec_driver_sql(f"SELECT pg_advisory_lock({MIGRATION_LOCK})")
    connection.exec_driver_sql("SET lock_timeout = '10s'")
    connection.commit()
    config = Config()
    config.set_main_option("script_location", str(migrations_folder()))
    config.attributes["connection"] = connection
    revision = MigrationContext.configure(connection).get_current_revision()
    connection.rollback()  # alembic commits only transactions that it began itself
    if revision is not None and revision < FIRST_REVISION:
        raise SchemaIsUnreleased(UNRELEASED)
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        if "Can't locate revision" not in str(error):
            raise
        raise SchemaIsNewer(
            "The database has the schema of a newer version of Plangate; start that version. "
            "Running processes of this version keep working; new ones cannot start."
        ) from error
    if connection.exec_driver_sql("SELECT digest FROM schema_code").scalar_one() != _code_digest():
        raise SchemaIsUnreleased(UNRELEASED)


def execute_sql(sql: str) -> None:
    """Execute any number of statements in the migration's transaction."""
    from alembic import op  # noqa: PLC0415 - see _load
    from sqlalchemy.util import await_only  # noqa: PLC0415

    connection = op.get_bind()
    connection.exec_driver_sql("SELECT 1")  # asyncpg begins lazily: make sure that the transaction is open
    raw: Any = connection.connection.driver_connection
    # asyncpg prepares single statements only, so this is sent over the simple protocol
    await_only(raw.execute(sql))


def apply_code() -> None:
    """Replace the roles, policies, grants and functions by those of this version, and store their digest.

    Every migration that changes one of them calls this. Each file can be executed any number of times.
    """
    execute_sql(_code_sql())


def first_schema_sql() -> str:
    """Return the statements that create the schema of the first revision."""
    return f"{_folder_sql('tables')};\n{_code_sql()}"


def _code_sql() -> str:
    return ";\n".join(
        [
            "SET LOCAL check_function_bodies = off",  # functions call each other
            _folder_sql("access"),
            # A role needs this to become the owner of a function.
            "GRANT CREATE ON SCHEMA public TO plangate_scan",
            _folder_sql("functions"),
            "REVOKE CREATE ON SCHEMA public FROM plangate_scan",
            f"UPDATE schema_code SET digest = '\\x{_code_digest().hex()}'",  # noqa: S608 - hexadecimal digits
        ]
    )


def _folder_sql(name: str) -> str:
    """Return the contents of every file of migrations/`name`, in the order of their names."""
    return ";\n".join(file.read_text(encoding="utf-8") for file in _sql_files(name))


def _sql_files(folder: str) -> list[Path]:
    return sorted((migrations_folder() / folder).glob("*.sql"))


def _code_digest() -> bytes:
    """Return the SHA-256 of all SQL below migrations/."""
    digest = hashlib.sha256()
    for file in (f for folder in ("tables", "access", "functions") for f in _sql_files(folder)):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.digest()


def schema_revisions() -> list[str]:
    """Return the schema revisions that this code knows, oldest first."""
    return sorted(p.name.split("_")[0] for p in (migrations_folder() / "versions").glob("[0-9]*.py"))


async def schema_is_current(raw: Any) -> bool:
    """Return whether the database has the newest migration that this code knows."""
    known = schema_revisions()
    revision = await raw.fetchval("SELECT version_num FROM alembic_version")
    return bool(known) and revision == known[-1]
