"""Large values in separate processes: their cost, and other requests meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
import pytest_asyncio

from app.base.errors import Invalid, Malformed, TooLarge, TooManyRequests
from app.base.json.process_pool import JsonProcess, JsonProcessPool, ProcessLimits
from app.base.schema.checker import SchemaChecker
from app.references.values import (
    MAX_REFERENCE_BYTES,
    ValuePart,
    ValueRequest,
    pack_value,
    parse_document,
    value_part,
)
from bench import machine
from tests.processes.acceptance.house import House, eventually
from tests.support import specs

MIB = 1024 * 1024
ANY: dict[str, Any] = {"type": "array"}


# -- one child


SCHEMAS = SchemaChecker()


@pytest_asyncio.fixture
async def pool() -> JsonProcessPool:
    return JsonProcessPool()


@asynccontextmanager
async def taken_apart(pool: JsonProcessPool, sent: bytearray) -> AsyncIterator[JsonProcess]:
    """A process that keeps the value of a document."""
    async with pool.open(request=True) as process:
        await process.keep(parse_document, sent)
        yield process


async def packed(process: JsonProcess, request: ValueRequest) -> tuple[bytes, bytes]:
    return await process.run(pack_value, SCHEMAS, request, None)


def of_process(pid: int, file: str) -> bytes:
    return Path("/proc", str(pid), file).read_bytes()


def children_of(pid: int) -> list[int]:
    """The living processes of this one that take a document apart."""
    found = []
    for child in machine.tree(pid)[1:]:
        try:
            command = of_process(child, "cmdline")
        except OSError:
            continue
        if b"app.base.json.worker" in command and machine.parent_of(child) == pid:
            found.append(child)
    return found


def asked(**parts: Any) -> ValueRequest:
    return ValueRequest(
        **{"kind": "Any", "schema": ANY, "fields": None, "max_bytes": MAX_REFERENCE_BYTES, **parts}
    )


def body(value: Any, **more: Any) -> bytearray:
    return bytearray(orjson.dumps({"kind": "Any", **more, "value": value}))


async def test_a_document_is_parsed_and_its_value_packed(pool: JsonProcessPool) -> None:
    sent = body([{"b": 1, "a": None}], glimpse={"g": 1})
    async with pool.open(request=True) as process:
        known = await process.keep(parse_document, sent)
        assert known == ({"kind": "Any", "glimpse": {"g": 1}}, True)
        assert sent == b""
        data, glimpse = await packed(process, asked(fields={"n": "length(@)"}))
    assert (data, glimpse) == (b'[{"a":null,"b":1}]', b'{"n":1}')
    assert children_of(os.getpid()) == []


async def test_errors_read_as_for_small_values(pool: JsonProcessPool) -> None:
    with pytest.raises(Malformed, match="not JSON"):
        async with taken_apart(pool, bytearray(b"[1,")):
            pass
    async with taken_apart(pool, body(["x"])) as process:
        with pytest.raises(TooLarge, match="at most 3 bytes of JSON; this value has 5"):
            await packed(process, asked(max_bytes=3))
        with pytest.raises(Invalid) as refused:
            await packed(process, asked(schema={"items": {"type": "integer"}}))
    assert [flaw.pointer for flaw in refused.value.errors] == ["/value/0"]
    async with pool.open() as process:
        with pytest.raises(Invalid, match=r"^The path is not a JMESPath expression"):
            await process.run(value_part, b"[1]", "[", 100)
        assert await process.run(value_part, b'["a","b"]', "[1]", 100) == ValuePart("b", 3)
    assert children_of(os.getpid()) == []


async def test_a_process_is_limited_in_memory() -> None:
    pool = JsonProcessPool(ProcessLimits(memory_bytes=60 * MIB))
    async with taken_apart(pool, body([{"id": n} for n in range(1000)])):
        pass
    many = body([[n] for n in range(900_000)])
    with pytest.raises(TooLarge, match="needs more memory or time than the service gives"):
        async with taken_apart(pool, many) as process:
            await packed(process, asked())  # whoever looks at its memory may have had no turn until now
    with pytest.raises(TooLarge, match=r"^The body may have 1000000 objects and arrays\.$"):
        async with taken_apart(pool, body([[]] * 1_000_000)):
            pass
    assert children_of(os.getpid()) == []


async def test_a_process_inherits_nothing_of_the_service(
    pool: JsonProcessPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANGATE_SECRET_KEY", "s" * 40)
    async with taken_apart(pool, body([])):
        (child,) = children_of(os.getpid())
        environment = of_process(child, "environ")
    assert b"PYTHONPATH=" in environment
    assert b"PLANGATE" not in environment


async def test_two_requests_run_at_a_time_without_delaying_queries(pool: JsonProcessPool) -> None:
    order: list[str] = []

    async def third() -> None:
        async with taken_apart(pool, body([])):
            order.append("third begins")

    async with taken_apart(pool, body([])):
        async with taken_apart(pool, body([])):
            waiting = asyncio.create_task(third())
            await asyncio.to_thread(sum, range(1_000_000))
            assert len(children_of(os.getpid())) == 2
            async with pool.open() as process:
                assert await process.run(len, b"of a query") == 10
            order.append("second ends")
        await waiting
    assert order == ["second ends", "third begins"]


async def test_a_request_that_waits_too_long_gets_a_429() -> None:
    pool = JsonProcessPool(ProcessLimits(wait_s=0.05))
    async with taken_apart(pool, body([])) as first, taken_apart(pool, body([])):
        with pytest.raises(TooManyRequests, match="being processed; retry"):
            async with taken_apart(pool, body([])):
                pass
        await first.end()  # with what it holds, the process gives its turn back
        async with taken_apart(pool, body([])):
            assert len(children_of(os.getpid())) == 2
    assert children_of(os.getpid()) == []


async def test_a_disconnected_client_ends_its_process(pool: JsonProcessPool) -> None:
    begun = asyncio.Event()

    async def leave() -> None:
        async with taken_apart(pool, body([])) as process:
            (child,) = children_of(os.getpid())
            os.kill(child, signal.SIGSTOP)
            begun.set()
            await packed(process, asked())

    leaving = asyncio.create_task(leave())
    await begun.wait()
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert children_of(os.getpid()) == []


# -- in a service


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    made = House()
    try:
        made.serve()
        made.register(specs.mock(tenant="local", references=[{"name": "Any", "schema": ANY}]))
        made.post("/references", {"kind": "Any", "value": []}, 201)
        yield made
    finally:
        made.close()


def rows() -> list[Any]:
    """Rows as they come out of a table."""
    return [
        {
            "sku": f"SKU-{n:07}",
            "name": f"product number {n}",
            "cents": n * 7,
            "price": n / 7,
            "tags": ["a", "b"],
        }
        for n in range(145_000)
    ]


def codes() -> list[Any]:
    return [f"id{n:07}" for n in range(1_390_000)]


def numbers() -> list[Any]:
    return [100_000_000 + n for n in range(1_670_000)]


def objects() -> list[Any]:
    """As many objects as there are bytes for, nearly."""
    return [{"id": 100_000 + n, "name": f"item {100_000 + n}"} for n in range(440_000)]


def coordinates() -> list[Any]:
    return [[round(n / 7, 6), round(n / 11, 6)] for n in range(620_000)]


def small_numbers() -> list[Any]:
    return [n % 1000 for n in range(4_100_000)]


def texts() -> list[Any]:
    return ["\N{GREEK SMALL LETTER PI}" * 500] * 16_000


class Peak:
    """The most memory that a service and its children held together, above what it held before, in MiB."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._idle = machine.rss_mb(pid)
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._look)
        self.mib = 0.0
        self.children = 0

    def __enter__(self) -> Peak:
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watch.join()

    def _look(self) -> None:
        while not self._over.wait(0.002):
            held = machine.rss_mb(self._pid) - self._idle
            for child in children_of(self._pid):
                self.children += 1
                try:
                    held += machine.rss_mb(child)
                except (OSError, KeyError):  # it has just ended
                    continue
            self.mib = max(self.mib, held)


