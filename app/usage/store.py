"""All SQL that reads work records and sums up their usage."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from app.base.postgres.database import Tx
from app.events import Usage
from app.usage.columns import USAGE_SUMS
from app.usage.models import KeptOutSum, UsageGroupSum, UsageSum, WorkFilter, WorkRow
from app.usage.views import GroupBy, GroupOrder, ReferenceUse, Spent, StatementView

MAX_INLINE_RECORDS = 500

# What is not over stands still while its query does.
COLUMNS = """w.id, w.parent_id, w.kind, w.name, w.agent, w.query_id, w.thread_id,
 CASE WHEN w.status = 'running' AND q.status IN ('queued', 'waiting') THEN 'waiting' ELSE w.status END AS status,
 w.tool_invocation_id, w.model, w.prompt_cache_key, w.price_date, w.attempts, w.input_tokens, w.output_tokens,
 w.cache_read_tokens, w.cache_write_tokens, w.reasoning_tokens, w.cost_usd, w.started_at, w.ended_at"""
QUERY = "LEFT JOIN queries q ON q.tenant_id = $1 AND q.id = w.query_id"
# What went in and came out goes with the query, at once; a host's record has none.
HELD = "q.id IS NOT NULL OR w.query_id IS NULL"
BODIES = ", ".join(f"CASE WHEN {HELD} THEN w.{name} END AS {name}" for name in ("input", "output", "error"))
# Errors that a page has room for; a longer one is on its record alone.
SHORT_ERROR = (
    f"CASE WHEN {HELD} THEN octet_length(w.error) END AS error_bytes, "
    f"CASE WHEN octet_length(w.error) <= 4096 AND ({HELD}) THEN w.error END AS error"
)
RECORD = f"SELECT {COLUMNS}, {BODIES} FROM work_records w {QUERY} WHERE w.tenant_id = $1 AND w.id = $2"
# Bodies up to a number of bytes for all of them together, the oldest first; whose do not fit any more come without.
OF_QUERY = f"""
SELECT {COLUMNS}, w.bodies, CASE WHEN w.bodies <= $3 THEN w.input END AS input,
       CASE WHEN w.bodies <= $3 THEN w.output END AS output, CASE WHEN w.bodies <= $3 THEN w.error END AS error
  FROM (SELECT r.*, sum(coalesce(octet_length(r.input), 0) + coalesce(octet_length(r.output), 0)
                        + coalesce(octet_length(r.error), 0)) OVER (ORDER BY r.id) AS bodies
          FROM work_records r WHERE r.tenant_id = $1 AND r.query_id = $2) w {QUERY} ORDER BY w.id
"""
TREE = f"""
SELECT {COLUMNS}, {SHORT_ERROR} FROM work_records w {QUERY}
 WHERE w.tenant_id = $1 AND w.query_id = $2 ORDER BY w.id LIMIT $3
"""
# The page looks at so many records and no further ($6), so that a rare kind or status does not make it read the table.
PAGE = f"""
SELECT {COLUMNS}, {SHORT_ERROR} FROM (
    SELECT * FROM work_records WHERE tenant_id = $1 AND ($2::text IS NULL OR id < $2) ORDER BY id DESC LIMIT $6) w {QUERY}
 WHERE ($3::text IS NULL OR w.kind = $3) AND ($4::text IS NULL OR $4 =
       CASE WHEN w.status = 'running' AND q.status IN ('queued', 'waiting') THEN 'waiting' ELSE w.status END)
 ORDER BY w.id DESC LIMIT $5
