"""kill -9 in the middle of the profile of a source: another process profiles the whole source, and it is never stuck."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.acceptance.house import House, eventually
from tests.processes.acceptance.test_killed_writes import Step
from tests.support.sources import make_sqlite

pytestmark = pytest.mark.long

POINTS = {
    "before the first table": ("catalog_entries", "BEFORE INSERT", "NEW.id = 'table:shop.customers'"),
    "between two tables": ("catalog_entries", "BEFORE INSERT", "NEW.id = 'table:shop.orders'"),
    "before its result": ("sources", "BEFORE UPDATE", "NEW.profile IS DISTINCT FROM OLD.profile"),
}
WHOLE = {"tables": 2, "columns": 8, "relationships": 1, "findings": 1}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    files = tmp_path_factory.mktemp("files")
    make_sqlite(files)
    house = House(lease_s=2, source_paths=str(files))
    try:
        yield house
    finally:
        house.close()


@pytest.fixture
def source(house: House) -> Iterator[str]:
    """The path of a new source, which has never been profiled."""
    path = Path(house.env["PLANGATE_SOURCE_PATHS"]) / "shop.sqlite"
    body = {"kind": "sqlite", "options": {"paths": [str(path)]}}
    answer = house.http.put("/sources/shop", json=body)
    assert answer.status_code == 201, answer.text
    yield "/sources/shop"
    assert house.http.delete("/sources/shop").status_code == 200


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_profile_is_completed_by_the_next_process(house: House, source: str, point: str) -> None:
    step = Step(house, POINTS[point])
    try:
        query_id = house.post(f"{source}/profile", None, 202)["id"]
        eventually(step.reached, "the step is reached")
        house.kill_service()
    finally:
        step.close()
    house.serve()
    reader = house.follow(query_id)
    assert json.loads(reader.wait_end()["output"]) == WHOLE
    assert [e["label"] for e in reader.events if e["type"] == "tool-progress"][-2:] == ["customers", "orders"]
    profile = house.get(source)["profile"]
    assert (profile["status"], profile["queryId"], profile["found"]) == ("succeeded", query_id, WHOLE)
    tables = house.get("/catalog/entries?source=shop&kind=table")["items"]
    assert [entry["id"] for entry in tables] == ["table:shop.customers", "table:shop.orders"]
    again = house.post(f"{source}/profile", None, 202)["id"]
    assert json.loads(house.follow(again).wait_end()["output"]) == WHOLE
