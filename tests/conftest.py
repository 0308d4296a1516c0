"""Fixtures of tests that need a database. Nothing starts before a test requests it."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Generator

import asyncpg
import pytest
import pytest_asyncio
from hypothesis import settings

from app.assembly import FeatureLimits, Services
from app.deployment import Deployment
from tests.support.client import Caller
from tests.support.cluster import Cluster, superuser_dsn
from tests.support.open_sockets import OpenSocketCheck
from tests.support.order import order_tests
from tests.support.reports import pytest_report_to_serializable  # noqa: F401 - a hook
from tests.support.world import World, world

# No property has a deadline: the time of an example says how busy the machine is. `make test-long` runs properties again,
# with more examples.
settings.register_profile("many-examples", deadline=None, max_examples=200)
settings.register_profile("few-examples", deadline=None, max_examples=25)
settings.load_profile("few-examples")

OPEN_SOCKETS = pytest.StashKey[OpenSocketCheck]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--shuffle", metavar="SEED", help="run the tests in a random order that the seed chooses"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Install the check for sockets that a test leaves open."""
    config.stash[OPEN_SOCKETS] = check = OpenSocketCheck()
    config.pluginmanager.register(check)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect with the garbage collector off, exempt the collected tests from it, which live to the end, and let it run
    less often than by default. This saves each process that runs tests several seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000)
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the slow tests first, and skip those that need root for everybody else."""
    order_tests(items, config.getoption("--shuffle"))
    if os.geteuid() == 0:
        return
    for item in items:
        marker = item.get_closest_marker("root")
        if marker is not None and marker.kwargs.get("required", True):
            item.add_marker(pytest.mark.skip(reason="needs root"))


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
async def site(cluster: Cluster) -> AsyncIterator[Deployment]:
    """A database of the test's own: migrated, with the tenants `acme` and `other` and the operator's key."""
    made = await cluster.create()
    yield made
    await cluster.drop(made)


@pytest.fixture
def limits(request: pytest.FixtureRequest) -> FeatureLimits:
    """The limits of features: those of `@pytest.mark.limits(feature=...)` in place of the defaults."""
    marker = request.node.get_closest_marker("limits")
    return FeatureLimits() if marker is None else FeatureLimits(**marker.kwargs)


@pytest_asyncio.fixture
async def plangate(cluster: Cluster, site: Deployment, limits: FeatureLimits) -> AsyncIterator[World]:
    """A running process with API and worker."""
    async with world(site, cluster.operator_key, limits=limits) as running:
        yield running


@pytest_asyncio.fixture
async def second(
    cluster: Cluster, site: Deployment, plangate: World, limits: FeatureLimits
) -> AsyncIterator[World]:
    """Another process on the same database."""
    async with world(site, cluster.operator_key, limits=limits) as running:
        yield running


@pytest_asyncio.fixture
async def idle(cluster: Cluster, site: Deployment, limits: FeatureLimits) -> AsyncIterator[World]:
    """A process that accepts queries and works on none."""
    async with world(site, cluster.operator_key, with_worker=False, limits=limits) as running:
        yield running


@pytest.fixture
def services(plangate: World) -> Services:
    return plangate.services


@pytest.fixture
def api(plangate: World) -> Caller:
    """The operator's key at work for the tenant `acme`."""
    return plangate.api


@pytest_asyncio.fixture
async def owner(site: Deployment) -> AsyncIterator[asyncpg.Connection]:
    """The superuser of the cluster: sees and changes everything, for arranging and checking."""
    connection = await asyncpg.connect(superuser_dsn(site))
    yield connection
    await connection.close()
