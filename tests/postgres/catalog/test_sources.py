"""Data sources: what statements may read, and their limits."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_asyncio

from tests.support import specs
from tests.support.client import Caller, good, refused
from tests.support.cluster import Cluster
from tests.support.sources import ask, make_csv, make_sqlite
from tests.support.world import World, world


@pytest_asyncio.fixture
async def data(cluster: Cluster, site: Any, tmp_path: Path) -> AsyncIterator[World]:
    """A process whose operator allows the directory `open`, with an order list and a shop in it."""
    allowed = tmp_path / "open"
    allowed.mkdir()
    make_csv(allowed)
    make_sqlite(allowed)
    async with world(site, cluster.operator_key, source_paths=[str(allowed)]) as running:
        yield running


async def orders(api: Caller, tmp_path: Path, **options: Any) -> None:
    paths = [str(tmp_path / "open" / "orders.csv")]
    good(await api.put("/sources/orders", {"kind": "duckdb", "options": {"paths": paths, **options}}))


async def shop(api: Caller, tmp_path: Path) -> None:
    paths = [str(tmp_path / "open" / "shop.sqlite")]
    good(await api.put("/sources/shop", {"kind": "sqlite", "options": {"paths": paths}}))


def query(source: str, sql: str, *params: Any) -> tuple[str, dict[str, Any]]:
    return "execute_query", {"source": source, "sql": sql, **({"params": list(params)} if params else {})}


async def test_a_source_is_declared_listed_and_deleted(data: World, tmp_path: Path) -> None:
    api = data.api
    await orders(api, tmp_path, limits={"rows": 10})
    found = await api.read("/sources/orders")
    assert found["kind"] == "duckdb"
    assert found["options"]["limits"] == {
        "timeoutMs": 15_000,
        "rows": 10,
        "bytes": 16 * 1024 * 1024,
        "concurrentStatements": 4,
    }
    assert found["profile"] == {"status": "none", "queryId": None, "profiledAt": None, "found": None}
    assert [s["name"] for s in (await api.read("/sources"))["items"]] == ["orders"]
    assert (await data.other.read("/sources"))["items"] == []
    refused(await data.other.get("/sources/orders"), 404, "source_not_found")
    good(await api.delete("/sources/orders"))
    refused(await api.get("/sources/orders"), 404, "source_not_found")


async def test_sources_need_their_scope(data: World, tmp_path: Path) -> None:
    writer = await data.key("read", "data:write", "runtimes:write")
    body = {"kind": "duckdb", "options": {"paths": [str(tmp_path / "open" / "orders.csv")]}}
    refused(await writer.put("/sources/orders", body), 403, "forbidden")
    admin = await data.key("sources:admin")
    assert (await admin.put("/sources/orders", body)).status_code == 201


async def test_a_small_result_is_complete_and_a_large_one_is_a_reference(data: World, tmp_path: Path) -> None:
    await orders(data.api, tmp_path)
    small, large = await ask(
        data.api,
        query("orders", "SELECT customer, sum(cents) AS cents FROM orders GROUP BY 1 ORDER BY 1 LIMIT $1", 2),
        query("orders", "SELECT * FROM orders ORDER BY id"),
    )
    assert small == {
        "columns": [{"name": "customer", "type": "VARCHAR"}, {"name": "cents", "type": "HUGEINT"}],
        "rowCount": 2,
        "rows": [[f"c{c}", sum(n * 10 for n in range(c, 1000, 7))] for c in range(2)],
        "truncated": False,
    }
    assert large["kind"] == "QueryResult"
    assert large["glimpse"] == {
        "columns": [
            {"name": "id", "type": "BIGINT"},
            {"name": "customer", "type": "VARCHAR"},
            {"name": "cents", "type": "BIGINT"},
            {"name": "day", "type": "DATE"},
        ],
        "rowCount": 1000,
        "truncated": False,
        "sample": [[0, "c0", 0, "2026-01-01"], [1, "c1", 10, "2026-01-02"], [2, "c2", 20, "2026-01-03"]],
        "ranges": {
            "id": {"min": 0, "max": 999},
            "cents": {"min": 0, "max": 9990},
            "day": {"min": "2026-01-01", "max": "2026-01-28"},
        },
    }
    stored = await data.api.read(f"/references/QueryResult/{large['id']}")
    assert stored["rows"][999] == [999, "c5", 9990, "2026-01-20"]


async def test_a_result_is_read_in_parts(data: World, tmp_path: Path) -> None:
    await orders(data.api, tmp_path)
    (large,) = await ask(data.api, query("orders", "SELECT id FROM orders ORDER BY id"))
    part = {"kind": "QueryResult", "id": large["id"], "path": "rows[998:]", "_outputPath": "†state.last"}
    agent = specs.agent(toolkits=["references", "variables"])
    await data.api.register(specs.spec(agent, interpreter="scripted"))
    done = await data.api.run(specs.script(("resolveRef", part)))
    state = await data.api.read(f"/threads/{done['threadId']}/state")
    assert state["document"] == {"last": [[998], [999]]}


async def test_the_work_record_has_the_statement(data: World, tmp_path: Path) -> None:
    await orders(data.api, tmp_path)
    sql = "SELECT id FROM orders"
    await ask(data.api, query("orders", sql), query("orders", "SELECT nothing FROM orders"))
    records = (await data.api.read("/work-records", kind="tool_call"))["items"]
    failed, done = [(await data.api.read(f"/work-records/{r['id']}")) for r in records]
    assert done["statement"]["source"] == "orders"
    assert done["statement"]["sql"] == sql
    assert done["statement"]["rows"] == 1000
    assert done["statement"]["bytes"] == done["references"][0]["sizeBytes"]
    assert 0 <= done["statement"]["elapsedMs"] < 15_000
    assert failed["statement"]["error"] == "unknown_column"
    assert failed["statement"]["rows"] is None


async def test_statement_errors_say_what_is_wrong(data: World, tmp_path: Path) -> None:
    await orders(data.api, tmp_path)
    await shop(data.api, tmp_path)
    errors = await ask(
        data.api,
        query("ordres", "SELECT 1"),
        query("orders", "SELECT 1; SELECT 2"),
        query("orders", "SELECT a FROM WHERE"),
        query("orders", "DELETE FROM orders"),
        query("orders", "SELECT 'a"),
        query("orders", "SELECT * FROM oders"),
        query("shop", "SELECT * FROM oders"),
        query("shop", "SELECT cent FROM orders"),
        query("orders", "SELECT $1"),
        query("orders", "SELECT ?", 1),
        query("shop", "WITH gone AS (DELETE FROM orders RETURNING *) SELECT * FROM gone"),
    )
    assert errors[0] == ("source_not_found", "There is no source 'ordres'. Nearest: orders.")
    assert errors[1] == ("bad_sql", "There must be exactly one statement; this text has 2 statements.")
    assert errors[2][0] == "bad_sql"
    assert "line 1, column 19" in errors[2][1]
    assert errors[3][0] == "not_read_only"
    assert errors[4][0] == "bad_sql"
    assert errors[5] == ("unknown_table", "There is no table 'oders' in this source. Nearest: orders.")
    assert errors[6] == ("unknown_table", "There is no table 'oders' in this source. Nearest: orders.")
    assert errors[7] == ("unknown_column", "There is no column 'cent'. Nearest: cents.")
    assert errors[8] == ("bad_params", "The statement has $1; `params` has 0 values.")
    assert errors[9] == ("bad_params", "The parameter ? is not allowed: write $1, $2 and so on.")
    assert errors[10][0] == "not_read_only"


async def test_limits_of_rows_bytes_and_time(data: World, tmp_path: Path) -> None:
    await orders(data.api, tmp_path, limits={"rows": 100})
    (few,) = await ask(data.api, query("orders", "SELECT * FROM orders"))
    assert few["glimpse"]["rowCount"] == 100
    assert few["glimpse"]["truncated"] is True
    assert few["glimpse"]["totalRows"] == 1000
    await orders(data.api, tmp_path, limits={"timeoutMs": 1000})
    slow = "SELECT count(*) FROM range(100000000000) a(x) WHERE x % 7 = 3"
    (late,) = await ask(data.api, query("orders", slow))
    assert late == ("timeout", f"Stopped after 1 s, the limit of the source 'orders': {slow}")
    await orders(data.api, tmp_path, limits={"bytes": 2048})
    (short,) = await ask(data.api, query("orders", "SELECT * FROM orders"))
    assert short["sizeBytes"] <= 2048
    assert short["glimpse"]["truncated"] is True


async def test_a_statement_that_needs_too_much_memory_is_stopped(data: World, tmp_path: Path) -> None:
    await orders(data.api, tmp_path)
    huge = "SELECT len(list(a.x)) AS n FROM range(2000000000) a(x)"
    (error,) = await ask(data.api, query("orders", huge))
    assert error[0] == "statement_too_large"


async def test_paths_outside_the_declared_ones_are_rejected(data: World, tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("a\n1\n")
    link = tmp_path / "open" / "link.csv"
    link.symlink_to(tmp_path / "secret.csv")
    for path in (
        "/etc/passwd",
        str(tmp_path / "secret.csv"),
        str(link),
        f"{tmp_path}/open/../secret.csv",
        "orders.csv",
    ):
        body = {"kind": "duckdb", "options": {"paths": [path]}}
        problem = refused(await data.api.put("/sources/x", body), 422, "source_path_not_allowed")
        assert problem["errors"] == [{"pointer": "/options/paths/0", "message": "outside the declared paths"}]
    link.unlink()


async def test_a_path_is_checked_again_at_each_statement(data: World, tmp_path: Path) -> None:
    await orders(data.api, tmp_path)
    (tmp_path / "secret.csv").write_text("id\n1\n")
    path = tmp_path / "open" / "orders.csv"
    path.unlink()
    path.symlink_to(tmp_path / "secret.csv")
    (error,) = await ask(data.api, query("orders", "SELECT * FROM orders"))
    assert error[0] == "source_path_not_allowed"


async def test_sensitive_columns_are_left_out_of_glimpses(data: World, tmp_path: Path) -> None:
    await shop(data.api, tmp_path)
    everything, one, renamed, counted = await ask(
        data.api,
        query("shop", "SELECT * FROM customers ORDER BY id"),
        query("shop", "SELECT email FROM customers WHERE id = $1", 7),
        query("shop", "SELECT id, upper(m) AS x FROM (SELECT id, email AS m FROM customers) q WHERE id = 7"),
        query("shop", "SELECT count(email) AS n FROM customers"),
    )
    assert everything["glimpse"]["columns"][2] == {"name": "email", "type": "TEXT", "sensitive": True}
    assert everything["glimpse"]["sample"][0] == [0, "Customer 0", "[omitted]", "silver"]
    assert one["glimpse"]["sample"] == [["[omitted]"]]
    assert renamed["glimpse"]["sample"] == [[7, "[omitted]"]]
    assert counted["rows"] == [[60]]
    stored = await data.api.read(f"/references/QueryResult/{one['id']}")
    assert stored["rows"] == [["private7@example.com"]]
    handle = {"kind": "QueryResult", "id": everything["id"]}
    reads = specs.script(
        ("resolveRef", {"kind": "QueryResult", "id": one["id"]}),
        ("resolveRef", {**handle, "path": "rows[:2][]"}),
    )
    read = await data.api.run(json.dumps({**json.loads(reads), "answer": {"$result": "@"}}))
    whole, cells = json.loads(read["output"])
    assert whole["value"]["rows"] == [["[omitted]"]]
    assert cells["value"] == [0, "Customer 0", "[omitted]", "silver", 1, "Customer 1", "[omitted]", "gold"]
    events = str(
        [e for q in (await data.api.read("/queries"))["items"] for e in await data.api.events(q["id"])]
    )
    assert "@example.com" not in events.lower()


async def test_errors_about_values_of_sensitive_tables_are_withheld(data: World, tmp_path: Path) -> None:
    """The row of a CSV file that cannot be converted is in the message of DuckDB as a whole."""
    (tmp_path / "open" / "people.csv").write_text("id,name,email\n1,Ada,ada@example.com\n")
    paths = [str(tmp_path / "open" / "people.csv")]
    good(await data.api.put("/sources/people", {"kind": "duckdb", "options": {"paths": paths}}))
    await orders(data.api, tmp_path)
    converted, raised, zone, unknown, other = await ask(
        data.api,
        query("people", "SELECT id FROM people WHERE CAST(name AS INTEGER) > 0"),
        query("people", "SELECT error(email) FROM people"),
        query("people", "SELECT timezone(email, TIMESTAMP '2013-03-08') FROM people"),
        query("people", "SELECT emai FROM people"),
        query("orders", "SELECT error(CAST(id AS VARCHAR)) FROM orders WHERE id = 1"),
    )
    for code, message in (converted, raised, zone):
        assert code == "query_failed" and message.startswith("The statement failed on a value that does not")
    assert unknown[0] == "unknown_column" and "email" in unknown[1]
    assert other == ("query_failed", "1")
    queries = (await data.api.read("/queries"))["items"]
    assert "ada@" not in str([await data.api.events(q["id"]) for q in queries])


async def test_the_operator_declares_the_sensitive_columns(data: World, tmp_path: Path) -> None:
    await orders(data.api, tmp_path, sensitive=["cust*"])
    (found,) = await ask(data.api, query("orders", "SELECT customer, id FROM orders WHERE id = 1"))
    assert found["glimpse"]["sample"] == [["[omitted]", 1]]


async def test_reading_changes_no_file(data: World, tmp_path: Path) -> None:
    folder = tmp_path / "open"
    await orders(data.api, tmp_path)
    await shop(data.api, tmp_path)
    before = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}
    await ask(data.api, query("orders", "SELECT * FROM orders"), query("shop", "SELECT * FROM orders"))
    assert {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()} == before
    with sqlite3.connect(folder / "shop.sqlite") as opened:
        assert opened.execute("SELECT count(*) FROM orders").fetchone() == (300,)
    opened.close()


async def test_agents_read_only_the_sources_of_their_toolkit(data: World, tmp_path: Path) -> None:
    await orders(data.api, tmp_path)
    await shop(data.api, tmp_path)
    only = {"id": "catalog", "config": {"sources": ["shop"]}}
    await data.api.register(specs.spec(specs.agent(toolkits=[only]), interpreter="scripted"))
    run = await data.api.run(specs.script(query("orders", "SELECT 1"), query("shop", "SELECT 1 AS one")))
    ends = [e for e in await data.api.events(run["id"], "tool-invocation") if e["state"] != "call"]
    assert ends[0]["error"]["code"] == "bad_arguments"
    assert ends[1]["result"]["rows"] == [[1]]


async def test_a_statement_follows_the_approval_policy(data: World, tmp_path: Path) -> None:
    await orders(data.api, tmp_path)
    spec = specs.spec(
        specs.agent(toolkits=["catalog"]), interpreter="scripted", approvalPolicies={"tools": "always"}
    )
    await data.api.register(spec)
    accepted = await data.api.submit(specs.script(query("orders", "SELECT count(*) AS n FROM orders")))
    await data.api.approve(accepted["id"])
    ended = await data.api.ended(accepted["id"])
    (done,) = [e for e in await data.api.events(ended["id"], "tool-invocation") if e["state"] == "result"]
    assert done["result"]["rows"] == [[1000]]


async def test_sources_must_fit_their_kind(data: World) -> None:
    bodies: list[dict[str, Any]] = [
        {"kind": "duckdb"},
        {"kind": "postgres"},
        {"kind": "duckdb", "url": {"secret": "x"}, "options": {"paths": ["/x"]}},
        {"kind": "postgres", "url": {"secret": "x"}, "options": {"paths": ["/x"]}},
        {"kind": "mysql"},
        {"kind": "postgres", "url": "postgresql://a@b/c"},
        {"kind": "sqlite", "options": {"paths": ["/x"], "immutable": True}},
        {"kind": "duckdb", "options": {"paths": ["/x"], "limits": {"rows": 0}}},
    ]
    for body in bodies:
        refused(await data.api.put("/sources/x", body), 422, "invalid")
