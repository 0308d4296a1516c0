"""No statement gets slower as a tenant's tables grow, as far as the planner of Postgres can tell."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator

import asyncpg

from app.base.postgres.pages import PageStatements
from tests.support.large_tables import fill
from tests.support.statements import ROOT, Statement, named_statements

MAX_COST = 60_000
"""In the planner's unit. Reading a table of ten million rows costs more than 100,000. A page of rows costs less, even
where each has several lookups in other tables, which the planner takes for more than they are if they are recursive."""
ROWS_OF_A_PAGE = 100
WHOLE = {
    "app/artifacts/decision_store.py:UNCHAINED": "verifies every decision of a tenant",
    "app/backup/store.py:BLOBS": "lists every blob for a backup",
}
"""Statements that read everything, and why."""
ELSEWHERE = ("app/catalog/engines/", "app/transfer/")
"""Statements that read the catalogs of data sources, or a whole tenant."""
FRAGMENTS = {
    "app/approvals/store.py": {"_CANDIDATES", "_FILTERED", "_FILTERED_GRANTS", "_GRANT_CANDIDATES"},
    "app/artifacts/store.py": {"DECISIONS", "RIVALS", "TAGGED", "WALK", "WITH_STATUS"},
    "app/plans/store.py": {"_CANDIDATES", "_FILTERED", "_REVISION"},
    "app/queries/store.py": {"THREAD", "_CANDIDATES", "_FILTERED", "_SUMS"},
    "app/references/store.py": {"PINNED"},
    "app/tools/store.py": {"_CANDIDATES", "_FILTERED"},
    "app/usage/store.py": {"CALLS_OF_WORKS", "CHANNEL", "ENTRIES", "REVISION", "RUNTIME"},
}
"""Parts of other statements, by file. Those of usage are put together for each request; tests/postgres/usage checks the
result."""
PLAN = """
CREATE FUNCTION pg_temp.plan_of(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
    EXECUTE 'EXPLAIN (GENERIC_PLAN, FORMAT JSON) ' || statement INTO plan;
    RETURN plan::text;
END $$
"""


def statements() -> Iterator[Statement]:
    """Yield the statements of all stores, those of pages included."""
    for statement in named_statements():
        file, _, name = statement.name.partition(":")
        if name not in FRAGMENTS.get(file, ()) and not file.startswith(ELSEWHERE):
            yield statement
    for store in sorted((ROOT / "app").rglob("store.py")):
        path = store.relative_to(ROOT)
        module = importlib.import_module(".".join(path.with_suffix("").parts))
        for name, value in vars(module).items():
            if isinstance(value, PageStatements):
                yield Statement(f"{path}:{name}.page", value.page)
                yield Statement(f"{path}:{name}.last", value.last)


def with_page_size(text: str) -> str:
    """Return a statement with a limit that the planner knows; of a parameter it assumes a tenth of all rows."""
    text = re.sub(r"(LIMIT|OFFSET) \$\d+", rf"\1 {ROWS_OF_A_PAGE}", text)
    numbers = sorted({int(number) for number in re.findall(r"\$(\d+)", text)})
    return re.sub(r"\$(\d+)", lambda found: f"${numbers.index(int(found[1])) + 1}", text)


async def test_no_statement_reads_a_table_of_millions(owner: asyncpg.Connection) -> None:
    await fill(owner)
    await owner.execute(PLAN)
    costs = {}
    for statement in statements():
        text = with_page_size(statement.text)
        plan = json.loads(await owner.fetchval("SELECT pg_temp.plan_of($1)", text))
        costs[statement.name] = plan[0]["Plan"]["Total Cost"]
    too_high = {name: round(cost) for name, cost in costs.items() if cost > MAX_COST}
    assert too_high.keys() == WHOLE.keys(), too_high
