"""The shop: what approved actions change, a SQLite file.

A change is remembered by its idempotency key, in the transaction that makes it. So an action that is sent
twice, after a crash or a lost answer, is one change, and gets the same answer twice. Prices are set from the
list price, so that the same plan made again changes nothing either.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from examples.pricing.catalogue import Product, Season, catalogue

SCHEMA = """
CREATE TABLE IF NOT EXISTS products (
    sku         TEXT PRIMARY KEY,
    name        TEXT NOT NULL,
    season      TEXT NOT NULL,
    list_cents  INTEGER NOT NULL,
    price_cents INTEGER NOT NULL,
    stock       INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS promotions (
    code     TEXT NOT NULL,
    sku      TEXT NOT NULL REFERENCES products,
    percent  INTEGER NOT NULL,
    headline TEXT NOT NULL,
    PRIMARY KEY (code, sku)
);
CREATE TABLE IF NOT EXISTS budgets (
    code  TEXT PRIMARY KEY,
    cents INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS changes (
    idempotency_key TEXT PRIMARY KEY,
    changed         INTEGER NOT NULL
);
"""

BUSY_TIMEOUT_S = 30.0


class Shop:
    """Opens a connection for everything it does, so that handlers may call it from any thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        stocked = [(p.sku, p.name, p.season, p.list_cents, p.list_cents, p.stock) for p in catalogue()]
        with self._transaction() as db:
            for statement in SCHEMA.split(";"):
                db.execute(statement)
            db.executemany("INSERT OR IGNORE INTO products VALUES (?, ?, ?, ?, ?, ?)", stocked)

    def find(self, season: Season, min_stock: int) -> list[Product]:
        """Return the products of a season with at least `min_stock` in stock."""
        with self._transaction() as db:
            rows = db.execute(
                "SELECT sku, name, season, list_cents, stock FROM products"
                " WHERE season = ? AND stock >= ? ORDER BY sku",
                (season, min_stock),
            ).fetchall()
        return [Product(**dict(row)) for row in rows]

    def reserve(self, code: str, cents: int) -> None:
        """Set the budget of a promotion; doing so again replaces it."""
        with self._transaction() as db:
            db.execute("INSERT OR REPLACE INTO budgets VALUES (?, ?)", (code, cents))

    def change_prices(self, key: str, products: Iterable[Product], percent: int) -> int:
        """Prices so many percent above or below the list. How many prices that changed."""
        prices = [{"sku": p.sku, "cents": (p.list_cents * (100 + percent) + 50) // 100} for p in products]
        return self._once(
            key,
            lambda db: db.executemany(
                "UPDATE products SET price_cents = :cents WHERE sku = :sku AND price_cents <> :cents", prices
            ),
        )

    def promote(self, key: str, products: Iterable[Product], code: str, percent: int, headline: str) -> int:
        """Put products in a promotion, or change it. Return how many products that changes."""
        promoted = [(code, p.sku, percent, headline) for p in products]
        return self._once(
            key,
            lambda db: db.executemany(
                "INSERT INTO promotions VALUES (?, ?, ?, ?) ON CONFLICT (code, sku) DO UPDATE"
                " SET percent = excluded.percent, headline = excluded.headline"
                " WHERE (percent, headline) <> (excluded.percent, excluded.headline)",
                promoted,
            ),
        )

    def state(self) -> str:
        """Return the content of the shop in words."""
        with self._transaction() as db:
            (changed,) = db.execute(
                "SELECT count(*) FROM products WHERE price_cents <> list_cents"
            ).fetchone()
            promotions = db.execute(
                "SELECT code, percent, count(*) FROM promotions GROUP BY code, percent"
            ).fetchall()
        running = [f"{count} products in {code} at {percent} %" for code, percent, count in promotions]
        return ", ".join([f"{changed} prices off the list", *running])

    def _once(self, key: str, change: Callable[[sqlite3.Connection], sqlite3.Cursor]) -> int:
        """Make a change once for its key. Return how many rows it changed when it was made."""
        with self._transaction() as db:
            made = db.execute("SELECT changed FROM changes WHERE idempotency_key = ?", (key,)).fetchone()
            if made is not None:
                return int(made["changed"])
            changed = max(change(db).rowcount, 0)
            db.execute("INSERT INTO changes VALUES (?, ?)", (key, changed))
            return changed

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """One transaction on a connection of its own. It locks at its start: what it reads stays so."""
        db = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        db.row_factory = sqlite3.Row
        try:
            db.execute("BEGIN IMMEDIATE")
            yield db
            db.execute("COMMIT")
        finally:
            db.close()
