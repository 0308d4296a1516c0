"""Authentication, tenants and keys. A revoked key stops working everywhere within `KEY_CACHE_S` seconds."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from app.base.clock import rfc3339
from app.base.errors import (
    FieldError,
    Forbidden,
    Invalid,
    NotFound,
    TenantNotReady,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
    WrongCell,
)
from app.base.ids import is_id, new_id
from app.base.keys import has_key_shape, new_key
from app.base.postgres.database import TENANT_ID, Database, Tx
from app.base.sealing import Sealer, secret_context
from app.tenancy import store
from app.tenancy.models import (
    DEFAULT_LIMITS,
    LOCAL_TENANT,
    SCOPES,
    ApiKey,
    Caller,
    Credential,
)
from app.tenancy.unknown_keys import UnknownKeys

KEY_CACHE_S = 2.0
MAX_CACHED_KEYS = 10_000
MAX_PRINCIPAL_CHARS = 200
MAX_TOOL_CHARS = 100
REFERENCE_SECRET = "reference-secret"  # noqa: S105 - a name, not a secret
UNKNOWN = {
    "key": "This key is unknown, expired or revoked.",
    "session": "This session has ended: it expired, or its key was revoked. Sign in again.",
    "ticket": "This ticket was used, has expired, or its key was revoked. Create another one.",
}
"""What is wrong with an unknown credential, by its kind."""


@dataclass(slots=True)
class TokenBucket:
    """A token bucket: `rate` requests per second, with bursts of one second's worth."""

    rate: float
    tokens: float
    at: float

    def try_take(self, now: float) -> float:
        """Return 0 if the request may pass, else the seconds until it may."""
        self.tokens = min(self.rate, self.tokens + (now - self.at) * self.rate)
        self.at = now
        if self.tokens >= 1:
            self.tokens -= 1
            return 0
        return (1 - self.tokens) / self.rate


@dataclass(frozen=True, slots=True)
class Tenant:
    id: str
    limits: Mapping[str, int]
    reference_secret: bytes


