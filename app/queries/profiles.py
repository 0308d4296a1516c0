"""Profiles of data sources: queries without a model that read a source's structure and statistics into the catalog.

A profile has what every query has: a lease, a journal with its progress, work that another process takes over
after a crash, and cancellation (docs/decisions/0028).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from app.base.errors import Conflict
from app.base.json import strict_json
from app.base.logs.structured import structlog
from app.base.postgres.database import Tx
from app.catalog import catalog
from app.catalog.entries import CatalogEntry
from app.catalog.models import Source, SourceNotFound
from app.catalog.problems import StatementProblem
from app.catalog.profile_entries import table_entries
from app.catalog.service import SourceService
from app.catalog.sessions import OpenSource
from app.engine.query_run import QueryRun
from app.events import ToolProgressEvent
from app.journal.models import Entry, event
from app.queries.models import AcceptedSubmission, Submission
from app.queries.service import QueryService
from app.runtimes.checks import assemble_wire
from app.runtimes.service import Runtimes
from app.tenancy.models import Caller
from app.tools.results import Answer, ToolError, ToolResult

log = structlog.get_logger(__name__)

RUNTIME_NAME: Final = "plangate-profiles"
"""The runtime of all profiles of a tenant: it has no agents."""

MAX_TABLES: Final = 2_000
STRUCTURE_S: Final = 60.0
TABLE_STATEMENTS: Final = (
    4  # a sample, a count and the checks of keys: so many times the limit of a statement
)
ENTRIES_AT_ONCE: Final = 200
ACTIVE: Final = frozenset({"queued", "running", "waiting"})


class ProfileRunning(Conflict):
    kind, title = "profile_running", "The source is being profiled"


class ProfileStarter:
    """Starts profiles."""

    def __init__(self, sources: SourceService, runtimes: Runtimes, queries: QueryService) -> None:
        self._sources = sources
        self._runtimes = runtimes
        self._queries = queries

    async def start(self, tx: Tx, caller: Caller, name: str) -> AcceptedSubmission:
        """Start the query that profiles a source. All profiles of a source share one thread. Raise
        SourceNotFound, or ProfileRunning."""
        source = await self._sources.lock(tx, name)
        if source.profile_status in ACTIVE:
            raise ProfileRunning(
                f"The source {name!r} is being profiled by the query {source.profile_query_id}. Wait for it, or cancel "
                "it.",
                extra={"queryId": source.profile_query_id},
            )
        spec = {"name": RUNTIME_NAME, "tenant": {"resourceId": tx.tenant, "version": "1"}, "agents": []}
        wire = strict_json.canonical(assemble_wire(spec, self._runtimes.environment, tx.tenant))
        record, _ = await self._runtimes.register(tx, RUNTIME_NAME, wire)
        runtime = await self._runtimes.get(tx.tenant, record.id, tx)
        submission = Submission(f"Profile the source {name}.", runtime.id, thread_id=source.profile_thread)
        accepted = await self._queries.accept_profile(tx, caller, submission, runtime, name)
        await self._sources.set_profile_query(tx, name, accepted.id)
        return accepted


class SourceProfiler:
    """Carries profiles out."""

    def __init__(self, sources: SourceService) -> None:
        self._sources = sources

    async def run(self, run: QueryRun) -> ToolResult:
        """Read the source into the catalog. After a crash it begins again: what it writes is the same."""
        name = run.query.request["source"]
        try:
            source = await run.read(lambda tx: self._sources.get(tx, name))
            tagged = await run.read(lambda tx: catalog.tagged_columns(tx, name))
            await self._profile(run, source, tagged)
        except SourceNotFound as error:
            return ToolError(error.detail, error.kind)
        except StatementProblem as problem:
            return ToolError(problem.message, problem.code)
        return Answer(
            await run.in_fenced_transaction(lambda tx: catalog.finish_profile(tx, name, run.query.id))
        )

    async def _profile(self, run: QueryRun, source: Source, tagged: Mapping[str, Mapping[str, bool]]) -> None:
        """Profile one table after the other. A table whose statements take too long ends the process of the
        source; the next tables get a new one."""
        done, total = 0, 1
        while done < total:
            async with self._sources.sessions.open(run.lease.tenant, source) as opened:
                answer, _ = await opened.request(
                    "structure", STRUCTURE_S, "reading the structure", schemas=list(source.schemas)
                )
                structure = answer["structure"]
                total = min(len(structure["tables"]), MAX_TABLES)
                usable = True
                while usable and done < total:
                    stats, usable = await self._table(opened, done, structure, tagged)
                    table = structure["tables"][done]
                    done += 1
                    entries = await asyncio.to_thread(_entries, source.name, table, structure, stats)
                    await self._save(run, entries)
                    await self._report(run, table["name"], done, total)
            if total == 0:
                return

    async def _table(
        self,
        opened: OpenSource,
        index: int,
        structure: Mapping[str, Any],
        tagged: Mapping[str, Mapping[str, bool]],
    ) -> tuple[dict[str, Any] | None, bool]:
        """Return what a sample of a table says, or None if it cannot be read, and whether the process is still
        usable."""
        source = opened.source
        name = structure["tables"][index]["name"]
        seconds = source.limits.timeout_ms / 1000 * TABLE_STATEMENTS
        try:
            stats, _ = await opened.request(
                "profile",
                seconds,
                f"the profile of {name}",
                table=index,
                sensitive=source.sensitive,
                tagged=tagged,
            )
        except StatementProblem as problem:
            log.info("catalog.table_unreadable", error=problem)
            if problem.code in ("source_unavailable", "source_rejected"):
                raise
            return None, problem.code not in ("timeout", "statement_too_large")
        return stats, True

    async def _save(self, run: QueryRun, entries: list[CatalogEntry]) -> None:
        for at in range(0, len(entries), ENTRIES_AT_ONCE):
            part = entries[at : at + ENTRIES_AT_ONCE]
            await run.in_fenced_transaction(
                lambda tx, part=part: catalog.save_found(tx, part, run.query.id)  # type: ignore[misc]
            )

    async def _report(self, run: QueryRun, table: str, done: int, total: int) -> None:
        scope = run.scope(run.query.root_work_id, None, "")
        progress = event(
            scope,
            ToolProgressEvent,
            tool_name="profile",
            label=table[:200],
            phase_index=done,
            total_phases=total,
        )
        await run.commit(Entry(items=[progress]))


def _entries(
    source: str, table: Mapping[str, Any], structure: Mapping[str, Any], stats: Mapping[str, Any] | None
) -> list[CatalogEntry]:
    return list(table_entries(source, table, structure, stats))
