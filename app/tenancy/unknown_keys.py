"""Limit lookups of unknown API keys: each is looked up once in a few seconds, and a client may try only some
per second.

Keys have a checksum, but anyone can compute it, so without a limit each random key would cost a database
query.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final

from app.base.errors import TooManyRequests
from app.base.metrics import Metrics
from app.base.peers import peer_for_host

BURST_S: Final = 5
"""A client that has been idle for this long may try as many keys at once as in that time."""
MAX_REMEMBERED_CLIENTS: Final = 10_000


@dataclass(frozen=True, slots=True)
class UnknownKeyBounds:
    """Bounds on unknown keys: how many are remembered and for how long, and how many a client may try per second."""

    max_remembered: int = 10_000
    remember_s: float = 5.0
    per_client_per_s: float = 20.0


class TooManyUnknownKeys(TooManyRequests):
    kind: ClassVar[str] = "too_many_unknown_keys"
    title: ClassVar[str] = "Too many unknown API keys came from one address"


@dataclass(slots=True)
class _Allowance:
    remaining: float
    at: float


class UnknownKeys:
    """Recently seen unknown keys, and the remaining tries of each client."""

    def __init__(
        self, bounds: UnknownKeyBounds, metrics: Metrics, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._bounds = bounds
        self._metrics = metrics
        self._clock = clock
        self._until: OrderedDict[bytes, float] = OrderedDict()
        self._clients: OrderedDict[str, _Allowance] = OrderedDict()

    def __len__(self) -> int:
        return len(self._until)

    def is_remembered(self, hash: bytes) -> bool:
        """Return whether the key or session was unknown a moment ago."""
        until = self._until.get(hash)
        if until is None or until <= self._clock():
            return False
        self._metrics.unknown_keys.labels("remembered").inc()
        return True

    def remember(self, hash: bytes) -> None:
        self._metrics.unknown_keys.labels("looked_up").inc()
        self._until.pop(hash, None)
        self._until[hash] = self._clock() + self._bounds.remember_s
        while len(self._until) > self._bounds.max_remembered:
            self._until.popitem(last=False)

    def spend(self, host: str) -> None:
        """Use one try of a client before a lookup. Raise TooManyUnknownKeys if none is left."""
        allowance, rate = self._allowance(host), self._bounds.per_client_per_s
        if allowance.remaining < 1:
            self._metrics.unknown_keys.labels("limited").inc()
            raise TooManyUnknownKeys(
                f"More than {rate:g} unknown API keys a second came from this address. Use a valid key, or wait.",
                retry_after_s=max(1, round((1 - allowance.remaining) / rate)),
            )
        allowance.remaining -= 1

    def refund(self, host: str) -> None:
        """Return a try to a client whose key is known or could not be looked up."""
        self._allowance(host).remaining += 1

    def _allowance(self, host: str) -> _Allowance:
        peer, now, rate = peer_for_host(host), self._clock(), self._bounds.per_client_per_s
        most = max(1.0, rate * BURST_S)
        allowance = self._clients.get(peer)
        if allowance is None:
            allowance = self._clients[peer] = _Allowance(most, now)
            while len(self._clients) > MAX_REMEMBERED_CLIENTS:
                self._clients.popitem(last=False)
        self._clients.move_to_end(peer)
        allowance.remaining = min(most, allowance.remaining + (now - allowance.at) * rate)
        allowance.at = now
        return allowance
