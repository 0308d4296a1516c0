"""Sends a file of SQL as it is: asyncpg prepares single statements only, so it goes over the simple protocol."""

from pathlib import Path

from alembic import op
from sqlalchemy.util import await_only

SQL = Path(__file__).parent / "sql"


def run_file(name: str) -> None:
    """Runs migrations/sql/`name` in the migration's transaction."""
    connection = op.get_bind()
    connection.exec_driver_sql("SELECT 1")  # asyncpg begins lazily: make sure that the transaction is open
    raw = connection.connection.driver_connection
    await_only(raw.execute((SQL / name).read_text(encoding="utf-8")))
