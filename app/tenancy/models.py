"""The authenticated caller, scopes and default limits."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from app.base.errors import Forbidden
from app.base.keys import cell_of_key, hash_key

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

DEFAULT_LIMITS: dict[str, int] = {
    "runningQueries": 50,
    "queuedQueries": 1000,
    "requestsPerSecond": 50,
    "bytes": 10 * 1024**3,
    "maxReferenceBytes": 16 * 1024**2,
    "openStreams": 200,
    "openStreamsPerKey": 200,
}

OPERATOR_TENANT = "*"
OPERATOR_PRINCIPAL = "operator"
"""The principal of the operator's key, unless a request names another one."""
LOCAL_TENANT = "local"


@dataclass(frozen=True, slots=True)
class Credential:
    """The credential of a request, as its stored hash: an API key or a browser session. `cell` is the cell that its text
    names, if any."""

    kind: Literal["key", "session", "ticket"]
    hash: bytes
    cell: str | None = None

    @classmethod
    def from_text(cls, kind: Literal["key", "session", "ticket"], text: str) -> Credential:
        return cls(kind, hash_key(text), cell_of_key(text))


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
    has_operator_key: bool = False
    expires_at: datetime | None = None
    session: Session | None = None

    @property
    def is_operator(self) -> bool:
        """Return whether this is the operator: by the key, or by a session that the key started for the operator and not
        for somebody else."""
        if self.session is None:
            return self.has_operator_key
        return self.session.key_tenant == OPERATOR_TENANT and self.principal == OPERATOR_PRINCIPAL

    def has_scope(self, scope: str) -> bool:
        """Return whether the key has this scope; `admin` includes all."""
        return scope in self.scopes or "admin" in self.scopes

    def require_scope(self, scope: str) -> None:
        """Raise Forbidden unless the key has this scope."""
        if not self.has_scope(scope):
            raise Forbidden(
                f"This needs a key with the scope {scope!r}; this key has: {', '.join(sorted(self.scopes))}."
            )


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """One key of one caller for one path, and the hash of the body that it came with."""

    principal: str
    method: str
    path: str
    key: str
    body_hash: bytes


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """The first response under a key, and the hash of the body of its request. `object_id` stands in for a body that is
    not stored: one with a secret."""

    body_hash: bytes
    status: int
    location: str | None
    object_id: str | None
    body: bytes | None


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A stored session or ticket, with the caller that it authenticates."""

    caller: Caller
    is_ticket: bool


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key, without its text. `tools` are the only names that it may serve; None is any."""

    id: str
    principal: str
    scopes: list[str]
    tools: list[str] | None
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class TenantRecord:
    """The stored settings of a tenant."""

    limits: dict[str, int]
    sealed_reference_secret: bytes
    state: str
    """active, parked, moved or importing."""
    moved_to: str | None


@dataclass(frozen=True, slots=True)
class SecretRecord:
    """A secret by its name, without its value."""

    name: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class TenantInfo:
    """A tenant, its limits as JSON, and what it uses."""

    id: str
    created_at: datetime
    limits: bytes
    blob_bytes: int
    queued_queries: int
    running_queries: int
    waiting_queries: int
    pending_approvals: int
