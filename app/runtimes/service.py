"""Register and look up runtimes. Versions are immutable, so processes cache the ones they use."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from typing import Any

import orjson
from plangate.spec.models import RuntimeSpec

from app.base.errors import NotFound
from app.base.ids import is_id, new_id
from app.base.json.process_pool import JsonProcessPool
from app.base.postgres.database import Database, Tx
from app.runtimes import store
from app.runtimes.checks import Environment
from app.runtimes.large_specs import LARGE_SPEC_BYTES
from app.runtimes.models import Runtime

MAX_CACHED_VERSIONS = 1000


class Runtimes:
    def __init__(self, db: Database, environment: Environment, processes: JsonProcessPool) -> None:
        self._db = db
        self.environment = environment
        self.processes = processes
        self._versions: OrderedDict[tuple[str, str], Runtime] = OrderedDict()
        self._latest_ids: dict[tuple[str, str], str] = {}

    async def register(self, tx: Tx, name: str, wire: bytes) -> tuple[Any, bool]:
        """Return the stored row and whether it is new: the same content returns the same runtime.

        `wire` must be the canonical form of the result of `assemble_wire`, without literal secrets.
        """
        return await store.register(tx, new_id("rt_"), name, hashlib.sha256(wire).digest(), wire)

    async def get(self, tenant: str, runtime_id: str, tx: Tx | None = None) -> Runtime:
        """Return a version by its id. Raise NotFound if this tenant does not have it.

        A caller with an open transaction must pass it: waiting for a second pooled connection while holding
        one can deadlock.
        """
        kept = self._versions.get((tenant, runtime_id))
        if kept is not None:
            self._versions.move_to_end((tenant, runtime_id))
            return kept
        row = None
        if is_id("rt_", runtime_id):
            if tx is not None:
                row = await store.by_id(tx, runtime_id)
            else:
                async with self._db.transaction(tenant) as own:
                    row = await store.by_id(own, runtime_id)
        if row is None:
            raise NotFound(f"There is no runtime {runtime_id!r}.")
        large = len(row["wire"]) > LARGE_SPEC_BYTES
        runtime = (
            await asyncio.to_thread(runtime_from_row, tenant, row) if large else runtime_from_row(tenant, row)
        )
        self._versions[(tenant, runtime_id)] = runtime
        while len(self._versions) > MAX_CACHED_VERSIONS:
            self._versions.popitem(last=False)
        return runtime

    async def latest_id(self, tx: Tx, name: str) -> str:
        """Return the id of the newest version of a line that is not retired. Raise NotFound."""
        found = await store.latest(tx, name)
        if found is None:
            raise NotFound(f"There is no runtime named {name!r}; register one with POST /runtimes.")
        self._latest_ids[(tx.tenant, name)] = found
        while len(self._latest_ids) > MAX_CACHED_VERSIONS:
            self._latest_ids.pop(next(iter(self._latest_ids)))
        return found

    async def has_client_workspace(self, tx: Tx, thread_id: str) -> bool:
        """Return whether the files of a thread are on a machine of the user, by the runtime that it began with."""
        runtime_id = await store.of_thread(tx, thread_id)
        return (
            runtime_id is not None and (await self.get(tx.tenant, runtime_id, tx)).spec.workspace is not None
        )

    async def require_name(self, tx: Tx, name: str) -> None:
        """Raise NotFound unless a version was registered under this name, whether or not it is retired."""
        if not await store.name_exists(tx, name):
            raise NotFound(f"There is no runtime named {name!r}; register one with POST /runtimes.")

    def cached_latest_id(self, tenant: str, name: str) -> str | None:
        """Return the newest version as of this process's last lookup; the caller must verify it."""
        return self._latest_ids.get((tenant, name))


def runtime_from_row(tenant: str, row: Any) -> Runtime:
    """Build a runtime from a stored row. It was checked at registration and is not checked again by later
    rules."""
    spec = RuntimeSpec.model_validate(orjson.loads(row["wire"]))
    return Runtime.from_spec(tenant, row["id"], row["name"], row["version"], row["digest"].hex(), spec)
