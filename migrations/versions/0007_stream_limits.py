"""Tenants that have limits may have so many streams open, too."""

from app.base.postgres.migrate import execute_sql_file

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    execute_sql_file("0007_stream_limits.sql")
