"""Answers of the routes of references."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import JsonValue

from app.base.responses import CursorPage, View


class ReferenceView(View):
    """The handle `{kind, id}` of a value, and its glimpse; never the value."""

    kind: str
    """Its kind."""
    id: str
    """The id of the reference."""
    glimpse: JsonValue
    size_bytes: int
    created_at: datetime
    expires_at: datetime | None


class ListedReference(ReferenceView):
    """`workId` is the work record that made it, where one did."""

    work_id: str | None


class ReferencePage(CursorPage):
    items: list[ListedReference]


class ReferenceDeleted(View):
    kind: str
    """Its kind."""
    id: str
    """The id of the reference."""
    deleted: Literal[True]
