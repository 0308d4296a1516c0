"""The process that assembles one large spec (app/base/json/worker.py) and then ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from app.base.egress import EgressPolicy
from app.base.json import low_memory
from app.base.json.limits import LIMITS
from app.base.json.worker import Answer, Verb
from app.runtimes.checks import Environment, assemble_wire
from app.runtimes.secrets import move_secrets


class SpecWorker:
    """Keeps a spec between the two requests about it."""

    def __init__(self) -> None:
        self._spec: dict[str, Any] = {}
        self.verbs = {"read": self._read, "assemble": self._assemble}

    def _read(self, _head: Mapping[str, Any], data: bytearray) -> Answer:
        """Parse a spec and keep it; return the tenant that it names."""
        document = low_memory.parse_low_memory(data, LIMITS.containers)
        if not isinstance(document, dict):
            return {"isObject": False, "tenant": None}, b""
        self._spec = document
        tenant = document.get("tenant")
        named = tenant.get("resourceId") or tenant.get("resource_id") if isinstance(tenant, dict) else None
        return {"isObject": True, "tenant": named if isinstance(named, str) else None}, b""

    def _assemble(self, head: Mapping[str, Any], _data: bytearray) -> Answer:
        """Return the wire form of the assembled spec, and the literal secrets that were in it."""
        surroundings = Environment(
            EgressPolicy(frozenset(head["allowHosts"])), frozenset(head["entryPoints"])
        )
        spec, literals = move_secrets(self._spec)
        wire = assemble_wire(spec, surroundings, head["tenant"])
        return {"literals": literals}, orjson.dumps(wire)


def verbs() -> Mapping[str, Verb]:
    """Return the handlers of this process."""
    return SpecWorker().verbs
