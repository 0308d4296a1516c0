"""Sessions of browsers: started with a key or a ticket, bound to one tenant and principal, ended with their key.

A ticket lets a person sign in without a key: it works once, within five minutes. Sessions and tickets are random
texts like keys, and only their hashes are stored.
"""

from __future__ import annotations

from typing import Final

from app.base.errors import Forbidden, Unauthenticated
from app.base.ids import new_id
from app.base.keys import SESSION_PREFIX, TICKET_PREFIX, has_key_shape, hash_key, new_key
from app.base.postgres.database import Database, Tx
from app.tenancy import store
from app.tenancy.models import OPERATOR_TENANT, Caller, Credential, Session
from app.tenancy.service import UNKNOWN, Tenancy

TICKET_S: Final = 300.0
MAX_SESSIONS_PER_KEY: Final = 100
"""Maximum sessions of one key in one tenant, and maximum tickets. The oldest end first."""
SWEEP_ROWS: Final = 500


class Sessions:
    """Starts and ends sessions. `Tenancy` finds the caller of a request that has one."""

    def __init__(self, db: Database, tenancy: Tenancy, session_s: float) -> None:
        self._db = db
        self._tenancy = tenancy
        self._session_s = session_s

    async def start(self, tx: Tx, caller: Caller, ticket: str | None = None) -> tuple[str, Session]:
        """Start a session for the owner of a key, or of a ticket, which is used up. Return its text, for the cookie.

        Raise Unauthenticated if another request has used the ticket.
        """
        if ticket is not None and not await store.take_ticket(tx, hash=hash_key(ticket)):
            raise Unauthenticated(UNKNOWN["ticket"])
        return await self._insert(tx, caller, SESSION_PREFIX, self._session_s)

    async def create_ticket(self, tx: Tx, caller: Caller) -> tuple[str, Session]:
        """Create a ticket for the owner of a key. Return its text and when it expires. Raise Forbidden for a session."""
        if caller.session is not None:
            raise Forbidden(
                "A session cannot create tickets, because a ticket could extend it indefinitely. Use an API key."
            )
        return await self._insert(tx, caller, TICKET_PREFIX, TICKET_S)

    async def find_ticket(self, ticket: str, host: str) -> Caller:
        """Return the caller that a ticket authenticates. `host` is the client's address. Raise Unauthenticated,
        WrongCell for a ticket of another cell, or TooManyUnknownKeys: unknown tickets count as unknown keys."""
        if not has_key_shape(ticket, TICKET_PREFIX):
            raise Unauthenticated("This is not a valid ticket: it is mistyped or truncated.")
        credential = Credential.from_text("ticket", ticket)
        self._tenancy.unknown_keys.spend(host)
        async with self._db.transaction("") as tx:
            stored = await store.find_session(tx, hash=credential.hash)
        if stored is None or not stored.is_ticket:
            raise self._tenancy.unknown_error(credential)
        self._tenancy.unknown_keys.refund(host)
        if stored.caller.tenant != OPERATOR_TENANT:
            await self._tenancy.get_tenant(stored.caller.tenant)  # raises for one that is not here
        return stored.caller

    async def end(self, tx: Tx, session: Session) -> None:
        """End a session: in this process at once, in others within `KEY_CACHE_S` seconds."""
        await store.delete_session(tx, session_id=session.id)
        tx.after_commit(self._tenancy.expire_cached_keys)

    async def sweep(self) -> int:
        """Remove sessions and tickets that have expired, in small batches."""
        return await store.sweep_sessions(self._db, limit=SWEEP_ROWS)

    async def _insert(self, tx: Tx, caller: Caller, prefix: str, lifetime_s: float) -> tuple[str, Session]:
        """Store a session or ticket, without the scope `act-as`: it acts for one principal."""
        text, hash = new_key(prefix, self._tenancy.cell)
        is_ticket = prefix == TICKET_PREFIX
        id = new_id("ses_")
        key_tenant = OPERATOR_TENANT if caller.has_operator_key else caller.tenant
        if caller.session is not None:
            key_tenant = caller.session.key_tenant
        expires_at = await store.insert_session(
            tx,
            session_id=id,
            hash=hash,
            is_ticket=is_ticket,
            key_tenant=key_tenant,
            key_id=caller.key_id,
            principal=caller.principal,
            scopes=sorted(caller.scopes - {"act-as"}),
            tools=None if caller.tools is None else sorted(caller.tools),
            lifetime_s=lifetime_s,
            key_expires_at=caller.expires_at,
        )
        await store.trim_sessions(tx, key_id=caller.key_id, is_ticket=is_ticket, most=MAX_SESSIONS_PER_KEY)
        return text, Session(id, expires_at, key_tenant)
