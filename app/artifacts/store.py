"""All SQL of artifacts. Records are only added."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from app.artifacts.chain import START, ChainHead, ChainLink
from app.artifacts.models import Artifact, ArtifactTarget, Producer, load_record
from app.base.postgres.database import Database, Tx
from app.workspace import store as bodies
from app.workspace.models import StoredBody

# Those who publish in one thread wait for each other here: a record's number is its place in the chain.
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
# Idempotent by the work, which may do the same again after a crash.
NOTE_USES = """
INSERT INTO artifact_uses (tenant_id, work_id, artifact_id, size_bytes, prompt_bytes)
SELECT $1, $2, n.* FROM unnest($3::text[], $4::bigint[], $5::bigint[]) AS n ON CONFLICT DO NOTHING
"""
NAMED = (
    "SELECT id, thread_id, channel, first_id, revision FROM artifacts WHERE tenant_id = $1 AND id = ANY ($2)"
)

COMPETING_MOST: Final = 100
# OFFSET: one look at the index for each record that is looked at, never all that replace something gathered first.
REPLACED = "EXISTS (SELECT FROM artifacts s WHERE s.tenant_id = $1 AND s.replaces = a.id OFFSET 0)"
PASSED_OVER = "EXISTS (SELECT FROM artifact_choices c WHERE c.tenant_id = $1 AND c.over_id = {id} OFFSET 0)"
WITHDRAWN = """EXISTS (SELECT FROM artifact_decisions d WHERE d.tenant_id = $1 AND d.artifact_id = {id} AND d.kind = 'withdraw'
 OFFSET 0)"""
SUPERSEDED = f"({REPLACED} OR {PASSED_OVER.format(id='a.id')})"
STATUS = f"""CASE WHEN {WITHDRAWN.format(id="a.id")} THEN 'withdrawn' WHEN {SUPERSEDED} THEN 'superseded' ELSE 'active' END"""
HAS_STATUS: Final[Mapping[str, str]] = {
    "active": f"NOT {SUPERSEDED} AND NOT {WITHDRAWN.format(id='a.id')}",
    "superseded": f"{SUPERSEDED} AND NOT {WITHDRAWN.format(id='a.id')}",
    "withdrawn": WITHDRAWN.format(id="a.id"),
}
# Revisions of the same record about which nothing was decided; none for one that is out of it itself.
RIVALS = f"""SELECT o.id FROM artifacts o WHERE o.tenant_id = $1 AND o.replaces = a.replaces AND o.id <> a.id
   AND NOT {WITHDRAWN.format(id="o.id")} AND NOT {PASSED_OVER.format(id="o.id")}
   AND NOT {WITHDRAWN.format(id="a.id")} AND NOT {PASSED_OVER.format(id="a.id")}"""
DECISIONS_MOST: Final = 100
DECISIONS = f"""SELECT x.record FROM (
        SELECT d.id, d.record FROM artifact_decisions d WHERE d.tenant_id = $1 AND d.artifact_id = a.id
        UNION ALL
        SELECT d.id, d.record FROM artifact_choices c JOIN artifact_decisions d ON d.tenant_id = $1 AND d.id = c.decision_id
         WHERE c.tenant_id = $1 AND c.over_id = a.id) x ORDER BY x.id LIMIT {DECISIONS_MOST}"""
COLUMNS = f"""a.record, a.thread_id, a.path, a.is_directory, a.body_bytes, {STATUS} AS status,
       {PASSED_OVER.format(id="a.id")} AS passed_over, ARRAY({DECISIONS}) AS decisions,
       ARRAY({RIVALS} ORDER BY o.id LIMIT {COMPETING_MOST}) AS competes_with"""
COMPETING = f"SELECT o.id FROM artifacts a, LATERAL ({RIVALS}) o WHERE a.tenant_id = $1 AND a.id = $2"
SHOWN = f"SELECT {COLUMNS} FROM artifacts a"
BY_IDS = f"{SHOWN} WHERE a.tenant_id = $1 AND a.id = ANY ($2)"
OF_CALL = f"{SHOWN} WHERE a.tenant_id = $1 AND a.call_id = $2 ORDER BY a.id LIMIT 1"
OF_WORK = f"{SHOWN} WHERE a.tenant_id = $1 AND a.work_id = $2 ORDER BY a.id LIMIT $3"
NEWEST_AT = f"""
{SHOWN} WHERE a.tenant_id = $1 AND a.thread_id = $2 AND a.channel = $3 AND a.path = $4 ORDER BY a.id DESC LIMIT 1
"""
# One condition for each filter; $? is its value. The first of those given finds the records, newest first, by its index;
# the others leave some of them out.
FILTERS: Final[Mapping[str, str]] = {
    "callId": "a.call_id = $?",
    "planId": "a.plan_id = $?",
    "workId": "a.work_id = $?",
    "queryId": "a.query_id = $?",
    "parentWorkId": "a.parent_work_id = $?",
    "threadId": "a.thread_id = $?",
    "tag": """EXISTS (SELECT FROM artifact_tags t WHERE t.tenant_id = $1 AND t.artifact_id = a.id AND t.tag = $?
                     OFFSET 0)""",
    "agent": "a.agent = $?",
    "channel": "a.channel = $?",
    "actionIndex": "a.action_index = $?",
}
# Bounds on the order of the list, and what finds records by a tag: the tags are in that order too.
BOUNDS: Final[Mapping[str, str]] = {"from": ">=", "before": "<"}
SINCE = "a.created_at >= $?"
TAGGED = """(SELECT b.*, t.artifact_id, t.tag FROM artifact_tags t CROSS JOIN LATERAL
 (SELECT * FROM artifacts b WHERE b.tenant_id = $1 AND b.id = t.artifact_id OFFSET 0) b) a"""

# The plan actions that a call carries out; and what the calls of a plan published, oldest first.
ACTIONS_OF_CALL = (
    "SELECT plan_id, index FROM plan_actions WHERE tenant_id = $1 AND work_id = $2 ORDER BY index"
)
OF_PLAN = f"""
SELECT a.id, a.channel, a.path, a.call_id, a.action_index, {STATUS} AS status
  FROM artifacts a WHERE a.tenant_id = $1 AND a.plan_id = $2 ORDER BY a.id LIMIT $3
