"""The services of one process on a test's database, and callers of its API."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from app.api.http import create_app
from app.assembly import FeatureLimits, Services, assemble
from app.deployment import Deployment
from app.settings import Settings
from app.telemetry.service import Exporter
from app.tenancy.models import Caller as KeyHolder
from tests.support.client import Caller
from tests.support.faults import Faults

SETTINGS = {"slots": 16, "pool_size": 6, "loop_blocked_ms": 60_000}


class WorldSettings(Settings):
    """Settings from arguments alone: reading the environment takes longer than making the services."""

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource, **_: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


@dataclass
class World:
    """One process: its services, its application, and ways to call it."""

    site: Deployment
    services: Services
    http: httpx.AsyncClient
    operator_key: str
    faults: Faults
    api: Caller = field(init=False)
    other: Caller = field(init=False)

    def __post_init__(self) -> None:
        self.api = self.operator("acme")
        self.other = self.operator("other")

    def operator(self, tenant: str | None = None, **headers: str) -> Caller:
        """The operator's key, at work for a tenant."""
        if tenant is not None:
            headers["plangate-tenant"] = tenant
        return Caller(self.http, self.operator_key, **headers)

    async def tenant(self, tenant: str, **limits: Any) -> None:
        async with self.services.db.transaction(tenant) as tx:
            await self.services.tenancy.create_tenant(tx, tenant, limits)

    async def key(
        self,
        *scopes: str,
        principal: str = "ann",
        tools: list[str] | None = None,
        tenant: str = "acme",
    ) -> Caller:
        """A caller with a new key of a tenant."""
        maker = KeyHolder(tenant, "tests", frozenset({"admin"}), "key_tests")
        async with self.services.db.transaction(tenant) as tx:
            shown, _ = await self.services.tenancy.create_key(tx, maker, principal, scopes, tools, None)
        caller = Caller(self.http, shown)
        caller.reader = self.operator(tenant)
        return caller

    async def sql(self, sql: str, *args: Any, tenant: str = "acme") -> list[Any]:
        """What a statement gives under the service's role and a tenant."""
        async with self.services.db.transaction(tenant) as tx:
            return await tx.fetch(sql, *args)

    async def value(self, sql: str, *args: Any, tenant: str = "acme") -> Any:
        async with self.services.db.transaction(tenant) as tx:
            return await tx.value(sql, *args)


@contextlib.asynccontextmanager
async def world(
    site: Deployment,
    operator_key: str,
    *,
    with_worker: bool = True,
    started: bool = True,
    exporter: Callable[[], Exporter] | None = None,
    limits: FeatureLimits | None = None,
    **settings: Any,
) -> AsyncIterator[World]:
    """A process on this database for the length of the block."""
    faults = Faults()
    services = assemble(
        WorldSettings(**{**SETTINGS, **settings}),
        site,
        with_worker=with_worker,
        exporter=exporter,
        limits=limits,
        connect=faults.connect,
    )
    app = create_app(services)
    if started:
        await services.start()
    try:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://plangate", timeout=30) as http:
            yield World(site, services, http, operator_key, faults)
    finally:
        await services.aclose(grace_s=0)
