"""The ledger writes an action once, however often it is dispatched."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from examples.flight_recovery.data import DelayedFlights, Flight
from examples.flight_recovery.ledger import Ledger, Written
from examples.flight_recovery.system import dispatchers

DAY = "2013-03-08"


def flight(carrier: str, minutes_late: int, number: int = 1) -> Flight:
    return Flight(
        carrier=carrier,
        number=number,
        tail="N1",
        origin="JFK",
        destination="BOS",
        scheduled="08:10",
        minutes_late=minutes_late,
    )


FLIGHTS = [flight("EV", 130), flight("B6", 239), flight("DL", 240), flight("DL", 400, number=2)]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger" / "operations.sqlite")


def rows(ledger: Ledger, table: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(ledger.path)) as db:
        return db.execute(f"SELECT * FROM {table} ORDER BY idempotency_key, flight").fetchall()


def issue(ledger: Ledger, key: str) -> Written:
    return ledger.issue_vouchers(key, DAY, FLIGHTS, Decimal("75.00"), "USD", "late")


def test_a_repeated_action_is_written_once_and_answers_the_same(ledger: Ledger) -> None:
    assert issue(ledger, "k1") == Written(rows=4, new=4)
    before = rows(ledger, "vouchers")
    assert issue(ledger, "k1") == Written(rows=4, new=0)
    assert rows(ledger, "vouchers") == before


def test_an_interrupted_attempt_is_completed(ledger: Ledger) -> None:
    ledger.notify("k1", DAY, FLIGHTS[:1], "late")
    assert ledger.notify("k1", DAY, FLIGHTS, "late") == Written(rows=4, new=3)


def test_each_action_has_its_own_rows(ledger: Ledger) -> None:
    issue(ledger, "k1")
    assert issue(ledger, "k2").new == 4
    assert ledger.totals(["k1"]) == {"vouchers": 4, "notifications": 0}
    assert ledger.totals(["k1", "k2", "k3"]) == {"vouchers": 8, "notifications": 0}


def test_amounts_stay_decimals(ledger: Ledger) -> None:
    issue(ledger, "k1")
    assert {row[4] for row in rows(ledger, "vouchers")} == {"75.00"}


def test_attempts_at_once_write_once(ledger: Ledger) -> None:
    with ThreadPoolExecutor(8) as pool:
        written = list(pool.map(lambda _: issue(ledger, "k1"), range(16)))
    assert {w.rows for w in written} == {4}
    assert sum(w.new for w in written) == 4


# The dispatchers over it.


def action(kind: str, **payload: Any) -> dict[str, Any]:
    references = [{"kind": "DelayedFlights", "id": "r1"}]
    return {"kind": kind, "payload": payload, "references": references, "idempotencyKey": f"key-{kind}"}


async def dispatch(ledger: Ledger, one: dict[str, Any]) -> Any:
    delayed = DelayedFlights(
        day=date(2013, 3, 8), limit_minutes=120, scheduled=9, cancelled=1, flights=FLIGHTS
    )
    ctx = {"resolved_refs": {"DelayedFlights": {"r1": delayed.model_dump(mode="json")}}}
    return await dispatchers(ledger)[one["kind"]].handler([one], ctx)


@pytest.mark.parametrize(("start", "end", "count"), [(120, 240, 2), (240, None, 2), (120, None, 4)])
async def test_a_voucher_for_each_flight_of_the_band(
    ledger: Ledger, start: int, end: int | None, count: int
) -> None:
    one = action(
        "issue_voucher", amount="75.00", currency="USD", from_minutes=start, below_minutes=end, reason="late"
    )
    for _ in range(2):
        assert (await dispatch(ledger, one))["entitiesAffected"] == count
    assert len(rows(ledger, "vouchers")) == count


async def test_a_notification_for_each_flight_of_the_carriers(ledger: Ledger) -> None:
    one = action("notify_operations", carriers=["DL", "EV"], message="late")
    for _ in range(2):
        assert await dispatch(ledger, one) == {
            "entitiesAffected": 3,
            "summary": "3 notifications written.",
        }
    assert {row[3] for row in rows(ledger, "notifications")} == {"DL", "EV"}


async def test_an_action_without_flights_writes_nothing(ledger: Ledger) -> None:
    one = {**action("notify_operations", carriers=["DL"], message="late"), "references": []}
    with pytest.raises(ValueError, match="names no DelayedFlights"):
        await dispatch(ledger, one)
    assert rows(ledger, "notifications") == []
