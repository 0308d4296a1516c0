"""Responses of the routes of sources and of the catalog."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from plangate.spec.catalog_toolkit import EntryKind
from pydantic import Field

from app.base.responses import View, WholeList
from app.catalog.kinds import SourceKind
from app.events import JsonObject


class UrlView(View):
    """The name of the secret that holds the URL. The URL is never shown."""

    secret: str
    """The name of the secret."""


class SourceLimitsView(View):
    """The limits of a statement."""

    timeout_ms: int
    """How long a statement may take, in milliseconds."""
    rows: int
    """How many rows a statement may return."""
    bytes: int
    """How many bytes a statement may return."""
    concurrent_statements: Annotated[int, Field(description="In each process of the service.")]


class SourceOptionsView(View):
    """`immutable`: the operator declares that the file does not change."""

    limits: SourceLimitsView
    """Limits of each statement."""
    paths: list[str] | None = None
    sensitive: list[str] | None = None
    null_values: list[str] | None = None
    """Texts that mean null in CSV files, besides an empty one."""
    immutable: Literal[True] | None = None
    """Whether the file is read as one that never changes."""


class ProfileCounts(View):
    """Counts of the last complete profile."""

    tables: int
    """How many tables."""
    columns: int
    """How many columns."""
    relationships: int
    """How many relationships."""
    findings: int
    """How many findings."""


class ProfileState(View):
    """The newest profile: the status of its query, and what the last complete one found."""

    status: Literal["none", "queued", "running", "waiting", "succeeded", "failed", "cancelled"]
    query_id: str | None
    profiled_at: datetime | None
    """When the profile ended."""
    found: ProfileCounts | None
    """How much the profile found."""


class SourceView(View):
    """A source, without its secret. `declared`: configured by the operator; the API cannot change it."""

    name: str
    """The name of the source."""
    kind: SourceKind
    """The kind of database."""
    url: UrlView | None
    """The secret that holds the address; null if the operator declared it."""
    schemas: list[str]
    options: SourceOptionsView
    declared: bool
    """Whether the operator declared it; it cannot be changed over HTTP then."""
    profile: ProfileState
    """The last profile."""
    created_at: datetime
    updated_at: datetime


class SourcePage(View):
    """A page of sources by name, in alphabetical order."""

    items: list[SourceView]
    next_cursor: Annotated[str | None, Field(description="Send it as `cursor`; null on the last page.")]


class SourceDeleted(View):
    name: str
    """The name of the source."""
    deleted: Literal[True]


class ProfileAccepted(View):
    """The query that profiles the source. Its events tell how far it is."""

    id: str
    """The id of the query that profiles the source."""
    thread_id: str
    status: Literal["queued", "running"]
    links: dict[str, str]


class EntryView(View):
    """An entry of the catalog: what a profile found and what people wrote, as one. `origin` says who contributed."""

    id: str
    """The id of the entry."""
    kind: EntryKind
    """What it describes."""
    name: str
    """Its short name."""
    qualified_name: str
    source: str | None
    content: JsonObject
    tags: list[str]
    related: list[str]
    metadata: JsonObject
    origin: Literal["profile", "written", "both"]
    """Whether a profile or a caller wrote it."""
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
    """The id of the entry."""
    kind: EntryKind
    """What it describes."""
    name: str
    """Its short name."""
    score: float
    """How well it matches; higher is better."""
    matched: list[str]
    """What of the entry matched."""
    source: str | None = None
    description: str | None = None
    """What it is."""
    type: str | None = None
    """The type of the column."""
    table: str | None = None
    """The table that it belongs to."""
    row_estimate: int | None = None
    """About how many rows the table has."""


class FoundEntries(WholeList):
    items: list[FoundEntry]
    """What was found, the best match first."""


class EntryDeleted(View):
    id: str
    """The id of the entry."""
    deleted: Literal[True]
