"""Responses of the routes of files."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from app.base.responses import CursorPage, View


class Digest(View):
    algorithm: Literal["sha256"]
    """Always `sha256`."""
    value: str
    """The digest, in hex."""


class FileView(View):
    """A version of a file of a thread."""

    thread_id: str
    path: str
    version: int
    size_bytes: int
    digest: Annotated[Digest | None, Field(description="null: this version is the deletion of the file.")]
    media_type: str
    work_id: Annotated[str | None, Field(description="The call that wrote it, where an agent did.")]
    query_id: str | None
    written_by: Annotated[str, Field(description="The agent, or the principal of the key.")]
    forked_from: Annotated[str | None, Field(description="The thread that it was copied from.")]
    at: datetime
    """When it was written."""


class FilePage(CursorPage):
    items: list[FileView]