"""
PAGE_OF_QUERY = PAGE.replace("WHERE tenant_id = $1", "WHERE tenant_id = $1 AND query_id = $7")
LAST_SCANNED = """
SELECT id FROM work_records WHERE tenant_id = $1 AND ($2::text IS NULL OR id < $2) ORDER BY id DESC OFFSET $3 LIMIT 1
"""
LAST_SCANNED_OF_QUERY = LAST_SCANNED.replace("WHERE tenant_id = $1", "WHERE tenant_id = $1 AND query_id = $4")
SPENT = f"""count(*) FILTER (WHERE kind = 'model_call') AS model_calls,
 {USAGE_SUMS},
 count(*) FILTER (WHERE kind = 'model_call' AND cost_usd IS NULL AND input_tokens + output_tokens
                  + cache_read_tokens + cache_write_tokens > 0) AS unpriced_calls"""
USED = """count(*) AS uses, coalesce(sum(size_bytes), 0)::bigint AS size_bytes,
 coalesce(sum(prompt_bytes), 0)::bigint AS prompt_bytes,
 coalesce(sum(greatest(size_bytes - prompt_bytes, 0)), 0)::bigint AS kept_out_bytes"""
LIGHT = """c.id, c.kind, c.input_tokens, c.output_tokens, c.cache_read_tokens, c.cache_write_tokens, c.reasoning_tokens,
 c.cost_usd"""
# A record and everything below it, each once: a record has one parent. Without nested loops each level is one look at a
# hash of the query's records; with them, which the planner prefers for few, a look at all of them for each record.
NO_NESTED_LOOPS = "SET LOCAL enable_nestloop = off"
ROLLUP = f"""
WITH RECURSIVE below AS (
    SELECT {LIGHT} FROM work_records c WHERE c.tenant_id = $1 AND c.id = $2
    UNION ALL
    SELECT {LIGHT} FROM below b JOIN work_records c ON c.parent_id = b.id WHERE c.tenant_id = $1 AND c.query_id = $3)
SELECT {SPENT}, array_agg(id) AS ids FROM below
"""
USED_BY_ALL = f"SELECT {USED} FROM reference_uses WHERE tenant_id = $1 AND work_id = ANY ($2)"
USED_BY_EACH = (
    f"SELECT work_id, {USED} FROM reference_uses WHERE tenant_id = $1 AND work_id = ANY ($2) GROUP BY work_id"
)
USES = """
SELECT work_id, use, kind, id, size_bytes, prompt_bytes FROM reference_uses
 WHERE tenant_id = $1 AND work_id = ANY ($2) ORDER BY at, use, kind, id
"""
# What units of work ran on data sources; app/catalog writes it.
STATEMENTS = """
SELECT work_id, source, sql, rows, bytes, elapsed_ms, truncated, error FROM source_statements
 WHERE tenant_id = $1 AND work_id = ANY ($2)
