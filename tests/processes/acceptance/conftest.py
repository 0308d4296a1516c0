"""A slow model and a running service, one per module: creating a database is most of their cost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.processes.acceptance.house import HOUSES, House
from tests.processes.acceptance.model_server import SlowModel


@pytest.fixture(scope="module")
def model() -> Iterator[SlowModel]:
    slow = SlowModel().start()
    yield slow
    slow.close()


@pytest.fixture(scope="module")
def home(model: SlowModel) -> Iterator[House]:
    """With short leases, so that a killed process is missed soon."""
    made = House(lease_s=2, allow_hosts=f"127.0.0.1:{model.port}")
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(autouse=True)
def disconnected() -> Iterator[None]:
    """A house outlives a test, the connections of the test do not."""
    yield
    for house in HOUSES:
        house.disconnect()


@pytest.fixture
def house(home: House) -> Iterator[House]:
    """The module's house, with its service running."""
    if home.service is None or not home.service.alive:
        home.serve()
    yield home
    home.end_users()
