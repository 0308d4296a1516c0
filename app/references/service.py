"""The verbs of references."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from app.base.errors import Conflict, FieldError, Gone, Invalid, NotFound, TooLarge
from app.base.json.limits import LIMITS
from app.base.json.offload import loads, offload
from app.base.json.process_pool import JsonProcess, JsonProcessPool
from app.base.postgres.database import Database, Tx
from app.base.schema.checker import SchemaChecker
from app.references import glimpses, store, values
from app.references.models import PreparedReference, Reference
from app.references.values import MAX_REFERENCE_BYTES, ValuePart, ValueRequest
from app.runtimes.models import Runtime
from app.tenancy.service import Tenancy, Tenant

Handle = tuple[str, str]
"""Kind and id."""

MAX_HYDRATED_BYTES: Final = 64 * 1024 * 1024
DRAFT_PIN_MS: Final = 7 * 24 * 3600 * 1000.0
PIECE_BYTES: Final = 64 * 1024  # what a download holds for a client that reads slowly
"""Of a value that is read: what one reader costs."""

SWEPT_AT_ONCE: Final = 8
"""Values in one transaction of the sweeper: 128 MiB at most."""

SWEPT_MOST: Final = 800


class ReferenceExpired(Gone):
    kind, title = "reference_expired", "The reference has expired"


class ReferenceNotFound(NotFound):
    kind, title = "reference_not_found", "There is no such reference"


class ReferenceChanged(Conflict):
    """Somebody wrote to the database behind the service's back."""

    kind, title = "reference_changed", "The stored value is another one"