"""


async def record(tx: Tx, *, work_id: str) -> WorkRow | None:
    row = await tx.row(RECORD, tx.tenant, work_id)
    return None if row is None else WorkRow(**row)


async def query_records(tx: Tx, *, query_id: str, body_bytes: int) -> list[WorkRow]:
    """Return all records of a query, oldest first; the first of them with input, output and error."""
    return await _records(tx, OF_QUERY, query_id, body_bytes)


async def tree(tx: Tx, *, query_id: str, limit: int) -> list[WorkRow]:
    """Return records of a query, oldest first, without input and output."""
    return await _records(tx, TREE, query_id, limit)


async def page(tx: Tx, *, filters: WorkFilter, limit: int, scan_limit: int) -> list[WorkRow]:
    """Return at most `limit` matching records among the next `scan_limit`, newest first."""
    sql, query_id = (PAGE, ()) if filters.query_id is None else (PAGE_OF_QUERY, (filters.query_id,))
    return await _records(tx, sql, filters.before, filters.kind, filters.status, limit, scan_limit, *query_id)


async def last_scanned(tx: Tx, *, filters: WorkFilter, scan_limit: int) -> str | None:
    """Return the id of the last of the next `scan_limit` records, or None if there are fewer."""
    sql, query_id = (
        (LAST_SCANNED, ()) if filters.query_id is None else (LAST_SCANNED_OF_QUERY, (filters.query_id,))
    )
    last: str | None = await tx.value(sql, tx.tenant, filters.before, scan_limit - 1, *query_id)
    return last


async def _records(tx: Tx, sql: str, *parameters: str | int | None) -> list[WorkRow]:
    rows = await tx.fetch(sql, tx.tenant, *parameters)

    def build() -> list[WorkRow]:
        return [WorkRow(**row) for row in rows]

    # A thread takes many records off the event loop.
    return build() if len(rows) <= MAX_INLINE_RECORDS else await asyncio.to_thread(build)


async def rollup(tx: Tx, *, work_id: str, query_id: str | None) -> UsageSum:
    """Return what a record and its descendants used, and what they did with references. Call it last in a
    transaction."""
    await tx.run(NO_NESTED_LOOPS)
    spent = dict(await tx.row(ROLLUP, tx.tenant, work_id, query_id))
    used = await tx.row(USED_BY_ALL, tx.tenant, spent.pop("ids"))
    return UsageSum(**spent, **used)


async def uses_by_record(tx: Tx, *, work_ids: Sequence[str]) -> dict[str, UsageSum]:
    """Return the sums of what these records did with references, by the id of the record."""
    rows = [dict(row) for row in await tx.fetch(USED_BY_EACH, tx.tenant, list(work_ids))]
    return {row.pop("work_id"): UsageSum(**row) for row in rows}


async def uses(tx: Tx, *, work_ids: Sequence[str]) -> dict[str, list[ReferenceUse]]:
    """Return what these records did with references, in order, by the id of the record."""
    uses: dict[str, list[ReferenceUse]] = {}
    for row in map(dict, await tx.fetch(USES, tx.tenant, list(work_ids))):
        uses.setdefault(row.pop("work_id"), []).append(ReferenceUse.model_construct(**row))
    return uses


async def statements(tx: Tx, *, work_ids: Sequence[str]) -> dict[str, StatementView]:
    """Return the statements that these records ran on data sources, by the id of the record."""
    rows = [dict(row) for row in await tx.fetch(STATEMENTS, tx.tenant, list(work_ids))]
    return {row.pop("work_id"): StatementView.model_construct(**row) for row in rows}


# -- sums over many queries


@dataclass(frozen=True, slots=True)
class Grouping:
    """SQL expressions by which usage is grouped.

    `of_call` is the key of a model call `c`, `of_use` that of a use `u` of a reference or an artifact by the
    work `w`, `of_sum` that of a row `s` of usage_sums; null means no group. Without `of_sum`, everything in the range is
    read. `of_artifact` is the key of the use of an artifact, if it differs. `newest_first`: the order of the keys is the
    order of time.
    """

    of_call: str
    of_use: str
    of_sum: str | None = None
    newest_first: bool = False
    of_artifact: str | None = None
    by_artifact: bool = False


GROUPINGS = {
    "query": Grouping("c.query_id", "w.query_id", newest_first=True),
    "thread": Grouping("c.thread_id", "w.thread_id", newest_first=True),
    "agent": Grouping("c.agent", "nullif(w.agent, '')", "nullif(s.agent, '')"),
    "model": Grouping("c.model", "NULL::text", "nullif(s.model, '')"),
    "day": Grouping(
        "to_char(c.started_at AT TIME ZONE 'UTC', 'YYYY-MM-DD')",
        "to_char(u.at AT TIME ZONE 'UTC', 'YYYY-MM-DD')",
        "to_char(s.hour AT TIME ZONE 'UTC', 'YYYY-MM-DD')",
        newest_first=True,
    ),
}
# The name of the runtime of a query; NULL if its thread was deleted before the query was summed up.
RUNTIME = """(SELECT r.name FROM queries q JOIN runtimes r ON r.tenant_id = $1 AND r.id = q.runtime_id
  WHERE q.tenant_id = $1 AND q.id = {query_id})"""
GROUPINGS |= {
    "runtime": Grouping(
        RUNTIME.format(query_id="c.query_id"),
        RUNTIME.format(query_id="w.query_id"),
        "nullif(s.runtime, '')",
    ),
}
# Sorts the revisions of a chain of artifacts beside each other.
REVISION = """(SELECT coalesce(a.first_id, a.id) || '/' || lpad(a.revision::text, 9, '0') || '/' || a.id
  FROM artifacts a WHERE a.tenant_id = $1 AND a.id = {artifact})"""
CHANNEL = "(SELECT a.channel FROM artifacts a WHERE a.tenant_id = $1 AND a.id = {artifact})"
GROUPINGS |= {
    "artifact": Grouping(
        "l.artifact",
        "NULL::text",
        newest_first=True,
        by_artifact=True,
        of_artifact="u.artifact_id",
    ),
    "revision": Grouping(
        REVISION.format(artifact="l.artifact"),
        "NULL::text",
        newest_first=True,
        by_artifact=True,
        of_artifact=REVISION.format(artifact="u.artifact_id"),
    ),
    "channel": Grouping(
        CHANNEL.format(artifact="l.artifact"),
        "NULL::text",
        by_artifact=True,
        of_artifact=CHANNEL.format(artifact="u.artifact_id"),
    ),
}
# What a model call led to: of the artifacts that its run published, or else the nearest run above it that published any
# (its maker), the next one after the call began, or else the last one. So each call is in the cost of one artifact. In
# the order of a maker's `moments`, the latest first, an artifact stands in front of the calls that led to it: with them
# it has its `place`.
LED = """above AS (
    SELECT DISTINCT parent_id AS run, parent_id AS id, 0 AS distance FROM calls
    UNION ALL
    SELECT b.run, w.parent_id, b.distance + 1 FROM above b JOIN work_records w ON w.tenant_id = $1 AND w.id = b.id
     WHERE w.parent_id IS NOT NULL
), makers AS (
    SELECT DISTINCT ON (b.run) b.run, b.id AS maker FROM above b
     WHERE EXISTS (SELECT FROM artifacts a WHERE a.tenant_id = $1 AND a.work_id = b.id) ORDER BY b.run, b.distance
), moments AS (
    SELECT m.maker, c.started_at AS at, c.id AS call, NULL::text AS made
      FROM calls c FULL JOIN makers m ON m.run = c.parent_id
    UNION ALL
    SELECT a.work_id, a.created_at, NULL, a.id
      FROM (SELECT DISTINCT maker FROM makers) m JOIN artifacts a ON a.tenant_id = $1 AND a.work_id = m.maker
), placed AS (
    SELECT maker, call, made,
           count(made) OVER (PARTITION BY maker ORDER BY at DESC, made IS NULL, made DESC) AS place,
           first_value(made) OVER (PARTITION BY maker ORDER BY made IS NULL, at DESC, made) AS last
      FROM moments
), led AS (
    SELECT call, coalesce(first_value(made) OVER (PARTITION BY maker, place ORDER BY made), last) AS artifact FROM placed
), """
# Sums of the model calls `calls` and of the uses of references and artifacts by `works`. Calls were in vain where they
# failed, or something above them did: the run that made them, a run that had called it, the query. `up` goes up from each
# run as far as that.
# The planner knows nothing of the size of what is made here. So what belongs together is put together by FULL JOIN, for
# which there is no nested loop, although nothing is without its call: many calls cost what each of them does. `rates` is what a
# byte of a query's own prompts was in tokens and dollars; OFFSET keeps what a FULL JOIN adds to the uses of one.
ENTRIES = """
WITH RECURSIVE {works}calls AS (
    {calls}
), up AS (
    SELECT w.id AS run, w.parent_id, w.status IN ('failed', 'cancelled') AS failed
      FROM (SELECT DISTINCT parent_id FROM calls) r JOIN work_records w ON w.tenant_id = $1 AND w.id = r.parent_id
    UNION ALL
    SELECT u.run, p.parent_id, p.status IN ('failed', 'cancelled')
      FROM up u JOIN work_records p ON p.tenant_id = $1 AND p.id = u.parent_id WHERE NOT u.failed
), vain AS (
    SELECT DISTINCT run FROM up WHERE failed
), rates AS (
    SELECT query_id AS measured, sum(prompt_tokens)::float8 / sum(prompt_bytes) AS tokens,
           (sum(prompt_usd::numeric) / sum(prompt_bytes) FILTER (WHERE prompt_usd IS NOT NULL))::float8 AS usd
      FROM calls WHERE prompt_bytes > 0 GROUP BY query_id
), uses AS (
    {uses}
), estimated AS (
    SELECT * FROM (SELECT u.*, u.kept_out_bytes * r.tokens AS tokens, u.kept_out_bytes * r.usd AS usd
                     FROM uses u FULL JOIN rates r ON r.measured = u.query_id OFFSET 0) x WHERE kind IS NOT NULL
), {made}entries AS (
    SELECT {call_key}, 'model_call' AS kind, c.status IN ('failed', 'cancelled') OR v.run IS NOT NULL AS failed,
           1 AS model_calls, c.input_tokens, c.output_tokens, c.cache_read_tokens, c.cache_write_tokens,
           c.reasoning_tokens, c.cost_usd::numeric, (c.cost_usd IS NULL AND c.input_tokens + c.output_tokens
           + c.cache_read_tokens + c.cache_write_tokens > 0)::int AS unpriced_calls, 0 AS uses, 0 AS size_bytes,
           0 AS prompt_bytes, 0 AS kept_out_bytes, NULL::float8 AS tokens, 0 AS tokens_bytes, NULL::float8 AS usd,
           0 AS usd_bytes
      FROM calls c FULL JOIN vain v ON v.run = c.parent_id {led}
    UNION ALL
    SELECT {keys}, kind, false, 0, 0, 0, 0, 0, 0, NULL, 0, 1, size_bytes, prompt_bytes, kept_out_bytes, tokens,
           CASE WHEN tokens IS NULL THEN 0 ELSE kept_out_bytes END, usd,
           CASE WHEN usd IS NULL THEN 0 ELSE kept_out_bytes END
      FROM estimated{summed}
)"""
GROUPS = """, groups AS (
    SELECT GROUPING(key) = 1 AS is_total, key, {sums} FROM entries GROUP BY GROUPING SETS ((key), ()))
