"""Assemble each large spec in a process of its own (json_worker.py), two at a time.

Checking a spec of 1 MiB takes seconds, and parts of that hold the interpreter, so a thread beside the event
loop would not do. Measurements: docs/decisions/0011.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from app.base.json.offload import loads, offload
from app.base.json.process_pool import JsonProcess, JsonProcessPool
from app.runtimes.checks import Environment

LARGE_SPEC_BYTES: Final = 128 * 1024
"""A smaller spec is checked in a thread, which takes less time than starting a process."""

MAX_TURN_WAIT_S: Final = 4.0
"""How long a spec waits for a process: requests are answered within five seconds."""

MAX_CHILD_BYTES: Final = 512 * 1024 * 1024
"""A child that uses more memory is killed."""

TOO_COMPLEX_MESSAGE: Final = (
    "Checking the spec needs more memory or time than the service allows. Split it into several runtimes, or simplify its "
    "schemas."
)


class LargeSpecs:
    """The processes that assemble large specs."""

    def __init__(
        self, environment: Environment, child_bytes: int = MAX_CHILD_BYTES, turn_s: float = MAX_TURN_WAIT_S
    ) -> None:
        self._environment = environment
        self._children = JsonProcessPool(
            "app.runtimes.json_worker", child_bytes, too_complex=TOO_COMPLEX_MESSAGE
        )
        self._turn_s = turn_s

    @asynccontextmanager
    async def open(self, body: bytearray) -> AsyncIterator[LargeSpec]:
        """Parse a request body, which is emptied, in a process. Raise Malformed, TooLarge,
        TooManyRequests."""
        async with self._children.one(self._turn_s) as child:
            answer, _ = await child.asked("read", body)
            yield LargeSpec(child, self._environment, answer["isObject"], answer["tenant"])


class LargeSpec:
    """A parsed spec in a child process."""

    def __init__(
        self, child: JsonProcess, environment: Environment, is_object: bool, tenant: str | None
    ) -> None:
        self._child = child
        self._environment = environment
        self.is_object = is_object
        self.tenant = tenant
        """The tenant that the spec names."""

    async def assemble(self, tenant: str | None) -> tuple[dict[str, Any], dict[str, str]]:
        """Return what `assemble_wire` returns for the spec, and its literal secrets. Raise Invalid,
        TooLarge."""
        answer, wire = await self._child.asked(
            "assemble",
            tenant=tenant,
            allowHosts=sorted(self._environment.egress.allow_hosts),
            entryPoints=sorted(self._environment.entry_points),
        )
        self._child.end()
        return await offload(loads, bytes(wire)), answer["literals"]
