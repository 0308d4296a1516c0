"""Records of processes, by whose deaths queries are judged instead of by their leases."""

from app.base.postgres.migrate import execute_sql_file

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    execute_sql_file("0005_processes.sql")