SHAPES = [rows, codes, numbers, small_numbers, objects, coordinates, texts]


@pytest.mark.long
@pytest.mark.parametrize("value", SHAPES, ids=lambda value: value.__name__)
def test_a_large_value_costs_at_most_twelve_times_its_size(house: House, value: Callable[[], Any]) -> None:
    assert house.service is not None
    sent = orjson.dumps({"kind": "Any", "value": value()})
    assert 0.9 * MAX_REFERENCE_BYTES < len(sent) <= MAX_REFERENCE_BYTES
    with Peak(house.service.pid) as peak:
        answer = house.http.post("/references", content=sent, headers={"content-type": "application/json"})
    assert answer.status_code == 201, answer.text
    assert peak.children, "nothing was seen"
    assert peak.mib <= 12 * MAX_REFERENCE_BYTES / MIB
    made = answer.json()
    assert made["sizeBytes"] == len(sent) - len('{"kind":"Any","value":}')
    stored = house.http.get(f"/references/Any/{made['id']}")
    assert stored.json() == orjson.loads(sent)["value"]


def test_other_requests_are_served_during_large_values(house: House) -> None:
    """Two are held in the middle of it; a third one has to come again, and nobody else notices."""
    assert house.service is not None
    pid = house.service.pid

    def create(mark: str) -> httpx.Response:
        with httpx.Client(base_url=house.url, headers=house.http.headers, timeout=60) as client:
            return client.post("/references", json={"kind": "Any", "value": [mark, "x" * 4 * MIB]})

    held: list[int] = []
    with ThreadPoolExecutor(3) as threads:
        try:
            creating = []
            for mark in ("first", "second"):
                creating.append(threads.submit(create, mark))
                child = eventually(lambda: [c for c in children_of(pid) if c not in held], "a child")[0]
                os.kill(child, signal.SIGSTOP)
                held.append(child)
            third = threads.submit(create, "third")
            assert house.get("/healthz") == {"status": "ok"}
            small = house.post("/references", {"kind": "Any", "value": ["small", "x" * (MIB // 2)]}, 201)
            assert house.get(f"/references/Any/{small['id']}")[0] == "small"
            assert house.get("/references?limit=1")["items"][0]["id"] == small["id"]
            refused = third.result()
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
            assert "being processed; retry" in refused.json()["detail"]
            assert children_of(pid) == held
            assert not any(one.done() for one in creating)
        finally:
            for child in held:
                os.kill(child, signal.SIGCONT)
        assert [one.result().status_code for one in creating] == [201, 201]
    assert children_of(pid) == []


def test_slow_readers_hold_no_values(house: House) -> None:
    assert house.service is not None
    made = house.post("/references", {"kind": "Any", "value": ["resting", "x" * 15 * MIB]}, 201)
    asking = (
        f"GET /references/Any/{made['id']} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {house.key}\r\n\r\n"
    )
    readers = []
    with Peak(house.service.pid) as peak:
        for _ in range(8):
            reader = socket.create_connection(("127.0.0.1", house.port))
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.sendall(asking.encode())
            assert reader.recv(100).startswith(b"HTTP/1.1 200")
            readers.append(reader)
        assert house.get("/readyz")["status"] == "ready"
    for reader in readers:
        reader.close()
    assert peak.mib < 15  # one value


def test_a_value_deleted_during_a_read_is_visibly_truncated(house: House) -> None:
    made = house.post("/references", {"kind": "Any", "value": ["going", "x" * 15 * MIB]}, 201)
    path = f"/references/Any/{made['id']}"
    with pytest.raises(httpx.RemoteProtocolError), house.http.stream("GET", path) as answer:
        assert answer.headers["content-length"] == str(made["sizeBytes"])
        pieces = answer.iter_raw()
        next(pieces)
        httpx.delete(house.url + path, headers=dict(house.http.headers)).raise_for_status()
        for _ in pieces:
            pass
    assert house.http.get(path).status_code == 404
