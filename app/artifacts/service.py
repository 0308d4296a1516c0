"""The verbs of artifacts: publish, read, list, where they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

from app.artifacts import store
from app.artifacts.chain import Chainer, ChainLink
from app.artifacts.models import Artifact, ArtifactTarget, Producer, Publication, Revision, artifact_record
from app.base.errors import Conflict, FieldError, Invalid, NotFound
from app.base.ids import is_id, new_id
from app.base.json import strict_json
from app.base.postgres.database import Database, Tx
from app.engine import work_records
from app.workspace import paths
from app.workspace.models import FileRow, StoredBody
from app.workspace.service import Workspaces, lock_thread, require_thread

LINEAGE_DEPTH: Final = 50
LINEAGE_MOST: Final = 500
EDGES_MOST: Final = 10
OF_WORK_MOST: Final = 100
OF_PLAN_MOST: Final = 2_000
OF_ACTION_MOST: Final = 20
LOOKED_AT: Final = 2_000
"""Records that a page reads at most, however few of them it shows."""
_PAGE: Final = 1000
NOBODY: Final = Producer("", None, "host", "")
OF_ITS_OWN: Final = ("createdAt", "producer")
"""What two records never share, whatever was asked for."""


class ArtifactNotFound(NotFound):
    kind, title = "artifact_not_found", "There is no such artifact"


class TargetMoved(Conflict):
    """What is at the path changed while it was published."""

    kind, title = "target_moved", "The target changed while it was published"


class ArtifactService:
    def __init__(self, db: Database, workspaces: Workspaces, chainer: Chainer) -> None:
        self._db = db
        self._workspaces = workspaces
        self._chainer = chainer

    # -- publishing ------------------------------------------------------------------------------------------

    async def prepare(self, tenant: str, thread_id: str, path: str) -> ArtifactTarget:
        """Return what is at a path; the list of a directory's files is put into the blob store. Raise
        NotFound or PathNotAllowed."""
        asked = paths.normalize(path)
        async with self._db.transaction(tenant) as tx:
            await require_thread(tx, thread_id)
            row = await self._workspaces.find_file(tx, thread_id, asked)
            if row is not None:
                return self.target(row)
            rows = await self._files_below(tx, thread_id, asked)
        if not rows:
            raise NotFound(
                f"There is nothing at {asked!r} in the workspace: write it first, then publish it."
            )
        listed = manifest(asked, rows)
        body = await self._workspaces.keep(tenant, listed)
        return ArtifactTarget(
            body.digest, sum(r.size_bytes for r in rows), body.size, None, is_directory=True
        )

    async def _files_below(self, tx: Tx, thread_id: str, folder: str) -> list[FileRow]:
        rows: list[FileRow] = []
        while True:
            after = rows[-1].path if rows else ""
            more = await self._workspaces.list_files(tx, thread_id, f"{folder}/", after, _PAGE)
            rows += more
            if len(more) < _PAGE:
                return rows

    async def publish(
        self, tx: Tx, asked: Publication, target: ArtifactTarget, producer: Producer
    ) -> Artifact:
        """Add a record, and return it. `target` was prepared. Raise NotFound, Invalid or TargetMoved if nothing was
        written."""
        await lock_thread(tx, producer.thread_id)
        path = paths.normalize(asked.path)
        await self.check(tx, asked, is_directory=target.is_directory)
        head, at = await store.lock(tx, producer.thread_id)
        now = await store.present_digest(tx, producer.thread_id, path, is_directory=target.is_directory)
        if now != target.digest:
            raise TargetMoved(f"{path!r} changed while it was being published; publish it again.")
        revision = await self._revision(tx, asked)
        record = artifact_record(new_id("art_"), asked, path, target, producer, at, revision)
        data = strict_json.canonical(record)
        n = head.n + 1
        mac = self._chainer.mac(tx.tenant, producer.thread_id, n, head.mac, data)
        link = ChainLink(record["id"], n, data, head.mac, mac)
        await store.add(tx, link, record, target, producer, at)
        return await self.read(tx, link.id)

    async def lock(self, tx: Tx, thread_id: str) -> None:
        """For who writes a file and publishes it in one transaction: the chain is locked before any body. The caller holds
        the thread."""
        await store.lock(tx, thread_id)

    async def check(self, tx: Tx, asked: Publication, *, is_directory: bool = False) -> None:
        """Raise Invalid for what is out of bounds, and for named records that do not exist."""
        flaws = asked.flaws(is_directory=is_directory) or await self._foreign(tx, asked)
        if flaws:
            listed = "; ".join(f"{flaw.pointer[1:]} {flaw.message}" for flaw in flaws)
            raise Invalid(f"The artifact was not published: {listed}.", flaws)

    async def same(
        self, tx: Tx, thread_id: str, asked: Publication, row: FileRow, by: Producer | None
    ) -> Artifact | None:
        """Return the last record of this path if it equals the requested one (a repeated upload), else
        None. `by` is the unit of work that uploads, None for a host."""
        made = await store.newest_at(tx, thread_id, asked.channel, row.path)
        if made is None or made.withdrawn:
            return None
        revision = await self._revision(tx, asked)
        wanted = artifact_record(made.id, asked, row.path, self.target(row), by or NOBODY, row.at, revision)
        told, before = ({k: v for k, v in r.items() if k not in OF_ITS_OWN} for r in (wanted, made.record))
        producer = made.record["producer"]
        its_own = producer["kind"] == NOBODY.kind if by is None else _is_same_producer(producer, by)
        return made if its_own and told == before else None

    @staticmethod
    def target(row: FileRow) -> ArtifactTarget:
        return ArtifactTarget(row.body.digest, row.size_bytes, row.size_bytes, row.media_type)

    async def _foreign(self, tx: Tx, asked: Publication) -> list[FieldError]:
        """Return the errors in the records that a publication names."""
        named = [*([asked.replaces] if asked.replaces else []), *asked.parents]
        found = await store.named(tx, named) if named else {}
        flaws = []
        if asked.replaces is not None:
            replaced = found.get(asked.replaces)
            if replaced is None:
                flaws.append(FieldError("/replaces", f"names no artifact: {asked.replaces[:60]!r}"))
            elif replaced["channel"] != asked.channel:
                only = f"only one of {asked.channel!r} can be replaced"
                flaws.append(
                    FieldError(
                        "/replaces",
                        f"names an artifact of channel {replaced['channel']!r}, and {only}",
                    )
                )
        for n, parent in enumerate(asked.parents):
            if parent not in found:
                flaws.append(FieldError(f"/parentArtifactIds/{n}", f"names no artifact: {parent[:60]!r}"))
        return flaws

    async def _revision(self, tx: Tx, asked: Publication) -> Revision | None:
        """Return the place of a publication in the chain of what it replaces. Raise NotFound if that was deleted."""
        if asked.replaces is None:
            return None
        replaced = (await store.named(tx, [asked.replaces])).get(asked.replaces)
        if replaced is None:
            raise ArtifactNotFound(f"There is no artifact {asked.replaces!r}.")
        return Revision(replaced["first_id"] or asked.replaces, replaced["revision"] + 1)

    async def producer(self, tx: Tx, work_id: str, call_id: str, action_index: int | None = None) -> Producer:
        """Return the unit of work that a work record belongs to: for a call, the agent's run that made it. If
        `call_id` carries out one action of a plan, the producer names it; if it carries out several, the publisher
        may name one of them. Raise NotFound, or Invalid for an action that the call does not carry out."""
        row = await store.unit(tx, work_id)
        if row is None:
            raise NotFound(f"There is no work record {work_id!r}.")
        return Producer(
            row["id"],
            row["parent_id"],
            row["kind"],
            row["thread_id"],
            row["query_id"],
            row["agent"] or None,
            row["model"],
            call_id,
            *await self._action(tx, call_id, action_index),
        )

    async def _action(self, tx: Tx, call_id: str, index: int | None) -> tuple[str | None, int | None]:
        """Return the plan and the action that a call carries out. Raise Invalid."""
        found = await store.actions_of_call(tx, call_id)
        indexes = [row["index"] for row in found]
        if index is not None and index not in indexes:
            carried = f"the actions {', '.join(map(str, indexes[:20]))}" if indexes else "no plan action"
            raise Invalid(
                f"The artifact was not published: the call {call_id} carries out {carried}, not action {index}.",
                [FieldError("/actionIndex", "must be the index of an action that the call carries out")],
            )
        if not found:
            return None, None
        return found[0]["plan_id"], indexes[0] if len(indexes) == 1 else index

    async def host(self, tx: Tx, thread_id: str, name: str = "publish", principal: str = "") -> Producer:
        """Return a work record for a host that does something with artifacts. Raise NotFound."""
        await lock_thread(tx, thread_id)
        work_id = new_id("wrk_")
        await work_records.add_host(tx, work_id, thread_id, name, principal)
        return Producer(work_id, None, "host", thread_id)

    # -- reading ---------------------------------------------------------------------------------------------

    async def read(self, tx: Tx, id: str) -> Artifact:
        """Return an artifact. Raise ArtifactNotFound."""
        found = await store.by_id(tx, id) if is_id("art_", id) else None
        if found is None:
            raise ArtifactNotFound(f"There is no artifact {id!r}.")
        return found

    async def of_call(self, tx: Tx, call_id: str) -> Artifact | None:
        """Return what a call published, or None."""
        return await store.of_call(tx, call_id)

    async def page(
        self, tx: Tx, filters: Mapping[str, Any], status: str | None, limit: int
    ) -> tuple[list[Artifact], str | None]:
        """Return the records that pass all filters, newest first, and the id after which the next page
        begins, if there may be more. A page looks at no more than `LOOKED_AT` records."""
        await tx.set_repeatable_read()
        rows = await store.page(tx, filters, status, limit + 1, LOOKED_AT)
        if len(rows) > limit:
            return rows[:limit], rows[limit - 1].id
        return rows, await store.looked_at_count(tx, filters, LOOKED_AT)

    async def of_work(self, tx: Tx, work_id: str) -> list[Artifact]:
        """Return what a unit of work published, oldest first."""
        return await store.of_work(tx, work_id, OF_WORK_MOST)

    async def of_actions(
        self, tx: Tx, plan_id: str, actions: Sequence[tuple[int, str | None]]
    ) -> dict[int, list[dict[str, Any]]]:
        """Return the first artifacts of each plan action, oldest first. `actions` are indexes, each with the id of its
        call. An artifact of a call that carries out several actions, and names none, is listed with each of them."""
        found: dict[int | str, list[dict[str, Any]]] = {}
        for row in await store.of_plan(tx, plan_id, OF_PLAN_MOST):
            key = row["call_id"] if row["action_index"] is None else row["action_index"]
            if len(listed := found.setdefault(key, [])) < OF_ACTION_MOST:
                listed.append({name: row[name] for name in ("id", "channel", "path", "status")})
        return {
            index: sorted(
                [*found.get(index, ()), *(found.get(call_id, ()) if call_id else ())], key=itemgetter("id")
            )[:OF_ACTION_MOST]
            for index, call_id in actions
        }

    async def note(self, tx: Tx, work_id: str, shown: Sequence[tuple[Artifact, int]]) -> None:
        """Record that a call was given these artifacts' records in place of their bodies, and how many
        bytes of each went to a model."""
        if shown:
            await store.note_uses(tx, work_id, [(a.id, a.record["sizeBytes"], size) for a, size in shown])

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
        asked = paths.normalize(within)
        listed = (await self._workspaces.read_body(tenant, body)).decode()
        line = next((line for line in listed.splitlines() if line[66:] == asked), None)
        found = None
        if line is not None:
            record, digest = artifact.record, bytes.fromhex(line[:64])
            async with self._db.transaction(tenant) as tx:
                found = await store.version_of(
                    tx, record["producer"]["threadId"], f"{record['path']}/{asked}", digest
                )
        if found is None:
            raise NotFound(f"The artifact {id!r} has no file {asked!r}.")
        return found

    async def text(self, tenant: str, artifact: Artifact) -> bytes:
        """Return the whole published body, which the caller knows to be small. Raise BlobLost."""
        return await self._workspaces.read_body(tenant, StoredBody(artifact.digest, artifact.body_bytes))

    async def lineage(self, tx: Tx, id: str) -> dict[str, Any]:
        """Return the ancestors and descendants of an artifact, each with the edges that lead to it. Raise
        ArtifactNotFound."""
        artifact = await self.read(tx, id)
        out: dict[str, Any] = {"artifact": artifact.wire()}
        for name, walk in (("ancestors", store.ancestors), ("descendants", store.descendants)):
            depths = {id: 0, **dict(await walk(tx, id, LINEAGE_DEPTH, LINEAGE_MOST))}
            held = await store.by_ids(tx, [step for step in depths if step != id])
            edges = lineage_edges([artifact, *held], depths)
            out[name] = [
                {"depth": depths[a.id], "edges": edges.get(a.id, []), "artifact": a.wire()} for a in held
            ]
        return out

    # -- the end ---------------------------------------------------------------------------------------------

    async def forget(self, tx: Tx, thread_id: str) -> None:
        """Remove the records of a deleted thread (the newest of very many) and leave a tombstone. Raise
        Conflict if something was published meanwhile."""
        head = await store.head(tx, thread_id, deleted=True)
        if head is None:
            return
        if not await store.forget(tx, thread_id, head, self._chainer.seal(tx.tenant, thread_id, head)):
            raise Conflict("The thread was published to at the same moment; delete it again.")


def _is_same_producer(before: Mapping[str, Any], by: Producer) -> bool:
    """Return whether a record is of this unit of work and, if it is of a plan action, of the same one."""
    now = by.wire()
    return all(before.get(name) == now.get(name) for name in ("workId", "planId", "actionIndex"))


def lineage_edges(
    artifacts: Sequence[Artifact], depths: Mapping[str, int]
) -> dict[str, list[dict[str, str]]]:
    """Return the edges by which a walk reached each artifact, at most `EDGES_MOST` of each: `kind`, and the id of the
    artifact one step nearer to the start, `via`."""
    found: dict[str, list[dict[str, str]]] = {}
    for newer in artifacts:
        older_ids = [("parent", id) for id in newer.record.get("parentArtifactIds", ())]
        if "replaces" in newer.record:
            older_ids.append(("replaces", newer.record["replaces"]))
        for kind, older_id in older_ids:
            if abs(depths[newer.id] - depths.get(older_id, depths[newer.id])) != 1:
                continue
            far, near = sorted((newer.id, older_id), key=lambda id: -depths[id])
            if len(edges := found.setdefault(far, [])) < EDGES_MOST:
                edges.append({"kind": kind, "via": near})
    return found


def manifest(folder: str, rows: list[FileRow]) -> bytes:
    """Return the files of a directory with their digests, in the format of `sha256sum`."""
    lines = [f"{row.body.digest.hex()}  {row.path[len(folder) + 1 :]}\n" for row in rows]
    return "".join(lines).encode()