SELECT * FROM groups WHERE is_total OR $4::text IS NULL OR key IS NULL OR key {beyond} $4
 ORDER BY is_total DESC, {order} NULLS LAST LIMIT $5
"""
CALL_COLUMNS = """id, parent_id, query_id, thread_id, agent, model, status, started_at, input_tokens, output_tokens,
 cache_read_tokens, cache_write_tokens, reasoning_tokens, cost_usd, prompt_bytes, prompt_tokens, prompt_usd"""


def _calls(since: str, until: str) -> str:
    return f"""SELECT {CALL_COLUMNS} FROM work_records
     WHERE tenant_id = $1 AND kind = 'model_call' AND started_at >= {since} AND started_at < {until}"""


def _use_columns(kind: str, key: str) -> str:
    return f"""'{kind}' AS kind, {key}, w.query_id, u.size_bytes, u.prompt_bytes,
           greatest(u.size_bytes - u.prompt_bytes, 0) AS kept_out_bytes"""


def _uses(kind: str, key: str, since: str, until: str) -> str:
    return f"""SELECT {_use_columns(kind, key)}
      FROM {kind}_uses u LEFT JOIN work_records w ON w.tenant_id = $1 AND w.id = u.work_id
     WHERE u.tenant_id = $1 AND u.at >= {since} AND u.at < {until}"""


def _uses_of_works(kind: str, key: str, within: str = "") -> str:
    """Look at the uses of each unit of work, in the order in which they are found: OFFSET keeps the planner from another."""
    return f"""SELECT {_use_columns(kind, key)}
      FROM works w CROSS JOIN LATERAL (
           SELECT * FROM {kind}_uses u WHERE u.tenant_id = $1 AND u.work_id = w.id{within} OFFSET 0) u"""


# Ended queries, and what hosts did, are summed up once: by the hour, the agent, the model and the runtime. So a range is
# read from the sums of its whole hours, what began in the parts of hours at its ends, and what is not in the sums yet.
FIRST_HOUR = "date_trunc('hour', $2::timestamptz + interval '59 minutes 59.999999 seconds', 'UTC')"
END_HOUR = "date_trunc('hour', $3::timestamptz, 'UTC')"
EDGES = (("$2", f"least($3, {FIRST_HOUR})"), (f"greatest({FIRST_HOUR}, {END_HOUR})", "$3"))
UNSUMMED = f"""works AS (
    SELECT w.* FROM (SELECT r.id, r.query_id FROM work_records r
                      WHERE r.tenant_id = $1 AND r.parent_id IS NULL AND NOT r.summed OFFSET 0) r
     CROSS JOIN LATERAL (SELECT kind, {CALL_COLUMNS} FROM work_records w
                          WHERE w.tenant_id = $1 AND w.query_id = r.query_id
                          UNION ALL
                         SELECT kind, {CALL_COLUMNS} FROM work_records w
                          WHERE w.tenant_id = $1 AND w.id = r.id AND r.query_id IS NULL OFFSET 0) w
), """
CALLS_OF_WORKS = f"SELECT {CALL_COLUMNS} FROM works WHERE kind = 'model_call'"
# The columns of usage_sums that are added up.
SUMMED = (
    "model_calls",
    *Usage.model_fields,
    "cost_usd",
    "unpriced_calls",
    *("uses", "size_bytes", "prompt_bytes", "kept_out_bytes", "tokens", "tokens_bytes", "usd", "usd_bytes"),
)
SUM_KEY = ("hour", "agent", "model", "runtime", "kind", "failed")
UNION = "\n    UNION ALL\n    "
# The columns of what models used, each also for failed work alone.
_SPENT = (
    "cost_usd",
    *(name for name in Spent.model_fields if name not in ("usage", "cost_usd")),
    *Usage.model_fields,
)
_USES = ("reference", "artifact")


def _sums() -> str:
    out = [
        "sum(cost_usd)::float8 AS cost_usd",  # decimals: see app/llm/prices.py
        "(sum(cost_usd) FILTER (WHERE failed))::float8 AS failed_cost_usd",
    ]
    for name in _SPENT[1:]:
        out.append(f"coalesce(sum({name}), 0)::bigint AS {name}")
        out.append(f"coalesce(sum({name}) FILTER (WHERE failed), 0)::bigint AS failed_{name}")
    for kind in _USES:
        own = f"FILTER (WHERE kind = '{kind}')"
        for name in ("uses", "size_bytes", "prompt_bytes", "kept_out_bytes", "tokens_bytes", "usd_bytes"):
            out.append(f"coalesce(sum({name}) {own}, 0)::bigint AS {kind}_{name}")
        out += [f"sum({name}) {own} AS {kind}_{name}" for name in ("tokens", "usd")]
    return ", ".join(out)


# Groups whose cost is not known are compared by their tokens.
BY_COST = "cost_usd DESC NULLS LAST, input_tokens + output_tokens DESC, key"


def usage_sql(name: str, order: str | None = None) -> str:
    """Return the statement of a grouping. `order` takes the place of its own order, which pages need.

    Its parameters: the tenant, the range, the key to begin after, the limit.
    """
    by = GROUPINGS[name]
    own_order, beyond = ("key DESC", "<") if by.newest_first else ("key ASC", ">")
    joined = "FULL JOIN (SELECT call, artifact FROM led WHERE call IS NOT NULL) l ON l.call = c.id"
    ranges = (("$2", "$3"),) if by.of_sum is None else EDGES
    calls = [_calls(since, until) for since, until in ranges]
    uses = []
    for kind in _USES:
        of_use = by.of_artifact if kind == "artifact" and by.of_artifact else by.of_use
        key = f'{of_use} COLLATE "C" AS key'
        uses += [_uses(kind, key, since, until) for since, until in ranges]
        if by.of_sum is not None:
            within = f" AND u.at >= {FIRST_HOUR} AND u.at < {END_HOUR}"
            uses.append(_uses_of_works(kind, key, within))
    summed = ""
    if by.of_sum is not None:
        calls.append(f"{CALLS_OF_WORKS} AND started_at >= {FIRST_HOUR} AND started_at < {END_HOUR}")
        summed = f"""
    UNION ALL
    SELECT {by.of_sum} COLLATE "C", s.kind, s.failed, {", ".join(f"s.{name}" for name in SUMMED)}
      FROM usage_sums s WHERE s.tenant_id = $1 AND s.hour >= {FIRST_HOUR} AND s.hour < {END_HOUR}"""
    entries = ENTRIES.format(
        works="" if by.of_sum is None else UNSUMMED,
        calls=UNION.join(calls),
        uses=UNION.join(uses),
        made=LED if by.by_artifact else "",
        led=joined if by.by_artifact else "",
        call_key=f'{by.of_call} COLLATE "C" AS key',
        keys="key",
        summed=summed,
    )
    return entries + GROUPS.format(sums=_sums(), order=order or own_order, beyond=beyond)


def _add_to_sums_sql() -> str:
    """Return the statement that adds queries and what hosts did to the sums. Its parameters: the tenant, the ids of the
    queries, the ids of the work records of hosts."""
    keys = "date_trunc('hour', {at}, 'UTC') AS hour, {agent} AS agent, {model} AS model, coalesce({runtime}, '') AS runtime"
    use_key = keys.format(
        at="u.at", agent="w.agent", model="''", runtime=RUNTIME.format(query_id="w.query_id")
    )
    entries = ENTRIES.format(
        works=f"""works AS (
    SELECT kind, {CALL_COLUMNS} FROM work_records WHERE tenant_id = $1 AND (query_id = ANY ($2) OR id = ANY ($3))
), """,
        calls=CALLS_OF_WORKS,
        uses=UNION.join(_uses_of_works(kind, use_key) for kind in _USES),
        made="",
        led="",
        call_key=keys.format(
            at="c.started_at",
            agent="c.agent",
            model="coalesce(c.model, '')",
            runtime=RUNTIME.format(query_id="c.query_id"),
        ),
        keys="hour, agent, model, runtime",
        summed="",
    )
    key = ", ".join(SUM_KEY)
    columns = ", ".join(SUMMED)
    added = ", ".join(
        # What is unknown is null, and the sum of something known with it is what is known.
        f"{name} = coalesce(s.{name} + excluded.{name}, s.{name}, excluded.{name})"
        for name in SUMMED
    )
    return f"""{entries}
