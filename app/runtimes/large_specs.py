"""Large specs, checked in a separate process.

Checking a spec of 1 MiB takes seconds, and parts of that hold the interpreter, so a thread beside the event
loop would not do. Measurements: docs/decisions/0011.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from app.base.egress_policy import EgressPolicy
from app.base.json.low_memory import parse_low_memory
from app.runtimes.checks import Environment, assemble_wire
from app.runtimes.secrets import move_secrets

LARGE_SPEC_BYTES: Final = 128 * 1024
"""A smaller spec is checked in a thread, which takes less time than starting a process."""


def parse_spec(body: bytearray) -> tuple[Any, tuple[bool, str | None]]:
    """Return a spec, and what is known of it: whether it is an object, and the tenant that it names. Empty `body`. Raise
    Malformed or TooLarge."""
    spec = parse_low_memory(body)
    tenant = spec.get("tenant") if isinstance(spec, dict) else None
    tenant_id = tenant.get("resourceId") or tenant.get("resource_id") if isinstance(tenant, dict) else None
    return spec, (isinstance(spec, dict), tenant_id if isinstance(tenant_id, str) else None)


def assemble_spec(
    raw: dict[str, Any], environment: Environment, tenant: str | None
) -> tuple[bytes, dict[str, str]]:
    """Return the wire form of the assembled spec as JSON, and the literal secrets that were in it. Raise Invalid."""
    spec, literals = move_secrets(raw)
    return orjson.dumps(assemble_wire(spec, environment, tenant)), literals


def assemble_large_spec(
    raw: dict[str, Any],
    allow_hosts: frozenset[str],
    entry_points: frozenset[str],
    provider_envs: dict[str, str],
    tenant: str | None,
) -> tuple[bytes, dict[str, str]]:
    """Return what `assemble_spec` returns, in a process, which resolves no names."""
    return assemble_spec(raw, Environment(EgressPolicy(allow_hosts), entry_points, provider_envs), tenant)
