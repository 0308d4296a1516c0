"""Attempts of a source's process to write or to read its environment."""

from __future__ import annotations

import os

from app.catalog.source_worker import write_no_files


def write_error(path: str) -> str | None:
    """Return the error of writing to a file, or None."""
    write_no_files()
    try:
        with open(path, "wb", buffering=0) as file:
            file.write(b"x")
    except OSError as error:
        return error.strerror
    return None


def environment_names() -> list[str]:
    return sorted(os.environ)