"""

# What is at the path of a target now: the digest of a file (NULL where it was deleted), or that of the list of a
# directory's files, in the form in which `sha256sum` writes it. Without $5 the files of a directory are not read: its
# digest is empty if it has any. OFFSET: one look at the index for each file. As long as
# nobody counted what is in a new workspace, a join was one of all versions with all files.
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
# Each record once, at its shortest distance, along parents and along `replaces`. Both stand before what names them in time,
# so there is no circle. The walk goes level by level and ends after so many steps ($4), however much there is.
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
STEPS: Final = 5_000

# The unit of work that a record of work belongs to: not a call, but what made it; an agent's run if there is one, for what
# the actions of its plan publish too.
UNIT = """
WITH RECURSIVE up(id, parent_id, kind, query_id, thread_id, agent, depth) AS (
    SELECT id, parent_id, kind, query_id, thread_id, agent, 0 FROM work_records WHERE tenant_id = $1 AND id = $2
    UNION ALL
    SELECT w.id, w.parent_id, w.kind, w.query_id, w.thread_id, w.agent, up.depth + 1
      FROM up JOIN work_records w ON w.tenant_id = $1 AND w.id = up.parent_id
     WHERE up.kind IN ('tool_call', 'model_call', 'action', 'predicate', 'plan_execution') AND up.depth < 10)
SELECT up.*, (SELECT m.model FROM work_records m WHERE m.tenant_id = $1 AND m.query_id = up.query_id AND m.parent_id = up.id
                 AND m.kind = 'model_call' ORDER BY m.position DESC LIMIT 1) AS model
  FROM up
 ORDER BY up.kind = 'agent' DESC, up.kind NOT IN ('tool_call', 'model_call', 'action', 'predicate') DESC, up.depth LIMIT 1