INSERT INTO usage_sums AS s (tenant_id, {key}, {columns})
SELECT $1, {key}, {", ".join(f"sum({name})" for name in SUMMED)} FROM entries GROUP BY {key} ORDER BY {key}
ON CONFLICT (tenant_id, {key}) DO UPDATE SET {added}"""


USAGE_BY = {name: usage_sql(name) for name in GROUPINGS}
USAGE_BY_COST = {name: usage_sql(name, BY_COST) for name in GROUPINGS}
ADD_TO_SUMS = _add_to_sums_sql()
USAGE_TIMEOUT_S = 3.0


async def usage(
    tx: Tx,
    *,
    by: GroupBy,
    order: GroupOrder,
    since: datetime,
    until: datetime,
    after: str | None,
    limit: int,
) -> tuple[UsageGroupSum, list[UsageGroupSum]]:
    """Return the total over everything that began in the range, and `limit` groups after a key. Raise
    StatementTimeout."""
    sql = (USAGE_BY_COST if order == "cost" else USAGE_BY)[by]
    rows = await tx.fetch_within(USAGE_TIMEOUT_S, sql, tx.tenant, since, until, after, limit + 1)
    total, *groups = [
        UsageGroupSum(
            row["key"],
            spent=UsageSum(**{name: row[name] for name in _SPENT}),
            failed=UsageSum(**{name: row[f"failed_{name}"] for name in _SPENT}),
            references=KeptOutSum(**{name: row[f"reference_{name}"] for name in KeptOutSum.__slots__}),
            artifacts=KeptOutSum(**{name: row[f"artifact_{name}"] for name in KeptOutSum.__slots__}),
        )
        for row in rows
    ]
    return total, groups


async def add_to_sums(tx: Tx, *, query_ids: Sequence[str], host_ids: Sequence[str]) -> None:
    """Add what ended queries used, and what hosts did, to the sums. The caller adds each of them once. Raise
    StatementTimeout."""
    await tx.fetch_within(USAGE_TIMEOUT_S, ADD_TO_SUMS, tx.tenant, list(query_ids), list(host_ids))
