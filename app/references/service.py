"""The verbs of references."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from jmespath.exceptions import JMESPathError
from plangate.spec.glimpses import glimpse as neutral_glimpse

from app.base import jsongate, paths
from app.base.database import Database, Tx
from app.base.errors import Flaw, Gone, Invalid, NotFound, TooLarge
from app.base.schemacheck import SchemaChecker
from app.references import store
from app.references.models import Reference
from app.runtimes.models import Runtime
from app.tenancy.service import Tenancy

MAX_REFERENCE_BYTES = 16 * 1024 * 1024
MAX_GLIMPSE_BYTES = 4 * 1024
MAX_HYDRATED_BYTES = 64 * 1024 * 1024
DRAFT_PIN_MS = 7 * 24 * 3600 * 1000.0


class ReferenceExpired(Gone):
    kind, title = "reference_expired", "The reference has expired"


class ReferenceNotFound(NotFound):
    kind, title = "reference_not_found", "There is no such reference"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A value that was checked and may be stored."""

    kind: str
    id: str
    data: bytes
    glimpse: bytes
    ttl_ms: int | None


class References:
    def __init__(self, db: Database, tenancy: Tenancy, schemas: SchemaChecker) -> None:
        self._db = db
        self._tenancy = tenancy
        self._schemas = schemas
        self._large = asyncio.Semaphore(2)

    # -- making ----------------------------------------------------------------------------------------------

    async def prepare(
        self, tenant_id: str, runtime: Runtime, kind: str, value: Any, glimpse: Any = None
    ) -> Prepared:
        """Checks a value against the kind that the runtime declares and computes its handle: no transaction is
        open while a large value is looked at."""
        spec = runtime.references.get(kind)
        if spec is None:
            known = ", ".join(sorted(runtime.references)) or "none"
            raise Invalid(
                f"The runtime declares no reference {kind!r}.", [Flaw("/kind", f"declared are: {known}")]
            )
        flaws = await self._off_loop(lambda: self._schemas.compile(spec.schema_).errors(value), value)
        if flaws:
            raise Invalid(
                f"The value does not match the schema of {kind}.",
                [Flaw("/value" + f.pointer, f.message) for f in flaws],
            )
        fields = spec.glimpse
        if glimpse is None and isinstance(fields, dict):
            glimpse = await self._off_loop(lambda: declared_glimpse(fields, value), value)
        return await self.prepare_unchecked(tenant_id, kind, value, glimpse, spec.ttl_ms)

    async def prepare_unchecked(
        self, tenant_id: str, kind: str, value: Any, glimpse: Any = None, ttl_ms: int | None = None
    ) -> Prepared:
        """The same for a kind that no runtime declares (`ToolResult`)."""
        tenant = await self._tenancy.tenant(tenant_id)

        def work() -> Prepared:
            data = jsongate.canonical(value)
            if len(data) > MAX_REFERENCE_BYTES:
                raise TooLarge(
                    f"A reference holds at most {MAX_REFERENCE_BYTES} bytes of JSON; this value has {len(data)}."
                )
            id = reference_id(tenant.reference_secret, kind, data)
            return Prepared(kind, id, data, bounded_glimpse(value, glimpse), ttl_ms)

        prepared: Prepared = await self._off_loop(work, value)
        return prepared

    async def keep(self, tx: Tx, made: Prepared, work_id: str | None = None) -> Reference:
        """Stores what was prepared; the same value gives the same handle and is stored once."""
        row = await store.create(
            tx,
            made.kind,
            made.id,
            made.data,
            len(made.data),
            made.glimpse,
            work_id,
            None if made.ttl_ms is None else float(made.ttl_ms),
        )
        return Reference(
            made.kind,
            made.id,
            orjson.loads(row["glimpse"]),
            row["size_bytes"],
            row["created_at"],
            row["expires_at"],
            row["created"],
        )

    async def _off_loop(self, work: Any, value: Any) -> Any:
        """Large values are handled in a thread, two at once, so that other requests do not wait."""
        if _is_small(value):
            return work()
        async with self._large:
            return await asyncio.to_thread(work)

    # -- reading ---------------------------------------------------------------------------------------------

    async def glimpse(self, tx: Tx, kind: str, id: str) -> dict[str, Any]:
        return (await self._there(tx, kind, id)).wire()

    async def resolve(self, tx: Tx, kind: str, id: str) -> bytes:
        """The stored bytes of the value."""
        await self._there(tx, kind, id)
        data = await store.value(tx, kind, id)
        if data is None:
            raise ReferenceExpired(f"The reference {kind}/{id} has expired; create it again.")
        return data

    async def resolve_for_model(self, tx: Tx, kind: str, id: str, path: str | None, limit: int) -> Any:
        """The value, a part of it, or, where that is too much for a prompt, its glimpse and how to read a part."""
        reference = await self._there(tx, kind, id)
        if path is None and reference.size_bytes > limit:
            return {
                **reference.handle(),
                "note": f"The value has {reference.size_bytes} bytes, more than the {limit} that fit here. Read a part "
                'with `path`, a JMESPath expression, for example "length(@)" or "[0:3]".',
            }
        value = orjson.loads(await self.resolve(tx, kind, id))
        if path is None:
            return value
        try:
            part = await asyncio.to_thread(paths.search, path, value)
        except JMESPathError as error:
            raise Invalid(f"The path is not a JMESPath expression that works here: {error}") from error
        size = len(orjson.dumps(part))
        if size > limit:
            return {
                "note": f"That part has {size} bytes, more than {limit}: ask for less.",
                "glimpse": neutral_glimpse(part),
            }
        return part

    async def hydrate(self, tx: Tx, handles: Sequence[tuple[str, str]]) -> dict[str, dict[str, Any]]:
        """`{kind: {id: value}}` of what a dispatch needs, within its bound."""
        out: dict[str, dict[str, Any]] = {}
        async for reference, data in self._within_bounds(tx, handles):
            out.setdefault(reference.kind, {})[reference.id] = orjson.loads(data)
        return out

    async def described(self, tx: Tx, handles: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        """Handle, glimpse and digest of each, for the subject of an approval; no more than can be dispatched."""
        return [
            {**reference.handle(), "digest": hashlib.sha256(data).hexdigest()}
            async for reference, data in self._within_bounds(tx, handles)
        ]

    async def _within_bounds(
        self, tx: Tx, handles: Sequence[tuple[str, str]]
    ) -> AsyncIterator[tuple[Reference, bytes]]:
        total = 0
        for kind, id in handles:
            reference = await self._there(tx, kind, id)
            total += reference.size_bytes
            if total > MAX_HYDRATED_BYTES:
                raise TooLarge(f"One dispatch may carry {MAX_HYDRATED_BYTES} bytes of references.")
            yield reference, await self.resolve(tx, kind, id)

    async def _there(self, tx: Tx, kind: str, id: str) -> Reference:
        row = await store.state(tx, kind, id)
        if row is None or row["deleted"]:
            raise ReferenceNotFound(f"There is no reference {kind}/{id}.")
        if not row["there"]:
            raise ReferenceExpired(f"The reference {kind}/{id} has expired; create it again.")
        return Reference(
            kind, id, orjson.loads(row["glimpse"]), row["size_bytes"], row["created_at"], row["expires_at"]
        )

    # -- pins ------------------------------------------------------------------------------------------------

    async def pin(self, tx: Tx, handles: Sequence[tuple[str, str]], plan_id: str) -> None:
        """A draft keeps what it names for seven days. Missing or expired: an error."""
        for kind, id in handles:
            await self._there(tx, kind, id)
            await store.pin(tx, kind, id, plan_id, DRAFT_PIN_MS)

    async def hold(self, tx: Tx, plan_id: str, *, open_gate: bool) -> None:
        """While a gate is open or a plan runs, its references stay whatever their TTL; after a decision that
        leaves a draft, seven days more."""
        await store.repin(tx, plan_id, None if open_gate else DRAFT_PIN_MS)

    async def let_go(self, tx: Tx, plan_id: str) -> None:
        await store.unpin(tx, plan_id)

    # -- the rest --------------------------------------------------------------------------------------------

    async def delete(self, tx: Tx, kind: str, id: str) -> None:
        if not await store.delete(tx, kind, id):
            raise ReferenceNotFound(f"There is no reference {kind}/{id}.")

    async def sweep(self) -> int:
        return await store.sweep(self._db, 100)


def _is_small(value: Any) -> bool:
    """Whether a value, all its parts together, is looked at in no time."""
    left, stack = 1_000, [value]
    while stack and left > 0:
        item = stack.pop()
        left -= 1
        if isinstance(item, str):
            left -= len(item) // 64
        elif isinstance(item, list | dict):
            left -= len(item)
            if left > 0:
                stack += item if isinstance(item, list) else item.values()
    return left > 0


def reference_id(secret: bytes, kind: str, data: bytes) -> str:
    """HMAC-SHA-256 under the tenant's secret: it tells nobody else what a small value was."""
    return hmac.new(secret, kind.encode() + b"\0" + data, hashlib.sha256).hexdigest()


def declared_glimpse(fields: Mapping[str, str], value: Any) -> dict[str, Any]:
    """A declarative glimpse: each field a JMESPath expression over the value."""
    try:
        return paths.search_all(fields, value)
    except JMESPathError as error:
        raise Invalid(f"The glimpse of this kind could not be made of this value: {error}") from error


def bounded_glimpse(value: Any, glimpse: Any) -> bytes:
    """A glimpse of at most 4 KiB: a larger one that a caller gave is refused, the service's own is cut."""
    if glimpse is not None:
        data = jsongate.dumps(glimpse)
        if len(data) > MAX_GLIMPSE_BYTES:
            raise Invalid(
                f"A glimpse has at most {MAX_GLIMPSE_BYTES} bytes of JSON; this one has {len(data)}."
            )
        return data
    for items in (3, 1, 0):
        data = jsongate.dumps(neutral_glimpse(value, max_items=items))
        if len(data) <= MAX_GLIMPSE_BYTES:
            return data
    text = data.decode(errors="ignore")[: MAX_GLIMPSE_BYTES // 2]
    return jsongate.dumps({"cut": text + " …"})
