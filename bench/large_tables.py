"""`make bench ARGS="--suite large-tables"`: lists, streams and runs of a tenant with a hundred queries and of one with a
million.

The million queries, ten million events and three million work records are inserted directly into the tables: through
the service it would take a day.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import asyncpg

from app.base import embedded_postgres
from bench import machine, programs, report
from bench.programs import Program
from bench.references import Api, Figures, measure_s, tables

FEW: Final = 100
MANY, QUICK_MANY = 1_000_000, 50_000
REPEATS: Final = 20
"""Of each request in a round."""
RUNS: Final = 200
"""With one client, in a round."""
LOAD_S: Final = 60.0
DAYS: Final = 30
"""Over so long the queries ran, evenly."""

# Copies of a query ($1), the rows $2 to $3. One in a thousand failed; a thread has ten.
COPY: Final = {
    "threads": """
INSERT INTO threads SELECT r.* FROM generate_series($2::int, $3::int) n, threads t,
  LATERAL jsonb_populate_record(t, jsonb_build_object('id', 'thr_' || lpad(n::text, 26, '0'))) r
 WHERE n % 10 = 0 AND t.id = (SELECT thread_id FROM queries WHERE id = $1)
""",
    "queries": """
INSERT INTO queries SELECT r.* FROM generate_series($2::int, $3::int) n, queries q,
  LATERAL (SELECT now() - interval '30 days' * (1 - n / $4::float8) AS at) ran,
  LATERAL jsonb_populate_record(q, jsonb_build_object('id', 'qry_' || lpad(n::text, 26, '0'),
    'thread_id', 'thr_' || lpad((n / 10 * 10)::text, 26, '0'), 'status', CASE WHEN n % 1000 = 0 THEN 'failed' ELSE 'succeeded' END,
    'created_at', at, 'started_at', at, 'ended_at', at)) r WHERE q.id = $1
""",
    "events": """
INSERT INTO events (tenant_id, query_id, seq, type, xid, body)
SELECT e.tenant_id, 'qry_' || lpad(n::text, 26, '0'), e.seq, e.type, e.xid, e.body
  FROM generate_series($2::int, $3::int) n, events e WHERE e.query_id = $1
""",
    "work_records": """
INSERT INTO work_records SELECT r.* FROM generate_series($2::int, $3::int) n,
  (SELECT *, row_number() OVER (ORDER BY id) AS place FROM work_records WHERE query_id = $1) w JOIN work_records o
     ON o.tenant_id = w.tenant_id AND o.id = w.id,
  LATERAL (SELECT now() - interval '30 days' * (1 - n / $4::float8) AS at) ran,
  LATERAL jsonb_populate_record(o, jsonb_build_object('id', 'wrk_' || lpad((n * 10 + w.place)::text, 26, '0'),
    'query_id', 'qry_' || lpad(n::text, 26, '0'), 'thread_id', 'thr_' || lpad((n / 10 * 10)::text, 26, '0'),
    'parent_id', CASE WHEN o.parent_id IS NOT NULL THEN 'wrk_' || lpad((n * 10 + w.place - 1)::text, 26, '0') END,
    'summed', o.parent_id IS NULL, 'started_at', at, 'ended_at', at)) r
""",
}
SUMS: Final = """
INSERT INTO usage_sums (tenant_id, hour, agent, model, runtime, kind, failed, model_calls, input_tokens, output_tokens,
  cache_read_tokens, cache_write_tokens, reasoning_tokens, unpriced_calls, uses, size_bytes, prompt_bytes, kept_out_bytes,
  tokens_bytes, usd_bytes)
SELECT tenant_id, date_trunc('hour', started_at), agent, coalesce(model, ''), 'default', 'model_call', false, count(*),
       sum(input_tokens), sum(output_tokens), 0, 0, 0, count(*), 0, 0, 0, 0, 0, 0
  FROM work_records WHERE kind = 'model_call' AND id < 'wrk_00000000010' GROUP BY 1, 2, 3, 4
    ON CONFLICT DO NOTHING
