"""Tenants that have limits may have so many streams open, too."""

from app.base.postgres.migrate import run_file

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    run_file("0007_stream_limits.sql")