"""
TENANTS = "SELECT tenant_id FROM tenant_ids()"
# Of a thread that is deleted the tombstone counts: of many records the last go, and with them the chain, only later.
KEPT = """NOT (
 EXISTS (SELECT FROM artifact_tombstones s WHERE s.tenant_id = $1 AND s.thread_id = c.thread_id)
 AND EXISTS (SELECT FROM due_deletions(2147483647) g WHERE g.tenant_id = $1 AND g.id = c.thread_id))"""
CHAINS = f"""
SELECT thread_id, n, mac FROM artifact_chains c WHERE c.tenant_id = $1 AND thread_id > $2 AND {KEPT} ORDER BY thread_id LIMIT $3
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
       EXISTS (SELECT FROM artifact_chains c WHERE c.tenant_id = $1 AND c.thread_id = d.thread_id AND {KEPT}) AS is_back
  FROM artifact_tombstones d WHERE d.tenant_id = $1 AND thread_id > $2 ORDER BY thread_id LIMIT $3
"""
HEAD = "SELECT n, mac FROM artifact_chains c WHERE c.tenant_id = $1 AND c.thread_id = $2"
HEAD_KEPT = f"{HEAD} AND {KEPT}"
FORGET = "SELECT delete_artifacts($1, $2, $3, $4)"


async def lock(tx: Tx, thread_id: str) -> tuple[ChainHead, Any]:
    """Where the chain of a thread ends, and the moment; nobody else adds to it until the transaction ends."""
    row = await tx.row(LOCK, tx.tenant, thread_id)
    if row is None:
        await tx.run(OPEN, tx.tenant, thread_id, START)
        row = await tx.row(LOCK, tx.tenant, thread_id)
    return ChainHead(row["n"], row["mac"]), row["at"]


async def move(tx: Tx, thread_id: str, n: int, mac: bytes) -> None:
    """Move the end of a chain to a new record. The caller holds the lock."""
    await tx.run(MOVE, tx.tenant, thread_id, n, mac)


async def threads_of(tx: Tx, ids: Iterable[str]) -> dict[str, str]:
    """Return the threads of the artifacts that exist, by id."""
    return {r["id"]: r["thread_id"] for r in await tx.fetch(NAMED, tx.tenant, list(ids))}


async def competing(tx: Tx, id: str) -> list[str]:
    """Return all revisions that compete with an artifact."""
    return [r["id"] for r in await tx.fetch(COMPETING, tx.tenant, id)]


async def add(
    tx: Tx,
    link: ChainLink,
    record: Mapping[str, Any],
    target: ArtifactTarget,
    producer: Producer,
    created_at: Any,
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
    await move(tx, producer.thread_id, link.n, link.mac)
    await bodies.mark_named(tx, target.digest)
    if record.get("tags"):
        await tx.run(ADD_TAGS, tx.tenant, record["tags"], link.id)
    if record.get("parentArtifactIds"):
        await tx.run(ADD_PARENTS, tx.tenant, link.id, record["parentArtifactIds"])


async def named(tx: Tx, ids: Iterable[str]) -> dict[str, Any]:
    """Return the channel and the place in the chain of revisions of the records that exist, by id."""
    return {r["id"]: r for r in await tx.fetch(NAMED, tx.tenant, list(ids))}


async def note_uses(tx: Tx, work_id: str, uses: Sequence[tuple[str, int, int]]) -> None:
    """Record uses. Each of `uses` is the id, the bytes of the published body, and the bytes of the record
    in the prompt."""
    await tx.run(NOTE_USES, tx.tenant, work_id, *([use[n] for use in uses] for n in range(3)))


async def by_id(tx: Tx, id: str) -> Artifact | None:
    rows = await tx.fetch(BY_IDS, tx.tenant, [id])
    return next(iter(await _with_targets(tx, rows, read_directories=True)), None)


async def by_ids(tx: Tx, ids: Sequence[str]) -> list[Artifact]:
    """Return those of these records that exist, in their order."""
    found = {a.id: a for a in await _with_targets(tx, await tx.fetch(BY_IDS, tx.tenant, list(ids)))}
    return [found[id] for id in ids if id in found]


async def of_call(tx: Tx, call_id: str) -> Artifact | None:
    """Return the first artifact that a call published, or None."""
    rows = await tx.fetch(OF_CALL, tx.tenant, call_id)
    return next(iter(await _with_targets(tx, rows, read_directories=True)), None)


async def of_work(tx: Tx, work_id: str, limit: int) -> list[Artifact]:
    """Return what a unit of work published, oldest first."""
    return await _with_targets(tx, await tx.fetch(OF_WORK, tx.tenant, work_id, limit))


async def actions_of_call(tx: Tx, call_id: str) -> list[Any]:
    """Return the plan and the index of each plan action that a call carries out."""
    return await tx.fetch(ACTIONS_OF_CALL, tx.tenant, call_id)


async def of_plan(tx: Tx, plan_id: str, limit: int) -> list[Any]:
    """Return what the calls of a plan published, oldest first, without the records."""
    return await tx.fetch(OF_PLAN, tx.tenant, plan_id, limit)


async def newest_at(tx: Tx, thread_id: str, channel: str, path: str) -> Artifact | None:
    return next(
        iter(await _with_targets(tx, await tx.fetch(NEWEST_AT, tx.tenant, thread_id, channel, path))), None
    )


def _finder(filters: Mapping[str, Any]) -> str | None:
    """Return the filter that finds the records; the remaining filters only drop some of them."""
    return next((name for name in FILTERS if name in filters), None)


def _condition(sql: str, value: Any, values: list[Any]) -> str:
    values.append(value)
    return sql.replace("$?", f"${len(values)}")


def _filter_source(filters: Mapping[str, Any], values: list[Any]) -> tuple[str, str]:
    """Return the SQL that yields the records that one of the filters finds, newest first, and the name of
    its order column."""
    name = _finder(filters)
    tagged = name == "tag"
    source, id = (TAGGED, "a.artifact_id") if tagged else ("artifacts a", "a.id")
    conditions = ["a.tenant_id = $1"]
    if name is not None:
        conditions.append(_condition("a.tag = $?" if tagged else FILTERS[name], filters[name], values))
    conditions += [
        _condition(f"{id} {operator} $?", filters[bound], values)
        for bound, operator in BOUNDS.items()
        if bound in filters
    ]
    return f"SELECT a.* FROM {source} WHERE {' AND '.join(conditions)} ORDER BY {id} DESC", id


def page_sql(
    tenant: str, filters: Mapping[str, Any], status: str | None, limit: int, look: int
) -> tuple[str, list[Any]]:
    """At most `limit` of the next `look` records."""
    values: list[Any] = [tenant]
    found, id = _filter_source(filters, values)
    left_out = {**FILTERS, "since": SINCE}
    left_out.pop(_finder(filters) or "", None)
    conditions = ["true"] + [
        _condition(sql, filters[name], values) for name, sql in left_out.items() if name in filters
    ]
    if status is not None:
        conditions.append(HAS_STATUS[status])
    n = len(values)
    sql = f"""
