"""The schema of a database as text."""

from __future__ import annotations

import re
import subprocess

from app.backup import programs


def schema_of(dsn: str) -> str:
    """The schema with owners, grants and policies, as Postgres writes it."""
    chosen = programs.choose(15, [p for p in programs.installed() if p.major >= 18])
    url, env = programs.login(dsn)
    command = [chosen.folder / "pg_dump", "--schema-only", f"--dbname={url}"]
    text = subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout
    return re.sub(r"\\(un)?restrict \S+", "", text)
