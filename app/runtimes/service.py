"""Register and look up runtimes. Versions are immutable, so processes cache the ones they use."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict

from plangate.spec.vendors import VENDORS

from app.base.errors import NotFound
from app.base.ids import is_id, new_id
from app.base.json.process_pool import JsonProcessPool
from app.base.postgres.database import Database, Tx
from app.runtimes import store
from app.runtimes.checks import Environment
from app.runtimes.large_specs import LARGE_SPEC_BYTES
from app.runtimes.models import Runtime, RuntimeRecord

MAX_CACHED_VERSIONS = 1000
MAX_SEARCHED_TENANTS = 50
MAX_SEARCHED_VERSIONS = 20


class Runtimes:
    """The registered runtimes of all tenants."""

    def __init__(self, db: Database, environment: Environment, processes: JsonProcessPool) -> None:
        self._db = db
        self.environment = environment
        self.processes = processes
        self._versions: OrderedDict[tuple[str, str], Runtime] = OrderedDict()
        self._latest_ids: dict[tuple[str, str], str] = {}

    async def register(self, tx: Tx, name: str, wire: bytes) -> tuple[RuntimeRecord, bool]:
        """Return the stored version and whether it is new: the same content returns the same version, which is not
        retired any more.

        `wire` must be the canonical form of the result of `assemble_wire`, without literal secrets.
        """
        digest = hashlib.sha256(wire).digest()
        runtime_id = await store.same(tx, name=name, digest=digest)
        if runtime_id is not None:
            await store.revive(tx, runtime_id=runtime_id)
            return await self.read(tx, runtime_id), False
        record = await store.insert(tx, runtime_id=new_id("rt_"), name=name, digest=digest, wire=wire)
        return record, True

    async def read(self, tx: Tx, runtime_id: str) -> RuntimeRecord:
        """Return a stored version. Raise NotFound."""
        record = await store.by_id(tx, runtime_id=runtime_id) if is_id("rt_", runtime_id) else None
        if record is None:
            raise NotFound(f"There is no runtime {runtime_id!r}.")
        return record

    async def retire(self, tx: Tx, runtime_id: str) -> RuntimeRecord:
        """Retire a version: running queries keep it, and new ones cannot name it. Raise NotFound."""
        await self.read(tx, runtime_id)
        await store.retire(tx, runtime_id=runtime_id)
        return await self.read(tx, runtime_id)

    async def get(self, tenant: str, runtime_id: str, tx: Tx | None = None) -> Runtime:
        """Return a version by its id. Raise NotFound if this tenant does not have it.

        A caller with an open transaction must pass it: waiting for a second pooled connection while holding
        one can deadlock.
        """
        cached = self._versions.get((tenant, runtime_id))
        if cached is not None:
            self._versions.move_to_end((tenant, runtime_id))
            return cached
        if tx is not None:
            record = await self.read(tx, runtime_id)
        else:
            async with self._db.transaction(tenant) as own:
                record = await self.read(own, runtime_id)
        if len(record.wire) > LARGE_SPEC_BYTES:
            runtime = await asyncio.to_thread(Runtime.from_record, tenant, record)
        else:
            runtime = Runtime.from_record(tenant, record)
        self._versions[(tenant, runtime_id)] = runtime
        while len(self._versions) > MAX_CACHED_VERSIONS:
            self._versions.popitem(last=False)
        return runtime

    async def latest_id(self, tx: Tx, name: str) -> str:
        """Return the id of the newest version of a line that is not retired. Raise NotFound."""
        runtime_id = await store.latest(tx, name=name)
        if runtime_id is None:
            raise NotFound(f"There is no runtime named {name!r}; register one with POST /runtimes.")
        self._latest_ids[(tx.tenant, name)] = runtime_id
        while len(self._latest_ids) > MAX_CACHED_VERSIONS:
            self._latest_ids.pop(next(iter(self._latest_ids)))
        return runtime_id

    async def has_client_workspace(self, tx: Tx, thread_id: str) -> bool:
        """Return whether the files of a thread are on a machine of the user, by the runtime of its newest query."""
        runtime_id = await store.of_thread(tx, thread_id=thread_id)
        return (
            runtime_id is not None and (await self.get(tx.tenant, runtime_id, tx)).spec.workspace is not None
        )

    async def used_vendors(self) -> set[str]:
        """Return the vendors of models that registered runtimes name. Only the newest versions of some tenants are
        searched, for their names as JSON strings, so a vendor can be missing, or be named by something else."""
        used: set[str] = set()
        async with self._db.transaction("") as tx:
            tenants = await store.tenants(tx, limit=MAX_SEARCHED_TENANTS)
        for tenant in tenants:
            if left := VENDORS.keys() - used:
                async with self._db.transaction(tenant) as tx:
                    used |= await store.mentioned(tx, words=left, limit=MAX_SEARCHED_VERSIONS)
        return used

    async def require_name(self, tx: Tx, name: str) -> None:
        """Raise NotFound unless a version was registered under this name, whether or not it is retired."""
        if not await store.name_exists(tx, name=name):
            raise NotFound(f"There is no runtime named {name!r}; register one with POST /runtimes.")

    def cached(self, tenant: str, runtime_id: str) -> Runtime | None:
        """Return a version that this process has in memory."""
        return self._versions.get((tenant, runtime_id))

    def cached_latest_id(self, tenant: str, name: str) -> str | None:
        """Return the newest version as of this process's last lookup; the caller must verify it."""
        return self._latest_ids.get((tenant, name))
