"""The builtin toolkit `catalog`."""

from __future__ import annotations

import time
from typing import Any

import orjson
from plangate.spec.gate_checks import QUERY_RESULT
from plangate.spec.toolkits import allowed_sources

from app.agents.builtin_tools.workspace import as_builtin_tool
from app.base.postgres.database import Tx
from app.calls.toolkit import BuiltinTool, ToolCall
from app.catalog import store
from app.catalog.models import Source, SourceNotFound, StatementResult
from app.catalog.problems import StatementProblem, nearest_names
from app.catalog.service import SourceService
from app.engine.query_run import retry_while_unavailable
from app.journal import store as journal_store
from app.references.service import ReferenceService
from app.tools.results import Answer, Outcome, ToolError


class CatalogTools:
    """`execute_query`."""

    def __init__(self, sources: SourceService, references: ReferenceService) -> None:
        self._sources = sources
        self._references = references

    def verbs(self) -> dict[str, BuiltinTool]:
        named: dict[str, BuiltinTool] = {"execute_query": self._execute_query}
        return {name: as_builtin_tool(_with_problems(verb)) for name, verb in named.items()}

    async def _execute_query(self, call: ToolCall) -> Outcome:
        sql = call.args["sql"]
        source = await self._source(call, call.args["source"])
        began = time.monotonic()
        try:
            result = await self._run(call, source, sql)
        except StatementProblem as problem:
            elapsed_ms = round((time.monotonic() - began) * 1000)
            await self._note(call, source, sql, None, elapsed_ms, problem.code)
            raise
        await self._note(call, source, sql, result, result.elapsed_ms, None)
        if result.glimpse is None:
            return Answer(orjson.loads(result.value))
        return Answer(await self._keep(call, result, result.glimpse))

    async def _run(self, call: ToolCall, source: Source, sql: str) -> StatementResult:
        tenant = call.run.lease.tenant
        max_bytes = await retry_while_unavailable(lambda: self._references.max_bytes(tenant))
        return await self._sources.run(tenant, source, sql, call.args.get("params", []), max_bytes)

    async def _keep(self, call: ToolCall, result: StatementResult, glimpse: dict[str, Any]) -> dict[str, Any]:
        """Store the result as a reference, and return its handle."""
        run = call.run
        prepared = await retry_while_unavailable(
            lambda: self._references.prepare_canonical(run.lease.tenant, QUERY_RESULT, result.value, glimpse)
        )

        async def keep(tx: Tx) -> dict[str, Any]:
            made = await self._references.keep(tx, prepared, call.scope.work_id)
            if made.created:
                await journal_store.append(tx, run.query.id, [made.event(call.scope)], run.lease.epoch)
            return made.handle()

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
        rows, size = (None, None) if result is None else (result.row_count, len(result.value))
        truncated = result is not None and result.truncated
        await call.run.in_fenced_transaction(
            lambda tx: store.note_statement(
                tx,
                call.scope.work_id,
                call.run.query.id,
                source.name,
                sql,
                rows,
                size,
                elapsed_ms,
                truncated,
                error,
            )
        )

    async def _source(self, call: ToolCall, name: str) -> Source:
        """Return a source that the agent may read. Raise SourceNotFound, with the nearest names."""
        allowed = allowed_sources(call.run.runtime.spec, call.agent)

        async def find(tx: Tx) -> Source:
            if allowed is not None and name not in allowed:
                raise SourceNotFound(f"There is no source {name!r}.{nearest_names(name, allowed)}")
            return await self._sources.get(tx, name)

        return await call.run.look(find)


def _with_problems(verb: BuiltinTool) -> BuiltinTool:
    """Wrap `verb` so that what is wrong with a statement or a source is an error that the model can act on."""

    async def told_to_model(call: ToolCall) -> Outcome:
        try:
            return await verb(call)
        except StatementProblem as problem:
            return ToolError(problem.message, problem.code)

    return told_to_model