class ReferenceService:
    def __init__(
        self, db: Database, tenancy: Tenancy, schemas: SchemaChecker, processes: JsonProcessPool
    ) -> None:
        self.processes = processes
        self._db = db
        self._tenancy = tenancy
        self._schemas = schemas

    # -- making ----------------------------------------------------------------------------------------------

    async def prepare(
        self, tenant_id: str, runtime: Runtime, kind: str, value: Any, glimpse: Any = None
    ) -> PreparedReference:
        """Check a value (JSON, or the process that keeps a large one) against the kind that the runtime
        declares, and compute its handle, while no transaction is open."""
        spec = runtime.references.get(kind)
        if spec is None:
            known = ", ".join(sorted(runtime.references)) or "none"
            raise Invalid(
                f"The runtime declares no reference {kind!r}.",
                [FieldError("/kind", f"declared are: {known}")],
            )
        fields = spec.glimpse if isinstance(spec.glimpse, dict) else None
        if (
            fields is not None and glimpse is not None
        ):  # whoever reads it, an approver too, takes it for the declared one
            raise Invalid(
                f"The runtime declares what the glimpse of {kind} is: leave it out.",
                [FieldError("/glimpse", "the runtime declares it")],
            )
        tenant = await self._tenancy.get_tenant(tenant_id)
        asked = ValueRequest(kind, spec.schema_, fields, max_bytes(tenant))
        if isinstance(value, JsonProcess):
            packed = await value.run(values.pack_value, self._schemas, asked, glimpse)
            await value.end()  # what it holds is not needed while the value is stored
        else:
            packed = await offload(values.pack_value, value, self._schemas, asked, glimpse)
        return await _prepare(tenant, kind, *packed, spec.ttl_ms)

    async def prepare_unchecked(
        self, tenant_id: str, kind: str, value: Any, glimpse: Any = None
    ) -> PreparedReference:
        """Prepare a value of a kind that no runtime declares (`ToolResult`)."""
        tenant = await self._tenancy.get_tenant(tenant_id)

        def pack(value: Any) -> tuple[bytes, bytes]:
            data = values.canonical_json(value, max_bytes(tenant))
            given = None if glimpse is None else glimpses.check_glimpse(glimpse)
            return data, given or glimpses.fit_glimpse(glimpses.neutral_glimpse(value))

        return await _prepare(tenant, kind, *await offload(pack, value), None)

    async def max_bytes(self, tenant_id: str) -> int:
        """Return how large a value of this tenant may be, in bytes of JSON."""
        return max_bytes(await self._tenancy.get_tenant(tenant_id))

    async def prepare_canonical(
        self, tenant_id: str, kind: str, data: bytes, glimpse: Mapping[str, Any]
    ) -> PreparedReference:
        """Prepare a value of a kind of the service's own whose canonical JSON another process wrote. Raise
        TooLarge."""
        tenant = await self._tenancy.get_tenant(tenant_id)
        if len(data) > max_bytes(tenant):
            raise TooLarge(
                f"A reference holds at most {max_bytes(tenant)} bytes of JSON; this value has {len(data)}."
            )
        return await _prepare(tenant, kind, data, glimpses.fit_glimpse(glimpse), None)

    async def keep(self, tx: Tx, made: PreparedReference, work_id: str | None = None) -> Reference:
        """Store what was prepared. The same value has the same handle and is stored once. `work_id` is the
        work that creates it, on whose record it is noted."""
        row = await store.create(
            tx,
            made.kind,
            made.id,
            made.data,
            made.digest,
            len(made.data),
            made.glimpse,
            work_id,
            None if made.ttl_ms is None else float(made.ttl_ms),
        )
        reference = Reference.of(made.kind, made.id, row, created=row["created"])
        if work_id is not None:
            await self.note(tx, work_id, "create", [reference])
        return reference

    async def note(
        self, tx: Tx, work_id: str, use: store.Use, used: Sequence[Reference], prompt_bytes: int = 0
    ) -> None:
        """Record how a unit of work used references; `prompt_bytes` of a value went to a model."""
        if used:
            sizes = [(r.kind, r.id, r.size_bytes) for r in used]
            await store.note_uses(tx, work_id, use, sizes, prompt_bytes)

    # -- reading ---------------------------------------------------------------------------------------------

    async def glimpse(self, tx: Tx, kind: str, id: str) -> Reference:
        return (await self._existing(tx, [(kind, id)]))[0]

    async def read(
        self, tenant_id: str, kind: str, id: str, work_id: str | None = None
    ) -> tuple[int, AsyncIterator[bytes]]:
        """Return the size of a value and its stored bytes, piece by piece: a slow reader holds no
        connection and no more than one piece. `work_id` is the work that reads it."""
        async with self._db.transaction(tenant_id) as tx:
            reference = await self.glimpse(tx, kind, id)
            first = await store.piece(tx, kind, id, 0, PIECE_BYTES)
            if work_id is not None:
                await self.note(tx, work_id, "resolve", [reference])
        return reference.size_bytes, self._pieces(tenant_id, reference, first)

    async def _pieces(
        self, tenant_id: str, reference: Reference, piece: bytes | None
    ) -> AsyncIterator[bytes]:
        at = 0
        while piece:
            yield piece
            at += len(piece)
            if at == reference.size_bytes:
                return
            async with self._db.transaction(tenant_id) as tx:
                piece = await store.piece(tx, reference.kind, reference.id, at, PIECE_BYTES)
        raise _gone_error(
            reference.kind, reference.id
        )  # while it was read: an answer that ends early is seen to be cut

    async def for_model(
        self, tx: Tx, kind: str, id: str, path: str | None, limit: int
    ) -> tuple[Reference, bytes | None]:
        """Return what `shown` needs: the stored bytes, unless the whole value is requested and exceeds the
        limit."""
        reference = await self.glimpse(tx, kind, id)
        if path is None and reference.size_bytes > limit:
            return reference, None
        return reference, await self._value(tx, reference)

    async def shown(
        self, reference: Reference, data: bytes | None, path: str | None, limit: int
    ) -> ValuePart:
        """Return the value or a part of it; if that is too large for a prompt, its glimpse and how to read
        a part."""
        if data is None:
            note = (
                f"The value has {reference.size_bytes} bytes, more than the {limit} that fit here. Read a part with "
                '`path`, a JMESPath expression, for example "length(@)" or "[0:3]".'
            )
            return ValuePart({**reference.handle(), "note": note}, 0)
        if path is None:
            return ValuePart(await offload(loads, data), len(data))
        size = max(
            len(data), LIMITS.inline_bytes + 1
        )  # an expression may take long, however small the value is
        return await offload(values.value_part, data, path, limit, size=size, processes=self.processes)

    async def hydrate(self, tx: Tx, handles: Sequence[Handle], work_id: str) -> dict[str, dict[str, bytes]]:
        """`{kind: {id: value}}` of what one dispatch needs, each as it is stored, and as its digest says."""
        found = await self._existing(tx, handles)
        _check_total_size(found)
        out: dict[str, dict[str, bytes]] = {}
        for reference in found:
            data = await self._value(tx, reference)
            if await offload(_digest, data) != reference.digest:
                raise ReferenceChanged(
                    f"The stored value of the reference {reference.kind}/{reference.id} is not the one that was "
                    "created. Delete it and create it again."
                )
            out.setdefault(reference.kind, {})[reference.id] = data
        await self.note(tx, work_id, "hydrate", found)
        return out

    async def described(self, tx: Tx, dispatches: Sequence[Sequence[Handle]]) -> list[dict[str, Any]]:
        """Handle, glimpse and digest of each reference of a plan, once, for the subject of an approval. `dispatches`
        are the references that go out together; nothing is approved that could not be sent."""
        handles = list(dict.fromkeys(handle for group in dispatches for handle in group))
        found = dict(zip(handles, await self._existing(tx, handles), strict=True))
        for group in dispatches:
            _check_total_size([found[handle] for handle in dict.fromkeys(group)])
        return [{**reference.handle(), "digest": reference.digest.hex()} for reference in found.values()]

    async def _value(self, tx: Tx, reference: Reference) -> bytes:
        data = await store.value(tx, reference.kind, reference.id)
        if data is None:
            raise _gone_error(reference.kind, reference.id)
        return data

    async def _existing(self, tx: Tx, handles: Sequence[Handle]) -> list[Reference]:
        """Return the references behind these handles, in order. Raise ReferenceNotFound or ReferenceExpired
        for the first that is missing."""
        if not handles:
            return []
        rows = await store.states(tx, handles)
        for row in rows:
            if row["deleted"] is None or row["deleted"]:
                raise ReferenceNotFound(f"There is no reference {row['kind']}/{row['id']}.")
            if not row["there"]:
                raise _gone_error(row["kind"], row["id"])
        return [Reference.of(row["kind"], row["id"], row) for row in rows]

    # -- pins ------------------------------------------------------------------------------------------------

    async def pin(self, tx: Tx, handles: Sequence[Handle], plan_id: str) -> None:
        """Pin what a draft names now for seven days, and unpin what only an earlier revision named. What
        that revision kept beyond its TTL still exists. Raise an error for missing or expired references."""
        if handles:
            await self._existing(tx, handles)
            await store.pin(tx, handles, plan_id, DRAFT_PIN_MS)
            await self._existing(
                tx, handles
            )  # a sweeper that was at it is done now, and the next one sees the pins
        await store.unpin(tx, plan_id, handles)

    async def pin_for_query(self, tx: Tx, kind: str, id: str, query_id: str) -> None:
        """Pin a value that a model has read while its query lives: a run that starts again reads it again."""
        await store.pin(tx, [(kind, id)], query_id, None)

    async def hold(self, tx: Tx, plan_id: str, *, until_over: bool) -> None:
        """Pin the references of a plan whatever their TTL, from the moment its gate opens until the plan is
        over or can no longer begin. A draft without an open gate, also one whose approval went to a
        query that ended before it began the plan, keeps them for seven days from then."""
        await store.repin(tx, plan_id, None if until_over else DRAFT_PIN_MS)

    async def let_go(self, tx: Tx, plan_id: str) -> None:
        await store.unpin(tx, plan_id)

    # -- the rest --------------------------------------------------------------------------------------------

    async def delete(self, tx: Tx, kind: str, id: str) -> None:
        await self._existing(tx, [(kind, id)])
        await store.delete(tx, kind, id)

    async def sweep(self) -> int:
        """Delete expired references in small transactions, and return how many."""
        swept, last = 0, SWEPT_AT_ONCE
        while last == SWEPT_AT_ONCE and swept < SWEPT_MOST:
            last = await store.sweep(self._db, SWEPT_AT_ONCE)
            swept += last
        return swept


