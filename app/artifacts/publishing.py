"""Publishing with its event: in one transaction."""

from __future__ import annotations

from app.artifacts.models import Artifact, Producer, Publication, Target
from app.artifacts.service import Artifacts
from app.base.database import Tx
from app.journal import store as journal_store
from app.journal.models import Scope, event
from app.queue import store as queue_store


async def published(
    tx: Tx,
    artifacts: Artifacts,
    asked: Publication,
    target: Target,
    producer: Producer,
    scope: Scope | None,
    epoch: int | None = None,
) -> Artifact:
    """Publishes, and tells the query of the work in the scope. Without an epoch, which the query is held under, the query
    is locked first, as everywhere. Raises what `Artifacts.publish` raises."""
    if scope is not None and epoch is None:
        await queue_store.lock(tx, scope.query_id)
    made, new = await artifacts.publish(tx, asked, target, producer)
    if new and scope is not None:
        told = event(scope, "artifact-published", data=made.wire())
        await journal_store.append(tx, scope.query_id, [told], epoch)
    return made
