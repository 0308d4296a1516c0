"""One address with several servers: the one that takes writes is found quickly."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import asyncpg
import pytest

from app.base.metrics import Metrics
from app.base.postgres import hosts
from app.base.postgres.database import Database, OldTimeline

TWO = "postgresql://u:p@pg1:5432,pg2:5433/plangate?sslmode=require"


class Connection:
    """A connection that says which timeline its server is on."""

    def __init__(self, address: str, timeline: str | None = None) -> None:
        self.address = address
        self.timeline = timeline
        self.closed = False

    async def fetchval(self, _sql: str) -> str | None:
        return self.timeline

    def terminate(self) -> None:
        self.closed = True


class Servers:
    """What each server does with a connection: an error, seconds of silence, or a timeline."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **does: BaseException | float | str) -> None:
        self.does = does
        self.tried: list[str] = []
        self.opened: list[Connection] = []
        monkeypatch.setattr(asyncpg, "connect", self.connect)
        monkeypatch.setattr(hosts, "_last_primaries", {})

    async def connect(self, address: str, **_options: Any) -> Connection:
        name = address.partition("@")[2].partition(":")[0]
        self.tried.append(name)
        what = self.does[name]
        if isinstance(what, BaseException):
            raise what
        if isinstance(what, float):
            await asyncio.sleep(what)
        connection = Connection(name, what if isinstance(what, str) else None)
        self.opened.append(connection)
        return connection


def test_each_server_gets_an_address() -> None:
    query = "/plangate?sslmode=require&target_session_attrs=read-write"
    assert hosts.server_addresses(TWO) == [
        f"postgresql://u:p@pg1:5432{query}",
        f"postgresql://u:p@pg2:5433{query}",
    ]
    one = "postgresql://u@pg1/plangate"
    assert hosts.server_addresses(one) == [hosts.primary_address(one)] == [one]
    any_server = "postgresql://pg1,pg2/plangate?target_session_attrs=any"
    assert hosts.primary_address(any_server) == any_server


async def test_the_last_primary_is_tried_first(monkeypatch: pytest.MonkeyPatch) -> None:
    standby = asyncpg.TargetServerAttributeNotMatched("a standby")
    servers = Servers(monkeypatch, pg1=standby, pg2="1")
    for _ in range(2):
        assert (await hosts.connect(TWO, timeout=5)).address == "pg2"
    assert servers.tried == ["pg1", "pg2", "pg2"]


async def test_a_silent_server_delays_the_next_one_by_half_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = Servers(monkeypatch, pg1=0.7, pg2="1")
    began = time.monotonic()
    assert (await hosts.connect(TWO, timeout=5)).address == "pg2"
    assert 0.4 < time.monotonic() - began < 0.7
    await asyncio.sleep(0.4)
    assert [c.address for c in servers.opened if not c.closed] == ["pg2"], "a late connection is closed"


async def test_the_error_is_not_that_of_a_standby(monkeypatch: pytest.MonkeyPatch) -> None:
    Servers(
        monkeypatch, pg1=asyncpg.TargetServerAttributeNotMatched("a standby"), pg2=ConnectionRefusedError()
    )
    with pytest.raises(ConnectionRefusedError):
        await hosts.connect(TWO, timeout=5)
    Servers(monkeypatch, pg1=9.0, pg2=9.0)
    with pytest.raises(TimeoutError):
        await hosts.connect(TWO, timeout=0.1)


async def test_a_primary_of_the_past_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    pool: Any = None
    database = Database(pool, Metrics())
    promotions: list[str] = []
    database.on_promotion(lambda: promotions.append("promoted"))
    servers = Servers(monkeypatch, pg1="00000001", pg2=OSError("down"))
    assert (await hosts.connect(TWO, timeout=5, accept=database.accept_connection)).address == "pg1"
    servers.does["pg1"], servers.does["pg2"] = OSError("down"), "00000002"
    assert (await hosts.connect(TWO, timeout=5, accept=database.accept_connection)).address == "pg2"
    assert promotions == ["promoted"]
    servers.does["pg1"], servers.does["pg2"] = "00000001", OSError("restarts")
    with pytest.raises(OSError, match="restarts"):
        await hosts.connect(TWO, timeout=5, accept=database.accept_connection)
    assert servers.opened[-1].closed
    with pytest.raises(OldTimeline):
        await database.accept_connection(servers.opened[-1])
