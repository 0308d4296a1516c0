"""Publishing with its event: in one transaction."""

from __future__ import annotations

from app.artifacts.models import Artifact, ArtifactTarget, Producer, Publication
from app.artifacts.service import ArtifactService
from app.base.errors import Conflict
from app.base.postgres.database import Tx
from app.engine.service import lock_query
from app.events import ArtifactPublishedEvent
from app.journal.models import Scope, event
from app.journal.service import append_events
from app.workspace.service import lock_thread


class WorkOver(Conflict):
    """Work of a query that is over cannot publish."""

    kind, title = "work_over", "The query of this work is over"


async def lock_for_publishing(tx: Tx, thread_id: str, query_id: str | None) -> None:
    """Lock the thread, and the query that publishes, if one does. Agents write and publish under the lock of their query, so
    the query is locked before anything of a workspace or a chain. Raise NotFound."""
    await lock_thread(tx, thread_id)
    if query_id is not None:
        await lock_query(tx, query_id=query_id)


async def publish(
    tx: Tx,
    artifacts: ArtifactService,
    publication: Publication,
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
    artifact = await artifacts.publish(tx, publication, target, producer)
    if scope is not None:
        events = [event(scope, ArtifactPublishedEvent, data=artifact.wire())]
        if await append_events(tx, query_id=scope.query_id, events=events, epoch=epoch) is None:
            raise WorkOver(
                f"The query {scope.query_id} is over, so nothing can be added to it: publish as a host, without "
                "`workId`."
            )
    return artifact
