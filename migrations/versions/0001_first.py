"""The first schema: tables, roles with row-level security, and the functions that carry concurrency."""

from app.base.postgres.migrate import execute_sql_file

revision = "0001"
down_revision = None


def upgrade() -> None:
    for name in ("0001_tables.sql", "0001_roles.sql", "0001_functions.sql"):
        execute_sql_file(name)
