"""The schema of the first release."""

from app.base.postgres.migrate import execute_sql, first_schema_sql

revision = "1001"
down_revision = None


def upgrade() -> None:
    execute_sql(first_schema_sql())
