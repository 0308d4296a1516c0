"""SQL of the startup checks, over a separate connection: the installation and its first keys."""

from __future__ import annotations

from typing import Any

# The marker is sealed with the master key of the first process.
SAVE_MARKER = "INSERT INTO installation (marker) VALUES ($1) ON CONFLICT DO NOTHING"
MARKER = "SELECT marker FROM installation"
KEY_EXISTS = "SELECT key_exists()"
FIND_KEY = "SELECT id FROM find_key($1)"
CREATE_OPERATOR_KEY = "SELECT create_operator_key($1, $2, $3)"


async def save_marker(connection: Any, *, marker: bytes) -> bytes:
    """Save the marker if the installation has none. Return the marker of the installation."""
    await connection.execute(SAVE_MARKER, marker)
    stored: bytes = await connection.fetchval(MARKER)
    return stored


async def key_exists(connection: Any) -> bool:
    """Return whether there is an API key of any tenant."""
    return bool(await connection.fetchval(KEY_EXISTS))


async def create_operator_key(connection: Any, *, key_id: str, hash: bytes, created_by: str) -> None:
    """Create a key of the operator unless it exists. The login must own the schema."""
    if await connection.fetchval(FIND_KEY, hash) is None:
        await connection.execute(CREATE_OPERATOR_KEY, key_id, hash, created_by)
