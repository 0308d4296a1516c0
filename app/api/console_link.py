"""The link that `plangate serve` prints for the person at the terminal: it opens the console, signed in."""

from __future__ import annotations

import socket

from app.assembly import Services
from app.base.logs.structured import structlog
from app.tenancy.models import LOCAL_TENANT
from app.tenancy.service import parse_key

log = structlog.get_logger(__name__)


def listening_url(listening: socket.socket) -> str:
    """Return the address of a socket as a URL. An IPv6 address is in brackets."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def print_console_link(services: Services, key: str, url: str) -> None:
    """Print a link that signs in once, for the owner of a key. `url` is where the service listens; a configured public URL
    replaces it. If this fails, log a warning: the service runs without the link.
    """
    tenancy = services.tenancy
    try:
        caller = await tenancy.authenticate(parse_key(key), LOCAL_TENANT, None, host="127.0.0.1")
        async with services.db.transaction(caller.tenant) as tx:
            ticket, _ = await services.sessions.create_ticket(tx, caller)
    except Exception as error:  # noqa: BLE001 - the service works without the link
        log.warning("console_link.failed", error=error)
        return
    address = services.api.public_url or url
    print(f"Open the console within five minutes: {address}/console#ticket={ticket}", flush=True)  # noqa: T201
