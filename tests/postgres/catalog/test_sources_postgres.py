"""Data sources on another Postgres: addresses, and limits of statements."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from app.catalog.addresses import PostgresAddress
from app.catalog.engines.postgres import PostgresEngine
from app.catalog.problems import StatementProblem
from tests.support.client import Caller, good, refused
from tests.support.cluster import FAST, Cluster, superuser_dsn
from tests.support.service import folder
from tests.support.sources import PASSWORD, SecondPostgres, TcpProxy, ask, second_postgres, socket_of
from tests.support.world import World, world


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def warehouse() -> AsyncIterator[SecondPostgres]:
    with folder() as at:
        async with second_postgres(at, FAST) as running:
            yield running


@pytest_asyncio.fixture
async def data(cluster: Cluster, site: Any, warehouse: SecondPostgres) -> AsyncIterator[World]:
    """A process that may reach the port of the other Postgres."""
    async with world(site, cluster.operator_key, allow_hosts=[f"localhost:{warehouse.port}"]) as running:
        yield running


async def declare(api: Caller, url: str, name: str = "warehouse", **parts: Any) -> Any:
    good(await api.put(f"/secrets/{name}-url", {"value": url}))
    return await api.put(f"/sources/{name}", {"kind": "postgres", "url": {"secret": f"{name}-url"}, **parts})


def query(sql: str, *params: Any, source: str = "warehouse") -> tuple[str, dict[str, Any]]:
    return "execute_query", {"source": source, "sql": sql, **({"params": list(params)} if params else {})}


async def test_a_statement_reads_another_postgres(data: World, warehouse: SecondPostgres) -> None:
    good(await declare(data.api, warehouse.url()))
    row, large, bound = await ask(
        data.api,
        query("SELECT id, name, price, size, made, tags, extra FROM items WHERE id = $1", 3),
        query("SELECT id, price FROM items ORDER BY id"),
        query(
            "SELECT count(*) FROM moves WHERE at < $1 AND item_id > $2 AND $3::numeric > 1.2",
            "2026-02-05",
            1,
            1.25,
        ),
    )
    assert row["rows"] == [[3, "item 3", 3.75, "large", "2026-01-01T03:00:00+00", ["a", "b"], {"n": 1}]]
    assert [c["type"] for c in row["columns"]] == [
        "int4",
        "text",
        "numeric",
        "size",
        "timestamptz",
        "text[]",
        "jsonb",
    ]
    assert large["glimpse"]["rowCount"] == 500
    assert large["glimpse"]["ranges"]["price"] == {"min": 1.25, "max": 625}
    assert bound["rows"][0][0] > 0


async def test_the_url_is_never_shown(data: World, warehouse: SecondPostgres) -> None:
    shown = good(await declare(data.api, warehouse.url()))
    assert shown["url"] == {"secret": "warehouse-url"}
    (error,) = await ask(data.api, query("SELECT * FROM nothing"))
    told = str(shown) + str(error) + str(await data.api.read("/sources"))
    assert PASSWORD not in told
    assert str(warehouse.port) not in told


async def test_errors_suggest_the_nearest_names(data: World, warehouse: SecondPostgres) -> None:
    good(await declare(data.api, warehouse.url()))
    table, column, wrong = await ask(
        data.api,
        query("SELECT * FROM itemz"),
        query("SELECT nam FROM items"),
        query("SELECT id FROM items WHERE id = $1", "three"),
    )
    assert table == ("unknown_table", "There is no table 'itemz' in this source. Nearest: items.")
    assert column[0] == "unknown_column"
    assert "items.name" in column[1]
    assert wrong[0] == "bad_params"


async def test_the_service_rejects_its_own_cluster(
    cluster: Cluster, site: Any, data: World, owner: asyncpg.Connection
) -> None:
    await owner.execute(f"CREATE ROLE snoop LOGIN SUPERUSER PASSWORD '{PASSWORD}'")
    try:
        async with (
            TcpProxy(socket_of(site.dsn)) as proxy,
            world(site, cluster.operator_key, allow_hosts=["localhost"]) as running,
        ):
            database = superuser_dsn(site).split("@/")[1].split("?")[0]
            url = SecondPostgres(proxy.port, owner).url(user="snoop", database=database)
            problem = refused(await declare(running.api, url), 422, "source_rejected")
            assert problem["detail"] == (
                "This is the database cluster of the service itself; it cannot be a source."
            )
            # A source whose secret was changed to the own cluster afterward is rejected at its next statement.
            await owner.execute("SELECT 1")
            good(await running.api.put("/secrets/late", {"value": url.replace(str(proxy.port), "1")}))
            good(await running.api.put("/sources/late", {"kind": "postgres", "url": {"secret": "late"}}))
            good(await running.api.put("/secrets/late", {"value": url}))
            (error,) = await ask(running.api, query("SELECT * FROM secrets", source="late"))
            assert error == ("source_rejected", problem["detail"])
    finally:
        await owner.execute("DROP ROLE snoop")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("postgresql://reader@10.0.0.1/db", "a private network"),
        ("postgresql://reader@169.254.169.254/db", "link-local"),
        ("postgresql://reader@0x7f000001/db", "loopback"),
        ("postgresql://reader@[::1]/db", "loopback"),
        ("postgresql:///db?host=/var/run/postgresql", "names no host"),
        ("postgresql://reader@%2Fvar%2Frun/db", "names no host"),
        ("postgresql://reader@a.example,b.example/db", "several hosts"),
        ("postgresql://reader@a.example/db?host=b.example", "'host' is not allowed"),
        ("postgresql://reader@a.example/db?passfile=/etc/passwd", "'passfile' is not allowed"),
        ("postgresql://reader@a.example/db?sslrootcert=/etc/passwd", "'sslrootcert' is not allowed"),
        ("postgresql://reader@a.example/db?options=-c%20statement_timeout=0", "'options' is not allowed"),
        ("postgresql://reader@a.example/db?service=x", "'service' is not allowed"),
        ("postgresql://reader@a.example/db?sslmode=allow", "sslmode is 'allow'"),
        ("postgresql://reader@a.example", "a user and a database"),
        ("postgresql://a.example/db", "a user and a database"),
        ("mysql://reader@a.example/db", "postgresql://"),
        ("host=a.example dbname=db", "postgresql://"),
    ],
)
async def test_addresses_that_are_rejected(data: World, url: str, why: str) -> None:
    problem = refused(await declare(data.api, url), 422, "source_rejected")
    assert why in problem["detail"]


async def test_another_port_of_an_allowed_host_is_rejected(data: World, warehouse: SecondPostgres) -> None:
    url = warehouse.url().replace(str(warehouse.port), str(warehouse.port % 60_000 + 1))
    refused(await declare(data.api, url), 422, "source_rejected")


async def test_a_missing_secret_and_a_source_that_is_down(data: World, warehouse: SecondPostgres) -> None:
    body = {"kind": "postgres", "url": {"secret": "nowhere"}}
    problem = refused(await data.api.put("/sources/warehouse", body), 422, "source_rejected")
    assert "PUT /secrets/nowhere" in problem["detail"]
    good(await declare(data.api, warehouse.url()))
    good(await data.api.delete("/secrets/warehouse-url"))
    good(await declare(data.api, warehouse.url(user="nobody"), name="down"))
    missing, down, after = await ask(
        data.api, query("SELECT 1"), query("SELECT 1", source="down"), query("SELECT 1", source="other")
    )
    assert missing[0] == "missing_secret"
    assert down[0] == "source_unavailable"
    assert "password authentication failed" in down[1]
    assert after[0] == "source_not_found"  # the query went on


def engine(warehouse: SecondPostgres, user: str = "writer", timeout_ms: int = 5_000) -> PostgresEngine:
    """A connection with which a statement is run that nobody parsed."""
    address = PostgresAddress("localhost", warehouse.port, "warehouse", user, PASSWORD, "prefer")
    return PostgresEngine(address, ["127.0.0.1"], [], timeout_ms)


def run_unchecked(warehouse: SecondPostgres, *statements: str, timeout_ms: int = 5_000) -> list[str]:
    """Return the code of the problem of each statement, or "ran"."""

    def take(*_: Any) -> bool:
        return True

    opened = engine(warehouse, timeout_ms=timeout_ms)
    codes = []
    try:
        for sql in statements:
            try:
                opened.run(sql, [], take)
                codes.append("ran")
            except StatementProblem as problem:
                codes.append(problem.code)
    finally:
        opened.close()
    return codes


async def test_the_database_rejects_writes_by_itself(warehouse: SecondPostgres) -> None:
    writes = [
        "INSERT INTO moves VALUES (10000, 1)",
        "SELECT sneak()",
        "WITH gone AS (DELETE FROM moves RETURNING *) SELECT * FROM gone",
        "CREATE TABLE t (x int)",
        "SELECT * INTO copied FROM moves",
        "SELECT id FROM moves FOR UPDATE",
        "SELECT set_config('transaction_read_only', 'off', false), sneak()",
        "SELECT 1; DELETE FROM moves",
        "COMMIT",
        "SET TRANSACTION READ WRITE",
        "SELECT nextval('s')",
        "COPY moves TO PROGRAM 'true'",
        "DO $$ BEGIN DELETE FROM moves; END $$",
        "SELECT set_config('default_transaction_read_only', 'off', false)",
        "DELETE FROM moves",
    ]
    await warehouse.admin.execute("CREATE SEQUENCE IF NOT EXISTS s; GRANT ALL ON SEQUENCE s TO writer")
    before = await warehouse.admin.fetchval("SELECT count(*) FROM moves")
    codes = await asyncio.to_thread(run_unchecked, warehouse, *writes)
    # Changing a setting of the session is harmless: the transaction of the next statement is read-only by itself.
    assert [sql for sql, code in zip(writes, codes, strict=True) if code == "ran"] == [writes[-2]]
    assert await warehouse.admin.fetchval("SELECT count(*) FROM moves") == before
    assert await warehouse.admin.fetchval("SELECT to_regclass('t') IS NULL AND to_regclass('copied') IS NULL")


async def test_a_statement_cannot_raise_its_time_limit(data: World, warehouse: SecondPostgres) -> None:
    good(await declare(data.api, warehouse.url(), options={"limits": {"timeoutMs": 1500}}))
    began = time.monotonic()
    sleeping, freed = await ask(
        data.api,
        query("SELECT pg_sleep(60)"),
        query("SELECT set_config('statement_timeout', '0', false), pg_sleep(60) FROM generate_series(1, 5)"),
    )
    assert sleeping == (
        "timeout",
        "Stopped after 1.5 s, the limit of the source 'warehouse': SELECT pg_sleep(60)",
    )
    assert freed[0] == "timeout"
    assert time.monotonic() - began < 30

    async def idle() -> bool:
        found = await warehouse.admin.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE usename = 'reader' AND state = 'active'"
        )
        return bool(found == 0)

    for _ in range(50):
        if await idle():
            break
        await asyncio.sleep(0.2)
    assert await idle()  # the statements were canceled there too


async def test_the_connection_is_closed_after_a_statement(data: World, warehouse: SecondPostgres) -> None:
    good(await declare(data.api, warehouse.url()))
    await ask(
        data.api,
        query("SELECT set_config('search_path', 'nowhere', false)"),
        query("SELECT id FROM items LIMIT 1"),
    )
    for _ in range(50):
        left = await warehouse.admin.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE usename = 'reader'"
        )
        if left == 0:
            break
        await asyncio.sleep(0.1)
    assert left == 0


async def test_columns_that_look_secret_are_omitted(data: World, warehouse: SecondPostgres) -> None:
    good(await declare(data.api, warehouse.url()))
    (found,) = await ask(data.api, query("SELECT id, secret_token FROM items WHERE id = 1"))
    assert found["glimpse"]["sample"] == [[1, "[omitted]"]]


async def test_errors_about_secret_values_are_withheld(data: World, warehouse: SecondPostgres) -> None:
    good(await declare(data.api, warehouse.url()))
    *values, text = await ask(
        data.api,
        query("SELECT CAST(secret_token AS integer) FROM items WHERE id = 1"),
        query("SELECT CAST(secret_token AS regclass) FROM items WHERE id = 1"),
        query("SELECT CAST(secret_token || ' &' AS tsquery) FROM items WHERE id = 1"),
        query("SELECT current_setting(secret_token) FROM items WHERE id = 1"),
        query("SELECT CAST('text' AS integer) FROM items"),
    )
    for code, message in values:
        assert code == "query_failed" and message.startswith("The statement failed on a value"), message
    assert 'invalid input syntax for type integer: "text" at character' in text[1]


async def test_a_role_that_may_not_read_gets_an_error(data: World, warehouse: SecondPostgres) -> None:
    await warehouse.admin.execute("CREATE TABLE IF NOT EXISTS private (x int)")
    good(await declare(data.api, warehouse.url()))
    (error,) = await ask(data.api, query("SELECT * FROM private"))
    assert error == ("not_read_only", "permission denied for table private.")


async def test_a_profile_reads_types_keys_and_comments(data: World, warehouse: SecondPostgres) -> None:
    good(await declare(data.api, warehouse.url()))
    accepted = await data.api.do("/sources/warehouse/profile")
    assert (await data.api.ended(accepted["id"]))["status"] == "succeeded"
    table = await data.api.read("/catalog/entries/table:warehouse.items")
    assert table["content"]["description"] == "What the warehouse holds"
    assert table["content"]["rowEstimate"] == 500
    price = await data.api.read("/catalog/entries/column:warehouse.items.price")
    assert price["content"]["description"] == "In euros"
    assert price["content"]["type"] == "numeric(12,2)"
    assert (price["content"]["min"], price["content"]["max"]) == (1.25, 625)
    size = await data.api.read("/catalog/entries/column:warehouse.items.size")
    assert sorted(size["content"]["values"]) == ["large", "small"]
    token = await data.api.read("/catalog/entries/column:warehouse.items.secret_token")
    assert token["tags"] == ["sensitive"]
    key = (await data.api.read("/catalog/entries", kind="relationship"))["items"]
    assert [entry["content"]["description"] for entry in key] == ["moves.item_id refers to items.id."]
    sample, paths = await ask(
        data.api,
        ("sample_table_data", {"table": "items", "limit": 1}),
        ("get_relation_paths_between", {"from": "items", "to": "moves"}),
    )
    assert sample["omitted"] == ["secret_token"]
    assert paths[0]["sql"] == "FROM items JOIN moves ON items.id = moves.item_id"
    assert (
        await data.value(
            "SELECT count(*) FROM catalog_entries WHERE position('hidden' IN encode(found, 'escape')) > 0"
        )
        == 0
    )
