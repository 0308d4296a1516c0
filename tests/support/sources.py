"""Data sources for tests: files, and a second Postgres that is reached over TCP."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import urllib.parse
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from app.base import embedded_postgres
from tests.support import specs
from tests.support.client import Caller

PASSWORD = "p@ss/word:#1"


def make_csv(folder: Path, rows: int = 1000) -> Path:
    """Orders of which each has an id, a customer and an amount in cents."""
    path = folder / "orders.csv"
    lines = [
        "id,customer,cents,day",
        *(f"{n},c{n % 7},{n * 10},2026-01-{n % 28 + 1:02d}" for n in range(rows)),
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def make_sqlite(folder: Path) -> Path:
    """A shop with customers, who have an e-mail address, and their orders."""
    path = folder / "shop.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as shop, shop:
        shop.executescript(
            """
            CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL, email TEXT, tier TEXT);
            CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customers (id),
                cents INTEGER NOT NULL, note TEXT);
            """
        )
        shop.executemany(
            "INSERT INTO customers VALUES (?, ?, ?, ?)",
            [
                (n, f"Customer {n}", f"private{n}@example.com", "gold" if n % 3 else "silver")
                for n in range(60)
            ],
        )
        shop.executemany(
            "INSERT INTO orders VALUES (?, ?, ?, NULL)", [(n, n % 60, n * 10) for n in range(300)]
        )
    return path


class TcpProxy:
    """Forwards a port of the loopback address to the Unix socket of a Postgres."""

    def __init__(self, socket_path: str) -> None:
        self._socket_path = socket_path
        self._tasks: set[asyncio.Task[Any]] = set()
        self.port = 0

    async def __aenter__(self) -> TcpProxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            inner_reader, inner_writer = await asyncio.open_unix_connection(self._socket_path)
            await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))
        finally:
            self._tasks.discard(task)


async def _copy(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await source.read(65536):
            to.write(data)
            await to.drain()
    to.close()
    with contextlib.suppress(ConnectionError, OSError):
        await to.wait_closed()


@dataclass(frozen=True)
class SecondPostgres:
    """A Postgres of somebody else, on a port of the loopback address."""

    port: int
    admin: asyncpg.Connection

    def url(
        self, user: str = "reader", host: str = "localhost", database: str = "warehouse", more: str = ""
    ) -> str:
        password = urllib.parse.quote(PASSWORD, safe="")
        return f"postgresql://{user}:{password}@{host}:{self.port}/{database}{more}"


def socket_of(dsn: str) -> str:
    """Return the path of the socket in the address of an embedded Postgres."""
    query = urllib.parse.parse_qs(urllib.parse.urlsplit(dsn).query)
    return f"{query['host'][0]}/.s.PGSQL.{query.get('port', ['5432'])[0]}"


@contextlib.asynccontextmanager
async def second_postgres(folder: Path, settings: dict[str, str]) -> AsyncIterator[SecondPostgres]:
    """Run another cluster with the database `warehouse` and the role `reader`, who may only read."""
    running = await asyncio.to_thread(
        lambda: embedded_postgres.start(folder / "data", settings=settings, state_dir=folder / "state")
    )
    try:
        first = await asyncpg.connect(running.dsn(user=embedded_postgres.SUPERUSER))
        await first.execute("CREATE DATABASE warehouse")
        await first.close()
        admin = await asyncpg.connect(running.dsn("warehouse", user=embedded_postgres.SUPERUSER))
        await admin.execute(
            f"""
            CREATE ROLE reader LOGIN PASSWORD '{PASSWORD}';
            CREATE ROLE writer LOGIN PASSWORD '{PASSWORD}';
            CREATE TYPE size AS ENUM ('small', 'large');
            CREATE TABLE items (id int PRIMARY KEY, name text NOT NULL, price numeric(12, 2), size size, made timestamptz,
                tags text[], extra jsonb, secret_token text);
            COMMENT ON TABLE items IS 'What the warehouse holds';
            COMMENT ON COLUMN items.price IS 'In euros';
            INSERT INTO items SELECT n, 'item ' || n, n * 1.25, (CASE n % 2 WHEN 0 THEN 'small' ELSE 'large' END)::size,
                '2026-01-01T00:00:00Z'::timestamptz + n * interval '1 hour', ARRAY['a', 'b'], '{{"n": 1}}', 'hidden' || n
              FROM generate_series(1, 500) n;
            CREATE TABLE moves (id int PRIMARY KEY, item_id int REFERENCES items (id), at date);
            INSERT INTO moves SELECT n, n % 500 + 1, '2026-02-01'::date + n % 28 FROM generate_series(1, 200) n;
            CREATE FUNCTION sneak() RETURNS int LANGUAGE plpgsql AS 'BEGIN INSERT INTO moves VALUES (9999, 1); RETURN 1; END';
            ANALYZE items; ANALYZE moves;
            GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader;
            GRANT ALL ON ALL TABLES IN SCHEMA public TO writer;
            """
        )
        async with TcpProxy(socket_of(running.dsn())) as proxy:
            yield SecondPostgres(proxy.port, admin)
        await admin.close()
    finally:
        await asyncio.to_thread(running.release)


async def ask(api: Caller, *calls: tuple[str, dict[str, Any]], **parts: Any) -> list[Any]:
    """Return what each call of an agent with the toolkit `catalog` gives: the result, or the error's code and message."""
    agent = specs.agent(toolkits=["catalog", "references"], **parts)
    await api.register(specs.spec(agent, interpreter="scripted"))
    query = await api.run(specs.script(*calls))
    events = await api.events(query["id"], "tool-invocation")
    return [
        e["result"] if e["state"] == "result" else (e["error"]["code"], e["error"]["message"])
        for e in events
        if e["state"] != "call"
    ]
