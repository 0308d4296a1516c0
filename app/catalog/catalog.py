"""The catalog: read, search and write entries, and find out how they are related."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from plangate.spec.catalog_toolkit import EntryKind

from app.base.errors import Conflict, FieldError, Invalid, NotFound
from app.base.postgres.database import Tx
from app.catalog import graph, store
from app.catalog.entries import CatalogEntry, Layer, matched_words, query_words, trigrams
from app.catalog.models import EntryFilter
from app.catalog.problems import nearest_names
from app.catalog.sensitive import SENSITIVE

MAX_NEAREST_IDS: Final = 500
MAX_RELATIONS: Final = 20_000
MAX_CHILDREN: Final = 2_000
MIN_SPELLING: Final = 0.35
"""The least share of a search's trigrams that the names of an entry must have, if none of its words match."""

Sources = Sequence[str] | None
"""The sources that a caller may see; None for all of the tenant."""


class EntryNotFound(NotFound):
    kind, title = "entry_not_found", "There is no such entry in the catalog"


class EntryKindDiffers(Conflict):
    kind, title = "entry_kind_differs", "The entry has another kind"


@dataclass(frozen=True, slots=True)
class WrittenEntry:
    """The part of an entry that a person or program writes. It replaces what was written before, not what a profile found."""

    id: str
    kind: EntryKind
    layer: Layer


async def write_entries(tx: Tx, written: Sequence[WrittenEntry]) -> list[CatalogEntry]:
    """Store what people or programs wrote, and return the entries. Raise EntryKindDiffers, or Invalid for an
    id that is given twice."""
    ids = [entry.id for entry in written]
    if len(set(ids)) < len(ids):
        twice = next(id for n, id in enumerate(ids) if id in ids[:n])
        raise Invalid(
            f"The entry {twice!r} is given twice.", [FieldError("/entries", "an id is given twice")]
        )
    await store.lock_catalog(tx)
    known = await store.entries_by_id(tx, ids=ids)
    entries = []
    for entry in written:
        before = known.get(entry.id)
        if before is not None and before.kind != entry.kind:
            raise EntryKindDiffers(
                f"The entry {entry.id!r} is a {before.kind}; it cannot become a {entry.kind}."
            )
        layer = None if before is None else before.found
        if layer is not None and _makes_sensitive(entry):
            layer = layer.without_values()
        entries.append(CatalogEntry(entry.id, entry.kind, layer, entry.layer))
    await store.save_entries(tx, entries=entries, found_by=None)
    await _forget_values(tx, [entry.id for entry in written if _makes_sensitive(entry)])
    saved = await store.entries_by_id(tx, ids=ids)
    return [saved[id] for id in ids]


def _makes_sensitive(entry: WrittenEntry) -> bool:
    return entry.kind == "column" and SENSITIVE in entry.layer.tags


async def _forget_values(tx: Tx, column_ids: Sequence[str]) -> None:
    """Remove the values that profiles found in these columns. What people wrote about a value stays."""
    children = await store.children(tx, parent_ids=column_ids, limit=MAX_CHILDREN) if column_ids else []
    values = [entry for entry in children if entry.kind == "enum_value" and entry.found is not None]
    for entry in values:
        if entry.written is None:
            await store.delete_entry(tx, id=entry.id)
    kept = [replace(entry, found=None) for entry in values if entry.written is not None]
    await store.save_entries(tx, entries=kept, found_by=None)


async def delete_written(tx: Tx, id: str) -> None:
    """Delete what people wrote about an entry; what a profile found stays. Raise EntryNotFound."""
    await store.lock_catalog(tx)
    entry = (await read_entries(tx, [id], None))[0]
    if entry.written is None:
        raise EntryNotFound(f"Nobody wrote about the entry {id!r}; a profile found it.")
    if entry.found is None:
        await store.delete_entry(tx, id=id)
    else:
        await store.save_entries(tx, entries=[replace(entry, written=None)], found_by=None)


async def read_entries(tx: Tx, ids: Sequence[str], sources: Sources) -> list[CatalogEntry]:
    """Return entries by id, in order. Raise EntryNotFound, with the nearest ids."""
    entries = await store.entries_by_id(tx, ids=ids)
    for id in ids:
        if id not in entries or not _visible(entries[id], sources):
            known = await store.page(tx, filters=EntryFilter(), limit=MAX_NEAREST_IDS)
            near = nearest_names(id, [entry.id for entry in known if _visible(entry, sources)])
            raise EntryNotFound(f"There is no entry {id!r} in the catalog.{near}")
    return [entries[id] for id in ids]


def _visible(entry: CatalogEntry, sources: Sources) -> bool:
    return sources is None or entry.source is None or entry.source in sources


async def find_table(tx: Tx, name: str, sources: Sources) -> CatalogEntry:
    """Return the table with this id or name. Raise EntryNotFound, with the nearest names, or Invalid if several
    tables have the name."""
    by_id = (await store.entries_by_id(tx, ids=[name])).get(name)
    if by_id is not None and by_id.kind == "table" and _visible(by_id, sources):
        return by_id
    tables = await store.entries_by_name(tx, kind="table", name=name, sources=sources)
    if len(tables) > 1:
        listed = ", ".join(table.id for table in tables)
        raise Invalid(f"Several tables are named {name!r}; use one of their ids: {listed}.")
    if not tables:
        names = await store.names_of_kind(tx, kind="table", sources=sources)
        near = nearest_names(name, [*names, *(known.partition(".")[2] for known in names)])
        raise EntryNotFound(f"There is no table {name!r} in the catalog.{near}")
    return tables[0]


