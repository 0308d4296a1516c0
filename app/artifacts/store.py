"""All SQL of artifacts. Records are only added."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from app.artifacts.chain import START, ChainHead, ChainLink, MovedHead, StoredLink, Tombstone
from app.artifacts.models import (
    Artifact,
    ArtifactFilter,
    ArtifactTarget,
    ArtifactUse,
    CallAction,
    NamedArtifact,
    PlanArtifact,
    Producer,
    load_record,
)
from app.base.postgres.database import Database, Tx
from app.workspace.models import StoredBody

# Publications in one thread wait for each other here: a record's number is its place in the chain.
LOCK = "SELECT n, mac, now() AS at FROM artifact_chains WHERE tenant_id = $1 AND thread_id = $2 FOR NO KEY UPDATE"
OPEN = "INSERT INTO artifact_chains (tenant_id, thread_id, mac) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
MOVE = "UPDATE artifact_chains SET n = $3, mac = $4 WHERE tenant_id = $1 AND thread_id = $2"
ADD = """
INSERT INTO artifacts (tenant_id, id, thread_id, n, record, previous, mac, channel, path, is_directory, digest, body_bytes,
       work_id, parent_work_id, query_id, agent, replaces, first_id, revision, call_id, plan_id, action_index, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23)
"""
ADD_TAGS = "INSERT INTO artifact_tags (tenant_id, tag, artifact_id) SELECT $1, unnest($2::text[]), $3"
ADD_PARENTS = (
    "INSERT INTO artifact_parents (tenant_id, artifact_id, parent_id) SELECT $1, $2, unnest($3::text[])"
)
# Idempotent by the work, which repeats the use after a crash.
NOTE_USES = """
INSERT INTO artifact_uses (tenant_id, work_id, artifact_id, size_bytes, prompt_bytes)
SELECT $1, $2, n.* FROM unnest($3::text[], $4::bigint[], $5::bigint[]) AS n ON CONFLICT DO NOTHING
"""
NAMED = (
    "SELECT id, thread_id, channel, first_id, revision FROM artifacts WHERE tenant_id = $1 AND id = ANY ($2)"
)

MAX_LISTED_COMPETITORS: Final = 100
MAX_WITHDRAWN_SUCCESSORS: Final = 1_000
"""Withdrawn revisions after a record that its status looks at. A record with more of them stays superseded."""
# OFFSET: one index scan for each record that is read, instead of collecting all replacements first.
WITHDRAWN = """EXISTS (SELECT FROM artifact_decisions d WHERE d.tenant_id = $1 AND d.artifact_id = {id} AND d.kind = 'withdraw'
 OFFSET 0)"""
# Whether a revision after a record is in use: one that is not withdrawn. The walk continues only behind withdrawn ones.
REPLACED = f"""EXISTS (SELECT FROM (
    WITH RECURSIVE newer(id, is_withdrawn) AS (
        SELECT s.id, {WITHDRAWN.format(id="s.id")} FROM artifacts s WHERE s.tenant_id = $1 AND s.replaces = {{id}}
        UNION ALL
        SELECT s.id, {WITHDRAWN.format(id="s.id")} FROM newer w JOIN artifacts s ON s.tenant_id = $1 AND s.replaces = w.id
         WHERE w.is_withdrawn)
    SELECT is_withdrawn, row_number() OVER () AS n FROM newer LIMIT {MAX_WITHDRAWN_SUCCESSORS}) r
 WHERE NOT r.is_withdrawn OR r.n = {MAX_WITHDRAWN_SUCCESSORS})"""
# A choice holds as long as the chosen record, or a revision after it, is not withdrawn.
PASSED_OVER = f"""EXISTS (SELECT FROM (
    SELECT d.artifact_id FROM artifact_choices c JOIN artifact_decisions d ON d.tenant_id = $1 AND d.id = c.decision_id
     WHERE c.tenant_id = $1 AND c.over_id = {{id}} OFFSET 0) chosen
 WHERE NOT {WITHDRAWN.format(id="chosen.artifact_id")} OR {REPLACED.format(id="chosen.artifact_id")})"""
STATUS = f"""CASE WHEN {WITHDRAWN.format(id="a.id")} THEN 'withdrawn'
 WHEN {REPLACED.format(id="a.id")} OR {PASSED_OVER.format(id="a.id")} THEN 'superseded' ELSE 'active' END"""
# Revisions of the same record that no decision in force is about; none for a revision that one is about.
RIVALS = f"""SELECT o.id FROM artifacts o WHERE o.tenant_id = $1 AND o.replaces = a.replaces AND o.id <> a.id
   AND NOT {WITHDRAWN.format(id="o.id")} AND NOT {PASSED_OVER.format(id="o.id")}
   AND NOT {WITHDRAWN.format(id="a.id")} AND NOT {PASSED_OVER.format(id="a.id")}"""
MAX_LISTED_DECISIONS: Final = 100
DECISIONS = f"""SELECT x.record FROM (
        SELECT d.id, d.record FROM artifact_decisions d WHERE d.tenant_id = $1 AND d.artifact_id = a.id
        UNION ALL
        SELECT d.id, d.record FROM artifact_choices c JOIN artifact_decisions d ON d.tenant_id = $1 AND d.id = c.decision_id
         WHERE c.tenant_id = $1 AND c.over_id = a.id) x ORDER BY x.id LIMIT {MAX_LISTED_DECISIONS}"""
COLUMNS = f"""a.record, a.thread_id, a.path, a.is_directory, a.body_bytes, {STATUS} AS status,
       {PASSED_OVER.format(id="a.id")} AS passed_over, ARRAY({DECISIONS}) AS decisions,
       ARRAY({RIVALS} ORDER BY o.id LIMIT {MAX_LISTED_COMPETITORS}) AS competes_with"""
COMPETING = f"SELECT o.id FROM artifacts a, LATERAL ({RIVALS}) o WHERE a.tenant_id = $1 AND a.id = $2"
WITH_STATUS = f"SELECT {COLUMNS} FROM artifacts a"
BY_IDS = f"{WITH_STATUS} WHERE a.tenant_id = $1 AND a.id = ANY ($2)"
OF_CALL = f"{WITH_STATUS} WHERE a.tenant_id = $1 AND a.call_id = $2 ORDER BY a.id LIMIT 1"
OF_WORK = f"{WITH_STATUS} WHERE a.tenant_id = $1 AND a.work_id = $2 ORDER BY a.id LIMIT $3"
NEWEST_AT = f"""
{WITH_STATUS} WHERE a.tenant_id = $1 AND a.thread_id = $2 AND a.channel = $3 AND a.path = $4 ORDER BY a.id DESC LIMIT 1
"""
# The condition of each filter; $? is its value. The first filter that is set, but for `since`, finds the records by its
# index, newest first; the others drop some of them.
FILTERS: Final[Mapping[str, str]] = {
    "call_id": "a.call_id = $?",
    "plan_id": "a.plan_id = $?",
    "work_id": "a.work_id = $?",
    "query_id": "a.query_id = $?",
    "parent_work_id": "a.parent_work_id = $?",
    "thread_id": "a.thread_id = $?",
    "tag": """EXISTS (SELECT FROM artifact_tags t WHERE t.tenant_id = $1 AND t.artifact_id = a.id AND t.tag = $?
                     OFFSET 0)""",
    "agent": "a.agent = $?",
    "channel": "a.channel = $?",
    "action_index": "a.action_index = $?",
    "since": "a.created_at >= $?",
}
# Finds records by a tag, in the order of their ids.
TAGGED = """(SELECT b.*, t.artifact_id, t.tag FROM artifact_tags t CROSS JOIN LATERAL
 (SELECT * FROM artifacts b WHERE b.tenant_id = $1 AND b.id = t.artifact_id OFFSET 0) b) a"""

# The plan actions that a call carries out; what was published for actions; and what calls of several actions published for
# none of them in particular: the oldest of each.
ACTIONS_OF_CALL = (
    "SELECT plan_id, index FROM plan_actions WHERE tenant_id = $1 AND work_id = $2 ORDER BY index"
)
_PUBLISHED = f"a.id, a.channel, a.path, a.call_id, a.action_index, {STATUS} AS status"
OF_ACTIONS = f"""
SELECT x.* FROM unnest($3::int[]) AS n(action_index) CROSS JOIN LATERAL (
       SELECT {_PUBLISHED} FROM artifacts a
        WHERE a.tenant_id = $1 AND a.plan_id = $2 AND a.action_index = n.action_index ORDER BY a.id LIMIT $4) x
