"""`plangate sources`: files that only the operator may name, and programs that declare their data."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from plangate import Conflict, InvalidRequest, create_runtime
from typer.testing import CliRunner

from app.commands.main import cli
from tests.support import specs
from tests.support.service import Service, folder, serving
from tests.support.sources import make_csv, make_sqlite


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    with folder() as at:
        (at / "files").mkdir()
        make_csv(at / "files")
        make_sqlite(at / "files")
        (at / "more").mkdir()
        (at / "more" / "prices.csv").write_text("id,price\n1,2.5\n2,NA\n")
        yield at


@pytest.fixture(scope="module")
def service(place: Path) -> Iterator[Service]:
    with serving(place, {"PLANGATE_SOURCE_PATHS": str(place / "more")}) as running:
        yield running


@pytest.fixture
def http(service: Service) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {service.key}"}
    with httpx.Client(base_url=service.url, headers=headers, timeout=60, trust_env=False) as made:
        yield made


def plangate(place: Path, *words: str, code: int = 0) -> str:
    found = CliRunner().invoke(cli, [*words, "--data-dir", str(place / "data")])
    assert found.exit_code == code, (found.output, found.exception)
    return found.output


def answers(http: httpx.Client, source: str, sql: str) -> Any:
    """The result of a statement that an agent runs."""
    agent = specs.agent(toolkits=["catalog"])
    spec = specs.spec(agent, tenant="local", name="asking", interpreter="scripted")
    http.post("/runtimes", json=spec).raise_for_status()
    prompt = specs.script(("execute_query", {"source": source, "sql": sql}))
    accepted = http.post("/queries", json={"prompt": prompt, "runtime": "asking"}).json()
    http.get(f"/queries/{accepted['id']}", params={"waitMs": 30_000}).raise_for_status()
    events = http.get(f"/queries/{accepted['id']}/events", params={"types": "tool-invocation"}).json()[
        "events"
    ]
    return events[-1].get("result") or events[-1]["error"]


def test_the_operator_declares_files(service: Service, place: Path, http: httpx.Client) -> None:
    files = place / "files"
    said = plangate(
        place,
        "sources",
        "add",
        "orders",
        "--files",
        str(files / "orders.csv"),
        str(place / "more" / "prices.csv"),
    )
    assert said == "The source orders of the tenant local reads 2 files.\n"
    assert answers(http, "orders", "SELECT count(*) FROM orders")["rows"] == [[1000]]
    found = http.get("/sources/orders").json()
    assert found["declared"] is True
    changed = {"kind": "duckdb", "options": {"paths": [str(place / "more")]}}
    assert http.put("/sources/orders", json=changed).status_code == 409
    assert http.delete("/sources/orders").json()["type"] == "source_declared"
    # The tenant may not use the declared paths for a source of its own.
    own = {"kind": "duckdb", "options": {"paths": [str(files / "orders.csv")]}}
    assert http.put("/sources/own", json=own).json()["type"] == "source_path_not_allowed"
    assert "is deleted" in plangate(place, "sources", "remove", "orders")
    assert http.get("/sources/orders").status_code == 404


def test_an_immutable_file_is_declared(service: Service, place: Path, http: httpx.Client) -> None:
    path = str(place / "files" / "shop.sqlite")
    plangate(place, "sources", "add", "shop", "--files", path, "--immutable")
    found = http.get("/sources/shop").json()
    assert (found["kind"], found["options"]["immutable"]) == ("sqlite", True)
    assert answers(http, "shop", "SELECT count(*) FROM orders")["rows"] == [[300]]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("add", "a b", "--files", "/tmp"), "is not the name of a source"),
        (("add", "none", "--files", "/nowhere/x.csv"), "does not exist"),
        (("add", "none", "--files", "/tmp", "--tenant", "nobody"), ""),
        (("remove", "none"), "There is no source 'none'"),
    ],
)
def test_invalid_declarations_are_rejected(
    service: Service, place: Path, words: tuple[str, ...], why: str
) -> None:
    found = CliRunner().invoke(cli, ["sources", *words, "--data-dir", str(place / "data")])
    assert found.exit_code != 0
    assert why in f"{found.output} {found.exception}"


async def test_a_program_declares_its_data(service: Service, place: Path) -> None:
    spec = specs.mock("Hello.", tenant="local", name="declaring")
    data = {
        "sources": {
            "prices": {
                "kind": "duckdb",
                "options": {"paths": [str(place / "more")], "nullValues": ["NA"]},
            }
        },
        "entries": [{"id": "metric:price", "kind": "metric", "source": "prices"}],
    }
    async with create_runtime(spec, url=service.url, api_key=service.key, data_environment=data) as runtime:
        kinds = [event["type"] async for event in runtime.profile_source("prices")]
        assert "tool-progress" in kinds and kinds[-1] == "finish"
        found = await runtime.get_source("prices")
        assert found["profile"]["found"] == {"tables": 1, "columns": 2, "relationships": 0, "findings": 0}
    wrong = {"sources": {"bad": {"kind": "duckdb", "options": {"paths": ["/etc"]}}}}
    with pytest.raises(InvalidRequest, match="outside what the operator declared"):
        async with create_runtime(spec, url=service.url, api_key=service.key, data_environment=wrong):
            pass
    path = str(place / "more" / "prices.csv")
    await asyncio.to_thread(plangate, place, "sources", "add", "taken", "--files", path)
    taken = {"sources": {"taken": data["sources"]["prices"]}}  # type: ignore[index]
    with pytest.raises(Conflict):
        async with create_runtime(spec, url=service.url, api_key=service.key, data_environment=taken):
            pass


@pytest.mark.parametrize("given", [[], {"source": {}}, {"sources": []}, {"entries": {}}, {"entries": ["x"]}])
def test_an_invalid_data_environment_is_an_error(given: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="data_environment"):
        create_runtime(specs.mock(), url="http://127.0.0.1:1", api_key="x", data_environment=given)
