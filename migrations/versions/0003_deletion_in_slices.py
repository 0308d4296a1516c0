"""Records of artifacts go in slices with the other rows of a thread that is deleted."""

from app.base.postgres.migrate import execute_sql_file

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    execute_sql_file("0003_deletion.sql")