"""
OF_BATCHES = f"""
SELECT x.* FROM unnest($3::text[]) AS n(call_id) CROSS JOIN LATERAL (
       SELECT {_PUBLISHED} FROM artifacts a
        WHERE a.tenant_id = $1 AND a.plan_id = $2 AND a.action_index IS NULL AND a.call_id = n.call_id
        ORDER BY a.id LIMIT $4) x
"""

# The digest of the file that is now at the path of a target (NULL if it was deleted), or of the list of a directory's
# files, in the format of `sha256sum`. Without $5 the files of a directory are not read: its digest is empty if it has any.
# OFFSET: one index scan for each file. Before ANALYZE of a new workspace, a plain join read all versions for all files.
PRESENT = """
SELECT CASE WHEN n.is_directory AND NOT $5 THEN
         (SELECT ''::bytea FROM workspace_files f
           WHERE f.tenant_id = $1 AND f.thread_id = n.thread_id AND NOT f.deleted
             AND f.path >= (n.path || '/') COLLATE "C" AND f.path < (n.path || '0') COLLATE "C" LIMIT 1)
       WHEN n.is_directory THEN
         (SELECT sha256(convert_to(string_agg(encode(v.digest, 'hex') || '  ' || substr(f.path, char_length(n.path) + 2)
                                              || E'\\n', '' ORDER BY f.path), 'UTF8'))
            FROM (SELECT path, version FROM workspace_files f
                   WHERE f.tenant_id = $1 AND f.thread_id = n.thread_id AND NOT f.deleted
                     AND f.path >= (n.path || '/') COLLATE "C" AND f.path < (n.path || '0') COLLATE "C" OFFSET 0) f
                 CROSS JOIN LATERAL (SELECT digest FROM workspace_versions v WHERE v.tenant_id = $1
                     AND v.thread_id = n.thread_id AND v.path = f.path AND v.version = f.version OFFSET 0) v)
       ELSE
         (SELECT v.digest
            FROM (SELECT path, version FROM workspace_files f
                   WHERE f.tenant_id = $1 AND f.thread_id = n.thread_id AND f.path = n.path OFFSET 0) f
                 CROSS JOIN LATERAL (SELECT digest FROM workspace_versions v WHERE v.tenant_id = $1
                     AND v.thread_id = n.thread_id AND v.path = f.path AND v.version = f.version OFFSET 0) v)
       END AS digest
  FROM unnest($2::text[], $3::text[], $4::boolean[]) WITH ORDINALITY AS n(thread_id, path, is_directory, place)
 ORDER BY n.place
