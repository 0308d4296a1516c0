"""The time that a process worked on a query counts when it is killed, too."""

from app.base.postgres.migrate import execute_sql_file

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    execute_sql_file("0004_functions.sql")
