"""The entries of the catalog for one table that a profile read. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from plangate.spec.catalog_toolkit import EntryKind

from app.catalog.entries import CatalogEntry, Layer, entry_id
from app.catalog.sensitive import SENSITIVE

FINDINGS: Final = {
    "empty_column": "Every sampled row has null in {column}.",
    "constant_column": "Every sampled row has the same value in {column}.",
    "null_in_key": "{column} belongs to the primary key and is null in sampled rows.",
    "repeated_key_part": "{column} is the primary key, and its values repeat in the sample.",
}


def table_entries(
    source: str, table: Mapping[str, Any], structure: Mapping[str, Any], stats: Mapping[str, Any] | None
) -> Iterator[CatalogEntry]:
    """Yield the entries of a table, its columns, their values, its foreign keys and findings. `structure` is
    that of the source; `stats` is None for a table that could not be read."""
    name = table["name"]
    table_id = entry_id("table", source, name)
    columns = [column for column in structure["columns"] if column["table"] == name]
    sampled = 0 if stats is None else stats["sampledRows"]
    profiles = {} if stats is None else {profile["name"]: profile for profile in stats["columns"]}
    yield _entry(
        "table",
        table_id,
        name=name.rpartition(".")[2],
        path=(source, name),
        source=source,
        content={
            "description": table["comment"],
            "type": table["kind"],
            "schema": table["schema"],
            "table": name,
            "path": list(table["path"]),
            "columns": [column["name"] for column in columns],
            "primaryKey": [column["name"] for column in columns if column["is_key"]],
            "rowEstimate": table["row_estimate"] if stats is None else stats["rowCount"],
            "sampledRows": sampled,
        },
    )
    allowed = {(of, column): values for of, column, values in structure["enum_values"]}
    for position, column in enumerate(columns):
        profile = profiles.get(column["name"], {})
        values = allowed.get((name, column["name"]))
        yield from _column(source, table_id, name, column, profile, values, position, sampled)
    for key in structure["foreign_keys"]:
        if key["table"] == name:
            yield _foreign_key(source, table_id, name, key)
    if stats is None:
        yield _finding(source, table_id, name, None, "unreadable", f"{name} could not be read.")
        return
    for orphan in stats["orphans"]:
        key = ", ".join(orphan["columns"])
        text = f"{orphan['count']} of the sampled values of {key} are missing in {orphan['toTable']}."
        yield _finding(source, table_id, name, key, "broken_key", text)


def _column(
    source: str,
    table_id: str,
    table: str,
    column: Mapping[str, Any],
    profile: Mapping[str, Any],
    allowed: Sequence[str] | None,
    position: int,
    sampled: int,
) -> Iterator[CatalogEntry]:
    name = column["name"]
    column_id = entry_id("column", source, table, name)
    sensitive = bool(profile.get("sensitive"))
    values = [] if sensitive else profile.get("values", [])
    yield _entry(
        "column",
        column_id,
        name=name,
        path=(source, table, name),
        source=source,
        parent=table_id,
        tags=(SENSITIVE,) if sensitive else (),
        content={
            "description": column["comment"],
            "table": table,
            "column": name,
            "position": position,
            "type": column["type"],
            "nullable": column["nullable"],
            "key": column["is_key"],
            "nullShare": profile.get("null_share"),
            "distinct": profile.get("distinct"),
            "min": profile.get("min"),
            "max": profile.get("max"),
            "values": [value for value, _ in values] or (None if allowed is None else list(allowed)),
            "sampledRows": sampled,
        },
    )
    shares = {str(value): share for value, share in values}
    for value in shares if allowed is None else allowed:
        yield _entry(
            "enum_value",
            entry_id("enum_value", source, table, f"{name}={value}"),
            name=str(value),
            path=(source, table, f"{name}={value}"),
            source=source,
            parent=column_id,
            content={"table": table, "column": name, "value": value, "share": shares.get(str(value))},
        )
    for finding in profile.get("findings", ()):
        text = FINDINGS[finding].format(column=f"{table}.{name}")
        yield _finding(source, column_id, table, name, finding, text)


def _foreign_key(source: str, table_id: str, table: str, key: Mapping[str, Any]) -> CatalogEntry:
    to_id = entry_id("table", source, key["to_table"])
    left, right = ", ".join(key["columns"]), ", ".join(key["to_columns"])
    return _entry(
        "relationship",
        entry_id("relationship", source, table, f"{left}->{key['to_table']}.{right}"),
        name=f"{table}.{left} -> {key['to_table']}.{right}",
        path=(source, table, f"{left}->{key['to_table']}"),
        source=source,
        parent=table_id,
        related=(table_id, to_id),
        content={
            "kind": "foreign_key",
            "from": table_id,
            "fromColumns": list(key["columns"]),
            "to": to_id,
            "toColumns": list(key["to_columns"]),
            "description": f"{table}.{left} refers to {key['to_table']}.{right}.",
        },
    )


def _finding(
    source: str, parent: str, table: str, column: str | None, finding: str, text: str
) -> CatalogEntry:
    path = (source, table, *([] if column is None else [column]), finding)
    return _entry(
        "data_quality_finding",
        entry_id("data_quality_finding", *path),
        name=f"{finding.replace('_', ' ')} {column or table}",
        path=path,
        source=source,
        parent=parent,
        related=(parent,),
        content={"finding": finding, "description": text, "table": table, "column": column},
    )


def _entry(
    kind: EntryKind,
    id: str,
    *,
    name: str,
    path: Sequence[str],
    source: str,
    content: Mapping[str, Any],
    parent: str | None = None,
    tags: tuple[str, ...] = (),
    related: tuple[str, ...] = (),
) -> CatalogEntry:
    known = {key: value for key, value in content.items() if value is not None}
    return CatalogEntry(id, kind, Layer(name, ".".join(path), source, parent, known, tags, related), None)
