"""`make bench ARGS="--suite work"`: the cost of reading a work tree by its size, and its effect on other
requests."""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import asyncpg

from app.base import embedded_postgres
from bench import machine, programs, report
from bench.references import QUIET_S, Api, Figures, measure_s, small_requests, tables
from bench.report import quantile

SIZES = {"100": 100, "1,000": 1_000, "10,000": 10_000}
TIMES = {"100": 60, "1,000": 40, "10,000": 12}
"""Of each measurement in a round."""
BESIDE = 10
"""Trees of 10,000 records that are read beside the small requests of others."""

# Turns of ten records below one agent's run: a model call, and nine tool calls, every tenth of which calls an agent that
# has a model call of its own.
FILL = """
INSERT INTO work_records (tenant_id, id, query_id, thread_id, parent_id, kind, name, agent, status, position, model,
                          input_tokens, output_tokens, cost_usd, price_date, input, output, ended_at)
SELECT tenant_id, 'wrk_7' || lpad(n::text, 25, '0'), query_id, thread_id, id,
       CASE WHEN n % 10 = 0 THEN 'model_call' ELSE 'tool_call' END, 'x', agent, 'succeeded', n,
       CASE WHEN n % 10 = 0 THEN 'm' END, CASE WHEN n % 10 = 0 THEN 1000 ELSE 0 END, 10, 0.001, '2026-11-21 table',
       convert_to(repeat('i', 500), 'UTF8'), convert_to(repeat('o', 2000), 'UTF8'), now()
  FROM work_records, generate_series($2::int, $3::int) n WHERE query_id = $1 AND kind = 'agent'
"""


async def fill(dsn: str, query_id: str, first: int, count: int) -> None:
    """Insert records of a query directly into the database: a run of that length would take minutes."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(FILL, query_id, first, first + count - 1)
        await connection.execute("ANALYZE work_records")
    finally:
        await connection.close()


def insert_query(api: Api, dsn: str, first: int, count: int) -> str:
    """Create a query with this many records; return the id of its root."""
    query: str = json.loads(api("POST", "/queries", b'{"runtime":"default","prompt":"hi"}'))["id"]
    while json.loads(api("GET", f"/queries/{query}?waitMs=5000"))["endedAt"] is None:
        pass
    own = len(json.loads(api("GET", f"/queries/{query}/work"))["items"])
    asyncio.run(fill(dsn, query, first, count - own))
    return query.removeprefix("qry_")


def one_round(api: Api, queries: dict[str, str], number: int, figures: Figures | None) -> None:
    """Read the trees of each size. Without `figures`, only warm up."""
    for size, suffix in queries.items():
        paths = {
            "tree": f"/work-records/wrk_{suffix}?tree=true",
            "the record with its rollup": f"/work-records/wrk_{suffix}",
            "a page of 50": f"/work-records?queryId=qry_{suffix}&limit=50",
            "all with their bodies": f"/queries/qry_{suffix}/work",
        }
        for name, path in paths.items():
            api("GET", path)
            middle = statistics.median(measure_s(partial(api, "GET", path)) for _ in range(TIMES[size]))
            if figures is not None:
                figures.add(f"{name}, ms", size, middle * 1000)
                if name == "tree":
                    figures.add("tree, MB", size, len(api("GET", path)) / 1e6)
            print(f"round {number}: {name} of {size}: {middle * 1000:.2f} ms", file=sys.stderr)


def measure_interference(api: Api, suffix: str, number: int, figures: Figures | None) -> None:
    """Measure small requests while the service is idle, and while large trees are read one after another."""
    with small_requests(api) as quiet:
        time.sleep(QUIET_S)
    with small_requests(api) as busy:
        for _ in range(BESIDE):
            api("GET", f"/work-records/wrk_{suffix}?tree=true")
    for name, seconds in (("quiet", quiet), ("beside trees of 10,000", busy)):
        for row, share in (("median", 0.5), ("p95", 0.95)):
            value = quantile(seconds, share) * 1000
            if figures is not None:
                figures.add(f"a small request, {row}, ms", name, value)
            print(f"round {number}: a small request, {name}, {row}: {value:.2f} ms", file=sys.stderr)


def measure(rounds: int) -> str:
    """Measure everything; return the tables. The first round is discarded."""
    trees, requests = Figures(), Figures()
    with ExitStack() as stack:
        data = stack.enter_context(programs.data_dir())
        service, _ = stack.enter_context(programs.service(data))
        postgres = stack.enter_context(programs.database_of(data))
        key = Path(data / "local-key").read_text("utf-8").strip()
        api = stack.enter_context(closing(Api(service.port, key)))
        first, queries = 1, {}
        for size, count in SIZES.items():
            queries[size] = insert_query(api, postgres.dsn(user=embedded_postgres.SUPERUSER), first, count)
            first += count
            tree = json.loads(api("GET", f"/work-records/wrk_{queries[size]}?tree=true"))
            if len(tree["below"]) + 1 != count:
                raise SystemExit(f"the tree has {len(tree['below']) + 1} records and not {count}")
        for number in range(rounds):
            one_round(api, queries, number, trees if number else None)
            measure_interference(api, queries["10,000"], number, requests if number else None)
        peak = machine.peak_rss_mb(service.pid)
    about = (
        f"{machine.kind()}; Python {sys.version.split()[0]}; {rounds - 1} rounds; median (min–max) of the rounds. Each "
        f"record has 2.5 kB of input and output. The service's own process had {peak:.0f} MiB at most."
    )
    beside_columns = list(requests.rows["a small request, p95, ms"])
    return "\n".join([about, "", *tables(trees, list(SIZES)), "", *tables(requests, beside_columns)])


def run(*, quick: bool, page: Path | None) -> None:
    """Measure and print; with `page`, also write the tables into it."""
    text = measure(2 if quick else 5)
    print(text)
    if page is not None:
        report.write(page, text, "work")