def max_bytes(tenant: Tenant) -> int:
    """How large a value of this tenant may be."""
    own: int = tenant.limits.get("maxReferenceBytes", MAX_REFERENCE_BYTES)
    return min(own, MAX_REFERENCE_BYTES)


def reference_id(secret: bytes, kind: str, data: bytes) -> str:
    """HMAC-SHA-256 under the tenant's secret: it tells nobody else what a small value was."""
    made = hmac.new(secret, kind.encode() + b"\0", hashlib.sha256)
    made.update(data)
    return made.hexdigest()


async def _prepare(
    tenant: Tenant, kind: str, data: bytes, glimpse: bytes, ttl_ms: int | None
) -> PreparedReference:
    id = await offload(partial(reference_id, tenant.reference_secret, kind), data)
    return PreparedReference(kind, id, data, await offload(_digest, data), glimpse, ttl_ms)


def _digest(data: bytes) -> bytes:
    """Hashing lets go of the interpreter, so that a thread of its own takes it off the event loop altogether."""
    return hashlib.sha256(data).digest()


def _gone_error(kind: str, id: str) -> ReferenceExpired:
    return ReferenceExpired(f"The reference {kind}/{id} has expired; create it again.")


def _check_total_size(together: Sequence[Reference]) -> None:
    total = 0
    for reference in together:
        total += reference.size_bytes
        if total > MAX_HYDRATED_BYTES:
            raise TooLarge(
                f"One dispatch carries at most {MAX_HYDRATED_BYTES} bytes of references: {reference.kind}/{reference.id} "
                f"with its {reference.size_bytes} would make it {total}. Split the actions into several plans, or store "
                "less in a reference."
            )
