"""Registration and look-up of runtimes. A version never changes, so processes keep the ones they use."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import orjson
from plangate.spec.assembly import SpecInvalid, assemble
from plangate.spec.models import RuntimeSpec

from app.base.database import Database, Tx
from app.base.errors import COLLECTED_ERRORS, MAX_ERRORS, Flaw, Invalid, NotFound
from app.base.ids import is_id, new_id
from app.base.jsongate import canonical
from app.runtimes import store
from app.runtimes.checks import Surroundings, service_check, tenant_check
from app.runtimes.models import Runtime

MAX_KEPT = 1000


def assembled_wire(
    raw: Mapping[str, Any], surroundings: Surroundings, tenant: str | None = None
) -> dict[str, Any]:
    """The spec as it is stored: assembled by the library's code. Invalid with the first problems; one of them is
    that it is not of this `tenant`, if one is named."""
    checks = [service_check(surroundings), *([tenant_check(tenant)] if tenant is not None else [])]
    try:
        assembled = assemble(raw, also=checks, max_problems=COLLECTED_ERRORS)
    except SpecInvalid as error:
        flaws = [Flaw(p.pointer, p.message) for p in error.problems]
        count = len(flaws)
        many = f"more than {MAX_ERRORS}" if count > MAX_ERRORS else str(count)
        raise Invalid(f"The spec has {many} problem{'s' if count > 1 else ''}; see errors.", flaws) from error
    return dict(assembled.wire)


class Runtimes:
    def __init__(self, db: Database, surroundings: Surroundings) -> None:
        self._db = db
        self.surroundings = surroundings
        self._kept: OrderedDict[tuple[str, str], Runtime] = OrderedDict()
        self._newest: dict[tuple[str, str], str] = {}

    async def register(self, tx: Tx, wire: dict[str, Any]) -> tuple[Any, bool]:
        """The stored row and whether it is new: the same content gives the same runtime. `wire` must come from
        `assembled_wire` and hold no literal secrets."""
        data = canonical(wire)
        name = wire.get("name") or "default"
        return await store.register(tx, new_id("rt_"), name, hashlib.sha256(data).digest(), data)

    async def get(self, tenant: str, runtime_id: str, tx: Tx | None = None) -> Runtime:
        """A version by its id; NotFound if this tenant has none such. Who has a transaction hands it over: one that
        waits for a second connection of the pool while it holds a first can wait for ever."""
        kept = self._kept.get((tenant, runtime_id))
        if kept is not None:
            self._kept.move_to_end((tenant, runtime_id))
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
        runtime = runtime_of(tenant, row)
        self._kept[(tenant, runtime_id)] = runtime
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        return runtime

    async def latest_id(self, tx: Tx, name: str) -> str:
        """The newest version of a line that is not retired."""
        found = await store.latest(tx, name)
        if found is None:
            raise NotFound(f"There is no runtime named {name!r}; register one with POST /runtimes.")
        self._newest[(tx.tenant, name)] = found
        while len(self._newest) > MAX_KEPT:
            self._newest.pop(next(iter(self._newest)))
        return found

    def remembered_id(self, tenant: str, name: str) -> str | None:
        """What was the newest version when this process last looked: to be confirmed by whoever uses it."""
        return self._newest.get((tenant, name))


def runtime_of(tenant: str, row: Any) -> Runtime:
    """A stored version. It was checked when it was registered and is not judged again by later rules."""
    spec = RuntimeSpec.model_validate(orjson.loads(row["wire"]))
    return Runtime.of(tenant, row["id"], row["name"], row["version"], row["digest"].hex(), spec)