SELECT {COLUMNS} FROM ({found} LIMIT ${n + 1}) a WHERE {" AND ".join(conditions)} ORDER BY {id} DESC LIMIT ${n + 2}
"""
    return sql, [*values, look, limit]


async def page(
    tx: Tx, filters: Mapping[str, Any], status: str | None, limit: int, look: int
) -> list[Artifact]:
    """Of the next `look` records that one of these filters finds at most `limit` that pass all of them, newest first.
    `status`: only those that have it."""
    sql, values = page_sql(tx.tenant, filters, status, limit, look)
    return await _with_targets(tx, await tx.fetch(sql, *values))


async def looked_at_count(tx: Tx, filters: Mapping[str, Any], look: int) -> str | None:
    """Return the last of the next `look` records, if there are that many."""
    values: list[Any] = [tx.tenant]
    found, _ = _filter_source(filters, values)
    sql = f"SELECT id FROM ({found} OFFSET ${len(values) + 1} LIMIT 1) a"
    last = await tx.value(sql, *values, look - 1)
    return None if last is None else str(last)


async def _with_targets(tx: Tx, rows: Sequence[Any], *, read_directories: bool = False) -> list[Artifact]:
    """Return the artifacts with what is at their paths. Reading a directory costs as much as it has files."""
    if not rows:
        return []
    targets = [(r["thread_id"], r["path"], r["is_directory"]) for r in rows]
    each = list(dict.fromkeys(targets))
    columns = [list(column) for column in zip(*each, strict=True)]
    found = await tx.fetch(PRESENT, tx.tenant, *columns, read_directories)
    present = dict(zip(each, (r["digest"] for r in found), strict=True))
    return [
        Artifact(
            load_record(r["record"]),
            r["body_bytes"],
            r["status"],
            r["passed_over"],
            tuple(load_record(record) for record in r["decisions"]),
            tuple(r["competes_with"]),
            present[target],
        )
        for r, target in zip(rows, targets, strict=True)
    ]


async def present_digest(tx: Tx, thread_id: str, path: str, *, is_directory: bool) -> bytes | None:
    """Return the digest of what is at a path now."""
    found: bytes | None = await tx.value(PRESENT, tx.tenant, [thread_id], [path], [is_directory], True)
    return found


async def version_of(tx: Tx, thread_id: str, path: str, digest: bytes) -> StoredBody | None:
    row = await tx.row(VERSION_OF, tx.tenant, thread_id, path, digest)
    return None if row is None else StoredBody(row["digest"], row["size_bytes"])


async def ancestors(tx: Tx, id: str, depth: int, limit: int) -> list[tuple[str, int]]:
    return [(r["id"], r["depth"]) for r in await tx.fetch(ANCESTORS, tx.tenant, id, depth, STEPS, limit)]


async def descendants(tx: Tx, id: str, depth: int, limit: int) -> list[tuple[str, int]]:
    return [(r["id"], r["depth"]) for r in await tx.fetch(DESCENDANTS, tx.tenant, id, depth, STEPS, limit)]


async def unit(tx: Tx, work_id: str) -> Any:
    return await tx.row(UNIT, tx.tenant, work_id)


async def tenants(db: Database) -> list[str]:
    return [r["tenant_id"] for r in await db.call(TENANTS)]


async def chains(tx: Tx, after: str, limit: int) -> list[tuple[str, ChainHead]]:
    rows = await tx.fetch(CHAINS, tx.tenant, after, limit)
    return [(r["thread_id"], ChainHead(r["n"], r["mac"])) for r in rows]


async def with_records(tx: Tx, after: str, limit: int) -> list[tuple[str, bool]]:
    """Threads that have records, in the order of their ids, and whether they have a chain."""
    return [(r["id"], r["chained"]) for r in await tx.fetch(WITH_RECORDS, tx.tenant, after, limit)]


async def links(tx: Tx, thread_id: str, after: int, limit: int) -> list[Any]:
    return await tx.fetch(LINKS, tx.tenant, thread_id, after, limit)


async def tombstones(tx: Tx, after: str, limit: int) -> list[Any]:
    return await tx.fetch(TOMBSTONES, tx.tenant, after, limit)


async def head(tx: Tx, thread_id: str, *, deleted: bool = False) -> ChainHead | None:
    """Where a chain ends. `deleted`: also that of a thread that is deleted."""
    row = await tx.row(HEAD if deleted else HEAD_KEPT, tx.tenant, thread_id)
    return None if row is None else ChainHead(row["n"], row["mac"])


async def forget(tx: Tx, thread_id: str, at: ChainHead, seal: bytes) -> bool:
    return bool(await tx.value(FORGET, thread_id, at.n, at.mac, seal))
