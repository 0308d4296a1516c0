"""What an action of a plan costs: its statements, commits and tasks, counted."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.postgres.engine.test_cost_of_a_run import counted_tasks, summary
from tests.support import specs
from tests.support.cluster import Cluster
from tests.support.endpoint import Endpoint, endpoint, output
from tests.support.graphs import did, executed, flowing, make, state, statuses, stored
from tests.support.world import World, world

ACTIONS = 6
NAMES = {
    "UPDATE queries SET lease_expires_at": "renew the lease",
    "SELECT 1 FROM queries": "lock the lease",
    "UPDATE queries SET progress_epoch": "record the first progress",
    "INSERT INTO documents": "create the document",
    "SELECT head, body, base": "lock the document",
    "WITH saved AS": "write to the document",
}
BRANCH = "QueryRun.branches.<locals>.branch"
CHAIN = [make(f"†state.n{n - 1}" if n else 0, f"†state.n{n}") for n in range(ACTIONS)]
WIDE = [make(n, f"†state.n{n}") for n in range(ACTIONS)]


def name(statement: str) -> str:
    """Return what a statement does."""
    return next((name for start, name in NAMES.items() if statement.startswith(start)), summary(statement))


@contextlib.asynccontextmanager
async def dispatching(site: Any, cluster: Cluster, **parts: Any) -> AsyncIterator[tuple[World, Endpoint]]:
    """A process, and an endpoint that carries out its actions."""
    async with (
        endpoint(output(did(1))) as at,
        world(site, cluster.operator_key, allow_hosts=["127.0.0.1"]) as plangate,
    ):
        transport = {"kind": "http", "url": at.url + "/act"}
        await plangate.api.register(flowing(actionDispatcher=transport, **parts))
        yield plangate, at


@pytest.mark.parametrize(("actions", "begun_at_once"), [(CHAIN, 1), (WIDE, 2)])
async def test_an_action_costs_one_transaction_of_eight_statements(
    site: Any, cluster: Cluster, actions: list[specs.Spec], begun_at_once: int
) -> None:
    """One transaction records the outcome of an action and the dispatch of the next."""
    async with dispatching(site, cluster, limits={"maxParallelActions": 2}) as (plangate, _):
        plan = await stored(plangate.api, *actions)
        plangate.faults.recorded = []
        with counted_tasks() as tasks:
            over = await executed(plangate.api, plan)
    assert over["status"] == "executed"
    transactions = begun_at_once + ACTIONS
    assert Counter(name(sql) for task, sql in plangate.faults.recorded if task == BRANCH) == {
        "BEGIN": transactions,
        "renew the lease": ACTIONS,  # before a dispatch
        "lock the lease": begun_at_once,  # nothing is left to dispatch
        "record the first progress": 1,
        "end_action": ACTIONS,
        "create the document": 1,
        "lock the document": ACTIONS + 1,
        "write to the document": ACTIONS,
        "dispatch_action": ACTIONS,
        "append_events": transactions,
        "COMMIT": transactions,
    }
    assert tasks.total() < 10, "an action must not start tasks"


@pytest.mark.parametrize("every_other", [False, True])
async def test_a_lost_commit_response_sends_each_action_once(
    site: Any, cluster: Cluster, every_other: bool
) -> None:
    """The outcome of an action and the dispatch of the next are durable, and the process learns that only later."""
    async with dispatching(site, cluster) as (plangate, at):
        plan = await stored(plangate.api, *CHAIN)
        plangate.faults.lose_commits("dispatch_action", times=ACTIONS, every_other=every_other)
        over = await executed(plangate.api, plan)
        assert over["status"] == "executed"
        assert await statuses(plangate.api, plan) == ["succeeded"] * ACTIONS
    assert [received.json["actions"][0]["index"] for received in at.received] == list(range(ACTIONS))


async def test_a_transaction_that_is_rolled_back_leaves_no_trace(site: Any, cluster: Cluster) -> None:
    """The value that the next action reads was prepared before it was durable."""
    async with dispatching(site, cluster) as (plangate, at):
        plan = await stored(plangate.api, *CHAIN)
        for failed in range(1, 2 * ACTIONS - 1, 2):  # each attempt to dispatch an action after the first
            plangate.faults.fail("dispatch_action", skip=failed)
        over = await executed(plangate.api, plan)
        assert over["status"] == "executed"
        assert await state(plangate.api, plan) == {f"n{n}": 1 for n in range(ACTIONS)}
    assert [received.json["actions"][0]["payload"] for received in at.received] == [
        {"value": min(n, 1)} for n in range(ACTIONS)
    ]
