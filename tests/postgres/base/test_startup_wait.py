"""A process that starts before its database waits for it, unless waiting cannot help."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from app.api.database_startup import wait_for_database
from app.base.errors import Unavailable
from app.base.postgres.database import open_database
from app.deployment import Deployment
from tests.support.cluster import Cluster
from tests.support.service import ROOT, plain_environment

SSL_REQUEST = struct.pack(">ii", 8, 80877103)
RECOVERING = ("57P03", "the database system is starting up")
NO_DATABASE = ("3D000", 'database "plangate" does not exist')
WRONG_PASSWORD = ("28P01", 'password authentication failed for user "plangate"')


class Front:
    """A port in front of a Postgres. `refusal` is the error that it answers with; without one it passes bytes on."""

    def __init__(self, socket_path: str, port: int = 0) -> None:
        self._socket_path = socket_path
        self.port = port
        self.refusal: tuple[str, str] | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        try:
            yield
        finally:
            server.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self.refusal is None:
                await self._pass_on(reader, writer)
            else:
                await self._refuse(reader, writer, *self.refusal)
        except OSError:
            pass  # the process under test is gone
        finally:
            writer.close()

    async def _refuse(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, code: str, text: str
    ) -> None:
        while True:
            (length,) = struct.unpack(">i", await reader.readexactly(4))
            if await reader.readexactly(length - 4) != SSL_REQUEST[4:]:
                break
            writer.write(b"N")
        fields = f"SFATAL\0VFATAL\0C{code}\0M{text}\0\0".encode()
        writer.write(b"E" + struct.pack(">i", len(fields) + 4) + fields)
        await writer.drain()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind, to_behind = await asyncio.open_unix_connection(self._socket_path)
        try:
            await asyncio.gather(copy(reader, to_behind), copy(behind, writer))
        finally:
            to_behind.close()


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


@pytest.fixture
def front(cluster: Cluster) -> Iterator[Front]:
    postgres = cluster.postgres
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    yield Front(f"{postgres.socket_dir}/.s.PGSQL.{postgres.port}", port)


def address(site: Deployment, front: Front) -> str:
    """The database of a test, through the front."""
    login, rest = site.dsn.removeprefix("postgresql://").split("@/")
    return f"postgresql://{login}@127.0.0.1:{front.port}/{rest.split('?')[0]}"


@asynccontextmanager
async def migrating(url: str, **settings: str) -> AsyncIterator[asyncio.subprocess.Process]:
    more = {"DATABASE_URL": url, "PLANGATE_SECRET_KEY": "s" * 40, **settings}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "app", "migrate"),
        cwd=ROOT,
        env={**plain_environment(), **more},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(60):
        return (await process.stdout.readline()).decode().rstrip("\n")


async def test_startup_waits_for_refused_connections_and_recovery(site: Deployment, front: Front) -> None:
    async with migrating(address(site, front)) as process:
        told = await line(process)
        assert told.startswith("Waiting up to 60 s for the database of DATABASE_URL: ")
        assert "Connect call failed" in told
        front.refusal = RECOVERING
        async with front.open():
            assert await line(process) == (
                "Waiting up to 60 s for the database of DATABASE_URL: the database system is starting up"
            )
            front.refusal = None
            assert await line(process) == "The schema is up to date."
            assert await process.wait() == 0


@pytest.mark.parametrize("refusal", [NO_DATABASE, WRONG_PASSWORD], ids=["database", "password"])
async def test_startup_does_not_wait_for_a_wrong_password_or_database(
    site: Deployment, front: Front, refusal: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    front.refusal = refusal
    async with front.open():
        with pytest.raises(SystemExit) as ended:
            await wait_for_database(address(site, front), "DATABASE_URL", 60)
    assert str(ended.value) == (
        f"plangate: the database of DATABASE_URL rejected this process: {refusal[1]}."
    )
    assert capsys.readouterr().out == "", "it does not say that it waits"


async def test_a_database_that_starts_again_is_unavailable_to_a_running_process(
    site: Deployment, front: Front
) -> None:
    """Not a defect that the log shows with a trace: a client gets a 503 and tries again."""
    database = open_database(address(site, front))
    async with front.open():
        front.refusal = RECOVERING
        with pytest.raises(Unavailable):
            await database.ping()
        front.refusal = None
        await database.ping()
        await database.aclose()


async def test_startup_gives_up_after_its_wait(
    site: Deployment, front: Front, capsys: pytest.CaptureFixture[str]
) -> None:
    front.refusal = RECOVERING
    async with front.open():
        with pytest.raises(SystemExit) as ended:
            await wait_for_database(address(site, front), "DATABASE_URL", 0.1)
    assert str(ended.value) == (
        "plangate: the database of DATABASE_URL cannot be used: the database system is starting up. "
        "Plangate waited 0.1 s for it."
    )
    assert capsys.readouterr().out.startswith("Waiting up to 0.1 s")


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("the database system is starting up", True),
        ("server login has been failing, try again later (server_login_retry)", True),
        ("no such database: plangate", False),
        ("SASL authentication failed", False),
    ],
)
async def test_errors_of_a_pooler_are_distinguished(
    site: Deployment, front: Front, text: str, passes: bool
) -> None:
    front.refusal = ("08P01", text)
    found = r"cannot be used: " if passes else r"rejected this process: "
    async with front.open():
        with pytest.raises(SystemExit, match=found):
            await wait_for_database(address(site, front), "DATABASE_URL", 0)


async def test_migrate_needs_the_owner_of_the_schema_alone(site: Deployment, front: Front) -> None:
    """The login of DATABASE_URL is created after the first migration."""
    async with migrating(address(site, front), PLANGATE_MIGRATE_URL=site.dsn) as process:
        assert await line(process) == "The schema is up to date."
        assert await process.wait() == 0


async def test_an_available_database_is_used_at_once(site: Deployment) -> None:
    await wait_for_database(site.dsn, "DATABASE_URL", 0)
    with pytest.raises(SystemExit, match=r'database "not_test_\d+" does not exist'):
        await wait_for_database(site.dsn.replace("@/", "@/not_"), "DATABASE_URL", 60)
