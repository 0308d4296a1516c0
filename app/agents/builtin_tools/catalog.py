"""The built-in toolkit `catalog`."""

from __future__ import annotations

import time
from typing import Any, Final

import orjson
from plangate.spec.gate_checks import QUERY_RESULT
from plangate.spec.toolkits import allowed_sources

from app.agents.builtin_tools.workspace import as_builtin_tool
from app.base.postgres.database import Tx
from app.calls.toolkit import BuiltinTool, ToolCall
from app.catalog import catalog
from app.catalog.engines.base import quote, quote_path
from app.catalog.entries import VALUE_FIELDS, CatalogEntry
from app.catalog.models import Source, SourceNotFound, StatementRecord, StatementResult
from app.catalog.problems import StatementProblem, nearest_names
from app.catalog.results import shorten
from app.catalog.service import SourceService
from app.engine.query_run import retry_while_unavailable
from app.journal.service import append_events
from app.references.service import ReferenceService
from app.tools.results import Answer, ToolError, ToolResult

FOUND: Final = 10
HOPS: Final = 4
SAMPLED: Final = 5
CELL_CHARS: Final = 200
TABLE_KEYS: Final = ("description", "type", "primaryKey", "rowEstimate", "sampledRows")
FIELD_KEYS: Final = (
    "type",
    "description",
    "nullable",
    "key",
    "nullShare",
    "distinct",
    "min",
    "max",
    "values",
)


