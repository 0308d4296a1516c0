"""What the operator does without the API."""

from __future__ import annotations

import json

from app.assembly import assemble, find_site
from app.base.migrate import migrate
from app.doors.http import create_app
from app.doors.serving import check_master_key
from app.settings import Settings
from app.tenancy.models import Caller


def openapi_text() -> str:
    """The document of openapi/openapi.json, to the byte."""
    return json.dumps(create_app().openapi(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


async def create_tenant(settings: Settings, tenant: str, limits: dict[str, object] | None) -> bool:
    site = find_site(settings)
    try:
        await migrate(site.migrate_dsn)
        await check_master_key(site)
        services = assemble(settings, site)
        try:
            async with services.db.transaction("") as tx:
                return await services.tenancy.create_tenant(tx, tenant, limits)
        finally:
            await services.db.aclose()
    finally:
        site.release()


async def create_key(
    settings: Settings, tenant: str, principal: str, scopes: list[str], tools: list[str] | None
) -> str:
    site = find_site(settings)
    try:
        await migrate(site.migrate_dsn)
        await check_master_key(site)
        services = assemble(settings, site)
        operator = Caller(tenant, "operator", frozenset({"admin"}), "cli")
        try:
            await services.tenancy.tenant(tenant)
            async with services.db.transaction(tenant) as tx:
                shown, _ = await services.tenancy.create_key(tx, operator, principal, scopes, tools, None)
            return shown
        finally:
            await services.db.aclose()
    finally:
        site.release()
