"""Responses of the routes of sources and of the catalog."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from plangate.events import JsonObject
from pydantic import Field

from app.base.responses import View, WholeList
from app.catalog.entries import EntryKind
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


class ProfileAccepted(View):
    """The query that profiles the source. Its events tell how far it is."""

    id: str
    thread_id: str
    status: Literal["queued", "running"]
    links: dict[str, str]


class EntryView(View):
    """An entry of the catalog: what a profile found and what people wrote, as one. `origin` says who contributed."""

    id: str
    kind: EntryKind
    name: str
    qualified_name: str
    source: str | None
    content: JsonObject
    tags: list[str]
    related: list[str]
    metadata: JsonObject
    origin: Literal["profile", "written", "both"]
    updated_at: datetime


class EntryPage(View):
    """A page of entries by id."""

    items: list[EntryView]
    next_cursor: Annotated[str | None, Field(description="Send it as `cursor`; null on the last page.")]


class EntryList(WholeList):
    items: list[EntryView]


class FoundEntry(View):
    """A candidate of a search. `matched` are the words of the search that it matched, by meaning or by spelling."""

    id: str
    kind: EntryKind
    name: str
    score: float
    matched: list[str]
    source: str | None = None
    description: str | None = None
    type: str | None = None
    table: str | None = None
    row_estimate: int | None = None


class FoundEntries(WholeList):
    items: list[FoundEntry]


class EntryDeleted(View):
    id: str
    deleted: Literal[True]
