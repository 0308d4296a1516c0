"""kill -9 of the service while a statement runs on a data source."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support import specs
from tests.support.service import Service, folder, serving

HEAVY = "SELECT sum(a.n * b.n * c.n) AS total FROM t a, t b, t c"
"""It would run for an hour."""


def client(service: Service) -> httpx.Client:
    headers = {"Authorization": f"Bearer {service.key}"}
    return httpx.Client(base_url=service.url, headers=headers, timeout=60, trust_env=False)


def children(pid: int) -> list[int]:
    """The processes that any thread of a process started."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for each in lists for child in each.read_text().split()]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def within(seconds: float, ready: Any) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := ready()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


@pytest.mark.long
def test_the_statement_ends_with_the_service_and_the_query_continues() -> None:
    with folder() as at:
        file = at / "t.csv"
        file.write_text("n\n" + "\n".join(map(str, range(20_000))) + "\n")
        settings = {"PLANGATE_SOURCE_PATHS": str(file)}
        with serving(at, settings) as service, client(service) as http:
            limits = {"timeoutMs": 6_000}
            source = {"kind": "duckdb", "options": {"paths": [str(file)], "limits": limits}}
            http.put("/sources/files", json=source).raise_for_status()
            agent = specs.agent(toolkits=["catalog"])
            http.post(
                "/runtimes", json=specs.spec(agent, tenant="local", interpreter="scripted")
            ).raise_for_status()
            before = set(children(service.pid))
            calls = [("execute_query", {"source": "files", "sql": sql}) for sql in (HEAVY, "SELECT 42 AS a")]
            query = http.post("/queries", json={"prompt": specs.script(*calls)}).json()["id"]
            (worker,) = within(20, lambda: set(children(service.pid)) - before)
            time.sleep(1)
            os.kill(service.pid, signal.SIGKILL)
        within(5, lambda: not is_running(worker))
        with serving(at, settings) as service, client(service) as http:
            ended = http.get(f"/queries/{query}", params={"waitMs": 50_000}).json()
            assert ended["status"] == "succeeded", ended
            assert "Stopped after 6 s" in ended["output"]
            assert '"rows":[[42]]' in ended["output"]
            work = http.get(f"/queries/{query}/work").json()["items"]
            assert [one["status"] for one in work if one["name"] == "execute_query"] == [
                "failed",
                "succeeded",
            ]