"""
# A file of a directory that was published: bodies are kept as long as a version names them.
VERSION_OF = """
SELECT digest, size_bytes FROM workspace_versions
 WHERE tenant_id = $1 AND thread_id = $2 AND path = $3 AND digest = $4 LIMIT 1
"""
# Each record once, at its shortest distance, along parents and along `replaces`. A record names only older ones, so there is
# no cycle. The walk goes level by level and ends after $4 steps.
WALK = """
WITH RECURSIVE walk(id, depth) AS (
    SELECT $2::text COLLATE "C", 0
    UNION
    SELECT next.id, w.depth + 1 FROM walk w CROSS JOIN LATERAL (
           (SELECT {to} AS id FROM artifact_parents WHERE tenant_id = $1 AND {at} = w.id ORDER BY {to} LIMIT $4)
           UNION ALL
           (SELECT {newer} FROM artifacts WHERE tenant_id = $1 AND {older} = w.id AND replaces IS NOT NULL
             ORDER BY {newer} LIMIT $4)) next
     WHERE w.depth < $3)
SELECT id, min(depth) AS depth FROM (SELECT id, depth FROM walk LIMIT $4) reached WHERE depth > 0
 GROUP BY id ORDER BY min(depth), id LIMIT $5
"""
ANCESTORS = WALK.format(to="parent_id", at="artifact_id", newer="replaces", older="id")
DESCENDANTS = WALK.format(to="artifact_id", at="parent_id", newer="id", older="replaces")
MAX_WALK_STEPS: Final = 5_000

# The unit of work that a work record belongs to: for a call, the unit that made it; the run of an agent, if there is one, also
# for actions of its plan.
UNIT = """
WITH RECURSIVE up(id, parent_id, kind, query_id, thread_id, agent, depth) AS (
    SELECT id, parent_id, kind, query_id, thread_id, agent, 0 FROM work_records WHERE tenant_id = $1 AND id = $2
    UNION ALL
    SELECT w.id, w.parent_id, w.kind, w.query_id, w.thread_id, w.agent, up.depth + 1
      FROM up JOIN work_records w ON w.tenant_id = $1 AND w.id = up.parent_id
     WHERE up.kind IN ('tool_call', 'model_call', 'action', 'predicate', 'plan_execution') AND up.depth < 10)
