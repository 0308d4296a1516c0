"""`make demo EXAMPLE=questions`: the glimpse of the answer holds the number, and no flight is in any prompt or
event."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from examples.flight_recovery.data import read_flights
from tests.processes.test_demo import Lab, found

pytestmark = pytest.mark.long

Done = subprocess.CompletedProcess[str]


class Desk(Lab):
    """A place of its own for the example."""

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "examples.questions", "--data-dir", str(self.data), *arguments]


@pytest.fixture(scope="module")
def lab() -> Iterator[Desk]:
    made = Desk()
    yield made
    shutil.rmtree(made.folder)


@pytest.fixture(scope="module")
def first(lab: Desk) -> Done:
    return lab.run("--yes")


@pytest.fixture(scope="module")
def delays() -> dict[str, list[int]]:
    """The departure delays by destination, read with the standard library."""
    by_destination: dict[str, list[int]] = {}
    for row in read_flights():
        if row["dep_delay"] not in ("", "NA"):
            by_destination.setdefault(row["dest"], []).append(int(float(row["dep_delay"])))
    return by_destination


def answer(client: httpx.Client, output: str) -> dict[str, Any]:
    """The reference that the screen names, with its glimpse."""
    id = found("QueryResult/[0-9a-f]{64}", output).rpartition("/")[2]
    shown: dict[str, Any] = client.get(f"/references/QueryResult/{id}/glimpse").json()
    return shown


def records(client: httpx.Client) -> Iterator[str]:
    """Everything on record of queries but the value of the answer: events, prompts, results."""
    for query in client.get("/queries").json()["items"]:
        for path in ("", "/stream", "/work"):
            yield client.get(f"/queries/{query['id']}{path}").raise_for_status().text


def test_the_question_is_answered(lab: Desk, first: Done, delays: dict[str, list[int]]) -> None:
    assert first.returncode == 0, first.stdout + first.stderr
    assert first.stderr == ""
    with lab.service() as client:
        glimpse = answer(client, first.stdout)["glimpse"]
    assert glimpse["rowCount"] == len(delays) == 104
    assert glimpse["ranges"]["worst_delay"]["max"] == max(map(max, delays.values())) == 1301
    assert glimpse["ranges"]["departures"]["max"] == max(map(len, delays.values()))
    assert "worst_delay from" in first.stdout and "to 1,301" in " ".join(first.stdout.split())


def test_the_answer_matches_the_files(lab: Desk, first: Done, delays: dict[str, list[int]]) -> None:
    with lab.service() as client:
        id = found("QueryResult/[0-9a-f]{64}", first.stdout).rpartition("/")[2]
        value = client.get(f"/references/QueryResult/{id}").json()
    assert {row[0]: row[1] for row in value["rows"]} == {dest: len(held) for dest, held in delays.items()}
    means = {row[0]: row[2] for row in value["rows"]}
    assert all(abs(means[dest] - sum(held) / len(held)) < 0.006 for dest, held in delays.items())


def test_no_row_is_in_any_record(lab: Desk, first: Done) -> None:
    tails = {row["tailnum"] for row in read_flights()} - {"", "NA"}
    assert len(tails) > 4_000
    with lab.service() as client:
        told = list(records(client))
        id = found("QueryResult/[0-9a-f]{64}", first.stdout).rpartition("/")[2]
        rows = client.get(f"/references/QueryResult/{id}").json()["rows"]
    assert sum("event: finish" in text for text in told) == 2  # the profile and the question
    everything = " ".join([*told, first.stdout])
    words = set(everything.replace('"', " ").replace(",", " ").split())
    assert not tails & words
    # Of the answer itself, agents and events have the three rows of the glimpse.
    assert all(json.dumps(row, separators=(",", ":")) not in everything for row in rows[3:])
    assert json.dumps(rows[0], separators=(",", ":")) in everything


def test_the_source_is_profiled_once(lab: Desk, first: Done) -> None:
    assert "… flights" in first.stdout
    again = lab.run()
    assert again.returncode == 0, again.stdout + again.stderr
    assert "… flights" not in again.stdout
    assert "flights: 336,776 rows, 19 columns" in again.stdout
    with lab.service() as client:
        column = client.get("/catalog/entries/column:flights.flights.dep_delay").json()
    assert column["origin"] == "both"
    assert column["content"]["description"].startswith("Departure delay in minutes")
    assert column["content"]["sampledRows"] == 10_000


def test_the_files_are_unchanged(lab: Desk, first: Done) -> None:
    unpacked: Path = lab.data / "files"
    assert sorted(p.name for p in unpacked.iterdir()) == [
        "airlines.csv",
        "airports.csv",
        "flights.csv",
        "planes.csv",
    ]