"""
STEP: Final = 50_000


@dataclass(frozen=True, slots=True)
class BenchService:
    """A service, a query of its own, and a thread of ten queries."""

    program: Program
    postmaster: int
    api: Api
    query: str
    thread: str


async def insert_copies(
    dsn: str, statements: Mapping[str, str], query: str, count: int, then: Sequence[str] = ()
) -> None:
    """Insert copies of a query and of what belongs to it, with a statement for each table, and execute those of `then`."""
    began = time.perf_counter()
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("SET session_replication_role = replica")  # no row looks up what it names
        for table, statement in statements.items():
            for first in range(0, count, STEP):
                values = [query, first, min(first + STEP, count) - 1, float(count)]
                await connection.execute(statement, *values[: 4 if "$4" in statement else 3], timeout=600)
            print(f"{time.perf_counter() - began:.0f} s: {table}", file=sys.stderr)
        for statement in then:
            await connection.execute(statement, timeout=600)
        for table in statements:
            await connection.execute(f"VACUUM ANALYZE {table}", timeout=600)  # as autovacuum would have done
    finally:
        await connection.close()


def start_service(stack: ExitStack, count: int) -> BenchService:
    """Start a service with this many queries."""
    data = stack.enter_context(programs.data_dir())
    program, _ = stack.enter_context(programs.service(data))
    postgres = stack.enter_context(programs.database_of(data))
    key = Path(data / "local-key").read_text("utf-8").strip()
    api = stack.enter_context(closing(Api(program.port, key)))
    query = json.loads(api("POST", "/queries", b'{"runtime":"default","prompt":"hi"}'))["id"]
    while json.loads(api("GET", f"/queries/{query}?waitMs=5000"))["endedAt"] is None:
        pass
    dsn = postgres.dsn(user=embedded_postgres.SUPERUSER)
    asyncio.run(insert_copies(dsn, COPY, query, count, then=(SUMS, "ANALYZE usage_sums")))
    api = stack.enter_context(closing(api.again()))  # the service has closed the idle connection meanwhile
    postmaster = asyncio.run(programs.postmaster_of(postgres))
    return BenchService(program, postmaster, api, query, f"thr_{0:026}")


def one_round(home: BenchService, size: str, number: int, figures: Figures | None) -> None:
    """Measure everything once, at one size. Without `figures`, only warm up."""
    api = home.api
    cursor = json.loads(api("GET", "/events"))["nextCursor"]

    def reads(path: str) -> Callable[[], object]:
        return lambda: api("GET", path)

    requests: dict[str, Callable[[], object]] = {
        "GET /queries": reads("/queries"),
        "GET /queries?status=failed": reads("/queries?status=failed"),
        "GET /queries?threadId": reads(f"/queries?threadId={home.thread}"),
        "GET /threads": reads("/threads"),
        "GET /work-records?kind=model_call": reads("/work-records?kind=model_call"),
        "GET /work-records?status=failed": reads("/work-records?status=failed"),
        "GET /usage, by day": reads("/usage?groupBy=day"),
        "GET /usage, by agent": reads("/usage?groupBy=agent"),
        "one query": reads(f"/queries/{home.query}"),
        "the stream of a finished query": reads(f"/queries/{home.query}/stream"),
        "GET /events of types without any": reads(f"/events?after={cursor}&types=approval-comment"),
        "GET /plans": reads("/plans"),
        "GET /approvals": reads("/approvals"),
    }
    taken = {}
    for name, call in requests.items():
        call()
        taken[f"{name}, ms"] = statistics.median(measure_s(call) for _ in range(REPEATS)) * 1000
    own = machine.cpu_s(home.program.pid) + machine.cpu_s(home.postmaster, below=True)
    result = home.program.load(1, RUNS, LOAD_S)
    own = machine.cpu_s(home.program.pid) + machine.cpu_s(home.postmaster, below=True) - own
    taken["a run: first event, ms"] = statistics.median(result.first_s) * 1000
    taken["a run: completion, ms"] = statistics.median(result.whole_s) * 1000
    taken["a run: CPU of both, ms"] = own / RUNS * 1000
    for name, value in taken.items():
        if figures is not None:
            figures.add(name, size, value)
        print(f"round {number}: {name} with {size}: {value:.2f}", file=sys.stderr)


def measure(rounds: int, count: int) -> str:
    """Measure everything; return the table. The sizes take turns; the first round is discarded."""
    figures = Figures()
    sizes = {f"{FEW} queries": FEW, f"{count:,} queries": count}
    with ExitStack() as stack:
        homes = {size: start_service(stack, number) for size, number in sizes.items()}
        for number in range(rounds):
            for size, home in homes.items():
                one_round(home, size, number, figures if number else None)
    few, many = sizes
    for row in figures.rows.values():
        row["ratio"] = [large / small for small, large in zip(row[few], row[many], strict=True)]
    about = (
        f"{machine.kind()}; Python {sys.version.split()[0]}; {rounds - 1} rounds of {REPEATS} requests and {RUNS} runs with "
        f"one client; median (min–max) of the rounds. Each query has its events and three work records, over {DAYS} days."
    )
    return "\n".join([about, "", *tables(figures, [few, many, "ratio"])])


def run(*, quick: bool, page: Path | None) -> None:
    """Measure and print; with `page`, also write the table into it."""
    text = measure(2 if quick else 4, QUICK_MANY if quick else MANY)
    print(text)
    if page is not None:
        report.write(page, text, "large-tables")
