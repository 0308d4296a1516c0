"""The authenticated caller, scopes and default limits."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from app.base.errors import Forbidden

SCOPES = (
    "read",
    "runtimes:write",
    "queries:write",
    "plans:write",
    "plans:settle",
    "approvals:decide",
    "data:write",
    "sources:admin",
    "tools:serve",
    "actions:serve",
    "act-as",
    "admin",
)

DEFAULT_LIMITS: dict[str, Any] = {
    "runningQueries": 50,
    "queuedQueries": 1000,
    "requestsPerSecond": 50,
    "bytes": 10 * 1024**3,
    "maxReferenceBytes": 16 * 1024**2,
    "openStreams": 200,
    "openStreamsPerKey": 200,
}

OPERATOR_TENANT = "*"
LOCAL_TENANT = "local"


@dataclass(frozen=True, slots=True)
class Credential:
    """What a request authenticates with, as the hash that is stored: an API key, or the session of a browser."""

    kind: Literal["key", "session"]
    hash: bytes


@dataclass(frozen=True, slots=True)
class Session:
    """A browser's session, from its start until it expires or is ended. `key_tenant` is the tenant of its key: `*` for
    the operator's."""

    id: str
    expires_at: datetime
    key_tenant: str


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated request: its tenant, the person or program behind it, and what it may do.

    `tools` are the only names that the key may serve; None is any. The operator's key may name any tenant.
    `expires_at` is when the key stops working; None is never. `session` is set for a request with a session, which
    acts for one principal of one tenant.
    """

    tenant: str
    principal: str
    scopes: frozenset[str]
    key_id: str
    tools: frozenset[str] | None = None
    operator: bool = False
    expires_at: datetime | None = None
    session: Session | None = None

    def has_scope(self, scope: str) -> bool:
        """Return whether the key has this scope; `admin` includes all."""
        return scope in self.scopes or "admin" in self.scopes

    def require_scope(self, scope: str) -> None:
        """Raise Forbidden unless the key has this scope."""
        if not self.has_scope(scope):
            raise Forbidden(
                f"This needs a key with the scope {scope!r}; this key has: {', '.join(sorted(self.scopes))}."
            )
