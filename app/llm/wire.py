"""What the adapters of the vendors share about connections, keys and tool JSON."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, Final

import httpx2

from app.llm.faults import CHUNK_ERRORS, CONNECTION_ERRORS
from app.llm.provider import ProviderNotBuilt

IDLE_TIMEOUT_S: Final = 120.0
CONNECT_TIMEOUT_S: Final = 10.0
TAIL_S: Final = 2.0
"""How long to wait for the end of a body after the turn was complete, to keep the connection for reuse."""

NO_KEY: Final = "none"
"""Sent to a server of the tenant's own that asks for no key."""


END: Final = object()
"""What `anext` gives at the end of a stream. An `async for` that is left early leaves a generator open."""


def usable_key(api_key: str | None, *, needed: bool) -> str:
    """The key to send. `needed`: the address is the vendor's own, where nothing works without one."""
    if not api_key:
        if needed:
            raise ProviderNotBuilt('The provider has no key: set apiKey to {"secret": name}, or apiKeyEnv.')
        return NO_KEY
    if not api_key.isascii() or not api_key.isprintable() or " " in api_key:
        raise ProviderNotBuilt(
            "The provider's key holds spaces or characters that no key has; store it again."
        )
    return api_key


def open_client() -> httpx2.AsyncClient:
    """A client for a vendor's own address: no proxies or .netrc of the environment, no redirects."""
    return httpx2.AsyncClient(trust_env=False, follow_redirects=False)


def timeouts(idle_s: float) -> httpx2.Timeout:
    """`idle_s` is the longest silence between two reads of a stream, in seconds."""
    return httpx2.Timeout(idle_s, connect=min(CONNECT_TIMEOUT_S, idle_s))


async def tail(
    stream: AsyncIterator[object], sdk_error: type[Exception], late: Callable[[object], None] = lambda _: None
) -> None:
    """Read a stream to its end after the turn was complete. Whatever happens then is no fault of the turn.

    `late` is given what still comes; `sdk_error` is the root of the SDK's exceptions.
    """
    with suppress(TimeoutError, sdk_error, *CONNECTION_ERRORS, *CHUNK_ERRORS):
        async with asyncio.timeout(TAIL_S):
            while (event := await anext(stream, END)) is not END:
                late(event)


def object_of(arguments: str) -> dict[str, Any]:
    """Tool arguments as the object that a vendor wants in the history.

    What the model wrote malformed goes back in the wrapping that Anthropic recommends for it, so that the
    model sees its own words beside the error.
    """
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return {"INVALID_JSON": arguments}
    return value if isinstance(value, dict) else {"INVALID_JSON": arguments}