async def search(
    tx: Tx, query: str, kinds: Sequence[str] | None, sources: Sources, limit: int
) -> list[dict[str, Any]]:
    """Return the entries that match best, with the words that matched, best first."""
    words = query_words(query)
    if not words:
        return []
    matches = await store.search(
        tx,
        text=" or ".join(words),
        grams=sorted(trigrams(words)),
        words=words,
        kinds=kinds,
        sources=sources,
        min_spelling=MIN_SPELLING,
        limit=limit,
    )
    return [
        {
            **match.entry.short(),
            "score": round(match.text_rank + match.spelling, 3),
            "matched": matched_words(words, match.words, match.trigrams),
        }
        for match in matches
    ]


async def fields_of(tx: Tx, table: CatalogEntry) -> list[CatalogEntry]:
    """Return the columns of a table, in their order."""
    children = await store.children(tx, parent_ids=[table.id], limit=MAX_CHILDREN)
    columns = [entry for entry in children if entry.kind == "column"]
    return sorted(columns, key=lambda entry: (entry.content.get("position", MAX_CHILDREN), entry.id))


async def relations(
    tx: Tx, ids: Sequence[str], kinds: Sequence[str] | None, sources: Sources
) -> list[dict[str, Any]]:
    """Return the neighbors of entries: by foreign keys, declared relationships and `related`. Raise
    EntryNotFound."""
    await read_entries(tx, ids, sources)
    known = graph.edges(await store.relations(tx, sources=sources, limit=MAX_RELATIONS))
    edges = graph.neighbors(ids, known, kinds)
    others = await store.entries_by_id(tx, ids=[edge.target for edge in edges])
    return [
        {
            "id": edge.origin,
            "relation": edge.kind,
            **({} if edge.via is None else {"via": edge.via}),
            **({"joins": [f"{left} = {right}" for left, right in edge.columns]} if edge.columns else {}),
            "neighbor": others[edge.target].short(),
        }
        for edge in edges
        if edge.target in others and _visible(others[edge.target], sources)
    ]


async def paths_between(
    tx: Tx, origin: str, target: str, max_hops: int, sources: Sources
) -> list[dict[str, Any]]:
    """Return how two tables can be joined, shortest first. Raise EntryNotFound."""
    start, end = await find_table(tx, origin, sources), await find_table(tx, target, sources)
    known = graph.edges(await store.relations(tx, sources=sources, limit=MAX_RELATIONS))
    paths = graph.join_paths(start.id, end.id, known, max_hops)
    ids = {id for path in paths for edge in path for id in (edge.origin, edge.target)}
    tables = await store.entries_by_id(tx, ids=sorted(ids))
    names = {id: str(entry.content.get("table", entry.name)) for id, entry in tables.items()}
    return [graph.describe_path(path, names) for path in paths]


async def tagged_columns(tx: Tx, source: str) -> dict[str, dict[str, bool]]:
    """Return for tagged columns whether they are sensitive: table -> column -> bool, in lower case."""
    tagged: dict[str, dict[str, bool]] = {}
    for entry in await store.tagged_columns(tx, source=source):
        place = entry.table_and_column()
        if place is not None:
            table, column = place
            tagged.setdefault(table.lower(), {})[column.lower()] = entry.is_sensitive
    return tagged


# -- profiles ------------------------------------------------------------------------------------------------


async def save_found(tx: Tx, new_entries: Iterable[CatalogEntry], query_id: str) -> None:
    """Store what a profile found, and keep what people wrote."""
    entries = {entry.id: entry for entry in new_entries}
    await store.lock_catalog(tx)
    known = await store.entries_by_id(tx, ids=list(entries))
    merged = [
        replace(entry, written=known[id].written) if id in known else entry for id, entry in entries.items()
    ]
    await store.save_entries(tx, entries=merged, found_by=query_id)


async def finish_profile(tx: Tx, source: str, query_id: str) -> dict[str, int]:
    """Remove what the source no longer has, record the profile, and return what it found, in numbers."""
    await remove_found(tx, source, query_id)
    by_kind = await store.count_found(tx, source=source, found_by=query_id)
    kinds: Mapping[str, str] = {
        "tables": "table",
        "columns": "column",
        "relationships": "relationship",
        "findings": "data_quality_finding",
    }
    counts = {name: by_kind.get(kind, 0) for name, kind in kinds.items()}
    await store.set_profile(tx, name=source, counts=counts, query_id=query_id)
    return counts


async def remove_found(tx: Tx, source: str, found_by: str | None = None) -> None:
    """Remove entries that profiles found, except those of the profile `found_by`; what people wrote stays."""
    await store.lock_catalog(tx)
    lost = await store.lost_entries(tx, source=source, found_by=found_by)
    entries = [replace(entry, found=None) for entry in lost]
    await store.save_entries(tx, entries=entries, found_by=None)
    await store.delete_lost(tx, source=source, found_by=found_by)
