"""Operator commands that do not use the API."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.api.database_startup import migrate_database, prepare_database
from app.api.http import create_app
from app.artifacts.verify import export_heads, heads, problems, read_exported_heads
from app.assembly import Services, assemble
from app.base import embedded_postgres
from app.base.errors import Invalid, NotFound, Unauthenticated
from app.base.postgres import hosts
from app.base.postgres.database import CONNECT_TIMEOUT_S, TENANT_ID
from app.base.responses import to_wire
from app.catalog.files import resolve_files, source_kind
from app.catalog.models import SOURCE_NAME, Source
from app.deployment import find_deployment
from app.engine.promotions import end_recovery, fence_query, unfinished_queries
from app.engine.service import load_query, lock_query, wake_query
from app.plans.recovery import doubt_actions
from app.queries.states import QUERY_LIFE
from app.settings import Settings
from app.tenancy.installation import check_master_key
from app.tenancy.models import LOCAL_TENANT, Caller
from app.tenancy.service import set_tenant as replace_settings
from app.tenancy.views import KeyView
from app.tools.ledger import doubt_calls

NO_TENANT = "There is no tenant {!r}; make it with `plangate tenants create`."


def openapi_text() -> str:
    """Return the text of openapi/openapi.json, to the byte."""
    return json.dumps(create_app().openapi(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


async def create_tenant(
    settings: Settings, tenant: str, limits: dict[str, Any] | None, floor: dict[str, Any] | None
) -> bool:
    """Create a tenant. Return False, and change nothing, if it exists."""
    async with open_services(settings) as services, services.db.transaction("") as tx:
        return await services.tenancy.create_tenant(tx, tenant, limits, floor)


async def set_tenant(
    settings: Settings, tenant: str, limits: dict[str, Any] | None, floor: dict[str, Any] | None
) -> None:
    """Replace the limits of a tenant, its approval floor, or both; None leaves a value as it is.

    The login must own the schema, because the service's role cannot change a tenant. Raise NotFound if there
    is no such tenant.
    """
    site = find_deployment(settings)
    try:
        await migrate_database(site, wait_s=0)
        connection = await hosts.connect(site.migrate_dsn, timeout=CONNECT_TIMEOUT_S)
        try:
            if not await replace_settings(connection, tenant, limits=limits, floor=floor):
                raise NotFound(NO_TENANT.format(tenant))
        finally:
            await connection.close()
    finally:
        site.release()


@dataclass(frozen=True, slots=True)
class VerificationReport:
    """Problems by tenant, and the number of chains."""

    problems: list[tuple[str, str]]
    chains: int


async def verify(settings: Settings, export: Path | None, against: Path | None) -> VerificationReport:
    """Check every artifact record, and export the chain heads to `export` only if all are sound.

    Raise Invalid if `against` was not written by `export`, OSError if a file cannot be read or written, and
    NotFound if there is no database: a database created for the check would always be sound.
    """
    expected = {} if against is None else read_exported_heads(await asyncio.to_thread(against.read_bytes))
    require_database(settings, " to verify")
    async with open_services(settings) as services:
        ends = await heads(services.db)
        broken = [p async for p in problems(services.db, services.chainer, expected)]
    if export is not None and not broken:
        await asyncio.to_thread(write_atomically, export, export_heads(ends))
    return VerificationReport(broken, sum(len(chains) for chains in ends.values()))


def write_atomically(file: Path, data: bytes) -> None:
    """Write the whole file or leave it unchanged. Raise OSError.

    An export may be the only evidence of records that were cut off since.
    """
    if file.exists() and not file.is_file():  # a pipe, a terminal
        file.write_bytes(data)
        return
    part = file.with_name(f"{file.name}.part")
    try:
        with part.open("wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        part.replace(file)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(file)) from error


def require_database(settings: Settings, what_for: str = "") -> None:
    """Raise NotFound if there is no database, before an empty one is created in the wrong directory."""
    if settings.database_url is None and not embedded_postgres.cluster_exists(settings.data_dir):
        raise NotFound(
            f"There is no database in {settings.data_dir}{what_for}. Say with --data-dir where the service keeps its "
            "data, or set DATABASE_URL and PLANGATE_SECRET_KEY as the service has them."
        )


@contextlib.asynccontextmanager
async def open_services(settings: Settings) -> AsyncIterator[Services]:
    """Yield the services of the configured database, its schema up to date, without running work."""
    site = find_deployment(settings)
    try:
        await prepare_database(site, wait_s=0)
        await check_master_key(site.migrate_dsn, site.master)
        services = assemble(settings, site)
        try:
            yield services
        finally:
            await services.db.aclose()
    finally:
        site.release()


async def _require_tenant(services: Services, tenant: str) -> None:
    if TENANT_ID.match(tenant):
        with contextlib.suppress(Unauthenticated):
            await services.tenancy.get_tenant(tenant)
            return
    raise NotFound(NO_TENANT.format(tenant))


async def create_key(
    settings: Settings, tenant: str, principal: str, scopes: list[str], tools: list[str] | None
) -> str:
    async with open_services(settings) as services:
        operator = Caller(tenant, "operator", frozenset({"admin"}), "cli")
        await _require_tenant(services, tenant)
        async with services.db.transaction(tenant) as tx:
            text, _ = await services.tenancy.create_key(tx, operator, principal, scopes, tools, None)
        return text


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """The numbers of queries, actions and tool calls whose outcome is unknown now."""

    queries: int
    actions: int
    calls: int


async def recover(settings: Settings, *, nothing_lost: bool) -> RecoveryReport | None:
    """Let work continue after a promotion that may have lost commits. Before, mark everything as unknown that may have been sent,
    unless `nothing_lost`. It can be repeated after an error. Return None if no promotion has stopped the work."""
    require_database(settings)
    async with open_services(settings) as services:
        return await recover_work(services, nothing_lost=nothing_lost)


async def recover_work(services: Services, *, nothing_lost: bool) -> RecoveryReport | None:
    """Do what `recover` does, in the database of these services."""
    if not await services.promotions.check():
        return None
    queries = actions = calls = 0
    if not nothing_lost:
        async for tenant, query_id in unfinished_queries(services.db):
            marked = await _recover_query(services, tenant, query_id)
            queries += any(marked)
            actions, calls = actions + marked[0], calls + marked[1]
    await end_recovery(services.db)
    return RecoveryReport(queries, actions, calls)


async def _recover_query(services: Services, tenant: str, query_id: str) -> tuple[int, int]:
    """Mark the actions and the tool calls of a query as unknown that may have been sent. Return their numbers."""
    async with services.db.transaction(tenant) as tx:
        status = await lock_query(tx, query_id=query_id)
        query = await load_query(tx, query_id=query_id)
        if query is None or status in QUERY_LIFE.terminal:
            return 0, 0
        await fence_query(tx, query_id=query_id)
        runtime = await services.runtimes.get(tenant, query.runtime_id, tx)
        tools = [name for name, tool in runtime.tools.items() if tool.replay_rule() != "safe"]
        actions = await doubt_actions(services.plans, tx, query_id)
        calls = await doubt_calls(tx, query_id, tools)
        if actions or calls:
            await wake_query(tx, query_id=query_id)
        return actions, calls


async def list_keys(settings: Settings, tenant: str, limit: int) -> list[dict[str, Any]]:
    """Return the newest keys of a tenant, in the form of `GET /keys`. Raise NotFound for an unknown tenant."""
    require_database(settings)
    async with open_services(settings) as services:
        await _require_tenant(services, tenant)
        async with services.db.transaction(tenant) as tx:
            keys = await services.tenancy.list_keys(tx, before=None, limit=limit)
        return [to_wire(KeyView, key) for key in keys]


async def revoke_key(settings: Settings, tenant: str, key_id: str) -> None:
    """Revoke a key: it stops working within five seconds. Raise NotFound."""
    require_database(settings)
    async with open_services(settings) as services:
        await _require_tenant(services, tenant)
        async with services.db.transaction(tenant) as tx:
            await services.tenancy.revoke_key(tx, key_id)


async def add_source(settings: Settings, tenant: str, name: str, paths: list[str], immutable: bool) -> int:
    """Declare a source of files, and return how many files it reads. It replaces a source of this name.

    Raise Invalid for a name or paths that cannot be used, and NotFound for an unknown tenant.
    """
    if not SOURCE_NAME.fullmatch(name):
        raise Invalid(
            f"{name!r} is not the name of a source: use 1 to 63 letters, digits, '_' or '-', beginning with a letter or "
            "digit."
        )
    kind = source_kind(paths)
    files = resolve_files(kind, paths, paths)
    async with open_services(settings) as services:
        if tenant == LOCAL_TENANT and settings.database_url is None:
            async with services.db.transaction(tenant) as tx:  # as its first request would
                await services.tenancy.create_tenant(tx, tenant, {})
        await _require_tenant(services, tenant)
        async with services.db.transaction(tenant) as tx:
            source = Source(name, kind, paths=tuple(paths), immutable=immutable, declared=True)
            await services.sources.put(tx, source)
    return len(files)


async def remove_source(settings: Settings, tenant: str, name: str) -> None:
    """Delete a source, also one that `add_source` declared. Raise NotFound."""
    require_database(settings)
    async with open_services(settings) as services:
        await _require_tenant(services, tenant)
        async with services.db.transaction(tenant) as tx:
            await services.sources.remove(tx, name)
