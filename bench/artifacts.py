"""`make bench ARGS="--suite artifacts"`: the cost of publishing and listing with few artifacts and with a
million."""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import asyncpg

from app.base import embedded_postgres
from bench import machine, programs, report
from bench.references import Api, Figures, measure_s, tables

SIZES: Final = {"10": 10, "1,000,000": 1_000_000}
REPEATS: Final = 30
"""Of each measurement in a round."""
PAGE_ITEMS: Final = 500
"""On one page, on the way to the middle."""
SPAN: Final = timedelta(days=30)
"""Over so long the records were published, evenly."""

# A row for each artifact. Each file is published four times, each time in place of the time before.
ROWS: Final = """
CREATE TEMP TABLE made (n int PRIMARY KEY, id text COLLATE "C", at timestamptz, file int, version int,
                        thread_id text COLLATE "C", place int, channel text COLLATE "C", path text, digest bytea)
"""
CHANNELS: Final = ("analysis", "design", "patch", "verification", "handoff")
FILL: Final = (
    "INSERT INTO threads (tenant_id, id) SELECT DISTINCT 'local', thread_id FROM made",
    "INSERT INTO blobs (tenant_id, digest, size_bytes, named) SELECT 'local', digest, 1000 + n % 5000, true FROM made",
    "INSERT INTO workspaces (tenant_id, thread_id, files, bytes) SELECT 'local', thread_id, 1, 1 FROM made GROUP BY 2",
    """
INSERT INTO workspace_versions (tenant_id, thread_id, path, version, digest, size_bytes, media_type, written_by, at)
SELECT 'local', thread_id, path, version, digest, 1000 + n % 5000, 'text/markdown', 'a', at FROM made ORDER BY n
""",
    """
INSERT INTO workspace_files (tenant_id, thread_id, path, version, skeleton)
SELECT 'local', thread_id, path, max(version), path FROM made GROUP BY thread_id, path
""",
    """
INSERT INTO artifact_chains (tenant_id, thread_id, n, mac)
SELECT 'local', thread_id, max(place), sha256(convert_to(thread_id || max(place), 'UTF8')) FROM made GROUP BY thread_id
""",
    """
INSERT INTO artifacts (tenant_id, id, thread_id, n, record, previous, mac, channel, path, is_directory, digest, body_bytes,
                       work_id, query_id, agent, replaces, created_at)
SELECT 'local', m.id, m.thread_id, m.place, convert_to(json_build_object('id', m.id, 'version', 1, 'channel', m.channel,
         'kind', 'file', 'path', m.path, 'title', 'Report ' || m.file, 'summary', repeat('What it says. ', 15),
         'mediaType', 'text/markdown', 'sizeBytes', 1000 + m.n % 5000, 'tags', json_build_array('tag-' || m.n % 50),
         'digest', json_build_object('algorithm', 'sha256', 'value', encode(m.digest, 'hex')),
         'createdAt', to_char(m.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
         'producer', json_build_object('workId', work.id, 'kind', 'agent', 'threadId', m.thread_id,
                                       'agent', 'agent-' || m.file % 20))::text, 'UTF8'),
       sha256(convert_to(m.thread_id || m.place - 1, 'UTF8')), sha256(convert_to(m.thread_id || m.place, 'UTF8')),
       m.channel, m.path, false, m.digest, 1000 + m.n % 5000, work.id, 'qry_' || lpad((m.file / 10)::text, 26, '0'),
       'agent-' || m.file % 20, before.id, m.at
  FROM made m LEFT JOIN made before ON before.n = m.n - 1 AND m.version > 1,
       LATERAL (SELECT 'wrk_' || lpad(m.file::text, 26, '0') AS id) work ORDER BY m.n
""",
    """
INSERT INTO artifact_tags (tenant_id, tag, artifact_id) SELECT 'local', 'tag-' || n % 50, id FROM made
UNION ALL SELECT 'local', 'seldom', id FROM made WHERE n % 100000 = 0
""",
    # The last of a file came from the last of another: a tree, a level deeper whenever the files are twice as many.
    """
INSERT INTO artifact_parents (tenant_id, artifact_id, parent_id)
SELECT 'local', m.id, p.id FROM made m JOIN made p ON p.n = m.file / 2 * 4 + 3 WHERE m.version = 4 AND m.file > 0
""",
    "ANALYZE",
)


@dataclass(frozen=True, slots=True)
class BenchService:
    """A service with a number of artifacts, and some of their names."""

    api: Api
    first: str
    thread_id: str
    path: str
    since: str


def _rows(ids: list[str], times: list[datetime], threads: int) -> Iterator[tuple[Any, ...]]:
    for n, (id, at) in enumerate(zip(ids, times, strict=True)):
        file, version = n // 4, n % 4 + 1
        place = file // threads * 4 + version
        path = f"tasks/{file}/report.md"
        digest = n.to_bytes(32)[::-1]
        yield n, id, at, file, version, _thread(file % threads), place, CHANNELS[file % 5], path, digest


def _thread(n: int) -> str:
    return f"thr_{n:026}"


