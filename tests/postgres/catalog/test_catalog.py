"""The catalog: profiles, entries that people write, search, relations, and the toolkit."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_asyncio

from tests.support.client import Caller, good, refused
from tests.support.cluster import Cluster
from tests.support.sources import ask, make_csv, make_sqlite
from tests.support.world import World, world


@pytest_asyncio.fixture
async def data(cluster: Cluster, site: Any, tmp_path: Path) -> AsyncIterator[World]:
    """A process with a shop that is profiled."""
    make_csv(tmp_path)
    path = make_sqlite(tmp_path)
    async with world(site, cluster.operator_key, source_paths=[str(tmp_path)]) as running:
        good(await running.api.put("/sources/shop", {"kind": "sqlite", "options": {"paths": [str(path)]}}))
        await profiled(running.api, "shop")
        yield running


async def profiled(api: Caller, source: str) -> dict[str, Any]:
    accepted = await api.do(f"/sources/{source}/profile")
    ended = await api.ended(accepted["id"])
    assert ended["status"] == "succeeded", ended
    return ended


async def test_a_profile_fills_the_catalog_and_reports_progress(data: World) -> None:
    source = await data.api.read("/sources/shop")
    assert source["profile"]["status"] == "succeeded"
    assert source["profile"]["found"] == {"tables": 2, "columns": 8, "relationships": 1, "findings": 1}
    events = await data.api.events(source["profile"]["queryId"], "tool-progress")
    assert [(e["label"], e["phaseIndex"], e["totalPhases"]) for e in events] == [
        ("customers", 1, 2),
        ("orders", 2, 2),
    ]
    cents = await data.api.read("/catalog/entries/column:shop.orders.cents")
    assert cents["content"] == {
        "table": "orders",
        "column": "cents",
        "position": 2,
        "type": "INTEGER",
        "nullable": False,
        "key": False,
        "nullShare": 0.0,
        "distinct": 300,
        "min": 0,
        "max": 2990,
        "sampledRows": 300,
    }
    tier = await data.api.read("/catalog/entries/column:shop.customers.tier")
    assert tier["content"]["values"] == ["gold", "silver"]
    gold = await data.api.read("/catalog/entries/enum_value:shop.customers.tier=gold")
    assert gold["content"]["share"] == round(40 / 60, 4)
    findings = (await data.api.read("/catalog/entries", kind="data_quality_finding"))["items"]
    assert [f["content"]["description"] for f in findings] == ["Every sampled row has null in orders.note."]
    table = await data.api.read("/catalog/entries/table:shop.orders")
    assert table["content"]["rowEstimate"] == 300
    assert table["content"]["primaryKey"] == ["id"]


async def test_values_of_sensitive_columns_are_not_stored(data: World) -> None:
    email = await data.api.read("/catalog/entries/column:shop.customers.email")
    assert email["tags"] == ["sensitive"]
    assert email["content"]["nullShare"] == 0.0
    assert not {"min", "max", "values"} & email["content"].keys()
    everything = str(await data.sql("SELECT * FROM catalog_entries"))
    assert "example.com" not in everything


async def test_a_source_is_profiled_again_in_the_same_thread(data: World) -> None:
    first = await data.api.read("/sources/shop")
    again = await profiled(data.api, "shop")
    before = await data.api.read(f"/queries/{first['profile']['queryId']}")
    assert again["threadId"] == before["threadId"]
    assert again["kind"] == "profile"
    refused(await data.api.post("/sources/none/profile"), 404, "source_not_found")
    reader = await data.key("read", "data:write")
    refused(await reader.post("/sources/shop/profile"), 403, "forbidden")


async def test_one_profile_of_a_source_runs_at_a_time(cluster: Cluster, site: Any, tmp_path: Path) -> None:
    paths = [str(make_sqlite(tmp_path))]
    async with world(site, cluster.operator_key, with_worker=False, source_paths=paths) as idle:
        good(await idle.api.put("/sources/shop", {"kind": "sqlite", "options": {"paths": paths}}))
        accepted = await idle.api.do("/sources/shop/profile")
        assert (await idle.api.read("/sources/shop"))["profile"]["status"] == "queued"
        problem = refused(await idle.api.post("/sources/shop/profile"), 409, "profile_running")
        assert problem["queryId"] == accepted["id"]
        await idle.api.do(f"/queries/{accepted['id']}/cancel")
        await idle.api.do("/sources/shop/profile")


async def test_a_repeated_profile_keeps_what_people_wrote(data: World, tmp_path: Path) -> None:
    api = data.api
    cents = "/catalog/entries/column:shop.orders.cents"
    written = {
        "kind": "column",
        "content": {"description": "Price in cents", "type": "money"},
        "tags": ["price"],
    }
    good(await api.put(cents, written))
    good(await api.put("/catalog/entries/column:shop.orders.note", {"kind": "column", "tags": ["old"]}))
    with sqlite3.connect(tmp_path / "shop.sqlite") as shop:
        shop.execute("ALTER TABLE orders DROP COLUMN note")
        shop.execute("ALTER TABLE customers DROP COLUMN tier")
        shop.execute("CREATE TABLE refunds (id INTEGER PRIMARY KEY, order_id INTEGER REFERENCES orders (id))")
        shop.execute("INSERT INTO refunds VALUES (1, 1), (2, 99999)")
        shop.execute("UPDATE orders SET cents = cents + 1")
    shop.close()
    await profiled(api, "shop")
    kept = await api.read(cents)
    assert kept["origin"] == "both"
    assert kept["content"]["description"] == "Price in cents"
    assert kept["content"]["type"] == "money"
    assert kept["content"]["max"] == 2991
    assert kept["tags"] == ["price"]
    refused(await api.get("/catalog/entries/column:shop.customers.tier"), 404, "entry_not_found")
    refused(await api.get("/catalog/entries/enum_value:shop.customers.tier=gold"), 404, "entry_not_found")
    note = await api.read("/catalog/entries/column:shop.orders.note")
    assert (note["origin"], note["content"], note["tags"]) == ("written", {}, ["old"])
    findings = (await api.read("/catalog/entries", kind="data_quality_finding"))["items"]
    assert [f["content"]["description"] for f in findings] == [
        "1 of the sampled values of order_id are missing in orders."
    ]
    good(await api.delete("/sources/shop"))
    left = (await api.read("/catalog/entries"))["items"]
    assert [entry["id"] for entry in left] == ["column:shop.orders.cents", "column:shop.orders.note"]


async def test_a_tag_makes_a_column_sensitive_or_not(data: World) -> None:
    api = data.api
    good(
        await api.put(
            "/catalog/entries/column:shop.customers.name", {"kind": "column", "tags": ["sensitive"]}
        )
    )
    good(
        await api.put(
            "/catalog/entries/column:shop.customers.email", {"kind": "column", "tags": ["not-sensitive"]}
        )
    )
    sql = "SELECT name, email FROM customers WHERE id = 1"
    found, sample = await ask(
        api,
        ("execute_query", {"source": "shop", "sql": sql}),
        ("sample_table_data", {"table": "customers", "limit": 1}),
    )
    assert found["glimpse"]["sample"] == [["[omitted]", "private1@example.com"]]
    assert sample["omitted"] == ["name"]
    assert sample["rows"] == [[0, "private0@example.com", "silver"]]


async def test_tagging_a_column_removes_the_values_that_a_profile_found(data: World) -> None:
    api, tier = data.api, "column:shop.customers.tier"
    good(await api.put(f"/catalog/entries/{tier}", {"kind": "column", "tags": ["sensitive"]}))
    (entry,), found = await ask(
        api, ("get_catalog_entities", {"ids": [tier]}), ("search_catalog", {"query": "gold silver"})
    )
    assert not {"min", "max", "values"} & entry["content"].keys()
    assert [match for match in found if match["kind"] == "enum_value"] == []
    assert "gold" not in str(await data.sql("SELECT * FROM catalog_entries"))


async def test_people_write_entries_of_any_kind(data: World) -> None:
    api = data.api
    metric = {
        "id": "metric:revenue",
        "kind": "metric",
        "name": "revenue",
        "source": "shop",
        "content": {"definition": "sum(orders.cents) / 100.0"},
        "related": ["table:shop.orders"],
    }
    note = {
        "id": "knowledge:tiers",
        "kind": "knowledge",
        "name": "tiers",
        "content": {"text": "Gold pays no shipping."},
    }
    made = (await api.do("/catalog/entries", {"entries": [metric, note]}))["items"]
    assert [entry["id"] for entry in made] == ["metric:revenue", "knowledge:tiers"]
    assert (await api.read("/catalog/entries", kind="metric"))["items"][0]["origin"] == "written"
    refused(await api.put("/catalog/entries/metric:revenue", {"kind": "table"}), 409, "entry_kind_differs")
    refused(await api.post("/catalog/entries", {"entries": [note, note]}), 422, "invalid")
    refused(await api.put("/catalog/entries/x", {"kind": "rumor"}), 422, "invalid")
    refused(await data.other.get("/catalog/entries/metric:revenue"), 404, "entry_not_found")
    refused(await api.delete("/catalog/entries/table:shop.orders"), 404, "entry_not_found")
    good(await api.delete("/catalog/entries/metric:revenue"))
    refused(await api.get("/catalog/entries/metric:revenue"), 404, "entry_not_found")
    reader = await data.key("read")
    refused(await reader.put("/catalog/entries/a", {"kind": "metric"}), 403, "forbidden")


async def test_search_finds_words_and_nearly_spelled_names(data: World) -> None:
    api = data.api
    text = {"kind": "knowledge", "content": {"text": "Refunds are approved by managers."}}
    good(await api.put("/catalog/entries/knowledge:refunds", text))

    async def found(query: str, **parts: Any) -> list[tuple[str, list[str]]]:
        items = (await api.read("/catalog/search", query=query, **parts))["items"]
        return [(item["id"], item["matched"]) for item in items]

    assert (await found("orders"))[0] == ("table:shop.orders", ["orders"])
    assert (await found("custmers"))[0][0] == "table:shop.customers"
    assert (await found("customerId"))[0][0] == "column:shop.orders.customer_id"
    assert await found("approve a refund") == [("knowledge:refunds", ["approve", "refund"])]
    assert (await found("gold"))[0][0].startswith(("enum_value:", "column:"))
    assert {id.partition(":")[0] for id, _ in await found("orders cents", kind="column")} == {"column"}
    assert await found("zzzz qqqq") == []
    assert await found("the") == []
    assert (await data.other.read("/catalog/search", query="orders"))["items"] == []


async def test_the_toolkit_leads_from_a_question_to_a_query(data: World) -> None:
    good(
        await data.api.put(
            "/catalog/entries/metric:revenue",
            {
                "kind": "metric",
                "content": {"definition": "sum(cents) / 100.0"},
                "related": ["table:shop.orders"],
            },
        )
    )
    found, entries, fields, relations, paths, sample, result = await ask(
        data.api,
        ("search_catalog", {"query": "orders of a customer", "kinds": ["table"], "limit": 2}),
        ("get_catalog_entities", {"ids": ["metric:revenue"]}),
        ("list_schema_fields", {"table": "orders"}),
        ("get_catalog_relations", {"ids": ["table:shop.orders"]}),
        ("get_relation_paths_between", {"from": "shop.orders", "to": "customers"}),
        ("sample_table_data", {"table": "orders", "columns": ["id", "cents"], "limit": 2}),
        (
            "execute_query",
            {
                "source": "shop",
                "sql": "SELECT c.tier, sum(o.cents) FROM orders o JOIN customers c ON o.customer_id = c.id "
                "WHERE c.tier = $1 GROUP BY 1",
                "params": ["gold"],
            },
        ),
    )
    assert {entry["id"] for entry in found} == {"table:shop.orders", "table:shop.customers"}
    assert entries[0]["content"]["definition"] == "sum(cents) / 100.0"
    assert [f["name"] for f in fields["fields"]] == ["id", "customer_id", "cents", "note"]
    assert fields["primaryKey"] == ["id"]
    assert {(r["relation"], r["neighbor"]["id"]) for r in relations} == {
        ("foreign_key", "table:shop.customers"),
        ("related", "metric:revenue"),
    }
    assert paths == [
        {
            "hops": 1,
            "joins": [
                {
                    "words": "Each row of orders joins the rows of customers where orders.customer_id is customers.id.",
                    "sql": "JOIN customers ON orders.customer_id = customers.id",
                }
            ],
            "sql": "FROM orders JOIN customers ON orders.customer_id = customers.id",
        }
    ]
    assert sample["rows"] == [[0, 0], [1, 10]]
    assert result["rows"] == [["gold", sum(n * 10 for n in range(300) if n % 60 % 3)]]


async def test_errors_of_the_toolkit_give_the_nearest_names(data: World) -> None:
    table, column, entry = await ask(
        data.api,
        ("list_schema_fields", {"table": "custmers"}),
        ("sample_table_data", {"table": "orders", "columns": ["cent"]}),
        ("get_catalog_entities", {"ids": ["table:shop.order"]}),
    )
    assert table == (
        "entry_not_found",
        "There is no table 'custmers' in the catalog. Nearest: customers, shop.customers.",
    )
    assert column == ("unknown_column", "orders has no column 'cent'. Nearest: cents.")
    assert entry[0] == "entry_not_found"
    assert "table:shop.orders" in entry[1]


async def test_a_profile_of_a_missing_source_fails(data: World, tmp_path: Path) -> None:
    (tmp_path / "shop.sqlite").unlink()
    accepted = await data.api.do("/sources/shop/profile")
    ended = await data.api.ended(accepted["id"])
    assert ended["status"] == "failed"
    assert ended["error"]["code"] == "profile_failed"
    assert (await data.api.read("/sources/shop"))["profile"]["status"] == "failed"
    assert (await data.api.read("/sources/shop"))["profile"]["found"]["tables"] == 2


async def test_the_catalog_is_invisible_to_other_tenants(data: World) -> None:
    assert (await data.other.read("/catalog/entries"))["items"] == []
    refused(await data.other.post("/sources/shop/profile"), 404, "source_not_found")
