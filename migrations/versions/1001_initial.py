"""The schema of the first release."""

from app.base.postgres.migrate import apply_code, execute_folder

revision = "1001"
down_revision = None


def upgrade() -> None:
    execute_folder("tables")
    apply_code()
