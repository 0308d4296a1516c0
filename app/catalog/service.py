"""Sources: declare, list, delete, and run statements on them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from app.base.errors import FieldError, Invalid
from app.base.postgres.database import Tx
from app.catalog import catalog, store
from app.catalog.files import resolve_files
from app.catalog.kinds import FILE_KINDS
from app.catalog.models import (
    Source,
    SourceDeclared,
    SourceNotFound,
    SourceRejected,
    StatementRecord,
    StatementResult,
)
from app.catalog.problems import StatementProblem, nearest_names
from app.catalog.sessions import SourceSessions

_SOURCE_FAULTS: Final = frozenset({"source_rejected", "missing_secret", "source_path_not_allowed"})


class SourceService:
    def __init__(self, sessions: SourceSessions, source_paths: tuple[str, ...]) -> None:
        self.sessions = sessions
        self._source_paths = source_paths

    async def check(self, tenant: str, source: Source) -> None:
        """Raise SourceRejected, or Invalid, for a source that could never be read. A database that does not
        answer at the moment is accepted. No transaction is open meanwhile."""
        if source.kind in FILE_KINDS:
            await asyncio.to_thread(resolve_files, source.kind, source.paths, self._source_paths)
            return
        try:
            async with self.sessions.open(tenant, source):
                pass
        except StatementProblem as problem:
            if problem.code in _SOURCE_FAULTS:
                raise SourceRejected(problem.message, [FieldError("/url", problem.message)]) from problem

    async def put(self, tx: Tx, source: Source) -> tuple[Source, bool]:
        """Store a source; return it and whether it is new. Raise SourceDeclared."""
        created = await store.put_source(tx, source=source)
        if created is None:
            raise SourceDeclared(
                f"The operator declared the source {source.name!r}: choose another name, or ask the operator."
            )
        return await self.get(tx, source.name), created

    async def get(self, tx: Tx, name: str) -> Source:
        """Return a source of this tenant. Raise SourceNotFound, with the nearest names."""
        source = await store.source(tx, name=name)
        if source is None:
            near = nearest_names(name, await store.source_names(tx))
            raise SourceNotFound(f"There is no source {name!r}.{near}")
        return source

    async def lock(self, tx: Tx, name: str) -> Source:
        """Return a source, and make another request that starts a profile of it wait until the transaction ends. Raise
        SourceNotFound."""
        await store.lock_source(tx, name=name)
        return await self.get(tx, name)

    @staticmethod
    async def set_profile_query(tx: Tx, name: str, query_id: str) -> None:
        """Record the query that profiles a source."""
        await store.set_profile_query(tx, name=name, query_id=query_id)

    async def delete(self, tx: Tx, name: str) -> None:
        """Delete a source and the entries that its profiles found. What people wrote about it stays."""
        if (await self.get(tx, name)).declared:
            raise SourceDeclared(
                f"The operator declared the source {name!r} and removes it with `plangate sources remove {name}`."
            )
        await self.remove(tx, name)

    async def remove(self, tx: Tx, name: str) -> None:
        """Delete a source, also one that the operator declared. Raise SourceNotFound."""
        if not await store.delete_source(tx, name=name):
            raise SourceNotFound(f"There is no source {name!r}.")
        await catalog.remove_found(tx, name)

    async def run(
        self,
        tenant: str,
        source: Source,
        sql: str,
        params: list[Any],
        max_bytes: int,
        tagged: Mapping[str, Mapping[str, bool]],
        max_rows: int | None = None,
    ) -> StatementResult:
        """Run one statement. `tagged` says of columns whether people tagged them sensitive. Raise
        StatementProblem."""
        async with self.sessions.open(tenant, source) as session:
            return await session.run(sql, params, tagged=tagged, max_bytes=max_bytes, max_rows=max_rows)

    @staticmethod
    async def record_statement(tx: Tx, record: StatementRecord) -> None:
        """Record a statement. A call that runs again after a crash replaces its record."""
        await store.record_statement(tx, record=record)


def check_kind(source: Source) -> None:
    """Raise Invalid unless the source has what its kind needs, and nothing else."""
    is_file = source.kind in FILE_KINDS
    problems = []
    if is_file and source.secret is not None:
        problems.append(
            FieldError("/url", f"a source of kind {source.kind!r} has no url; it has options.paths")
        )
    if is_file and not source.paths:
        problems.append(FieldError("/options/paths", f"required for kind {source.kind!r}"))
    if not is_file and source.secret is None:
        problems.append(FieldError("/url", "required for kind 'postgres': {\"secret\": name}"))
    if not is_file and source.paths:
        problems.append(FieldError("/options/paths", "a source of kind 'postgres' has no paths"))
    if problems:
        raise Invalid("The source does not fit its kind; see errors.", problems)
