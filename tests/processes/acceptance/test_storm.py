"""Many concurrent queries while the service or its database connection is cut repeatedly."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.processes.acceptance import specs
from tests.processes.acceptance.house import House
from tests.processes.acceptance.stubborn import check, plan_and_approve

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

# Too long for three takeovers within the storm: a query that ends its process three times is set aside.
LEASE_S = 6


@pytest.fixture(scope="module")
def home() -> Iterator[House]:
    made = House(lease_s=LEASE_S)
    try:
        yield made
    finally:
        made.close()


def test_fifty_queries_while_the_service_is_killed_every_second(house: House) -> None:
    weather(house, 50, 10, kill)


def test_queries_while_connections_to_the_database_are_cut(house: House) -> None:
    """In the middle of a COMMIT too: nobody knows then whether it happened."""
    weather(house, 30, 5, cut)


def weather(
    house: House, queries: int, seconds: float, strike: Callable[[House, random.Random], None]
) -> None:
    """Clients that retry their POSTs under one Idempotency-Key, and follow, get every query to its end."""
    ledger = house.ledger()
    house.user(ledger, "actions", "actions.notify", "actions.call", "lookup", lease_ms=4000)
    runtimes = [house.register(specs.notices(graph=graph)) for graph in (False, True)]
    storm = threading.Thread(target=rage, args=(house, seconds, strike))
    storm.start()
    try:
        with ThreadPoolExecutor(queries) as clients:
            chosen = [runtimes[n % 2] for n in range(queries)]
            readers = list(clients.map(lambda runtime: plan_and_approve(house, runtime), chosen))
    finally:
        storm.join()
    house.until_ready()
    with ThreadPoolExecutor(8) as judges:
        list(judges.map(lambda reader: check(house, reader, ledger), readers))


def rage(house: House, seconds: float, strike: Callable[[House, random.Random], None]) -> None:
    dice = random.Random(7)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        strike(house, dice)


def kill(house: House, dice: random.Random) -> None:
    """kill -9 about once a second, at any moment, its start included."""
    time.sleep(dice.uniform(0.2, 0.8))
    house.kill_service()
    house.serve(wait=dice.random() < 0.7)


CUT = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
 WHERE application_name = 'plangate' AND state <> 'idle' AND random() < 0.3
"""


def cut(house: House, dice: random.Random) -> None:
    time.sleep(dice.uniform(0, 0.05))
    house.sql(CUT)
