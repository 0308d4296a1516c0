"""Responses of the routes of sources and of the catalog."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from app.base.responses import View
from app.catalog.models import SourceKind


class UrlView(View):
    """The name of the secret that holds the URL. The URL is never shown."""

    secret: str


class SourceLimitsView(View):
    """What a statement may use."""

    timeout_ms: int
    rows: int
    bytes: int
    concurrent_statements: Annotated[int, Field(description="In each process of the service.")]


class SourceOptionsView(View):
    """`immutable`: the operator declares that the file does not change."""

    limits: SourceLimitsView
    paths: list[str] | None = None
    sensitive: list[str] | None = None
    immutable: Literal[True] | None = None


class ProfileCounts(View):
    """What the last complete profile found."""

    tables: int
    columns: int
    relationships: int
    findings: int


class ProfileState(View):
    """The newest profile: the status of its query, and what the last complete one found."""

    status: Literal["none", "queued", "running", "waiting", "succeeded", "failed", "cancelled"]
    query_id: str | None
    profiled_at: datetime | None
    found: ProfileCounts | None


class SourceView(View):
    """A source, without its secret. `declared`: by the operator, so that no request changes it."""

    name: str
    kind: SourceKind
    url: UrlView | None
    schemas: list[str]
    options: SourceOptionsView
    declared: bool
    profile: ProfileState
    created_at: datetime
    updated_at: datetime


class SourcePage(View):
    """A page of sources by name, in alphabetical order."""

    items: list[SourceView]
    next_cursor: Annotated[str | None, Field(description="Send it as `cursor`; null on the last page.")]


class SourceDeleted(View):
    name: str
    deleted: Literal[True]
