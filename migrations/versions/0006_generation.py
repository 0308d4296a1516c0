"""The generation of a database has a number that every `plangate restore` changes."""

from app.base.postgres.migrate import execute_sql_file

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    execute_sql_file("0006_generation.sql")
