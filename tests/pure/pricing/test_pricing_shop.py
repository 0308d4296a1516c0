"""The shop applies a change once, however often it is dispatched."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from plangate import CallContext
from pydantic import ValidationError

from examples.pricing.catalogue import Product
from examples.pricing.shop import Shop
from examples.pricing.system import carry_out


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "shop.sqlite")


@pytest.fixture
def coats(shop: Shop) -> list[Product]:
    return shop.find("winter", 0)[:4]


def rows(shop: Shop, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(shop.path)) as db:
        return db.execute(sql).fetchall()


def off_the_list(shop: Shop) -> list[tuple[Any, ...]]:
    return rows(
        shop, "SELECT sku, list_cents, price_cents FROM products WHERE price_cents <> list_cents ORDER BY sku"
    )


def test_reopening_keeps_the_content(shop: Shop, coats: list[Product]) -> None:
    shop.change_prices("k1", coats, -20)
    before = off_the_list(shop)
    again = Shop(shop.path)
    assert off_the_list(again) == before
    assert rows(again, "SELECT count(*) FROM products") == [(480,)]


def test_finding_by_season_and_stock(shop: Shop) -> None:
    found = shop.find("winter", 40)
    assert len(found) == 139
    assert {p.season for p in found} == {"winter"} and min(p.stock for p in found) == 40


def test_prices_are_set_from_the_list_and_rounded_to_the_cent(shop: Shop, coats: list[Product]) -> None:
    odd = coats[0].model_copy(update={"list_cents": 1_005})
    assert shop.change_prices("k1", [odd], -50) == 1
    assert off_the_list(shop) == [(odd.sku, 23_600, 503)]
    assert shop.change_prices("k2", coats, 10) == 4
    assert [price * 10 for _, _, price in off_the_list(shop)] == [p.list_cents * 11 for p in coats]


def test_a_repeated_change_is_applied_once(shop: Shop, coats: list[Product]) -> None:
    assert shop.change_prices("k1", coats, -20) == 4
    shop.change_prices("k2", coats, 0)
    assert shop.change_prices("k1", coats, -20) == 4  # late: it would undo what came after it
    assert off_the_list(shop) == []


def test_the_same_change_with_a_new_key_changes_nothing(shop: Shop, coats: list[Product]) -> None:
    assert shop.change_prices("k1", coats, -20) == 4
    assert shop.change_prices("k2", coats, -20) == 0
    assert shop.promote("k3", coats, "SPRING", 15, "Spring") == 4
    assert shop.promote("k4", coats, "SPRING", 15, "Spring") == 0
    assert shop.promote("k5", coats[:1], "SPRING", 10, "Spring") == 1
    assert shop.state() == "4 prices off the list, 1 products in SPRING at 10 %, 3 products in SPRING at 15 %"


def test_concurrent_attempts_make_one_change(shop: Shop, coats: list[Product]) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: shop.promote("k1", coats, "SPRING", 15, "Spring"), range(16)))
    assert made == [4] * 16
    assert rows(shop, "SELECT * FROM changes") == [("k1", 4)]


def test_a_failed_change_leaves_no_trace(shop: Shop, coats: list[Product]) -> None:
    bad = coats[1].model_copy(update={"list_cents": 10**20})
    with pytest.raises(OverflowError):
        shop.change_prices("k1", [coats[0], bad], -20)
    assert off_the_list(shop) == [] and rows(shop, "SELECT * FROM changes") == []
    assert shop.change_prices("k1", coats, -20) == 4


# The dispatcher over it.


def dispatched(shop: Shop, coats: list[Product], *actions: dict[str, Any]) -> Any:
    """What the dispatcher answers. Action n has the key `key-n`, and a reference if it says nothing else."""
    held = {"Products": {"r1": {"season": "winter", "products": [p.model_dump() for p in coats]}}}
    sent = [
        {"references": [{"kind": "Products", "id": "r1"}], "idempotencyKey": f"key-{n}", **action}
        for n, action in enumerate(actions)
    ]
    return carry_out(sent, CallContext({"resolved_refs": held}, {"shop": shop}))


PRICES = {"kind": "price_change", "payload": {"percent": -20}}
PROMOTION = {"kind": "promotion", "payload": {"code": "SPRING", "percent": 15, "headline": "Spring"}}


def test_a_batch_is_carried_out_once(shop: Shop, coats: list[Product]) -> None:
    for _ in range(2):
        assert dispatched(shop, coats, PRICES, PROMOTION) == {
            "entitiesAffected": 8,
            "summary": "4 of 4 prices set to -20 %. 4 of 4 products put in SPRING at 15 %.",
        }
    assert [price * 10 for _, _, price in off_the_list(shop)] == [p.list_cents * 8 for p in coats]
    assert rows(shop, "SELECT idempotency_key, changed FROM changes") == [("key-0", 4), ("key-1", 4)]


def test_a_batch_with_an_invalid_action_does_nothing(shop: Shop, coats: list[Product]) -> None:
    with pytest.raises(ValueError, match="The action promotion names no Products"):
        dispatched(shop, coats, PRICES, {**PROMOTION, "references": []})
    with pytest.raises(ValidationError):
        dispatched(shop, coats, PRICES, {"kind": "gift", "payload": {}})
    assert off_the_list(shop) == []
