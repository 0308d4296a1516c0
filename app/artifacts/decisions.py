"""Withdraw an artifact, and choose among competing revisions: new records in the chain of the artifact's thread."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from app.artifacts import decision_store, store
from app.artifacts.chain import Chainer, ChainHead, ChainLink
from app.artifacts.models import Artifact, Producer
from app.artifacts.service import ArtifactNotFound, ArtifactService
from app.base.clock import rfc3339
from app.base.errors import Conflict, FieldError, Forbidden, Invalid
from app.base.ids import new_id
from app.base.json import strict_json
from app.base.postgres.database import Tx
from app.events import ArtifactDecisionEvent
from app.journal.models import Scope, event
from app.journal.service import append_events
from app.workspace.service import lock_thread

WITHDRAW: Final = "withdraw"
CHOOSE: Final = "choose"
MAX_REASON_CHARS: Final = 2000
MAX_OVER: Final = 100


class ArtifactWithdrawn(Conflict):
    kind, title = "artifact_withdrawn", "The artifact was withdrawn"


class ArtifactPassedOver(Conflict):
    kind, title = "artifact_passed_over", "Another revision was chosen over the artifact"


class OtherThread(Forbidden):
    kind, title = "other_thread", "The artifact is in another thread"


class ArtifactDecisions:
    def __init__(self, artifacts: ArtifactService, chainer: Chainer) -> None:
        self._artifacts = artifacts
        self._chainer = chainer

    async def withdraw(
        self, tx: Tx, id: str, reason: str, producer: Producer, principal: str | None, scope: Scope | None
    ) -> Artifact:
        """Withdraw an artifact, and return it. `producer` is of the artifact's thread. Emit the event to the query of
        `scope`, which the caller has locked. Raise ArtifactNotFound, Invalid or ArtifactWithdrawn."""
        _check_reason(reason)
        await lock_thread(tx, producer.thread_id)
        head, at = await store.lock(tx, thread_id=producer.thread_id)
        artifact = await self._artifacts.read(tx, id)
        if artifact.withdrawn:
            raise ArtifactWithdrawn(f"The artifact {id} is already withdrawn.")
        record = _record(WITHDRAW, id, (), reason, producer, principal, at)
        return await self._add(tx, head, record, at, scope)

    async def choose(
        self,
        tx: Tx,
        id: str,
        over: Iterable[str],
        reason: str,
        producer: Producer,
        principal: str | None,
        scope: Scope | None,
    ) -> Artifact:
        """Choose an artifact over revisions that compete with it, which become superseded, and return it. `producer` is
        of the artifact's thread. Emit the event to the query of `scope`, which the caller has locked. Raise
        ArtifactNotFound, Invalid, ArtifactWithdrawn or ArtifactPassedOver."""
        others = tuple(dict.fromkeys(over))
        _check_reason(reason)
        if not 0 < len(others) <= MAX_OVER:
            message = f"must have 1 to {MAX_OVER} ids"
            raise Invalid(f"Nothing was chosen: over {message}.", [FieldError("/over", message)])
        # Two choices of artifacts over each other wait for each other here, also if these are in different threads.
        artifacts = await store.load_named(tx, ids=others)
        heads = {}
        for thread_id in sorted({producer.thread_id, *(other.thread_id for other in artifacts.values())}):
            await lock_thread(tx, thread_id)
            heads[thread_id] = await store.lock(tx, thread_id=thread_id)
        head, at = heads[producer.thread_id]
        chosen = await self._artifacts.read(tx, id)
        if chosen.withdrawn:
            raise ArtifactWithdrawn(f"The artifact {id} is withdrawn, so it cannot be chosen.")
        if chosen.passed_over:
            raise ArtifactPassedOver(
                f"Another revision was chosen over {id}, so it cannot be chosen. Publish a new revision instead."
            )
        rivals = set(await store.competing(tx, id=id))
        errors = [
            FieldError(f"/over/{n}", f"names no revision that competes with {id}: {other[:60]!r}")
            for n, other in enumerate(others)
            if other not in rivals
        ]
        if errors:
            listed = "; ".join(f"{error.pointer[1:]} {error.message}" for error in errors)
            raise Invalid(
                f"Nothing was chosen: {listed}. `competesWith` of the artifact lists those that do.", errors
            )
        record = _record(CHOOSE, id, others, reason, producer, principal, at)
        return await self._add(tx, head, record, at, scope)

    async def require_thread(self, tx: Tx, ids: Iterable[str], thread_id: str) -> None:
        """Raise ArtifactNotFound or OtherThread unless all of these artifacts are in the thread."""
        ids = list(ids)
        artifacts = await store.load_named(tx, ids=ids)
        for id in ids:
            if id not in artifacts:
                raise ArtifactNotFound(f"There is no artifact {id!r}.")
            if artifacts[id].thread_id != thread_id:
                raise OtherThread(
                    f"The artifact {id} is in another thread. Only a host may decide about it, over HTTP."
                )

    async def of_call(self, tx: Tx, call_id: str) -> Artifact | None:
        """Return the artifact that a call decided about, or None."""
        id = await decision_store.artifact_of_call(tx, call_id=call_id)
        return None if id is None else await self._artifacts.read(tx, id)

    async def _add(
        self, tx: Tx, head: ChainHead, record: dict[str, Any], at: datetime, scope: Scope | None
    ) -> Artifact:
        thread_id, data = record["producer"]["threadId"], strict_json.canonical(record)
        n = head.n + 1
        mac = self._chainer.mac(tx.tenant, thread_id, n, head.mac, data)
        link = ChainLink(record["id"], n, data, head.mac, mac)
        await decision_store.add(tx, link=link, record=record, created_at=at)
        await store.move(tx, thread_id=thread_id, head=ChainHead(n, mac))
        if scope is not None:
            events = [event(scope, ArtifactDecisionEvent, data=record)]
            await append_events(tx, query_id=scope.query_id, events=events)
        return await self._artifacts.read(tx, record["artifactId"])


def _check_reason(reason: str) -> None:
    if not 0 < len(reason.strip()) <= len(reason) <= MAX_REASON_CHARS:
        message = f"must be a text of 1 to {MAX_REASON_CHARS} characters"
        raise Invalid(f"Nothing was decided: reason {message}.", [FieldError("/reason", message)])


def _record(
    kind: str,
    artifact_id: str,
    over: tuple[str, ...],
    reason: str,
    producer: Producer,
    principal: str | None,
    at: datetime,
) -> dict[str, Any]:
    """Return the stored record of a decision. `principal` is that of a host, which has no agent."""
    return {
        "id": new_id("ard_"),
        "kind": kind,
        "artifactId": artifact_id,
        **({"over": list(over)} if over else {}),
        "reason": reason,
        "createdAt": rfc3339(at),
        **({} if principal is None else {"principal": principal}),
        "producer": producer.wire(),
    }
