"""The generation of a database has a number that every `plangate restore` changes."""

from app.base.postgres.migrate import run_file

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    run_file("0006_generation.sql")