class Tenancy:
    def __init__(
        self, db: Database, sealer: Sealer, unknown_keys: UnknownKeys, cell: str | None = None
    ) -> None:
        """`cell` is the name of this cell, which its keys, sessions and tickets have, or None if there is only one."""
        self._db = db
        self._sealer = sealer
        self.cell = cell
        self.unknown_keys = unknown_keys
        self._lookups: dict[bytes, asyncio.Task[Caller]] = {}
        self._keys: OrderedDict[bytes, tuple[float, Caller]] = OrderedDict()
        self._tenants: OrderedDict[str, tuple[float, Tenant]] = OrderedDict()
        self._loads: dict[tuple[str, bool], asyncio.Task[Tenant]] = {}
        self._buckets: dict[str, TokenBucket] = {}

    # -- who calls -------------------------------------------------------------------------------------------

    async def authenticate(
        self,
        credential: Credential,
        tenant: str | None,
        principal: str | None,
        *,
        spec_tenant: str | None = None,
        host: str = "",
    ) -> Caller:
        """Return the caller for a credential.

        The operator's key takes its tenant from the header `Plangate-Tenant`, or from the spec at a
        registration; the default is `local`. A session has its tenant and principal since it began.
        """
        caller = await self.find_caller(credential, host)
        if caller.has_operator_key:
            caller = replace(caller, tenant=_operator_tenant(tenant, spec_tenant))
            await self.get_tenant(caller.tenant, create=True)
        elif tenant is not None and tenant != caller.tenant:
            raise Unauthenticated(
                f"This {credential.kind} belongs to a different tenant than the header Plangate-Tenant names."
            )
        if principal is not None and caller.session is not None:
            if principal != caller.principal:
                raise Forbidden(
                    f"This session acts for {caller.principal!r}. To act for somebody else, start another session."
                )
        elif principal is not None:
            if not caller.has_scope("act-as"):
                raise Forbidden("Plangate-Principal needs a key with the scope 'act-as'.")
            if not 0 < len(principal) <= MAX_PRINCIPAL_CHARS:
                raise Invalid(f"Plangate-Principal must have 1 to {MAX_PRINCIPAL_CHARS} characters.")
            caller = replace(caller, principal=principal)
        await self._admit(caller)
        return caller

    async def authenticate_key(self, authorization: str | None, host: str = "") -> Caller:
        """Return the owner of the key in an `Authorization` header. `host` is the client's address.

        Raise Unauthenticated, or TooManyUnknownKeys.
        """
        return await self.find_caller(parse_authorization(authorization), host)

    async def find_caller(self, credential: Credential, host: str = "") -> Caller:
        """Return the owner of a credential, before anything else of the request is read. `host` is the client's
        address.

        Concurrent requests with the same credential share one lookup. Raise Unauthenticated, WrongCell for an unknown
        credential of another cell, or TooManyUnknownKeys.
        """
        hash = credential.hash
        cached = self._keys.get(hash)
        if cached is not None and cached[0] > time.monotonic():
            return cached[1]
        if self.unknown_keys.is_remembered(hash):
            raise self.unknown_error(credential)
        lookup = self._lookups.get(hash)
        if lookup is None:
            lookup = asyncio.create_task(self._load_caller(credential, host), name="key-lookup")
            self._lookups[hash] = lookup
            lookup.add_done_callback(lambda done: self._finish_lookup(hash, done))
        return await asyncio.shield(lookup)

    def _finish_lookup(self, hash: bytes, lookup: asyncio.Task[Caller]) -> None:
        del self._lookups[hash]
        if not lookup.cancelled():
            lookup.exception()  # retrieve it, even if no waiter is left

    async def _load_caller(self, credential: Credential, host: str) -> Caller:
        now = time.monotonic()
        hash = credential.hash
        new = hash not in self._keys  # a key that was valid a while ago is looked up again without a limit
        if new:
            self.unknown_keys.spend(host)
        caller, answered = None, False
        try:
            async with self._db.transaction("") as tx:
                caller = await _find_caller(tx, credential)
            answered = True
        finally:
            if new and not (answered and caller is None):
                self.unknown_keys.refund(host)
        if caller is None:
            self._keys.pop(hash, None)
            self.unknown_keys.remember(hash)
            raise self.unknown_error(credential)
        ends = [caller.expires_at, None if caller.session is None else caller.session.expires_at]
        remaining = [(end - datetime.now(UTC)).total_seconds() for end in ends if end is not None]
        self._keys[hash] = (now + min(KEY_CACHE_S, *remaining) if remaining else now + KEY_CACHE_S, caller)
        while len(self._keys) > MAX_CACHED_KEYS:
            self._keys.popitem(last=False)
        return caller

    def unknown_error(self, credential: Credential) -> Unauthenticated | WrongCell:
        """Return the error for a credential that this cell does not know: WrongCell if its text names another cell."""
        kind, cell = credential.kind, credential.cell
        if cell is not None and cell != self.cell:
            return WrongCell(
                f"This {kind} was issued by the cell {cell!r} and is unknown here. Send the request to {cell!r}.",
                cell,
            )
        return Unauthenticated(UNKNOWN[kind])

    async def is_valid(self, credential: Credential, tenant: str) -> bool:
        """Return whether the key or session of an open stream is still valid, which is checked every few seconds.

        During an outage the answer is True: it cannot be checked, and there is nothing new to read either. It is False once
        the tenant was moved to another cell.
        """
        try:
            await self.find_caller(credential)
            await self.get_tenant(tenant)
        except (Unauthenticated, WrongCell):
            return False
        except (Unavailable, TooManyRequests):
            return True
        return True

    async def _admit(self, caller: Caller) -> None:
        rate = (await self.get_tenant(caller.tenant)).limits.get("requestsPerSecond")
        if not rate:
            return
        now = time.monotonic()
        bucket = self._buckets.get(caller.tenant)
        if bucket is None or bucket.rate != rate:
            bucket = self._buckets[caller.tenant] = TokenBucket(rate, rate, now)
        wait = bucket.try_take(now)
        if wait:
            raise TooManyRequests(
                f"This tenant may send {rate} requests a second.", retry_after_s=max(1, round(wait))
            )

    # -- tenants ---------------------------------------------------------------------------------------------

    async def get_tenant(self, tenant: str, *, create: bool = False) -> Tenant:
        """Return the tenant, from a cache of a few seconds. With `create`, a missing one is created (the
        operator's key).

        Concurrent requests share one lookup.
        """
        cached = self._tenants.get(tenant)
        if cached is not None and cached[0] > time.monotonic():
            return cached[1]
        loading = self._loads.get((tenant, create))
        if loading is None:
            loading = asyncio.create_task(self._load_tenant(tenant, create), name="tenant-lookup")
            self._loads[tenant, create] = loading
            loading.add_done_callback(lambda done: self._finish_load(tenant, create, done))
        return await asyncio.shield(loading)

    def _finish_load(self, tenant: str, create: bool, loading: asyncio.Task[Tenant]) -> None:
        del self._loads[tenant, create]
        if not loading.cancelled():
            loading.exception()  # retrieve it, even if no waiter is left

    async def _load_tenant(self, tenant: str, create: bool) -> Tenant:
        now = time.monotonic()
        async with self._db.transaction(tenant, allow_closed=True) as tx:
            record = await store.tenant_record(tx)
            if record is None and create:
                await self.create_tenant(tx, tenant, {})
                record = await store.tenant_record(tx)
        if record is None:
            raise Unauthenticated(f"The tenant {tenant!r} does not exist; ask the operator to create it.")
        if record.moved_to is not None:
            raise WrongCell(
                f"The tenant {tenant!r} was moved to the cell {record.moved_to!r}. Send the request there.",
                record.moved_to,
            )
        if record.state != "active":
            raise TenantNotReady(tenant)
        secret = self._sealer.open(record.sealed_reference_secret, secret_context(tenant, REFERENCE_SECRET))
        tenant_record = Tenant(tenant, record.limits, secret)
        self._tenants[tenant] = (now + KEY_CACHE_S, tenant_record)
        while len(self._tenants) > MAX_CACHED_KEYS:
            self._tenants.popitem(last=False)
        return tenant_record

    async def create_tenant(
        self,
        tx: Tx,
        tenant: str,
        limits: Mapping[str, int] | None = None,
        floor: dict[str, Any] | None = None,
    ) -> bool:
        """Create a tenant; return False if it exists. The default limits are in http-api.md.

        `floor` comes from `validate_floor`.
        """
        if not TENANT_ID.match(tenant):
            raise Invalid(
                "A tenant id is 1 to 63 characters a-z, 0-9, - and _, and begins with a letter or digit."
            )
        sealed = self._sealer.seal(os.urandom(32), secret_context(tenant, REFERENCE_SECRET))
        return await store.create_tenant(
            tx,
            tenant=tenant,
            secret=sealed,
            limits=json.dumps(DEFAULT_LIMITS if limits is None else dict(limits)),
            floor=json.dumps(floor or {}),
        )

    # -- keys ------------------------------------------------------------------------------------------------

    async def create_key(
        self,
        tx: Tx,
        caller: Caller,
        principal: str,
        scopes: Sequence[str],
        tools: Sequence[str] | None,
        expires_at: datetime | None,
    ) -> tuple[str, ApiKey]:
        """Create a key of the caller's tenant, never with more rights or a longer life than the caller's own
        key.

        Return its text, which is shown only once, and its record. Raise Invalid and Forbidden.
        """
        names = [("/principal", principal, MAX_PRINCIPAL_CHARS)]
        names += [(f"/tools/{n}", tool, MAX_TOOL_CHARS) for n, tool in enumerate(tools or ())]
        errors = [
            FieldError(at, f"must have 1 to {n} characters, in UTF-8")
            for at, text, n in names
            if not _is_name(text, n)
        ]
        if errors:
            raise Invalid("The key is invalid; none was created.", errors)
        unknown = sorted(set(scopes) - set(SCOPES))
        if unknown:
            raise Invalid(
                "Unknown scopes.",
                [FieldError("/scopes", f"{', '.join(unknown)}; expected some of: {', '.join(SCOPES)}")],
            )
        wider = [s for s in scopes if not caller.has_scope(s)]
        if wider or (caller.tools is not None and not set(tools or ("*",)) <= caller.tools):
            raise Forbidden(
                f"The new key would exceed the key that creates it. Remove: {', '.join(wider) or 'tools'}."
            )
        if caller.expires_at is not None and (expires_at is None or expires_at > caller.expires_at):
            raise Forbidden(
                "A key cannot outlive the key that creates it: send an expiresAt of "
                f"{rfc3339(caller.expires_at)} or earlier."
            )
        text, hash = new_key(cell=self.cell)
        key = await store.insert_key(
            tx,
            key_id=new_id("key_"),
            hash=hash,
            principal=principal,
            scopes=scopes,
            tools=tools,
            created_by=caller.principal,
            expires_at=expires_at,
        )
        return text, key

    async def list_keys(self, tx: Tx, *, before: str | None, limit: int) -> list[ApiKey]:
        """Return the keys of the transaction's tenant, newest first, without their text."""
        return await store.keys(tx, before=before, limit=limit)

    async def revoke_key(self, tx: Tx, key_id: str) -> None:
        """Revoke a key: in this process when the transaction commits, in others within `KEY_CACHE_S` seconds.
        Raise NotFound."""
        if not is_id("key_", key_id) or not await store.revoke_key(tx, key_id=key_id):
            raise NotFound(f"There is no key {key_id!r} of the tenant {tx.tenant!r}.")
        tx.after_commit(self.expire_cached_keys)

    def expire_cached_keys(self) -> None:
        """Look up every key and session again: a revocation takes effect in this process immediately."""
        self._keys = OrderedDict((hash, (0.0, caller)) for hash, (_, caller) in self._keys.items())