SELECT up.id AS work_id, up.parent_id AS parent_work_id, up.kind, up.thread_id, up.query_id, nullif(up.agent, '') AS agent,
       (SELECT m.model FROM work_records m WHERE m.tenant_id = $1 AND m.query_id = up.query_id AND m.parent_id = up.id
                 AND m.kind = 'model_call' ORDER BY m.position DESC LIMIT 1) AS model
  FROM up
 ORDER BY up.kind = 'agent' DESC, up.kind NOT IN ('tool_call', 'model_call', 'action', 'predicate') DESC, up.depth LIMIT 1
"""
TENANTS = "SELECT tenant_id FROM tenant_ids()"
# Excludes the chain of a deleted thread, which has a tombstone: its last records, and with them the chain, are deleted later.
NOT_DELETED = """NOT (
 EXISTS (SELECT FROM artifact_tombstones s WHERE s.tenant_id = $1 AND s.thread_id = c.thread_id)
 AND EXISTS (SELECT FROM due_deletions(2147483647) g WHERE g.tenant_id = $1 AND g.id = c.thread_id))"""
CHAINS = f"""
SELECT thread_id, n, mac FROM artifact_chains c WHERE c.tenant_id = $1 AND thread_id > $2 AND {NOT_DELETED}
 ORDER BY thread_id LIMIT $3
"""
# Threads that have records, from one to the next along the index, and whether they have a chain.
WITH_RECORDS = """
WITH RECURSIVE t(id) AS (
    (SELECT thread_id FROM artifacts WHERE tenant_id = $1 AND thread_id > $2 ORDER BY thread_id LIMIT 1)
    UNION ALL
    SELECT (SELECT a.thread_id FROM artifacts a WHERE a.tenant_id = $1 AND a.thread_id > t.id ORDER BY a.thread_id LIMIT 1)
      FROM t WHERE t.id IS NOT NULL)
SELECT t.id, EXISTS (SELECT FROM artifact_chains c WHERE c.tenant_id = $1 AND c.thread_id = t.id) AS chained
  FROM t WHERE t.id IS NOT NULL LIMIT $3
"""
LINKS = """
SELECT id, thread_id, n, record, previous, mac, channel, path, is_directory, digest, work_id, parent_work_id,
       query_id, agent, replaces, first_id, revision, call_id, plan_id, action_index, created_at, body_bytes,
       (SELECT b.size_bytes FROM blobs b WHERE b.tenant_id = $1 AND b.digest = a.digest) AS stored_bytes,
       ARRAY(SELECT t.tag FROM artifact_tags t WHERE t.tenant_id = $1 AND t.artifact_id = a.id) AS tags,
       ARRAY(SELECT p.parent_id FROM artifact_parents p WHERE p.tenant_id = $1 AND p.artifact_id = a.id) AS parents
  FROM artifacts a WHERE a.tenant_id = $1 AND thread_id = $2 AND n > $3 ORDER BY n LIMIT $4
