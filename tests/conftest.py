"""Fixtures of everything that needs a database. Nothing starts before a test asks for it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Generator
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from app.assembly import Services, Site
from tests.support.client import Caller
from tests.support.cluster import Cluster, superuser_dsn
from tests.support.open_sockets import OpenSocketCheck
from tests.support.world import World, world

OPEN_SOCKETS = pytest.StashKey[OpenSocketCheck]()


def pytest_configure(config: pytest.Config) -> None:
    """Install the check for sockets that a test leaves open."""
    config.stash[OPEN_SOCKETS] = check = OpenSocketCheck()
    config.pluginmanager.register(check)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests that need root for everybody else."""
    if os.geteuid() == 0:
        return
    for item in items:
        marker = item.get_closest_marker("root")
        if marker is not None and marker.kwargs.get("required", True):
            item.add_marker(pytest.mark.skip(reason="needs root"))


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """Escape lone surrogates in a report, such as in a test's log. One of them would end the whole run: pytest-xdist
    sends reports as UTF-8."""
    return _encodable((yield))


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_encodable, value))
    return value


@pytest_asyncio.fixture(scope="session", loop_scope="session", autouse=True)
async def _open_sockets(pytestconfig: pytest.Config) -> AsyncIterator[None]:
    """Let the check wait in the loop of the tests, also at its end."""
    check = pytestconfig.stash[OPEN_SOCKETS]
    check.loop = asyncio.get_running_loop()
    yield
    await check.wait_until_closed()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def cluster() -> AsyncIterator[Cluster]:
    """The Postgres of the session."""
    running = Cluster()
    try:
        await running.prepare()
        yield running
        await running.aclose()
    finally:
        running.remove()


@pytest_asyncio.fixture
async def site(cluster: Cluster) -> AsyncIterator[Site]:
    """A database of the test's own: migrated, with the tenants `acme` and `other` and the operator's key."""
    made = await cluster.create()
    yield made
    await cluster.drop(made)


@pytest_asyncio.fixture
async def plangate(cluster: Cluster, site: Site) -> AsyncIterator[World]:
    """A running process with API and worker."""
    async with world(site, cluster.operator_key) as running:
        yield running


@pytest_asyncio.fixture
async def second(cluster: Cluster, site: Site, plangate: World) -> AsyncIterator[World]:
    """Another process on the same database."""
    async with world(site, cluster.operator_key) as running:
        yield running


@pytest_asyncio.fixture
async def idle(cluster: Cluster, site: Site) -> AsyncIterator[World]:
    """A process that accepts queries and works on none."""
    async with world(site, cluster.operator_key, with_worker=False) as running:
        yield running


@pytest.fixture
def services(plangate: World) -> Services:
    return plangate.services


@pytest.fixture
def api(plangate: World) -> Caller:
    """The operator's key at work for the tenant `acme`."""
    return plangate.api


@pytest_asyncio.fixture
async def owner(site: Site) -> AsyncIterator[asyncpg.Connection]:
    """The superuser of the cluster: sees and changes everything, for arranging and checking."""
    connection = await asyncpg.connect(superuser_dsn(site))
    yield connection
    await connection.close()