def parse_authorization(authorization: str | None) -> Credential:
    """Return the key of an `Authorization` header. Raise Unauthenticated."""
    if not authorization or not authorization.startswith("Bearer "):
        raise Unauthenticated("Send the header `Authorization: Bearer <key>`.")
    return parse_key(authorization[7:].strip())


def parse_key(text: str) -> Credential:
    """Return the credential for the text of a key. Raise Unauthenticated for a text that is no key."""
    if not has_key_shape(text):
        raise Unauthenticated("This is not a valid key of this service: it is mistyped or truncated.")
    return Credential.from_text("key", text)


async def _find_caller(tx: Tx, credential: Credential) -> Caller | None:
    if credential.kind == "key":
        return await store.find_key(tx, hash=credential.hash)
    stored = await store.find_session(tx, hash=credential.hash)
    return None if stored is None or stored.is_ticket else stored.caller


async def set_tenant(
    connection: Any, tenant: str, *, limits: Mapping[str, int] | None, floor: Mapping[str, Any] | None
) -> bool:
    """Replace the limits of a tenant, its approval floor, or both; None leaves a value as it is.

    `connection` belongs to the owner of the schema, because the service's role cannot change a tenant. Return False
    if there is no such tenant.
    """
    limits_json, floor_json = (None if value is None else json.dumps(value) for value in (limits, floor))
    return await store.set_tenant(connection, tenant=tenant, limits=limits_json, floor=floor_json)


def _is_name(text: str, max_chars: int) -> bool:
    """Return whether the text is a valid name.

    Arguments of a command may be invalid UTF-8, which Python turns into lone surrogates that cannot be
    stored.
    """
    return 0 < len(text) <= max_chars and not any("\ud800" <= char <= "\udfff" for char in text)


def _operator_tenant(header: str | None, spec_tenant: str | None) -> str:
    if header is not None and spec_tenant is not None and header != spec_tenant:
        raise Invalid(
            f"The header Plangate-Tenant says {header!r}, the spec's tenant.resourceId says {spec_tenant!r}: they must agree.",
            [FieldError("/tenant/resourceId", f"must be {header!r}")],
        )
    tenant = header or spec_tenant or LOCAL_TENANT
    if not TENANT_ID.match(tenant):
        raise Invalid("Plangate-Tenant must be 1 to 63 characters a-z, 0-9, - and _.")
    return tenant
