"""Startup checks of an installation: its master key and its first API key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from app.base.ids import new_id
from app.base.postgres import hosts
from app.base.sealing import Sealer, UnsealError, derive_key
from app.tenancy import installation_store

MARKER = b"plangate"
CONNECT_TIMEOUT_S = 60.0


@asynccontextmanager
async def _connect(dsn: str) -> AsyncIterator[Any]:
    connection = await hosts.connect(dsn, timeout=CONNECT_TIMEOUT_S)
    try:
        yield connection
    finally:
        await connection.close()


async def check_master_key(migrate_dsn: str, master: bytes) -> None:
    """Exit if the master key cannot open what this database holds, rather than fail at each use."""
    sealer = Sealer(derive_key(master, "installation"))
    async with _connect(migrate_dsn) as connection:
        marker = await installation_store.save_marker(connection, marker=sealer.seal(MARKER, "installation"))
    try:
        sealer.open(marker, "installation")
    except UnsealError as error:
        raise SystemExit(
            "plangate: PLANGATE_SECRET_KEY is not the one that this database was sealed with, so its secrets cannot be "
            "opened. Start with that key. (With the embedded database it is in DATA_DIR/secret-key.)"
        ) from error


async def register_operator_key(migrate_dsn: str, hash: bytes) -> None:
    """Create the operator's key of this machine unless it exists. The login must own the schema."""
    async with _connect(migrate_dsn) as connection:
        await installation_store.create_operator_key(
            connection, key_id=new_id("key_"), hash=hash, created_by="serve"
        )


async def require_key(dsn: str) -> None:
    """Exit if there is no API key yet."""
    async with _connect(dsn) as connection:
        if await installation_store.key_exists(connection):
            return
    raise SystemExit(
        "There is no API key yet, so nobody could call this service. Create a tenant and a key first:\n"
        "  plangate tenants create TENANT\n"
        "  plangate keys create TENANT --principal NAME --scope admin"
    )
