"""Publish artifacts, read and list them, and find their ancestors and descendants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, Final

from app.artifacts import store
from app.artifacts.chain import Chainer, ChainLink
from app.artifacts.models import (
    Artifact,
    ArtifactFilter,
    ArtifactTarget,
    ArtifactUse,
    PlanArtifact,
    Producer,
    Publication,
    Revision,
    artifact_record,
)
from app.base.errors import Conflict, FieldError, Invalid, NotFound
from app.base.ids import is_id, new_id
from app.base.json import strict_json
from app.base.postgres.database import Database, Tx
from app.engine.service import add_host_work
from app.workspace import paths
from app.workspace.models import FileRow, StoredBody
from app.workspace.service import Workspaces, lock_thread, require_thread

MAX_LINEAGE_DEPTH: Final = 50
MAX_LINEAGE_ARTIFACTS: Final = 500
MAX_EDGES_PER_ARTIFACT: Final = 10
MAX_ARTIFACTS_OF_WORK: Final = 100
MAX_ARTIFACTS_OF_ACTION: Final = 20
MAX_SCANNED_ARTIFACTS: Final = 2_000
"""Records that a page reads at most, however few of them match."""
FILES_PER_PAGE: Final = 1000
NOBODY: Final = Producer("", None, "host", "")
OWN_FIELDS: Final = ("createdAt", "producer")
"""Fields that differ between two records of the same publication."""


class ArtifactNotFound(NotFound):
    kind, title = "artifact_not_found", "There is no such artifact"


class TargetMoved(Conflict):
    """The file or directory at the path changed while it was published."""

    kind, title = "target_moved", "The target changed while it was published"


class ArtifactService:
    def __init__(self, db: Database, workspaces: Workspaces, chainer: Chainer) -> None:
        self._db = db
        self._workspaces = workspaces
        self._chainer = chainer

    # -- publishing ------------------------------------------------------------------------------------------

    async def prepare(self, tenant: str, thread_id: str, path: str) -> ArtifactTarget:
        """Return the file or directory at a path; the list of a directory's files is put into the blob store. Raise
        NotFound or PathNotAllowed."""
        path = paths.normalize(path)
        async with self._db.transaction(tenant) as tx:
            await require_thread(tx, thread_id)
            row = await self._workspaces.find_file(tx, thread_id, path)
            if row is not None:
                return self.target(row)
            rows = await self._files_below(tx, thread_id, path)
        if not rows:
            raise NotFound(f"There is nothing at {path!r} in the workspace: write it first, then publish it.")
        body = await self._workspaces.keep(tenant, manifest(path, rows))
        return ArtifactTarget(
            body.digest, sum(r.size_bytes for r in rows), body.size, None, is_directory=True
        )

    async def _files_below(self, tx: Tx, thread_id: str, folder: str) -> list[FileRow]:
        rows: list[FileRow] = []
        while True:
            after = rows[-1].path if rows else ""
            more = await self._workspaces.list_files(tx, thread_id, f"{folder}/", after, FILES_PER_PAGE)
            rows += more
            if len(more) < FILES_PER_PAGE:
                return rows

    async def publish(
        self, tx: Tx, publication: Publication, target: ArtifactTarget, producer: Producer
    ) -> Artifact:
        """Add a record, and return it. `target` comes from `prepare`. Raise NotFound, Invalid or TargetMoved if nothing was
        written."""
        await lock_thread(tx, producer.thread_id)
        thread_id, path = producer.thread_id, paths.normalize(publication.path)
        await self.check(tx, publication, is_directory=target.is_directory)
        head, at = await store.lock(tx, thread_id=thread_id)
        present = await store.present_digest(
            tx, thread_id=thread_id, path=path, is_directory=target.is_directory
        )
        if present != target.digest:
            raise TargetMoved(f"{path!r} changed while it was being published; publish it again.")
        revision = await self._revision(tx, publication)
        record = artifact_record(new_id("art_"), publication, path, target, producer, at, revision)
        data = strict_json.canonical(record)
        n = head.n + 1
        mac = self._chainer.mac(tx.tenant, thread_id, n, head.mac, data)
        link = ChainLink(record["id"], n, data, head.mac, mac)
        await store.add(tx, link=link, record=record, target=target, producer=producer, created_at=at)
        await self._workspaces.mark_named(tx, StoredBody(target.digest, target.body_bytes))
        return await self.read(tx, link.id)

    async def lock(self, tx: Tx, thread_id: str) -> None:
        """Lock the chain before a file is written and published in one transaction: chains are locked before bodies. The
        caller holds the lock of the thread."""
        await store.lock(tx, thread_id=thread_id)

    async def check(self, tx: Tx, publication: Publication, *, is_directory: bool = False) -> None:
        """Raise Invalid for fields that are out of bounds, and for named records that do not exist."""
        errors = publication.errors(is_directory=is_directory) or await self._named_errors(tx, publication)
        if errors:
            listed = "; ".join(f"{error.pointer[1:]} {error.message}" for error in errors)
            raise Invalid(f"The artifact was not published: {listed}.", errors)

    async def same(
        self, tx: Tx, thread_id: str, publication: Publication, row: FileRow, by: Producer | None
    ) -> Artifact | None:
        """Return the last record of this path if it equals the requested one (a repeated upload), else
        None. `by` is the unit of work that uploads, None for a host."""
        last = await store.newest_at(tx, thread_id=thread_id, channel=publication.channel, path=row.path)
        if last is None or last.withdrawn:
            return None
        revision = await self._revision(tx, publication)
        record = artifact_record(
            last.id, publication, row.path, self.target(row), by or NOBODY, row.at, revision
        )
        new, old = ({k: v for k, v in r.items() if k not in OWN_FIELDS} for r in (record, last.record))
        producer = last.record["producer"]
        same_producer = producer["kind"] == NOBODY.kind if by is None else _is_same_producer(producer, by)
        return last if same_producer and new == old else None

    @staticmethod
    def target(row: FileRow) -> ArtifactTarget:
        return ArtifactTarget(row.body.digest, row.size_bytes, row.size_bytes, row.media_type)

    async def _named_errors(self, tx: Tx, publication: Publication) -> list[FieldError]:
        """Return the errors in the records that a publication names."""
        ids = [id for id in (publication.replaces, *publication.parents) if id is not None]
        artifacts = await store.load_named(tx, ids=ids) if ids else {}
        errors = []
        if publication.replaces is not None:
            replaced, channel = artifacts.get(publication.replaces), publication.channel
            if replaced is None:
                errors.append(FieldError("/replaces", f"names no artifact: {publication.replaces[:60]!r}"))
            elif replaced.channel != channel:
                message = f"names an artifact of channel {replaced.channel!r}, and only one of {channel!r} can be replaced"
                errors.append(FieldError("/replaces", message))
        for n, parent in enumerate(publication.parents):
            if parent not in artifacts:
                errors.append(FieldError(f"/parentArtifactIds/{n}", f"names no artifact: {parent[:60]!r}"))
        return errors

    async def _revision(self, tx: Tx, publication: Publication) -> Revision | None:
        """Return the place of a publication in its chain of replacements. Raise NotFound if the replaced artifact was
        deleted."""
        replaces = publication.replaces
        if replaces is None:
            return None
        replaced = (await store.load_named(tx, ids=[replaces])).get(replaces)
        if replaced is None:
            raise ArtifactNotFound(f"There is no artifact {replaces!r}.")
        return Revision(replaced.first_id or replaces, replaced.revision + 1)

    async def producer(self, tx: Tx, work_id: str, call_id: str, action_index: int | None = None) -> Producer:
        """Return the unit of work that a work record belongs to: for a call, the agent's run that made it. If
        `call_id` carries out one action of a plan, the producer names it; if it carries out several, the publisher
        may name one of them. Raise NotFound, or Invalid for an action that the call does not carry out."""
        unit = await store.producer(tx, work_id=work_id)
        if unit is None:
            raise NotFound(f"There is no work record {work_id!r}.")
        plan_id, index = await self._action(tx, call_id, action_index)
        return replace(unit, call_id=call_id, plan_id=plan_id, action_index=index)

    async def _action(self, tx: Tx, call_id: str, index: int | None) -> tuple[str | None, int | None]:
        """Return the plan and the action that a call carries out. Raise Invalid."""
        actions = await store.actions_of_call(tx, call_id=call_id)
        indexes = [action.index for action in actions]
        if index is not None and index not in indexes:
            listed = f"the actions {', '.join(map(str, indexes[:20]))}" if indexes else "no plan action"
            raise Invalid(
                f"The artifact was not published: the call {call_id} carries out {listed}, not action {index}.",
                [FieldError("/actionIndex", "must be the index of an action that the call carries out")],
            )
        if not actions:
            return None, None
        return actions[0].plan_id, indexes[0] if len(indexes) == 1 else index

    async def host(self, tx: Tx, thread_id: str, name: str = "publish", principal: str = "") -> Producer:
        """Return a work record for a host that does something with artifacts. Raise NotFound."""
        await lock_thread(tx, thread_id)
        work_id = new_id("wrk_")
        await add_host_work(tx, id=work_id, thread_id=thread_id, name=name, principal=principal)
        return Producer(work_id, None, "host", thread_id)

    # -- reading ---------------------------------------------------------------------------------------------

    async def read(self, tx: Tx, id: str) -> Artifact:
        """Return an artifact. Raise ArtifactNotFound."""
        artifact = await store.by_id(tx, id=id) if is_id("art_", id) else None
        if artifact is None:
            raise ArtifactNotFound(f"There is no artifact {id!r}.")
        return artifact

    async def of_call(self, tx: Tx, call_id: str) -> Artifact | None:
        """Return the artifact that a call published, or None."""
        return await store.of_call(tx, call_id=call_id)

    async def page(self, tx: Tx, filters: ArtifactFilter, limit: int) -> tuple[list[Artifact], str | None]:
        """Return the artifacts that pass the filters, newest first, and the id after which the next page
        begins, if there may be more. A page reads no more than `MAX_SCANNED_ARTIFACTS` records."""
        await tx.set_repeatable_read()
        scan_limit = MAX_SCANNED_ARTIFACTS
        artifacts = await store.page(tx, filters=filters, limit=limit + 1, scan_limit=scan_limit)
        if len(artifacts) > limit:
            return artifacts[:limit], artifacts[limit - 1].id
        return artifacts, await store.last_scanned(tx, filters=filters, scan_limit=scan_limit)

    async def of_work(self, tx: Tx, work_id: str) -> list[Artifact]:
        """Return the artifacts that a unit of work published, oldest first."""
        return await store.of_work(tx, work_id=work_id, limit=MAX_ARTIFACTS_OF_WORK)

    async def of_actions(
        self, tx: Tx, plan_id: str, actions: Sequence[tuple[int, str | None]]
    ) -> dict[int, tuple[list[dict[str, Any]], bool]]:
        """Return the first artifacts of each plan action, oldest first, and whether there are more. `actions` are indexes,
        each with the id of its call. An artifact of a call that carries out several actions, and names none, is listed with
        each of them."""
        by_key: dict[int | str | None, list[PlanArtifact]] = {}
        for artifact in await store.of_actions(
            tx,
            plan_id=plan_id,
            indexes=[index for index, _ in actions],
            call_ids=list({call_id for _, call_id in actions if call_id is not None}),
            limit=MAX_ARTIFACTS_OF_ACTION + 1,
        ):
            key = artifact.call_id if artifact.action_index is None else artifact.action_index
            by_key.setdefault(key, []).append(artifact)
        listed = {}
        for index, call_id in actions:
            of_call = [] if call_id is None else by_key.get(call_id, [])
            oldest = sorted([*by_key.get(index, []), *of_call], key=attrgetter("id"))
            first = [
                {name: getattr(artifact, name) for name in ("id", "channel", "path", "status")}
                for artifact in oldest[:MAX_ARTIFACTS_OF_ACTION]
            ]
            listed[index] = first, len(oldest) > MAX_ARTIFACTS_OF_ACTION
        return listed

    async def note(self, tx: Tx, work_id: str, records: Sequence[tuple[Artifact, int]]) -> None:
        """Record that a call was given these artifacts' records in place of their bodies, and how many
        bytes of each went to a model."""
        if records:
            uses = [ArtifactUse(a.id, a.record["sizeBytes"], size) for a, size in records]
            await store.note_uses(tx, work_id=work_id, uses=uses)

    async def body(self, tenant: str, id: str, within: str | None) -> StoredBody:
        """Return the published bytes of a file, of a directory's list, or of a file in a directory. Raise
        NotFound."""
        async with self._db.transaction(tenant) as tx:
            artifact = await self.read(tx, id)
        body = StoredBody(artifact.digest, artifact.body_bytes)
        if within is None:
            return body
        if not artifact.record.get("isDirectory"):
            raise NotFound(f"The artifact {id!r} is a file: read it without `path`.")
        within = paths.normalize(within)
        listed = (await self._workspaces.read_body(tenant, body)).decode()
        line = next((line for line in listed.splitlines() if line[66:] == within), None)
        file = None
        if line is not None:
            record, digest = artifact.record, bytes.fromhex(line[:64])
            thread_id, path = record["producer"]["threadId"], f"{record['path']}/{within}"
            async with self._db.transaction(tenant) as tx:
                file = await store.version_of(tx, thread_id=thread_id, path=path, digest=digest)
        if file is None:
            raise NotFound(f"The artifact {id!r} has no file {within!r}.")
        return file

    async def text(self, tenant: str, artifact: Artifact) -> bytes:
        """Return the whole published body, which the caller knows to be small. Raise BlobLost."""
        return await self._workspaces.read_body(tenant, StoredBody(artifact.digest, artifact.body_bytes))

    async def lineage(self, tx: Tx, id: str) -> dict[str, Any]:
        """Return the ancestors and descendants of an artifact, each with the edges that lead to it. Raise
        ArtifactNotFound."""
        artifact = await self.read(tx, id)
        out: dict[str, Any] = {"artifact": artifact.wire()}
        for name, walk in (("ancestors", store.ancestors), ("descendants", store.descendants)):
            steps = await walk(tx, id=id, depth=MAX_LINEAGE_DEPTH, limit=MAX_LINEAGE_ARTIFACTS)
            depths = {id: 0, **steps}
            relatives = await store.by_ids(tx, ids=list(steps))
            edges = lineage_edges([artifact, *relatives], depths)
            out[name] = [
                {"depth": depths[a.id], "edges": edges.get(a.id, []), "artifact": a.wire()} for a in relatives
            ]
        return out

    # -- the end ---------------------------------------------------------------------------------------------

    async def forget(self, tx: Tx, thread_id: str) -> None:
        """Remove the records of a deleted thread (of very many, the newest) and leave a tombstone. Raise
        Conflict if something was published meanwhile."""
        head = await store.head(tx, thread_id=thread_id, deleted=True)
        if head is None:
            return
        seal = self._chainer.seal(tx.tenant, thread_id, head)
        if not await store.delete(tx, thread_id=thread_id, head=head, seal=seal):
            raise Conflict("The thread was published to at the same moment; delete it again.")


def _is_same_producer(before: Mapping[str, Any], by: Producer) -> bool:
    """Return whether a record is of this unit of work and, if it is of a plan action, of the same one."""
    now = by.wire()
    return all(before.get(name) == now.get(name) for name in ("workId", "planId", "actionIndex"))


def lineage_edges(
    artifacts: Sequence[Artifact], depths: Mapping[str, int]
) -> dict[str, list[dict[str, str]]]:
    """Return the edges by which a walk reached each artifact, at most `MAX_EDGES_PER_ARTIFACT` of each: `kind`, and the id of the
    artifact one step nearer to the start, `via`."""
    edges_by_id: dict[str, list[dict[str, str]]] = {}
    for newer in artifacts:
        older_ids = [("parent", id) for id in newer.record.get("parentArtifactIds", ())]
        if "replaces" in newer.record:
            older_ids.append(("replaces", newer.record["replaces"]))
        for kind, older_id in older_ids:
            if abs(depths[newer.id] - depths.get(older_id, depths[newer.id])) != 1:
                continue
            far, near = sorted((newer.id, older_id), key=lambda id: -depths[id])
            if len(edges := edges_by_id.setdefault(far, [])) < MAX_EDGES_PER_ARTIFACT:
                edges.append({"kind": kind, "via": near})
    return edges_by_id


def manifest(folder: str, rows: list[FileRow]) -> bytes:
    """Return the files of a directory with their digests, in the format of `sha256sum`."""
    lines = [f"{row.body.digest.hex()}  {row.path[len(folder) + 1 :]}\n" for row in rows]
    return "".join(lines).encode()