"""
TOMBSTONES = f"""
SELECT thread_id, n, mac, seal,
       EXISTS (SELECT FROM artifact_chains c WHERE c.tenant_id = $1 AND c.thread_id = d.thread_id AND {NOT_DELETED}) AS is_back
  FROM artifact_tombstones d WHERE d.tenant_id = $1 AND thread_id > $2 ORDER BY thread_id LIMIT $3
"""
CHAIN_LINKS = """
SELECT thread_id, n, mac, seal FROM artifact_chain_links
 WHERE tenant_id = $1 AND (thread_id, n, mac) > ($2, $3, $4) ORDER BY thread_id, n, mac LIMIT $5
"""
# For the owner of the database only, while a tenant is imported.
REPLACE_MACS = """
UPDATE artifacts a SET previous = m.previous, mac = m.mac
  FROM unnest($2::text[], $3::bytea[], $4::bytea[]) AS m(id, previous, mac) WHERE a.tenant_id = $1 AND a.id = m.id
"""
ADD_CHAIN_LINK = """
INSERT INTO artifact_chain_links (tenant_id, thread_id, n, mac, seal) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING
"""
REPLACE_LINK_SEAL = """
UPDATE artifact_chain_links SET seal = $5 WHERE tenant_id = $1 AND thread_id = $2 AND n = $3 AND mac = $4
"""
REPLACE_TOMBSTONE_SEAL = "UPDATE artifact_tombstones SET seal = $3 WHERE tenant_id = $1 AND thread_id = $2"
HEAD = "SELECT n, mac FROM artifact_chains c WHERE c.tenant_id = $1 AND c.thread_id = $2"
HEAD_NOT_DELETED = f"{HEAD} AND {NOT_DELETED}"
DELETE = "SELECT delete_artifacts($1, $2, $3, $4)"


async def lock(tx: Tx, *, thread_id: str) -> tuple[ChainHead, datetime]:
    """Lock the chain of a thread until the transaction ends. Return its end and the time."""
    row = await tx.row(LOCK, tx.tenant, thread_id)
    if row is None:
        await tx.run(OPEN, tx.tenant, thread_id, START)
        row = await tx.row(LOCK, tx.tenant, thread_id)
    return ChainHead(row["n"], row["mac"]), row["at"]


async def move(tx: Tx, *, thread_id: str, head: ChainHead) -> None:
    """Move the end of a chain to a new record. The caller holds the lock."""
    await tx.run(MOVE, tx.tenant, thread_id, head.n, head.mac)


async def add(
    tx: Tx,
    *,
    link: ChainLink,
    record: Mapping[str, Any],
    target: ArtifactTarget,
    producer: Producer,
    created_at: datetime,
) -> None:
    await tx.run(
        ADD,
        tx.tenant,
        link.id,
        producer.thread_id,
        link.n,
        link.record,
        link.previous,
        link.mac,
        record["channel"],
        record["path"],
        target.is_directory,
        target.digest,
        target.body_bytes,
        producer.work_id,
        producer.parent_work_id,
        producer.query_id,
        producer.agent,
        record.get("replaces"),
        record.get("firstArtifactId"),
        record.get("revision", 1),
        producer.call_id,
        producer.plan_id,
        producer.action_index,
        created_at,
    )
    await move(tx, thread_id=producer.thread_id, head=ChainHead(link.n, link.mac))
    if record.get("tags"):
        await tx.run(ADD_TAGS, tx.tenant, record["tags"], link.id)
    if record.get("parentArtifactIds"):
        await tx.run(ADD_PARENTS, tx.tenant, link.id, record["parentArtifactIds"])


async def load_named(tx: Tx, *, ids: Iterable[str]) -> dict[str, NamedArtifact]:
    """Return the artifacts of these that exist, by id."""
    return {row["id"]: NamedArtifact(**row) for row in await tx.fetch(NAMED, tx.tenant, list(ids))}


async def competing(tx: Tx, *, id: str) -> list[str]:
    """Return the ids of all revisions that compete with an artifact."""
    return [row["id"] for row in await tx.fetch(COMPETING, tx.tenant, id)]


async def note_uses(tx: Tx, *, work_id: str, uses: Sequence[ArtifactUse]) -> None:
    columns = [use.id for use in uses], [use.size_bytes for use in uses], [use.prompt_bytes for use in uses]
    await tx.run(NOTE_USES, tx.tenant, work_id, *columns)


async def by_id(tx: Tx, *, id: str) -> Artifact | None:
    return await _one(tx, BY_IDS, [id])


async def by_ids(tx: Tx, *, ids: Sequence[str]) -> list[Artifact]:
    """Return those of these records that exist, in their order."""
    artifacts = {a.id: a for a in await _with_targets(tx, await tx.fetch(BY_IDS, tx.tenant, list(ids)))}
    return [artifacts[id] for id in ids if id in artifacts]


async def of_call(tx: Tx, *, call_id: str) -> Artifact | None:
    """Return the first artifact that a call published, or None."""
    return await _one(tx, OF_CALL, call_id)


async def newest_at(tx: Tx, *, thread_id: str, channel: str, path: str) -> Artifact | None:
    """Return the newest artifact of a path in a channel, or None."""
    return await _one(tx, NEWEST_AT, thread_id, channel, path)


async def of_work(tx: Tx, *, work_id: str, limit: int) -> list[Artifact]:
    """Return the artifacts that a unit of work published, oldest first."""
    return await _with_targets(tx, await tx.fetch(OF_WORK, tx.tenant, work_id, limit))


async def actions_of_call(tx: Tx, *, call_id: str) -> list[CallAction]:
    """Return the plan actions that a call carries out."""
    return [CallAction(**row) for row in await tx.fetch(ACTIONS_OF_CALL, tx.tenant, call_id)]


async def of_actions(
    tx: Tx, *, plan_id: str, indexes: Sequence[int], call_ids: Sequence[str], limit: int
) -> list[PlanArtifact]:
    """Return the artifacts of these actions of a plan, and those of these calls that are of no single action: the
    `limit` oldest of each action and of each call."""
    rows = await tx.fetch(OF_ACTIONS, tx.tenant, plan_id, list(indexes), limit)
    of_batches = await tx.fetch(OF_BATCHES, tx.tenant, plan_id, list(call_ids), limit)
    return [PlanArtifact(**row) for row in (*rows, *of_batches)]


class _ArtifactList:
    """The SQL of a list. One filter finds the records, newest first; the other filters only drop some of them."""

    def __init__(self, tenant: str, filters: ArtifactFilter) -> None:
        self.values: list[str | int | datetime] = [tenant]
        conditions = {
            name: (sql, value)
            for name, sql in FILTERS.items()
            if (value := getattr(filters, name)) is not None
        }
        finder = next((name for name in conditions if name != "since"), None)
        tagged = finder == "tag"
        source, self.id = (TAGGED, "a.artifact_id") if tagged else ("artifacts a", "a.id")
        found_by = ["a.tenant_id = $1"]
        if finder is not None:
            sql, value = conditions.pop(finder)
            found_by.append(self._condition("a.tag = $?" if tagged else sql, value))
        if filters.first_id is not None:
            found_by.append(self._condition(f"{self.id} >= $?", filters.first_id))
        if filters.before is not None:
            found_by.append(self._condition(f"{self.id} < $?", filters.before))
        self.source = f"SELECT a.* FROM {source} WHERE {' AND '.join(found_by)} ORDER BY {self.id} DESC"
        self._rest = conditions
        self._status = filters.status

    def _condition(self, sql: str, value: str | int | datetime) -> str:
        self.values.append(value)
        return sql.replace("$?", f"${len(self.values)}")

    def page(self, limit: int, scan_limit: int) -> tuple[str, list[str | int | datetime]]:
        """Return the statement for at most `limit` of the next `scan_limit` records, and its parameters."""
        conditions = ["true", *(self._condition(sql, value) for sql, value in self._rest.values())]
        if self._status is not None:
            conditions.append(self._condition(f"({STATUS}) = $?", self._status))
        n = len(self.values)
        sql = f"""
