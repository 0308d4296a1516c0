"""Schemas are compiled before the transaction that needs them: a large one takes seconds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import pytest

from app.base.postgres.database import Database, Tx
from app.base.schema import checker
from tests.postgres.plans.test_plan_graphs_of_agents import asked, heard
from tests.support import specs
from tests.support.client import Caller, good, refused
from tests.support.graphs import FLOW, executed, flowing, hands, make

is_open: ContextVar[bool] = ContextVar("is_open", default=False)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, bool]]:
    """Each schema that is compiled, and whether the task that needs it has a transaction open meanwhile."""
    found: list[tuple[Any, bool]] = []
    begin, build = Database.transaction, checker._compiled

    @asynccontextmanager
    async def transaction(self: Database, *args: Any, **options: Any) -> AsyncIterator[Tx]:
        async with begin(self, *args, **options) as tx:
            is_open.set(True)
            try:
                yield tx
            finally:
                is_open.set(False)

    def compile_schema(schema: Any, *args: Any, **options: Any) -> checker.CompiledSchema:
        found.append((schema, is_open.get()))
        return build(schema, *args, **options)

    monkeypatch.setattr(Database, "transaction", transaction)
    monkeypatch.setattr(checker, "_compiled", compile_schema)
    return found


STATE = {"type": "object", "properties": {"made": {"type": "integer"}}}


def of_plans(compiled: list[tuple[Any, bool]]) -> list[bool]:
    return [held for schema, held in compiled if "actions" in schema.get("properties", {})]


async def test_a_host_stores_and_executes_a_plan(api: Caller, compiled: list[tuple[Any, bool]]) -> None:
    await api.register(flowing(stateSchema=STATE))
    body = {"specName": "Flow", "body": {"actions": [make(5, "†state.made"), make("†state.made")]}}
    plan = good(await api.post("/plans", body))
    async with hands(api):
        assert (await executed(api, plan))["status"] == "executed"
    assert of_plans(compiled) == [False] * 2  # plain, and with values that are still to come
    assert [held for schema, held in compiled if schema == STATE] == [False]


async def test_a_copy_of_a_plan_is_stored(
    plangate: Any, api: Caller, compiled: list[tuple[Any, bool]]
) -> None:
    await api.register(flowing())
    plan = good(await api.post("/plans", {"specName": "Flow", "body": {"actions": [make(5)]}}))
    async with hands(api):
        await executed(api, plan)
        plangate.services.plans.schemas._cache.clear()
        compiled.clear()
        assert (await executed(api, plan))["copiedFrom"] == plan["id"]
    assert of_plans(compiled) and not any(of_plans(compiled))


async def test_an_agent_stores_a_plan(api: Caller, compiled: list[tuple[Any, bool]]) -> None:
    await api.register(flowing())
    query = await asked(api, make("†state.a", "†state.b"))
    stored, _ = heard(await api.ended(query["id"]))
    assert "nothing provides" in stored["error"]
    assert of_plans(compiled) and not any(of_plans(compiled))


async def test_a_handler_writes_state(api: Caller, compiled: list[tuple[Any, bool]]) -> None:
    agent = specs.agent(tools=["look"], toolkits=["variables"])
    await api.register(specs.scripted(specs.tool("look"), agents=[agent], stateSchema=STATE))
    query = await api.submit(specs.script(("look", {"n": 1, "_outputPath": "†state.made && †state.again"})))
    await api.serve("look", 5)
    await api.ended(query["id"])
    assert [held for schema, held in compiled if schema == STATE] == [False]
    assert FLOW["schema"] not in [schema for schema, _ in compiled]


async def test_a_query_with_inputs_starts(api: Caller, compiled: list[tuple[Any, bool]]) -> None:
    schema = {"type": "object", "properties": {"seats": {"type": "integer"}}, "required": ["seats"]}
    await api.register(specs.scripted(specs.tool("look"), inputSchema=schema))
    body = {"prompt": specs.script(("look", {"n": 1})), "agent": "solo"}
    for thread in ({}, {"threadKey": "t"}):
        refused(await api.post("/queries", {**body, **thread, "inputs": {"seats": "two"}}), 422, "invalid")
        key = {"idempotency-key": f"k{len(thread)}"}
        first, again = [
            await api.post("/queries", {**body, **thread, "inputs": {"seats": 2}}, headers=key)
            for _ in range(2)
        ]
        assert good(first) == good(again)
    assert [held for found, held in compiled if found == schema] == [False]


async def test_a_person_edits_the_arguments_of_a_call(
    plangate: Any, api: Caller, compiled: list[tuple[Any, bool]]
) -> None:
    tool = specs.tool("look", approval="always")
    await api.register(specs.scripted(tool))
    for decide_many in (False, True):
        query = await api.submit(specs.script(("look", {"n": 1})))
        approval = await api.gate(query["id"])
        plangate.services.schemas._cache.clear()
        compiled.clear()
        decision = {"decision": "approve", "digest": approval["digest"], "args": {"n": "many"}}
        for args, status in (({"n": "many"}, 422), ({"n": 2}, 200)):
            decision = {**decision, "args": args}
            answer = await (
                api.post("/approvals", {"decisions": [{"id": approval["id"], **decision}]})
                if decide_many
                else api.post(f"/approvals/{approval['id']}", decision)
            )
            assert answer.status_code == status
        assert [held for schema, held in compiled if schema == tool["inputSchema"]] == [False]
