"""Entries of the catalog, merged from what a profile found and what people wrote. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

import orjson
from plangate.spec.catalog_toolkit import EntryKind

from app.base.responses import to_wire
from app.catalog.sensitive import NOT_SENSITIVE, SENSITIVE, name_words
from app.catalog.views import EntryView

MAX_ID_CHARS: Final = 500
MAX_SEARCHED_CHARS: Final = 20_000
MAX_QUERY_WORDS: Final = 20
VALUE_FIELDS: Final = frozenset({"min", "max", "values"})
"""The fields of a column's content that hold its values."""


@dataclass(frozen=True, slots=True)
class Layer:
    """The part of an entry that a profile found, or the part that people wrote. None or empty: not set."""

    name: str | None = None
    qualified_name: str | None = None
    source: str | None = None
    parent_id: str | None = None
    content: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    related: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def without_values(self) -> Layer:
        """Return what a profile found in a column, without any of its values."""
        return replace(
            self, content={name: value for name, value in self.content.items() if name not in VALUE_FIELDS}
        )

    def dumps(self) -> bytes:
        return orjson.dumps(self, option=orjson.OPT_SORT_KEYS)

    @classmethod
    def loads(cls, data: bytes | None) -> Layer | None:
        if data is None:
            return None
        fields = orjson.loads(data)
        return cls(**{**fields, "tags": tuple(fields["tags"]), "related": tuple(fields["related"])})


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """An entry of the catalog. What people wrote takes precedence over what a profile found."""

    id: str
    kind: EntryKind
    found: Layer | None
    written: Layer | None
    created_at: datetime | None = None
    updated_at: datetime | None = None

    def _layers(self) -> list[Layer]:
        return [layer for layer in (self.written, self.found) if layer is not None]

    def _first(self, field: str) -> Any:
        """Return a field of the layer that takes precedence and has it, or None."""
        return next((value for layer in self._layers() if (value := getattr(layer, field))), None)

    def _merged(self, field: str) -> dict[str, Any]:
        return {
            name: value for layer in reversed(self._layers()) for name, value in getattr(layer, field).items()
        }

    @property
    def name(self) -> str:
        return self._first("name") or self.id.rpartition(".")[2]

    @property
    def qualified_name(self) -> str:
        return self._first("qualified_name") or self.id.partition(":")[2] or self.id

    @property
    def source(self) -> str | None:
        source: str | None = self._first("source")
        return source

    @property
    def parent_id(self) -> str | None:
        parent_id: str | None = self._first("parent_id")
        return parent_id

    @property
    def content(self) -> dict[str, Any]:
        return self._merged("content")

    @property
    def metadata(self) -> dict[str, Any]:
        return self._merged("metadata")

    @property
    def tags(self) -> tuple[str, ...]:
        """Return the tags of both; a person's `not-sensitive` removes `sensitive`."""
        tags = dict.fromkeys(tag for layer in self._layers() for tag in layer.tags)
        if self.written is not None and NOT_SENSITIVE in self.written.tags:
            tags.pop(SENSITIVE, None)
        return tuple(tags)

    @property
    def related(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(id for layer in self._layers() for id in layer.related))

    @property
    def is_sensitive(self) -> bool:
        return SENSITIVE in self.tags

    def table_and_column(self) -> tuple[str, str] | None:
        """Return the table, as statements name it, and the column of an entry of kind `column`."""
        if self.kind != "column" or self.source is None:
            return None
        path = self.qualified_name.removeprefix(f"{self.source}.")
        table, _, column = path.rpartition(".")
        return (table, self.content.get("column") or column) if table else None

    def wire(self) -> dict[str, Any]:
        origin = "both" if self.found and self.written else "written" if self.written else "profile"
        return to_wire(EntryView, self, origin=origin, tags=list(self.tags), related=list(self.related))

    def short(self) -> dict[str, Any]:
        """Return the short form for lists of candidates."""
        out: dict[str, Any] = {"id": self.id, "kind": self.kind, "name": self.name}
        if self.source is not None:
            out["source"] = self.source
        description = self.content.get("description") or self.content.get("text")
        if isinstance(description, str) and description:
            out["description"] = description if len(description) <= 200 else f"{description[:199]}…"
        for key in ("type", "table", "rowEstimate"):
            if self.content.get(key) is not None:
                out[key] = self.content[key]
        return out

    # -- search ---------------------------------------------------------------------------------------------

    def search_texts(self) -> tuple[str, str, str]:
        """Return the texts of an entry by weight: its names, what describes it, and everything else."""
        names = " ".join([self.name, *name_words(self.name), *name_words(self.qualified_name)])
        content = self.content
        described = " ".join(
            str(content[key]) for key in ("description", "text", "definition", "finding") if content.get(key)
        )
        rest = " ".join(
            part
            for key, value in content.items()
            if key not in ("description", "text", "definition", "finding", "min", "max")
            for part in _texts(value)
        )
        return (
            names[:MAX_SEARCHED_CHARS],
            f"{described} {' '.join(self.tags)}"[:MAX_SEARCHED_CHARS],
            rest[:MAX_SEARCHED_CHARS],
        )

    def trigrams(self) -> list[str]:
        return sorted(trigrams([*name_words(self.name), *name_words(self.qualified_name)]))


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
        yield " ".join(name_words(value))
    elif isinstance(value, list):
        for item in value[:100]:
            yield from _texts(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)


def trigrams(words: Iterable[str]) -> set[str]:
    """Return the trigrams of words, as pg_trgm makes them: two blanks before a word, one after it."""
    padded = [f"  {word.lower()} " for word in words]
    return {text[at : at + 3] for text in padded for at in range(len(text) - 2)}


def query_words(query: str) -> list[str]:
    """Return the words that a search looks for: those of the text, and the parts of identifiers in it."""
    words = [word for part in query.split() for word in name_words(part)]
    return list(dict.fromkeys(words))[:MAX_QUERY_WORDS]


def matched_words(words: Sequence[str], lexical: Iterable[str], entry_trigrams: Iterable[str]) -> list[str]:
    """Return the words of a search that an entry matched, by meaning or nearly by spelling."""
    grams, by_meaning = set(entry_trigrams), set(lexical)
    near = [word for word in words if len(word) > 2 and _share(word, grams) >= 0.5]
    return [word for word in words if word in by_meaning or word in near]


def _share(word: str, grams: set[str]) -> float:
    """Return the share of the trigrams of a word that are among `grams`."""
    own = trigrams([word])
    return len(own & grams) / len(own)


def entry_id(kind: EntryKind, *path: str) -> str:
    """Return the id of an entry that a profile found: readable, and the same in every profile."""
    text = f"{kind}:{'.'.join(path)}"
    if len(text) <= MAX_ID_CHARS:
        return text
    return f"{text[: MAX_ID_CHARS - 33]}~{hashlib.sha256(text.encode()).hexdigest()[:32]}"


@dataclass(frozen=True, slots=True)
class SearchMatch:
    """An entry that a search matched: how well, by meaning (`text_rank`) and by spelling, the words that it matched by
    meaning, and its trigrams."""

    entry: CatalogEntry
    text_rank: float
    spelling: float
    words: list[str]
    trigrams: list[str]
