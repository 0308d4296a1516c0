"""The built-in toolkit `catalog` as data: finding data, and asking it."""

from __future__ import annotations

from typing import Any, Final, Literal, get_args

from plangate.spec.builtin import BuiltinTool, text, tool_input


def _text(description: str, most: int) -> dict[str, Any]:
    return {**text(description), "maxLength": most}


_SOURCE: Final = _text("The name of a data source.", 63)

EXECUTE_QUERY: Final = BuiltinTool(
    "execute_query",
    "Runs one SELECT on a data source and returns its complete result if that is small, else a reference with a "
    "glimpse. It is the last step: search the catalog first, read entries, fields and relations, and sample only if "
    "needed. Let the database filter, join and aggregate, so that one query answers the question.",
    tool_input(
        ("source", "sql"),
        source=_SOURCE,
        sql=_text(
            "One SELECT, or WITH ... SELECT, in the source's dialect. Write values as $1, $2 and so on.",
            20_000,
        ),
        params={
            "type": "array",
            "items": {"type": ["string", "number", "boolean", "null"]},
            "maxItems": 100,
            "description": "The values of $1, $2 and so on, in order.",
        },
        purpose=_text("What the result is for, in a few words.", 500),
    ),
    "catalog",
    approval="policies",
)

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
_IDS: Final = {
    "type": "array",
    "items": {"type": "string", "minLength": 1, "maxLength": 500},
    "minItems": 1,
    "maxItems": 50,
    "description": "Ids of entries, as search_catalog returns them.",
}
_TABLE: Final = _text("A table: its id, or its name.", 500)

SEARCH_CATALOG: Final = BuiltinTool(
    "search_catalog",
    "Finds tables, columns, values, metrics and knowledge by words and names; the best matches come first. Always "
    "the first step: then read entries, fields and relations, sample only if needed, and run one query.",
    tool_input(
        ("query",),
        query=_text("What to look for, in a few words.", 1000),
        kinds={
            "type": "array",
            "items": {"type": "string", "enum": list(get_args(EntryKind))},
            "maxItems": len(get_args(EntryKind)),
            "description": "Only these kinds of entries.",
        },
        source=_SOURCE,
        limit={"type": "integer", "minimum": 1, "maximum": 50, "description": "How many; 10 unless given."},
    ),
    "catalog",
)

GET_CATALOG_ENTITIES: Final = BuiltinTool(
    "get_catalog_entities",
    "Returns complete entries of the catalog, such as the definition of a metric. The second step, after search_catalog.",
    tool_input(("ids",), ids=_IDS),
    "catalog",
)

LIST_SCHEMA_FIELDS: Final = BuiltinTool(
    "list_schema_fields",
    "Lists the columns of a table: types, keys, and what a sample says about their values. Read it before you write "
    "SQL for the table.",
    tool_input(("table",), table=_TABLE),
    "catalog",
)

GET_CATALOG_RELATIONS: Final = BuiltinTool(
    "get_catalog_relations",
    "Returns what is related to entries: tables by foreign keys and declared relationships, and knowledge about them.",
    tool_input(
        ("ids",),
        ids=_IDS,
        kinds={
            "type": "array",
            "items": {"type": "string", "enum": ["foreign_key", "declared", "related"]},
            "maxItems": 3,
            "description": "Only these kinds of relations.",
        },
    ),
    "catalog",
)

GET_RELATION_PATHS_BETWEEN: Final = BuiltinTool(
    "get_relation_paths_between",
    "Returns how two tables can be joined, shortest first: each path as its joins, in words and in SQL.",
    tool_input(
        ("from", "to"),
        **{"from": _TABLE, "to": _TABLE},
        maxHops={"type": "integer", "minimum": 1, "maximum": 6, "description": "Most joins; 4 unless given."},
    ),
    "catalog",
)

SAMPLE_TABLE_DATA: Final = BuiltinTool(
    "sample_table_data",
    "Returns a few rows of a table, without its sensitive columns. Use it only if the fields do not say enough, such "
    "as how a value is written.",
    tool_input(
        ("table",),
        table=_TABLE,
        columns={
            "type": "array",
            "items": {"type": "string", "minLength": 1, "maxLength": 200},
            "minItems": 1,
            "maxItems": 50,
            "description": "Only these columns.",
        },
        limit={
            "type": "integer",
            "minimum": 1,
            "maximum": 20,
            "description": "How many rows; 5 unless given.",
        },
    ),
    "catalog",
)

CATALOG: Final = (
    SEARCH_CATALOG,
    GET_CATALOG_ENTITIES,
    LIST_SCHEMA_FIELDS,
    GET_CATALOG_RELATIONS,
    GET_RELATION_PATHS_BETWEEN,
    SAMPLE_TABLE_DATA,
    EXECUTE_QUERY,
)
"""In the order in which they are used."""
