"""Limit the open streams of a tenant and of a key in this process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from app.base.errors import TooManyRequests
from app.base.metrics import Metrics
from app.tenancy.models import Caller

RETRY_AFTER_S: Final = 5


class OpenStream:
    """One open stream. Release it when the stream ends. Idempotent."""

    def __init__(self, streams: OpenStreams, tenant: str, key_id: str) -> None:
        self._streams = streams
        self._owner = (tenant, key_id)
        self._open = True

    def release(self) -> None:
        if self._open:
            self._open = False
            self._streams._remove(*self._owner)


class OpenStreams:
    """The open streams of a process, by tenant and by key."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._tenants: Counter[str] = Counter()
        self._keys: Counter[tuple[str, str]] = Counter()

    @property
    def count(self) -> int:
        return self._tenants.total()

    def claim(self, caller: Caller, limits: Mapping[str, Any]) -> OpenStream:
        """Claim a stream for `caller`, whose tenant has these limits. Raise TooManyRequests."""
        per_tenant = limits.get("openStreams")
        per_key = limits.get("openStreamsPerKey", per_tenant)
        if per_tenant is not None and self._tenants[caller.tenant] >= per_tenant:
            self._reject(
                "tenant", f"The tenant {caller.tenant!r} has {per_tenant} streams open", "openStreams"
            )
        if per_key is not None and self._keys[caller.tenant, caller.key_id] >= per_key:
            self._reject("key", f"The key {caller.key_id!r} has {per_key} streams open", "openStreamsPerKey")
        self._tenants[caller.tenant] += 1
        self._keys[caller.tenant, caller.key_id] += 1
        return OpenStream(self, caller.tenant, caller.key_id)

    def _reject(self, limit: str, what: str, name: str) -> None:
        self._metrics.streams_rejected.labels(limit).inc()
        raise TooManyRequests(
            f"{what} in this process, which is the maximum. Close one, follow several queries with one stream "
            f"of GET /events, or ask the operator to raise the limit {name!r}.",
            retry_after_s=RETRY_AFTER_S,
        )

    def _remove(self, tenant: str, key_id: str) -> None:
        self._tenants[tenant] -= 1
        self._keys[tenant, key_id] -= 1
        if not self._tenants[tenant]:
            del self._tenants[tenant]
        if not self._keys[tenant, key_id]:
            del self._keys[tenant, key_id]