class CatalogTools:
    """The tools that find data in the catalog and run statements on it."""

    def __init__(self, sources: SourceService, references: ReferenceService) -> None:
        self._sources = sources
        self._references = references

    def verbs(self) -> dict[str, BuiltinTool]:
        tools: dict[str, BuiltinTool] = {
            "search_catalog": self._search,
            "get_catalog_entities": self._entities,
            "list_schema_fields": self._fields,
            "get_catalog_relations": self._relations,
            "get_relation_paths_between": self._paths,
            "sample_table_data": self._sample,
            "execute_query": self._execute_query,
        }
        return {name: as_builtin_tool(_with_problems(verb)) for name, verb in tools.items()}

    # -- the catalog -----------------------------------------------------------------------------------------

    async def _search(self, call: ToolCall) -> ToolResult:
        args = call.args
        sources = self._allowed(call)
        if "source" in args:
            await self._source(call, args["source"])
            sources = [args["source"]]
        limit = args.get("limit", FOUND)
        matches = await call.run.read(
            lambda tx: catalog.search(tx, args["query"], args.get("kinds"), sources, limit)
        )
        return Answer(matches)

    async def _entities(self, call: ToolCall) -> ToolResult:
        ids = call.args["ids"]
        entries = await call.run.read(lambda tx: catalog.read_entries(tx, ids, self._allowed(call)))
        return Answer([entry.wire() for entry in entries])

    async def _fields(self, call: ToolCall) -> ToolResult:
        async def read(tx: Tx) -> tuple[CatalogEntry, list[CatalogEntry]]:
            table = await catalog.find_table(tx, call.args["table"], self._allowed(call))
            return table, await catalog.fields_of(tx, table)

        table, fields = await call.run.read(read)
        return Answer(
            {
                "table": {
                    "id": table.id,
                    "source": table.source,
                    "name": table.content.get("table", table.name),
                },
                **{key: table.content[key] for key in TABLE_KEYS if table.content.get(key) is not None},
                "fields": [_field(entry) for entry in fields],
            }
        )

    async def _relations(self, call: ToolCall) -> ToolResult:
        ids, kinds = call.args["ids"], call.args.get("kinds")
        matches = await call.run.read(lambda tx: catalog.relations(tx, ids, kinds, self._allowed(call)))
        return Answer(matches)

    async def _paths(self, call: ToolCall) -> ToolResult:
        args = call.args
        hops = args.get("maxHops", HOPS)
        matches = await call.run.read(
            lambda tx: catalog.paths_between(tx, args["from"], args["to"], hops, self._allowed(call))
        )
        return Answer(matches)

    async def _sample(self, call: ToolCall) -> ToolResult:
        args = call.args

        async def read(tx: Tx) -> tuple[CatalogEntry, list[CatalogEntry]]:
            table = await catalog.find_table(tx, args["table"], self._allowed(call))
            return table, await catalog.fields_of(tx, table)

        table, fields = await call.run.read(read)
        names = [str(entry.content.get("column", entry.name)) for entry in fields]
        columns = args.get("columns", names)
        unknown = next((name for name in columns if name not in names), None)
        if unknown is not None:
            near = nearest_names(unknown, names)
            return ToolError(f"{table.name} has no column {unknown!r}.{near}", "unknown_column")
        hidden = {str(e.content.get("column", e.name)) for e in fields if e.is_sensitive}
        visible = [name for name in columns if name not in hidden]
        omitted = [name for name in columns if name in hidden]
        if not visible or table.source is None:
            return Answer({"columns": [], "rows": [], "omitted": omitted})
        path = table.content.get("path") or str(table.content.get("table", table.name)).split(".")
        column_list = ", ".join(map(quote, visible))
        sql = f"SELECT {column_list} FROM {quote_path(path)} LIMIT {args.get('limit', SAMPLED)}"  # noqa: S608
        source = await self._source(call, table.source)
        result = await self._recorded(call, source, sql, [])
        value = orjson.loads(result.value)
        kept_columns = [at for at, column in enumerate(value["columns"]) if not column.get("sensitive")]
        late = [column["name"] for column in value["columns"] if column.get("sensitive")]
        return Answer(
            {
                "columns": [value["columns"][at] for at in kept_columns],
                "rows": [[shorten(row[at], CELL_CHARS) for at in kept_columns] for row in value["rows"]],
                **({"omitted": omitted + late} if omitted or late else {}),
            }
        )

    # -- statements ------------------------------------------------------------------------------------------

    async def _execute_query(self, call: ToolCall) -> ToolResult:
        source = await self._source(call, call.args["source"])
        result = await self._recorded(call, source, call.args["sql"], call.args.get("params", []))
        if result.glimpse is None:
            return Answer(orjson.loads(result.value))
        return Answer(await self._keep(call, result, result.glimpse))

    async def _recorded(self, call: ToolCall, source: Source, sql: str, params: list[Any]) -> StatementResult:
        """Run a statement and record it on the call's work record, also if it fails."""
        began = time.monotonic()
        try:
            result = await self._run(call, source, sql, params)
        except StatementProblem as problem:
            elapsed_ms = round((time.monotonic() - began) * 1000)
            await self._note(call, source, sql, None, elapsed_ms, problem.code)
            raise
        await self._note(call, source, sql, result, result.elapsed_ms, None)
        return result

    async def _run(self, call: ToolCall, source: Source, sql: str, params: list[Any]) -> StatementResult:
        tenant = call.run.lease.tenant
        max_bytes = await retry_while_unavailable(lambda: self._references.max_bytes(tenant))
        tagged = await call.run.read(lambda tx: catalog.tagged_columns(tx, source.name))
        return await self._sources.run(tenant, source, sql, params, max_bytes, tagged)

    async def _keep(self, call: ToolCall, result: StatementResult, glimpse: dict[str, Any]) -> dict[str, Any]:
        """Store the result as a reference, and return its handle."""
        run = call.run
        prepared = await retry_while_unavailable(
            lambda: self._references.prepare_canonical(run.lease.tenant, QUERY_RESULT, result.value, glimpse)
        )

        async def keep(tx: Tx) -> dict[str, Any]:
            reference = await self._references.keep(tx, prepared, call.scope.work_id)
            if reference.created:
                await append_events(
                    tx, query_id=run.query.id, events=[reference.event(call.scope)], epoch=run.lease.epoch
                )
            return reference.handle()

        return await run.in_fenced_transaction(keep)

    async def _note(
        self,
        call: ToolCall,
        source: Source,
        sql: str,
        result: StatementResult | None,
        elapsed_ms: int,
        error: str | None,
    ) -> None:
        statement = StatementRecord(
            work_id=call.scope.work_id,
            query_id=call.run.query.id,
            source=source.name,
            sql=sql,
            rows=None if result is None else result.row_count,
            bytes=None if result is None else len(result.value),
            elapsed_ms=elapsed_ms,
            truncated=result is not None and result.truncated,
            error=error,
        )
        await call.run.in_fenced_transaction(lambda tx: self._sources.record_statement(tx, statement))

    def _allowed(self, call: ToolCall) -> list[str] | None:
        """Return the sources that the agent may read; None for all of the tenant."""
        allowed = allowed_sources(call.run.runtime.spec, call.agent)
        return None if allowed is None else list(allowed)

    async def _source(self, call: ToolCall, name: str) -> Source:
        """Return a source that the agent may read. Raise SourceNotFound, with the nearest names."""
        allowed = self._allowed(call)

        async def find(tx: Tx) -> Source:
            if allowed is not None and name not in allowed:
                raise SourceNotFound(f"There is no source {name!r}.{nearest_names(name, allowed)}")
            return await self._sources.get(tx, name)

        return await call.run.read(find)


def _with_problems(verb: BuiltinTool) -> BuiltinTool:
    """Wrap `verb` so that a problem of a statement or a source is an error that the model can act on."""

    async def with_error_result(call: ToolCall) -> ToolResult:
        try:
            return await verb(call)
        except StatementProblem as problem:
            return ToolError(problem.message, problem.code)

    return with_error_result


def _field(entry: CatalogEntry) -> dict[str, Any]:
    """Return a column as a list of fields shows it."""
    content = entry.content
    field: dict[str, Any] = {"id": entry.id, "name": content.get("column", entry.name)}
    field |= {key: content[key] for key in FIELD_KEYS if content.get(key) is not None}
    if entry.is_sensitive:
        for key in VALUE_FIELDS:
            field.pop(key, None)
        field["sensitive"] = True
    return field
