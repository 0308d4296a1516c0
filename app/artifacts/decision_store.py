"""All SQL of decisions about artifacts. They are only added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from app.artifacts.chain import ChainLink, StoredLink
from app.base.postgres.database import Tx

ADD = """
INSERT INTO artifact_decisions (tenant_id, id, thread_id, n, record, previous, mac, kind, artifact_id, call_id, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
"""
ADD_CHOICES = (
    "INSERT INTO artifact_choices (tenant_id, over_id, decision_id) SELECT $1, unnest($2::text[]), $3"
)
OF_CALL = (
    "SELECT artifact_id FROM artifact_decisions WHERE tenant_id = $1 AND call_id = $2 ORDER BY id LIMIT 1"
)
LINKS = """
SELECT d.id, n, record, previous, mac, kind, d.artifact_id, d.thread_id, call_id, created_at,
       ARRAY(SELECT c.over_id FROM artifact_choices c WHERE c.tenant_id = $1 AND c.decision_id = d.id) AS over_ids
  FROM artifact_decisions d WHERE d.tenant_id = $1 AND d.thread_id = $2 AND n > $3 ORDER BY n LIMIT $4
"""
# For the owner of the database only, while a tenant is imported.
REPLACE_MACS = """
UPDATE artifact_decisions d SET previous = m.previous, mac = m.mac
  FROM unnest($2::text[], $3::bytea[], $4::bytea[]) AS m(id, previous, mac) WHERE d.tenant_id = $1 AND d.id = m.id
"""
UNCHAINED = """
SELECT DISTINCT thread_id FROM artifact_decisions d WHERE d.tenant_id = $1 AND NOT EXISTS (
 SELECT FROM artifact_chains c WHERE c.tenant_id = $1 AND c.thread_id = d.thread_id) ORDER BY thread_id
"""


async def add(tx: Tx, *, link: ChainLink, record: Mapping[str, Any], created_at: datetime) -> None:
    producer = record["producer"]
    await tx.run(
        ADD,
        tx.tenant,
        link.id,
        producer["threadId"],
        link.n,
        link.record,
        link.previous,
        link.mac,
        record["kind"],
        record["artifactId"],
        producer.get("callId"),
        created_at,
    )
    if record.get("over"):
        await tx.run(ADD_CHOICES, tx.tenant, record["over"], link.id)


async def artifact_of_call(tx: Tx, *, call_id: str) -> str | None:
    """Return the artifact that a call decided about, or None."""
    artifact_id: str | None = await tx.value(OF_CALL, tx.tenant, call_id)
    return artifact_id


async def links(tx: Tx, *, thread_id: str, after: int, limit: int) -> list[StoredLink]:
    """Return decisions in the chain of a thread, in order."""
    return [
        StoredLink(row["id"], row["n"], row["record"], row["previous"], row["mac"], dict(row))
        for row in await tx.fetch(LINKS, tx.tenant, thread_id, after, limit)
    ]


async def replace_macs(tx: Tx, *, macs: Sequence[tuple[str, bytes, bytes]]) -> None:
    """Replace the MACs of decisions: the id, the MAC of the record before it, and its own."""
    await tx.run(REPLACE_MACS, tx.tenant, *([mac[n] for mac in macs] for n in range(3)))


async def unchained_threads(tx: Tx) -> Sequence[str]:
    """Return the threads that have decisions and no chain."""
    return [row["thread_id"] for row in await tx.fetch(UNCHAINED, tx.tenant)]
