"""`make bench ARGS="--suite parked"`: what 100,000 queries that wait for a decision cost the service, and whether a decision
takes longer beside them.

They are copies of one real query, inserted directly into the tables.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import uvloop

from app.base import embedded_postgres
from bench import machine, programs, report
from bench.idle_streams import DECISIONS, SPEC, Meter, Streams, decide, park_queries
from bench.large_tables import insert_copies
from bench.references import Api, Figures, tables

FEW: Final = 10
MANY, QUICK_MANY = 100_000, 5_000
QUIET_S: Final = 10.0
SETTLE_S: Final = 20.0
"""After which a process without work has done each of its periodic tasks."""

# Copies of the rows of a query ($1), the numbers $2 to $3. Each id of a query, its thread, work and approval gets the number
# in place of its time.
COPY: Final = r"""
INSERT INTO {table} SELECT r.* FROM generate_series($2::int, $3::int) n, {table} o,
  LATERAL jsonb_populate_record(NULL::{table}, regexp_replace(to_jsonb(o)::text,
    '(qry|thr|wrk|apr)_[0-9a-z]{{10}}([0-9a-z]{{16}})', '\1_' || lpad(n::text, 10, '0') || '\2', 'g')::jsonb) r
 WHERE {of_query}
"""
COPIES: Final = {
    table: COPY.format(table=table, of_query=of_query)
    for table, of_query in {
        "threads": "o.id = (SELECT thread_id FROM queries WHERE id = $1)",
        "queries": "o.id = $1",
        "events": "o.query_id = $1",
        "work_records": "o.query_id = $1",
        "approvals": "o.query_id = $1",
    }.items()
}


async def measure_decisions(
    port: int, key: str, meter: Meter, queries: list[str], column: str, figures: Figures
) -> None:
    """Measure the process at rest, then decide the approvals of these queries, each of which has a stream."""
    own, database = await meter.measure(QUIET_S)
    figures.add("CPU of the process at rest, ms a second", column, own)
    figures.add("CPU of Postgres at rest, ms a second", column, database)
    streams = Streams(port, key)
    await streams.open([f"/queries/{query}/stream" for query in queries])
    await decide(lambda: Api(port, key), streams, queries, figures, column)
    streams.close()


def measure(count: int) -> str:
    """Measure beside few parked queries, then beside many, then after a restart; return the table."""
    figures = Figures()
    few, many, again = f"{FEW} parked", f"{count:,} parked", "after a restart"
    memory = "memory of the process, MiB"
    with ExitStack() as stack:
        data = stack.enter_context(programs.data_dir())
        with programs.service(data) as (service, _):
            postgres = stack.enter_context(programs.database_of(data))
            meter = Meter(service.pid, asyncio.run(programs.postmaster_of(postgres)))
            key = Path(data / "local-key").read_text("utf-8").strip()
            with closing(Api(service.port, key)) as api:
                api("POST", "/runtimes", json.dumps(SPEC).encode())

            def measure_round(column: str) -> None:
                queries = park_queries(lambda: Api(service.port, key), DECISIONS)
                uvloop.run(measure_decisions(service.port, key, meter, queries, column, figures))

            copied, *_ = park_queries(lambda: Api(service.port, key), FEW)
            measure_round(few)
            time.sleep(SETTLE_S)
            figures.add(memory, few, machine.rss_mb(service.pid))
            dsn = postgres.dsn(user=embedded_postgres.SUPERUSER)
            asyncio.run(insert_copies(dsn, COPIES, copied, count))
            time.sleep(SETTLE_S)
            figures.add(memory, many, machine.rss_mb(service.pid))
            measure_round(many)
        with programs.service(data) as (service, ready_s):
            time.sleep(SETTLE_S)
            figures.add(memory, again, machine.rss_mb(service.pid))
            figures.add("start to the first response, s", again, ready_s)
    about = (
        f"{machine.kind()}; Python {sys.version.split()[0]}; {DECISIONS} decisions, one after the other, beside {FEW} and "
        f"beside {count:,} queries that wait."
    )
    return "\n".join([about, "", *tables(figures, [few, many, again])])


def run(*, quick: bool, page: Path | None) -> None:
    """Measure and print; with `page`, also write the table into it."""
    text = measure(QUICK_MANY if quick else MANY)
    print(text)
    if page is not None:
        report.write(page, text, "parked")
