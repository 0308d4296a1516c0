"""Bodies of the routes of sources and of the catalog."""

from __future__ import annotations

from typing import Annotated, Any, Final, Self

from plangate.spec.base import at_most
from plangate.spec.catalog_toolkit import EntryKind
from pydantic import Field, model_validator

from app.base.json import strict_json
from app.catalog.catalog import WrittenEntry
from app.catalog.entries import MAX_ID_CHARS, Layer
from app.catalog.kinds import SourceKind
from app.catalog.models import MAX_BYTES, MAX_CONCURRENT, MAX_ROWS, MAX_TIMEOUT_MS, Source
from app.tenancy.request_body import Body

MAX_ENTRY_BYTES: Final = 64 * 1024

Secret = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
SchemaName = Annotated[str, Field(min_length=1, max_length=63)]
PathText = Annotated[str, Field(min_length=1, max_length=4096)]
Pattern = Annotated[str, Field(min_length=1, max_length=100)]


class SecretUrl(Body):
    """The name of the secret that holds the URL."""

    secret: Secret
    """The name of the secret."""


class LimitsBody(Body):
    """The limits of a statement; omitted limits have their defaults."""

    timeout_ms: Annotated[int, Field(ge=100, le=MAX_TIMEOUT_MS, description="15000 unless given.")] | None = (
        None
    )
    """How long a statement may take, in milliseconds."""
    rows: Annotated[int, Field(ge=1, le=MAX_ROWS, description="100000 unless given.")] | None = None
    """How many rows a statement may return."""
    bytes: Annotated[int, Field(ge=1024, le=MAX_BYTES, description="16 MiB unless given.")] | None = None
    """How many bytes a statement may return."""
    concurrent_statements: (
        Annotated[int, Field(ge=1, le=MAX_CONCURRENT, description="4 unless given.")] | None
    ) = None


class SourceOptions(Body):
    """The options of a source. `paths`: absolute paths of files; a directory means the files in it. `sensitive`:
    patterns with * for names of sensitive columns, which replace the built-in ones. `nullValues`: strings that mean
    null in CSV files, besides an empty one."""

    paths: Annotated[list[PathText], at_most(100)] | None = None
    limits: LimitsBody | None = None
    """Limits of each statement."""
    sensitive: Annotated[list[Pattern], at_most(200)] | None = None
    null_values: Annotated[list[Annotated[str, Field(max_length=100)]], at_most(20)] | None = None
    """Texts that mean null in CSV files, besides an empty one."""


class PutSource(Body):
    """A database or files that agents may read. `postgres` has a `url`; `duckdb` and `sqlite` have `options.paths`."""

    kind: SourceKind
    """The kind of database."""
    url: SecretUrl | None = None
    """The address with its credentials, or the secret that holds it."""
    schemas: Annotated[list[SchemaName], at_most(100)] | None = None
    options: SourceOptions | None = None

    def source(self, name: str) -> Source:
        options = self.options or SourceOptions()
        limits = {} if options.limits is None else options.limits.model_dump(exclude_none=True)
        return Source(
            name,
            self.kind,
            None if self.url is None else self.url.secret,
            tuple(self.schemas or ()),
            tuple(options.paths or ()),
            None if options.sensitive is None else tuple(options.sensitive),
            tuple(options.null_values or ()),
        ).with_limits(limits)


EntryId = Annotated[str, Field(min_length=1, max_length=MAX_ID_CHARS)]


class EntryBody(Body):
    """Content that people write about an entry. It takes precedence over what a profile found, field by field of
    `content`."""

    kind: EntryKind
    """What it describes."""
    name: Annotated[str, Field(min_length=1, max_length=300)] | None = None
    """Its short name."""
    qualified_name: Annotated[str, Field(min_length=1, max_length=1000)] | None = None
    source: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    content: dict[str, Any] | None = None
    tags: Annotated[list[Annotated[str, Field(min_length=1, max_length=100)]], at_most(50)] | None = None
    related: Annotated[list[EntryId], at_most(200)] | None = None
    metadata: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _not_too_large(self) -> Self:
        for name in ("content", "metadata"):
            if len(strict_json.dumps(getattr(self, name))) > MAX_ENTRY_BYTES:
                raise ValueError(f"{name} may have {MAX_ENTRY_BYTES} bytes of JSON")
        return self

    def written_entry(self, id: str) -> WrittenEntry:
        layer = Layer(
            self.name,
            self.qualified_name,
            self.source,
            None,
            self.content or {},
            tuple(self.tags or ()),
            tuple(self.related or ()),
            self.metadata or {},
        )
        return WrittenEntry(id, self.kind, layer)


class NamedEntry(EntryBody):
    id: EntryId
    """The id of the entry."""


class WriteEntries(Body):
    """Many entries, stored together or not at all."""

    entries: Annotated[list[NamedEntry], Field(min_length=1), at_most(500)]
    """The entries to write: all, or none."""
