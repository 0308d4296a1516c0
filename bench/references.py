"""`make bench ARGS="--suite references"`: the cost of references by value size, and their effect on other
requests."""

from __future__ import annotations

import http.client
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench import machine, programs, report
from bench.report import quantile, spread

SIZES = {"1 kB": 1_000, "100 kB": 100_000, "10 MB": 10_000_000}
REPEATS = {"1 kB": 100, "100 kB": 40, "10 MB": 4}
"""Of each measurement in a round."""

KIND = "Rows"
SPEC = {
    "tenant": {"resourceId": "local", "version": "1"},
    "agents": [{"name": "clerk", "role": "specialist", "model": {"id": "m", "provider": "mock"}}],
    "references": [
        {
            "name": KIND,
            "schema": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"sku": {"type": "string"}, "cents": {"type": "integer"}},
                    "required": ["sku", "cents"],
                },
            },
            "glimpse": {"count": "length(@)", "first": "[0].sku"},
        }
    ],
    "interpreter": "mock",
}
QUIET_S = 2.0
PAUSE_S = 0.005


@dataclass
class Figures:
    """Values by row and size, one per round."""

    rows: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, row: str, size: str, value: float) -> None:
        self.rows.setdefault(row, {}).setdefault(size, []).append(value)


class Api:
    """One kept-alive connection with a key."""

    def __init__(self, port: int, key: str) -> None:
        self.again: Callable[[], Api] = lambda: Api(port, key)
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def __call__(self, method: str, path: str, body: bytes | None = None) -> bytes:
        self._connection.request(method, path, body, self._headers)
        answer = self._connection.getresponse()
        data = answer.read()
        if answer.status >= 300:
            raise SystemExit(f"{method} {path}: {answer.status} {data[:400].decode(errors='replace')}")
        return data

    def close(self) -> None:
        self._connection.close()


def rows_of(size: int, mark: str) -> bytes:
    """Return JSON rows of about 100 bytes each, up to the given size."""
    written: list[str] = []
    total, n = 2, 0
    while True:
        row = {
            "sku": f"{mark}-{n:07}",
            "name": f"product number {n}",
            "cents": n * 7,
            "tags": ["a", "b"],
            "stock": n % 500,
        }
        text = json.dumps(row, separators=(",", ":"))
        total += len(text) + 1
        if total > size and written:
            return f"[{','.join(written)}]".encode()
        written.append(text)
        n += 1


def measure_s(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def one_round(api: Api, number: int, figures: Figures | None) -> None:
    """Create, re-create, glimpse and resolve values of each size. Without `figures`, only warm up."""
    for size, most in SIZES.items():
        values = [rows_of(most, f"{number}-{n}") for n in range(REPEATS[size])]
        bodies = [b'{"kind":"%s","value":%s}' % (KIND.encode(), value) for value in values]
        paths: list[str] = []

        def create(body: bytes, paths: list[str] = paths) -> None:
            made = json.loads(api("POST", "/references", body))
            paths.append(f"/references/{KIND}/{made['id']}")

        taken = {
            "create": [measure_s(partial(create, body)) for body in bodies],
            "create again": [measure_s(partial(api, "POST", "/references", body)) for body in bodies],
            "glimpse": [measure_s(partial(api, "GET", f"{path}/glimpse")) for path in paths],
            "resolve": [measure_s(partial(api, "GET", path)) for path in paths],
        }
        for name, seconds in taken.items():
            middle = statistics.median(seconds)
            if figures is not None:
                figures.add(f"{name}, ms", size, middle * 1000)
                if name in ("create", "resolve"):
                    figures.add(f"{name}, MB/s", size, len(values[0]) / 1e6 / middle)
            print(f"round {number}: {name} of {size}: {middle * 1000:.2f} ms", file=sys.stderr)


@contextmanager
def small_requests(api: Api) -> Iterator[list[float]]:
    """Send small requests on a separate connection while the block runs; yield the list of their durations in
    seconds."""
    taken: list[float] = []
    over = threading.Event()

    def send_requests() -> None:
        with closing(api.again()) as own:
            while not over.wait(PAUSE_S):
                taken.append(measure_s(lambda: own("GET", "/references?limit=1")))

    thread = threading.Thread(target=send_requests)
    thread.start()
    try:
        yield taken
    finally:
        over.set()
        thread.join()


def measure_interference(api: Api, number: int, figures: Figures | None) -> None:
    """Measure small requests while the service is idle, and while large values are created one after
    another."""
    with small_requests(api) as quiet:
        time.sleep(QUIET_S)
    bodies = [
        b'{"kind":"%s","value":%s}' % (KIND.encode(), rows_of(SIZES["10 MB"], f"b{number}-{n}"))
        for n in range(4)
    ]
    with small_requests(api) as busy:
        for body in bodies:
            api("POST", "/references", body)
    for name, seconds in (("quiet", quiet), ("beside creates of 10 MB", busy)):
        for row, share in (("median", 0.5), ("p95", 0.95)):
            value = quantile(seconds, share) * 1000
            if figures is not None:
                figures.add(f"a small request, {row}, ms", name, value)
            print(f"round {number}: a small request, {name}, {row}: {value:.2f} ms", file=sys.stderr)


def measure(rounds: int) -> str:
    """Measure everything; return the tables. The first round is discarded."""
    sizes, requests = Figures(), Figures()
    with programs.data_dir() as data, programs.service(data) as (service, _):
        key = Path(data / "local-key").read_text("utf-8").strip()
        with closing(Api(service.port, key)) as api:
            api("POST", "/runtimes", json.dumps(SPEC).encode())
            for number in range(rounds):
                one_round(api, number, sizes if number else None)
                measure_interference(api, number, requests if number else None)
        peak = machine.peak_rss_mb(service.pid)
    about = (
        f"{machine.kind()}; Python {sys.version.split()[0]}; {rounds - 1} rounds; median (min–max) of the rounds. Values "
        f"are rows of about 100 bytes with a schema and a declared glimpse. The service's own process had {peak:.0f} MiB "
        "at most."
    )
    return "\n".join(
        [
            about,
            "",
            *tables(sizes, list(SIZES)),
            "",
            *tables(requests, list(requests.rows["a small request, p95, ms"])),
        ]
    )


def tables(figures: Figures, columns: list[str]) -> list[str]:
    """Return the lines of a Markdown table, one row per figure."""
    head = [f"| | {' | '.join(columns)} |", f"| --- | {' | '.join('---:' for _ in columns)} |"]
    return head + [
        f"| {row} | {' | '.join(spread(held.get(column, [])) for column in columns)} |"
        for row, held in figures.rows.items()
    ]


def run(*, quick: bool, page: Path | None) -> None:
    """Measure and print; with `page`, also write the tables into it."""
    text = measure(2 if quick else 5)
    print(text)
    if page is not None:
        report.write(page, text, "references")
