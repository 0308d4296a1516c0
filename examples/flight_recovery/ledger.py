"""The operations ledger: the system of record that approved actions write to, a SQLite file.

Every row is keyed by the action's idempotency key and the flight, so an action that is dispatched twice, after a
crash or a lost answer, is written once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from examples.flight_recovery.data import Flight

SCHEMA = """
CREATE TABLE IF NOT EXISTS vouchers (
    idempotency_key TEXT NOT NULL,
    flight          TEXT NOT NULL,
    day             TEXT NOT NULL,
    minutes_late    INTEGER NOT NULL,
    amount          TEXT NOT NULL,
    currency        TEXT NOT NULL,
    reason          TEXT NOT NULL,
    written_at      TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')),
    PRIMARY KEY (idempotency_key, flight)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS notifications (
    idempotency_key TEXT NOT NULL,
    flight          TEXT NOT NULL,
    day             TEXT NOT NULL,
    carrier         TEXT NOT NULL,
    message         TEXT NOT NULL,
    written_at      TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')),
    PRIMARY KEY (idempotency_key, flight)
) WITHOUT ROWID;
"""

BUSY_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Written:
    """What the ledger holds under a key: the same answer for every attempt. `new` rows are of this attempt."""

    rows: int
    new: int


class Ledger:
    """Opens a connection for every write, so that handlers may call it from any thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._writing() as db:
            db.executescript(SCHEMA)

    def issue_vouchers(
        self, key: str, day: str, flights: Iterable[Flight], amount: Decimal, currency: str, reason: str
    ) -> Written:
        """Write one voucher per flight."""
        rows = [
            (key, flight.key, day, flight.minutes_late, format(amount, "f"), currency, reason)
            for flight in flights
        ]
        with self._writing() as db:
            written = db.executemany(
                "INSERT OR IGNORE INTO vouchers"
                " (idempotency_key, flight, day, minutes_late, amount, currency, reason)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                rows,
            )
            held = db.execute("SELECT count(*) FROM vouchers WHERE idempotency_key = ?", (key,))
            return Written(rows=held.fetchone()[0], new=max(written.rowcount, 0))

    def notify(self, key: str, day: str, flights: Iterable[Flight], message: str) -> Written:
        """Write one notification per flight, for the operations desk of its carrier."""
        rows = [(key, flight.key, day, flight.carrier, message) for flight in flights]
        with self._writing() as db:
            written = db.executemany(
                "INSERT OR IGNORE INTO notifications (idempotency_key, flight, day, carrier, message)"
                " VALUES (?, ?, ?, ?, ?)",
                rows,
            )
            held = db.execute("SELECT count(*) FROM notifications WHERE idempotency_key = ?", (key,))
            return Written(rows=held.fetchone()[0], new=max(written.rowcount, 0))

    def totals(self, keys: Iterable[str]) -> dict[str, int]:
        """Return the number of rows per table for the actions with these keys."""
        wanted = set(keys)
        with self._writing() as db:
            counted = {
                "vouchers": db.execute(
                    "SELECT idempotency_key, count(*) FROM vouchers GROUP BY 1"
                ).fetchall(),
                "notifications": db.execute(
                    "SELECT idempotency_key, count(*) FROM notifications GROUP BY 1"
                ).fetchall(),
            }
        return {table: sum(count for key, count in rows if key in wanted) for table, rows in counted.items()}

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Open one transaction on a separate connection."""
        connection = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S)
        try:
            with connection:
                yield connection
        finally:
            connection.close()