SELECT {COLUMNS} FROM ({self.source} LIMIT ${n + 1}) a WHERE {" AND ".join(conditions)} ORDER BY {self.id} DESC LIMIT ${n + 2}
"""
        return sql, [*self.values, scan_limit, limit]


def page_sql(
    tenant: str, filters: ArtifactFilter, limit: int, scan_limit: int
) -> tuple[str, list[str | int | datetime]]:
    """Return the statement of `page`, and its parameters."""
    return _ArtifactList(tenant, filters).page(limit, scan_limit)


async def page(tx: Tx, *, filters: ArtifactFilter, limit: int, scan_limit: int) -> list[Artifact]:
    """Return at most `limit` artifacts that pass the filters among the next `scan_limit`, newest first."""
    sql, values = page_sql(tx.tenant, filters, limit, scan_limit)
    return await _with_targets(tx, await tx.fetch(sql, *values))


async def last_scanned(tx: Tx, *, filters: ArtifactFilter, scan_limit: int) -> str | None:
    """Return the id of the last of the next `scan_limit` records, or None if there are fewer."""
    artifacts = _ArtifactList(tx.tenant, filters)
    sql = f"SELECT id FROM ({artifacts.source} OFFSET ${len(artifacts.values) + 1} LIMIT 1) a"
    last: str | None = await tx.value(sql, *artifacts.values, scan_limit - 1)
    return last


async def _one(tx: Tx, sql: str, *parameters: Any) -> Artifact | None:
    rows = await tx.fetch(sql, tx.tenant, *parameters)
    return next(iter(await _with_targets(tx, rows, read_directories=True)), None)


async def _with_targets(tx: Tx, rows: Sequence[Any], *, read_directories: bool = False) -> list[Artifact]:
    """Return the artifacts with the digests at their paths. Reading a directory costs as much as it has files."""
    if not rows:
        return []
    targets = [(row["thread_id"], row["path"], row["is_directory"]) for row in rows]
    distinct = list(dict.fromkeys(targets))
    columns = [list(column) for column in zip(*distinct, strict=True)]
    digests = await tx.fetch(PRESENT, tx.tenant, *columns, read_directories)
    present = dict(zip(distinct, (row["digest"] for row in digests), strict=True))
    return [
        Artifact(
            load_record(row["record"]),
            body_bytes=row["body_bytes"],
            status=row["status"],
            passed_over=row["passed_over"],
            decisions=tuple(load_record(record) for record in row["decisions"]),
            competes_with=tuple(row["competes_with"]),
            present=present[target],
        )
        for row, target in zip(rows, targets, strict=True)
    ]


async def present_digest(tx: Tx, *, thread_id: str, path: str, is_directory: bool) -> bytes | None:
    """Return the digest of the file or directory that is now at a path."""
    digest: bytes | None = await tx.value(PRESENT, tx.tenant, [thread_id], [path], [is_directory], True)
    return digest


async def version_of(tx: Tx, *, thread_id: str, path: str, digest: bytes) -> StoredBody | None:
    row = await tx.row(VERSION_OF, tx.tenant, thread_id, path, digest)
    return None if row is None else StoredBody(row["digest"], row["size_bytes"])


async def ancestors(tx: Tx, *, id: str, depth: int, limit: int) -> dict[str, int]:
    """Return the distances of the ancestors of an artifact, by id, the nearest first."""
    rows = await tx.fetch(ANCESTORS, tx.tenant, id, depth, MAX_WALK_STEPS, limit)
    return {row["id"]: row["depth"] for row in rows}


async def descendants(tx: Tx, *, id: str, depth: int, limit: int) -> dict[str, int]:
    """Return the distances of the descendants of an artifact, by id, the nearest first."""
    rows = await tx.fetch(DESCENDANTS, tx.tenant, id, depth, MAX_WALK_STEPS, limit)
    return {row["id"]: row["depth"] for row in rows}


async def producer(tx: Tx, *, work_id: str) -> Producer | None:
    """Return the unit of work that a work record belongs to."""
    row = await tx.row(UNIT, tx.tenant, work_id)
    return None if row is None else Producer(**row)


async def tenants(db: Database) -> list[str]:
    return [row["tenant_id"] for row in await db.call(TENANTS)]


async def chains(tx: Tx, *, after: str, limit: int) -> list[tuple[str, ChainHead]]:
    """Return the threads that have chains, in the order of their ids, and the ends of the chains."""
    rows = await tx.fetch(CHAINS, tx.tenant, after, limit)
    return [(row["thread_id"], ChainHead(row["n"], row["mac"])) for row in rows]


async def with_records(tx: Tx, *, after: str, limit: int) -> list[tuple[str, bool]]:
    """Return the threads that have records, in the order of their ids, and whether they have a chain."""
    return [(row["id"], row["chained"]) for row in await tx.fetch(WITH_RECORDS, tx.tenant, after, limit)]


async def links(tx: Tx, *, thread_id: str, after: int, limit: int) -> list[StoredLink]:
    """Return records in the chain of a thread, in order."""
    return [
        StoredLink(row["id"], row["n"], row["record"], row["previous"], row["mac"], dict(row))
        for row in await tx.fetch(LINKS, tx.tenant, thread_id, after, limit)
    ]


async def tombstones(tx: Tx, *, after: str, limit: int) -> list[Tombstone]:
    """Return the tombstones of deleted threads, in the order of their ids."""
    return [
        Tombstone(row["thread_id"], ChainHead(row["n"], row["mac"]), row["seal"], row["is_back"])
        for row in await tx.fetch(TOMBSTONES, tx.tenant, after, limit)
    ]


async def head(tx: Tx, *, thread_id: str, deleted: bool = False) -> ChainHead | None:
    """Return the end of a chain. `deleted`: also that of a thread that is deleted."""
    row = await tx.row(HEAD if deleted else HEAD_NOT_DELETED, tx.tenant, thread_id)
    return None if row is None else ChainHead(row["n"], row["mac"])


async def delete(tx: Tx, *, thread_id: str, head: ChainHead, seal: bytes) -> bool:
    """Delete the records of a thread and leave a tombstone. Return whether the chain still ended at `head`."""
    return bool(await tx.value(DELETE, thread_id, head.n, head.mac, seal))


async def chain_links(tx: Tx, *, after: MovedHead | None, limit: int) -> list[MovedHead]:
    """Return the ends that chains had in other deployments, ordered by thread, number and MAC."""
    position = ("", 0, b"") if after is None else (after.thread_id, after.head.n, after.head.mac)
    return [
        MovedHead(row["thread_id"], ChainHead(row["n"], row["mac"]), row["seal"])
        for row in await tx.fetch(CHAIN_LINKS, tx.tenant, *position, limit)
    ]


async def replace_macs(tx: Tx, *, macs: Sequence[tuple[str, bytes, bytes]]) -> None:
    """Replace the MACs of records: the id, the MAC of the record before it, and its own."""
    await tx.run(REPLACE_MACS, tx.tenant, *([mac[n] for mac in macs] for n in range(3)))


async def add_chain_link(tx: Tx, *, moved: MovedHead) -> None:
    """Record where a chain ended in another deployment. Recording the same end again changes nothing."""
    await tx.run(ADD_CHAIN_LINK, tx.tenant, moved.thread_id, moved.head.n, moved.head.mac, moved.seal)


async def replace_link_seal(tx: Tx, *, moved: MovedHead, seal: bytes) -> None:
    await tx.run(REPLACE_LINK_SEAL, tx.tenant, moved.thread_id, moved.head.n, moved.head.mac, seal)


async def replace_tombstone_seal(tx: Tx, *, thread_id: str, seal: bytes) -> None:
    await tx.run(REPLACE_TOMBSTONE_SEAL, tx.tenant, thread_id, seal)
