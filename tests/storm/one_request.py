"""Single requests with very many errors, beside another tenant's queries and probes of /healthz."""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.processes.acceptance.house import House
from tests.storm.database import check_innocent
from tests.storm.figures import Figures
from tests.storm.house import Probe, deadly_model, house_with, submit_talks


@dataclass(frozen=True, slots=True)
class Size:
    tags: int
    keys: int
    lease_s: float


FULL = Size(tags=400_000, keys=70_000, lease_s=10)
SMALL = Size(tags=400_000, keys=70_000, lease_s=2)


def bodies(size: Size) -> dict[str, tuple[str, bytes]]:
    """Return the path and the body of each request, by its name."""
    keys = {f"k{n}": 1 for n in range(size.keys)}
    return {
        "tags": ("/artifacts", json.dumps({"tags": [1] * size.tags}, separators=(",", ":")).encode()),
        "unknown fields of an artifact": ("/artifacts", json.dumps(keys).encode()),
        "unknown fields of a query": ("/queries", json.dumps(keys).encode()),
        "unknown fields of a runtime": ("/runtimes", json.dumps(keys).encode()),
        "unknown fields to validate": ("/runtimes/validate", json.dumps(keys).encode()),
        "unknown fields of a plan": ("/plans", json.dumps(keys).encode()),
    }


def run(figures: Figures, size: Size = FULL) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        deadly_model(0.1) as model,
        house_with(model, Path(folder, "callbacks"), lease_s=size.lease_s) as house,
    ):
        submit_talks(house, model, 5, 3 * size.lease_s)
        with Probe(house.url) as probe:
            for name, (path, body) in bodies(size).items():
                began = time.monotonic()
                answer = house.http.post(path, content=body, headers={"content-type": "application/json"})
                took = time.monotonic() - began
                figures.exactly(f"{name}: rejected", rejected(answer), True)
                figures.at_most(f"{name}: size of the response", len(answer.content), 65_536, "bytes")
                figures.at_most(f"{name}: answered within", took, 5, "s")
        figures.exactly("probes that failed", probe.failed, 0)
        figures.publish("slowest /healthz beside them", probe.slowest_s * 1000, "ms")
        check_innocent(house, figures, 3 * size.lease_s + 60)
        assert house.service is not None
        house.service.stop()
        measured: list[tuple[float, str]] = json.loads(Path(folder, "callbacks").read_text())
        longest, where = max(measured, default=(0.0, ""))
        figures.at_most("CPU time of the longest callback", longest * 1000, 100, "ms")
        if longest > 0.1:
            print(where, flush=True)


def rejected(answer: httpx.Response) -> bool:
    return 400 <= answer.status_code < 500 or answer.json().get("valid") is False


def metric(house: House, name: str) -> float:
    """Return the sum of a metric over its labels."""
    lines = house.http.get("/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.split("{")[0].split(" ")[0] == name)
