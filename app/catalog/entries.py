"""Entries of the catalog: what a profile found and what people wrote, made into one. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

import orjson

from app.base.clock import rfc3339
from app.catalog.sensitive import NOT_SENSITIVE, SENSITIVE, name_words

EntryKind = Literal[
    "table",
    "column",
    "relationship",
    "enum_value",
    "metric",
    "document",
    "knowledge",
    "data_quality_finding",
]
MAX_ID_CHARS: Final = 500
MAX_SEARCHED_CHARS: Final = 20_000
MAX_QUERY_WORDS: Final = 20


@dataclass(frozen=True, slots=True)
class Layer:
    """What a profile found of an entry, or what people wrote of it. None, or empty, is not said."""

    name: str | None = None
    qualified_name: str | None = None
    source: str | None = None
    parent_id: str | None = None
    content: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    related: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def dumps(self) -> bytes:
        return orjson.dumps(
            {
                "name": self.name,
                "qualifiedName": self.qualified_name,
                "source": self.source,
                "parentId": self.parent_id,
                "content": dict(self.content),
                "tags": self.tags,
                "related": self.related,
                "metadata": dict(self.metadata),
            },
            option=orjson.OPT_SORT_KEYS,
        )

    @classmethod
    def loads(cls, data: bytes | None) -> Layer | None:
        if data is None:
            return None
        held = orjson.loads(data)
        return cls(
            held["name"],
            held["qualifiedName"],
            held["source"],
            held["parentId"],
            held["content"],
            tuple(held["tags"]),
            tuple(held["related"]),
            held["metadata"],
        )


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """An entry of the catalog. What people wrote takes precedence over what a profile found."""

    id: str
    kind: EntryKind
    found: Layer | None
    written: Layer | None
    created_at: datetime | None = None
    updated_at: datetime | None = None

    @classmethod
    def from_row(cls, row: Any) -> CatalogEntry:
        found, written = Layer.loads(row["found"]), Layer.loads(row["written"])
        return cls(row["id"], row["kind"], found, written, row["created_at"], row["updated_at"])

    def _layers(self) -> list[Layer]:
        return [layer for layer in (self.written, self.found) if layer is not None]

    @property
    def name(self) -> str:
        said = (layer.name for layer in self._layers() if layer.name)
        return next(said, self.id.rpartition(".")[2])

    @property
    def qualified_name(self) -> str:
        said = (layer.qualified_name for layer in self._layers() if layer.qualified_name)
        return next(said, self.id.partition(":")[2] or self.id)

    @property
    def source(self) -> str | None:
        return next((layer.source for layer in self._layers() if layer.source), None)

    @property
    def parent_id(self) -> str | None:
        return next((layer.parent_id for layer in self._layers() if layer.parent_id), None)

    @property
    def content(self) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for layer in reversed(self._layers()):
            merged.update(layer.content)
        return merged

    @property
    def metadata(self) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for layer in reversed(self._layers()):
            merged.update(layer.metadata)
        return merged

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
        out: dict[str, Any] = {
            "id": self.id,
            "kind": self.kind,
            "name": self.name,
            "qualifiedName": self.qualified_name,
            "source": self.source,
            "content": self.content,
            "tags": list(self.tags),
            "related": list(self.related),
            "metadata": self.metadata,
            "origin": "both" if self.found and self.written else "written" if self.written else "profile",
        }
        if self.updated_at is not None:
            out["updatedAt"] = rfc3339(self.updated_at)
        return out

    def short(self) -> dict[str, Any]:
        """Return what a list of candidates shows."""
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

    # -- what search looks at --------------------------------------------------------------------------------

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
        for held in value[:100]:
            yield from _texts(held)
    elif isinstance(value, dict):
        for held in value.values():
            yield from _texts(held)


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
    held, found = set(entry_trigrams), set(lexical)
    near = [word for word in words if len(word) > 2 and _share(word, held) >= 0.5]
    return [word for word in words if word in found or word in near]


def _share(word: str, held: set[str]) -> float:
    own = trigrams([word])
    return len(own & held) / len(own)


def entry_id(kind: EntryKind, *path: str) -> str:
    """Return the id of what a profile found: it says what the entry is, and is the same in every profile."""
    text = f"{kind}:{'.'.join(path)}"
    if len(text) <= MAX_ID_CHARS:
        return text
    return f"{text[: MAX_ID_CHARS - 33]}~{hashlib.sha256(text.encode()).hexdigest()[:32]}"
