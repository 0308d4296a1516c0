"""Workspaces, artifacts, the end of threads, and the columns and indexes by which /usage tells what was spent."""

from app.base.postgres.migrate import execute_sql_file

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    for name in ("0002_tables.sql", "0002_roles.sql", "0002_functions.sql", "0002_deletion.sql"):
        execute_sql_file(name)
