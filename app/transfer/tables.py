"""The tables of a tenant, in an order in which their rows can be inserted: a row comes after those that it refers to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.base.sealing import secret_context
from app.runtimes.signing import signing_context
from app.tenancy.service import REFERENCE_SECRET


@dataclass(frozen=True, slots=True)
class SealedTable:
    """A table with values that the master key seals. `context` returns the context of a row's values.

    `is_optional`: `--without-secrets` leaves it out.
    """

    columns: tuple[str, ...]
    context: Callable[[str, Mapping[str, Any]], str]
    is_optional: bool = True


SEALED: Final = {
    "tenants": SealedTable(
        ("reference_secret",), lambda tenant, _: secret_context(tenant, REFERENCE_SECRET), is_optional=False
    ),
    "secrets": SealedTable(("sealed",), lambda tenant, row: secret_context(tenant, row["name"])),
    "signing_secrets": SealedTable(
        ("sealed", "previous"), lambda tenant, row: signing_context(tenant, row["runtime_name"])
    ),
}
"""They come first, a few rows at a time, with their values opened."""

TABLES: Final = (
    "api_keys",
    "sessions",
    "idempotency",
    "runtimes",
    "threads",
    "queries",
    "work_records",
    "usage_sums",
    "events",
    "approvals",
    "approval_votes",
    "approval_comments",
    "approval_grants",
    "plans",
    "plan_revisions",
    "plan_transitions",
    "plan_snapshots",
    "plan_actions",
    "reference_values",
    "reference_pins",
    "reference_uses",
    "outgoing_calls",
    "documents",
    "document_writes",
    "call_variables",
    "blobs",
    "workspaces",
    "workspace_versions",
    "workspace_files",
    "artifact_chains",
    "artifact_chain_links",
    "artifacts",
    "artifact_tags",
    "artifact_parents",
    "artifact_decisions",
    "artifact_choices",
    "artifact_uses",
    "artifact_tombstones",
    "sources",
    "catalog_entries",
    "source_statements",
)

LEFT_OUT: Final = ("lost_leases",)
"""Leases belong to the processes of a deployment. A query begins with none elsewhere."""

DELETION_ORDER: Final = (*LEFT_OUT, *reversed(TABLES), *reversed(SEALED))
"""All tables, those that refer to others first."""

CREDENTIALS: Final = ("api_keys", "sessions")
"""`--without-secrets` leaves them out, too."""

CONDITIONS: Final[Mapping[str, str]] = {"sessions": "key_tenant_id = tenant_id"}
"""Rows that are left out if this does not hold: sessions of the operator's key end with a move."""

REPLACED: Final[Mapping[str, Mapping[str, str]]] = {
    "queries": {"lease_owner": "NULL", "lease_expires_at": "NULL", "crashes": "0"},
}
"""Columns that are exported with another value, as an expression."""

RENUMBERED: Final[Mapping[str, tuple[str, ...]]] = {"events": ("xid",)}
"""Columns that get their default in the target: a transaction id means nothing on another server (decision 26)."""
