"""Publishing with its event: in one transaction."""

from __future__ import annotations

from plangate.events import ArtifactPublishedEvent

from app.artifacts.models import Artifact, ArtifactTarget, Producer, Publication
from app.artifacts.service import ArtifactService
from app.base.errors import Conflict
from app.base.postgres.database import Tx
from app.engine import lease_store as queue_store
from app.journal import store as journal_store
from app.journal.models import Scope, event
from app.workspace.service import lock_thread


class WorkOver(Conflict):
    """Work of a query that is over publishes nothing any more."""

    kind, title = "work_over", "The query of this work is over"


async def lock_for_publishing(tx: Tx, thread_id: str, query_id: str | None) -> None:
    """Locks the thread, and the query that publishes, if one does. Agents write and publish under the lock of their query:
    who locks anything of a workspace or a chain locks the query before. Raises NotFound."""
    await lock_thread(tx, thread_id)
    if query_id is not None:
        await queue_store.lock(tx, query_id)


async def publish(
    tx: Tx,
    artifacts: ArtifactService,
    asked: Publication,
    target: ArtifactTarget,
    producer: Producer,
    scope: Scope | None,
    epoch: int | None = None,
    *,
    once: bool = False,
) -> Artifact:
    """Publish, and emit the event to the query of the scope's work. Without an epoch, under which the
    caller holds the query, lock thread and query first. With `once`, a call that published before a crash
    gets its record again. Raise WorkOver, and what `ArtifactService.publish` raises."""
    if once and producer.call_id is not None:
        done = await artifacts.of_call(tx, producer.call_id)
        if done is not None:
            return done
    if epoch is None:
        await lock_for_publishing(tx, producer.thread_id, producer.query_id)
    made = await artifacts.publish(tx, asked, target, producer)
    if scope is not None:
        told = event(scope, ArtifactPublishedEvent, data=made.wire())
        if await journal_store.append(tx, scope.query_id, [told], epoch) is None:
            raise WorkOver(
                f"The query {scope.query_id} is over, so nothing can be added to it: publish as a host, without "
                "`workId`."
            )
    return made
