"""Store values outside prompts, read them, pin them, and delete them when they expire."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from app.base.digests import sha256
from app.base.errors import Conflict, FieldError, Gone, Invalid, NotFound, TooLarge
from app.base.json.limits import LIMITS
from app.base.json.offload import offload
from app.base.json.process_pool import JsonProcess, JsonProcessPool
from app.base.postgres.database import Database, Tx
from app.base.schema.checker import SchemaChecker
from app.references import glimpses, store, values
from app.references.models import Handle, PreparedReference, Reference
from app.references.values import MAX_REFERENCE_BYTES, ValuePart, ValueRequest
from app.runtimes.models import Runtime
from app.tenancy.service import Tenancy, Tenant

MAX_HYDRATED_BYTES: Final = 64 * 1024 * 1024
DRAFT_PIN_MS: Final = 7 * 24 * 3600 * 1000.0
MAX_PART_BYTES: Final = 256 * 1024
PIECE_BYTES: Final = 64 * 1024
"""The memory that one slow reader of a value costs."""

MAX_VALUES_PER_SWEEP: Final = 8
"""Values that one transaction of the sweeper deletes: 128 MiB at most."""

MAX_SWEPT_VALUES: Final = 800


class ReferenceExpired(Gone):
    kind, title = "reference_expired", "The reference has expired"

    def __init__(self, handle: Handle, errors: Sequence[FieldError] = ()) -> None:
        super().__init__(f"The reference {'/'.join(handle)} has expired; create it again.", errors)
        self.handle = handle


class ReferenceNotFound(NotFound):
    kind, title = "reference_not_found", "There is no such reference"

    def __init__(self, handle: Handle, errors: Sequence[FieldError] = ()) -> None:
        super().__init__(f"There is no reference {'/'.join(handle)}.", errors)
        self.handle = handle


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
        if fields is not None and glimpse is not None:  # approvers would take it for the declared one
            raise Invalid(
                f"Remove the glimpse: the runtime computes the glimpse of {kind}.",
                [FieldError("/glimpse", "the runtime declares it")],
            )
        tenant = await self._tenancy.get_tenant(tenant_id)
        request = ValueRequest(kind, spec.schema_, fields, max_bytes(tenant))
        if isinstance(value, JsonProcess):
            packed = await value.run(values.pack_value, self._schemas, request, glimpse)
            await value.end()  # free its memory before the value is stored
        else:
            # A large schema is compiled in a thread, also for a small value.
            await offload(self._schemas.compile, spec.schema_)
            packed = await offload(values.pack_value, value, self._schemas, request, glimpse)
        return await _prepare(tenant, kind, *packed, spec.ttl_ms)

    async def prepare_unchecked(
        self, tenant_id: str, kind: str, value: Any, glimpse: Any = None
    ) -> PreparedReference:
        """Prepare a value of a kind that no runtime declares (`ToolResult`)."""
        tenant = await self._tenancy.get_tenant(tenant_id)

        def pack(value: Any) -> tuple[bytes, bytes]:
            data = values.canonical_json(value, max_bytes(tenant))
            if glimpse is not None:
                return data, glimpses.check_glimpse(glimpse)
            return data, glimpses.fit_glimpse(glimpses.neutral_glimpse(value))

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

    async def keep(self, tx: Tx, prepared: PreparedReference, work_id: str | None = None) -> Reference:
        """Store a prepared value. The same value has the same handle and is stored once. `work_id` is the
        work that creates it, on whose record the use is noted."""
        reference = await store.create(tx, prepared=prepared, work_id=work_id)
        if work_id is not None:
            await self.note(tx, work_id, "create", [reference])
        return reference

    async def note(
        self, tx: Tx, work_id: str, use: store.Use, used: Sequence[Reference], prompt_bytes: int = 0
    ) -> None:
        """Record how a unit of work used references; `prompt_bytes` of a value went to a model."""
        if used:
            await store.note_uses(tx, work_id=work_id, use=use, references=used, prompt_bytes=prompt_bytes)

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
            first = await store.piece(tx, handle=(kind, id), at=0, size=PIECE_BYTES)
            if work_id is not None:
                await self.note(tx, work_id, "resolve", [reference])
        return reference.size_bytes, self._pieces(tenant_id, reference, first)

    async def _pieces(
        self, tenant_id: str, reference: Reference, piece: bytes | None
    ) -> AsyncIterator[bytes]:
        at, handle = 0, (reference.kind, reference.id)
        while piece:
            yield piece
            at += len(piece)
            if at == reference.size_bytes:
                return
            async with self._db.transaction(tenant_id) as tx:
                piece = await store.piece(tx, handle=handle, at=at, size=PIECE_BYTES)
        raise ReferenceExpired(handle)  # the response ends short of its length

    async def for_model(
        self, tx: Tx, kind: str, id: str, path: str | None, limit: int
    ) -> tuple[Reference, bytes | None]:
        """Return what `part_for_model` needs: the stored bytes, unless the whole value is requested and exceeds the
        limit."""
        reference = await self.glimpse(tx, kind, id)
        if path is None and reference.size_bytes > limit:
            return reference, None
        return reference, await self._value(tx, reference)

    async def part_for_model(
        self,
        reference: Reference,
        data: bytes | None,
        path: str | None,
        limit: int,
        prune: values.Prune | None = None,
    ) -> ValuePart:
        """Return the value or a part of it, without what `prune` leaves out, or, if that is too large for a prompt, a note
        on how to read less."""
        if data is None:
            note = (
                f"The value has {reference.size_bytes} bytes, more than the {limit} that fit here. Read a part with "
                '`path`, a JMESPath expression, for example "length(@)" or "[0:3]".'
            )
            return ValuePart(note=note)
        if path is None:
            return await offload(values.whole_value, data, prune, size=len(data))
        # An expression may take long, however small the value is.
        size = max(len(data), LIMITS.inline_bytes + 1)
        parts = (data, path, limit, prune)
        return await offload(values.value_part, *parts, size=size, processes=self.processes)

    async def part(self, tenant_id: str, kind: str, id: str, path: str) -> bytes:
        """Return the JSON of the part of a value that a JMESPath expression selects. Raise Invalid for the expression, and
        TooLarge for a part of more than `MAX_PART_BYTES`."""
        async with self._db.transaction(tenant_id) as tx:
            data = await self._value(tx, await self.glimpse(tx, kind, id))
        # In a process with a limit of its own: an expression may take long, however small the value is.
        size = max(len(data), LIMITS.process_bytes + 1)
        return await offload(
            values.part_json, data, path, MAX_PART_BYTES, size=size, processes=self.processes, request=True
        )

    async def hydrate(
        self, tx: Tx, handles: Sequence[Handle], work_id: str | None
    ) -> dict[str, dict[str, bytes]]:
        """Return the values that one dispatch needs, `{kind: {id: value}}`, and record that `work_id`, if given, used them.
        Raise ReferenceChanged for a value that does not match its digest."""
        references = await self._existing(tx, handles)
        _check_total_size(references)
        out: dict[str, dict[str, bytes]] = {}
        for reference in references:
            data = await self._value(tx, reference)
            if await offload(sha256, data) != reference.digest:
                raise ReferenceChanged(
                    f"The stored value of the reference {reference.kind}/{reference.id} is not the one that was "
                    "created. Delete it and create it again."
                )
            out.setdefault(reference.kind, {})[reference.id] = data
        if work_id is not None:
            await self.note(tx, work_id, "hydrate", references)
        return out

    async def described(self, tx: Tx, dispatches: Sequence[Sequence[Handle]]) -> list[dict[str, Any]]:
        """Return the handle, glimpse and digest of each reference of a plan, for the subject of an approval. `dispatches`
        are the references that are sent together. Raise TooLarge if one of them is too large to be sent."""
        handles = list(dict.fromkeys(handle for group in dispatches for handle in group))
        references = dict(zip(handles, await self._existing(tx, handles), strict=True))
        for group in dispatches:
            _check_total_size([references[handle] for handle in dict.fromkeys(group)])
        return [{**reference.handle(), "digest": reference.digest.hex()} for reference in references.values()]

    async def _value(self, tx: Tx, reference: Reference) -> bytes:
        handle = (reference.kind, reference.id)
        data = await store.value(tx, handle=handle)
        if data is None:
            raise ReferenceExpired(handle)
        return data

    async def _existing(self, tx: Tx, handles: Sequence[Handle]) -> list[Reference]:
        """Return the references behind these handles, in order. Raise ReferenceNotFound or ReferenceExpired
        for the first that is missing."""
        if not handles:
            return []
        references = []
        for state in await store.states(tx, handles=handles):
            if state.expired:
                raise ReferenceExpired(state.handle)
            if state.reference is None:
                raise ReferenceNotFound(state.handle)
            references.append(state.reference)
        return references

    # -- pins ------------------------------------------------------------------------------------------------

    async def pin(self, tx: Tx, handles: Sequence[Handle], plan_id: str) -> None:
        """Pin the references of a draft for seven days, and unpin those that only an earlier revision named. Raise
        ReferenceNotFound or ReferenceExpired."""
        if handles:
            await self._existing(tx, handles)
            await store.pin(tx, handles=handles, holder_id=plan_id, for_ms=DRAFT_PIN_MS)
            await self._existing(
                tx, handles
            )  # a sweeper that held them is done, and the next one sees the pins
        await store.unpin(tx, holder_id=plan_id, except_for=handles)

    async def pin_for_query(self, tx: Tx, kind: str, id: str, query_id: str) -> None:
        """Keep a value that a model has read until the query ends, because a restarted run reads it again."""
        await store.pin(tx, handles=[(kind, id)], holder_id=query_id, for_ms=None)

    async def hold(self, tx: Tx, plan_id: str, *, until_over: bool) -> None:
        """Pin the references of a plan whatever their TTL, from the moment it reaches its gate until the plan is
        over or can no longer begin. A draft without an open gate, also one whose approval went to a
        query that ended before it began the plan, keeps them for seven days from then."""
        await store.repin(tx, holder_id=plan_id, for_ms=None if until_over else DRAFT_PIN_MS)

    async def unpin(self, tx: Tx, plan_id: str) -> None:
        await store.unpin(tx, holder_id=plan_id)

    # -- the rest --------------------------------------------------------------------------------------------

    async def delete(self, tx: Tx, kind: str, id: str) -> None:
        await self._existing(tx, [(kind, id)])
        await store.delete(tx, handle=(kind, id))

    async def sweep(self) -> int:
        """Delete expired references in small transactions, and return how many."""
        swept, last = 0, MAX_VALUES_PER_SWEEP
        while last == MAX_VALUES_PER_SWEEP and swept < MAX_SWEPT_VALUES:
            last = await store.sweep(self._db, limit=MAX_VALUES_PER_SWEEP)
            swept += last
        return swept


def max_bytes(tenant: Tenant) -> int:
    """Return how large a value of this tenant may be."""
    own: int = tenant.limits.get("maxReferenceBytes", MAX_REFERENCE_BYTES)
    return min(own, MAX_REFERENCE_BYTES)


def reference_id(secret: bytes, kind: str, data: bytes) -> str:
    """Return the HMAC-SHA-256 under the tenant's secret, without which a small value cannot be guessed from its
    id."""
    mac = hmac.new(secret, kind.encode() + b"\0", hashlib.sha256)
    mac.update(data)
    return mac.hexdigest()


async def _prepare(
    tenant: Tenant, kind: str, data: bytes, glimpse: bytes, ttl_ms: int | None
) -> PreparedReference:
    id = await offload(partial(reference_id, tenant.reference_secret, kind), data)
    return PreparedReference(kind, id, data, await offload(sha256, data), glimpse, ttl_ms)


def _check_total_size(references: Sequence[Reference]) -> None:
    """Raise TooLarge if these references are too large for one dispatch."""
    total = 0
    for reference in references:
        total += reference.size_bytes
        if total > MAX_HYDRATED_BYTES:
            raise TooLarge(
                f"One dispatch carries at most {MAX_HYDRATED_BYTES} bytes of references: {reference.kind}/{reference.id} "
                f"with its {reference.size_bytes} would make it {total}. Split the actions into several plans, or store "
                "less in a reference."
            )