async def _fill(dsn: str, count: int) -> tuple[str, datetime]:
    """Insert artifacts directly into the database: through the service it would take hours.

    Return the common ancestor, and the time at which half of them existed.
    """
    began = time.perf_counter()
    end = datetime.now(UTC)
    times = [end - SPAN * ((count - n) / count) for n in range(count)]
    ids = [f"art_{n:026}" for n in range(count)]  # below those that the service makes
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("SET session_replication_role = replica")  # no row looks up what it names
        await connection.execute(ROWS)
        rows = _rows(ids, times, max(1, count // 1000))
        await connection.copy_records_to_table("made", records=rows)
        for statement in FILL:
            await connection.execute(statement, timeout=600)
            print(f"{time.perf_counter() - began:.0f} s: {' '.join(statement.split()[:3])}", file=sys.stderr)
    finally:
        await connection.close()
    return ids[3], times[count // 2]


def _start_service(stack: ExitStack, count: int) -> tuple[programs.Program, BenchService]:
    """Start a service with this many artifacts."""
    data = stack.enter_context(programs.data_dir())
    service, _ = stack.enter_context(programs.service(data))
    postgres = stack.enter_context(programs.database_of(data))
    first, middle = asyncio.run(_fill(postgres.dsn(user=embedded_postgres.SUPERUSER), count))
    key = Path(data / "local-key").read_text("utf-8").strip()
    api = stack.enter_context(closing(Api(service.port, key)))
    since = middle.isoformat().replace("+00:00", "Z")
    return service, BenchService(api, first, _thread(0), "tasks/0/report.md", since)


def middle_cursor(api: Api, count: int) -> str:
    """Return the cursor of a page with half of the active records behind it."""
    cursor, seen = "", 0
    while seen < count // 8:
        page = json.loads(api("GET", f"/artifacts?limit={min(PAGE_ITEMS, count // 8)}{cursor}"))
        seen += len(page["items"])
        cursor = f"&cursor={page['nextCursor']}"
    return cursor


def one_round(home: BenchService, size: str, cursor: str, number: int, figures: Figures | None) -> None:
    """Measure everything once, at one size. Without `figures`, only warm up."""
    api, counter = home.api, iter(range(REPEATS * 2))
    asked = json.dumps({"threadId": home.thread_id, "channel": "analysis", "path": home.path}).encode()

    def upload() -> None:
        api(
            "PUT",
            f"/artifacts/handoff/{number}-{next(counter)}?threadId={home.thread_id}",
            b"what was uploaded",
        )

    def reads(path: str) -> Callable[[], object]:
        return lambda: api("GET", path)

    newest = json.loads(api("GET", "/artifacts?agent=agent-1&limit=1"))["items"][0]
    work: dict[str, Callable[[], object]] = {
        "publish": lambda: api("POST", "/artifacts", asked),
        "upload and publish": upload,
        "read one": reads(f"/artifacts/{newest['id']}"),
        "lineage of a late one": reads(f"/artifacts/{newest['id']}/lineage"),
        "lineage of the first": reads(f"/artifacts/{home.first}/lineage"),
        "first page": reads("/artifacts"),
        "a page in the middle": reads(f"/artifacts?{cursor}"),
        "first page with superseded ones": reads("/artifacts?includeSuperseded=true"),
        "of a channel": reads("/artifacts?channel=design"),
        "of a thread": reads(f"/artifacts?threadId={home.thread_id}"),
        "of a unit of work": reads(f"/artifacts?workId={newest['producer']['workId']}"),
        "of an agent": reads("/artifacts?agent=agent-1"),
        "with a tag": reads("/artifacts?tag=tag-7"),
        "with a tag that is rare": reads("/artifacts?tag=seldom"),
        "of a channel and an agent that share none": reads("/artifacts?channel=design&agent=agent-2"),
        "only superseded": reads("/artifacts?status=superseded"),
        "since the middle": reads(f"/artifacts?since={home.since}"),
    }
    for name, call in work.items():
        call()
        middle = statistics.median(measure_s(call) for _ in range(REPEATS)) * 1000
        if figures is not None:
            figures.add(f"{name}, ms", size, middle)
        print(f"round {number}: {name} of {size}: {middle:.2f} ms", file=sys.stderr)


def measure(rounds: int) -> str:
    """Measure everything; return the table. The sizes take turns; the first round is discarded."""
    figures = Figures()
    with ExitStack() as stack:
        made = {size: _start_service(stack, count) for size, count in SIZES.items()}
        cursors = {size: middle_cursor(home.api, SIZES[size]) for size, (_, home) in made.items()}
        for number in range(rounds):
            for size, (_, home) in made.items():
                one_round(home, size, cursors[size], number, figures if number else None)
        peak = max(machine.peak_rss_mb(service.pid) for service, _ in made.values())
    about = (
        f"{machine.kind()}; Python {sys.version.split()[0]}; {rounds - 1} rounds; median (min–max) of the rounds. Pages of "
        f"50; each file was published four times. The service's own process had {peak:.0f} MiB at most."
    )
    return "\n".join([about, "", *tables(figures, list(SIZES))])


def run(*, quick: bool, page: Path | None) -> None:
    """Measure and print; with `page`, also write the table into it."""
    text = measure(2 if quick else 5)
    print(text)
    if page is not None:
        report.write(page, text, "artifacts")
