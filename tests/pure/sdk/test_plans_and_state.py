"""Plans of a host and the state of threads: requests and early errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any, Literal

import plangate
import pytest
from plangate import define_plan, define_runtime, define_specialist
from pydantic import BaseModel

from tests.pure.sdk.fake_service import FakeService, fake_service


class Refund(BaseModel):
    kind: Literal["refund"] = "refund"
    amount: Decimal


class RefundBody(BaseModel):
    reason: str
    actions: list[Refund]


REFUNDS = define_plan("Refunds", RefundBody, variables=True)
SPEC = define_runtime("acme", [define_specialist("helper", "m-1", "You help.")], plans=[REFUNDS])
PLAN = {"id": "pln_1", "revision": 1, "status": "draft"}
WHOLE = [{"seq": n, "type": kind, "queryId": "qry_1"} for n, kind in enumerate(("query-status", "finish"), 1)]


@asynccontextmanager
async def opened() -> AsyncIterator[tuple[FakeService, plangate.Runtime]]:
    async with fake_service() as service, service.runtime(SPEC) as runtime:
        yield service, runtime


def answers(service: FakeService, method: str, path: str, answer: Any, status: int = 200) -> None:
    service.answers[(method, path)] = lambda body: (status, answer)


# Plans.


async def test_a_plan_is_stored_over_http() -> None:
    async with opened() as (service, runtime):
        answers(service, "POST", "/plans", PLAN, 201)
        flow = {
            "reason": "late",
            "actions": [{"kind": "refund", "amount": "†input.amount", "_outputPath": "†state.paid"}],
        }
        assert await runtime.store_plan("Refunds", flow) == PLAN
        await runtime.store_plan(REFUNDS, flow, "customer-17", plan_id="first")
        await runtime.store_plan(REFUNDS, flow, "thr_1")
        await runtime.store_plan(
            REFUNDS, RefundBody(reason="late", actions=[Refund(amount=Decimal("1.50"))]), "t"
        )
        first, second, third, fourth = service.bodies("POST", "/plans")
        assert first == {"runtimeId": "rt_1", "specName": "Refunds", "body": flow}
        assert second == {**first, "threadKey": "customer-17", "planId": "first"}
        assert third == {**first, "threadId": "thr_1"}
        assert fourth["body"] == {"reason": "late", "actions": [{"kind": "refund", "amount": "1.50"}]}


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (
            lambda r: r.store_plan("Refund", {}),
            ValueError,
            "the spec has no plan 'Refund'; did you mean 'Refunds'?",
        ),
        (
            lambda r: r.store_plan(b"Refunds", {}),
            TypeError,
            "a plan is of what define_plan returns, or of its name, not a bytes",
        ),
        (lambda r: r.store_plan(REFUNDS, {}, ""), ValueError, "thread_id is a string of 1 to 200 characters"),
        (
            lambda r: r.thread_state(None),
            ValueError,
            "thread_id is missing: it is a string of yours, or an id such as 'thr_...'",
        ),
        (
            lambda r: r.fork_thread("x" * 201),
            ValueError,
            "thread_id is a string of 1 to 200 characters",
        ),
        (
            lambda r: r.delete_thread(None),
            ValueError,
            "thread_id is missing: it is a string of yours, or an id such as 'thr_...'",
        ),
        (
            lambda r: r.plan_graph(None),
            ValueError,
            "None is not an id such as 'qry_...'",
        ),
    ],
)
async def test_invalid_arguments_are_rejected_before_sending(
    ask: Any, error: type[Exception], message: str
) -> None:
    async with opened() as (service, runtime):
        sent = len(service.asked)
        with pytest.raises(error) as refused:
            await ask(runtime)
        assert str(refused.value) == message
        assert len(service.asked) == sent


async def test_a_plan_is_executed_as_a_query_is_started() -> None:
    where = ("POST", "/plans/pln_1/execute")
    async with opened() as (service, runtime):
        answers(service, *where, {"id": "qry_1", "threadId": "thr_1", "planId": "pln_2"}, 202)
        for given in ((), ({"amount": 5},), (None, "customer-17"), ({}, "thr_2")):
            service.streams[("GET", "/queries/qry_1/stream")] = [WHOLE[:1], WHOLE]
            found = [event["seq"] async for event in runtime.execute_plan("pln_1", *given)]
            assert found == [1, 2]
        assert service.bodies(*where) == [
            {},
            {"inputs": {"amount": 5}},
            {"threadKey": "customer-17"},
            {"inputs": {}, "threadId": "thr_2"},
        ]
        assert len({headers["idempotency-key"] for headers in service.headers(*where)}) == 4


async def test_execution_starts_with_the_first_event_read() -> None:
    async with opened() as (service, runtime):
        runtime.execute_plan("pln_1")
        for given, error, message in (
            (("pln_1", [1]), TypeError, "inputs is a mapping of names to values, not a list"),
            (("",), ValueError, "'' is not an id such as 'qry_...'"),
            (("pln_1", None, 7), ValueError, "thread_id is a string of 1 to 200 characters"),
        ):
            with pytest.raises(error) as refused:
                runtime.execute_plan(*given)
            assert str(refused.value) == message
        assert service.bodies("POST", "/plans/pln_1/execute") == []


async def test_an_unexecutable_plan_is_reported_on_iteration() -> None:
    async with opened() as (service, runtime):
        problem = {"type": "plan_rejected", "detail": "Revision 1 was answered with 'reject'."}
        answers(service, "POST", "/plans/pln_1/execute", problem, 409)
        with pytest.raises(plangate.Conflict, match="Revision 1 was answered"):
            await anext(runtime.execute_plan("pln_1"))


async def test_a_plan_is_drawn() -> None:
    where = ("GET", "/plans/pln_1/graph")
    async with opened() as (service, runtime):
        graph = {"nodes": [], "edges": []}
        answers(service, *where, graph)
        assert await runtime.plan_graph("pln_1") == graph
        answers(service, "GET", "/plans/pln_1/graph.mmd", graph)
        with pytest.raises(plangate.PlangateError, match="does not answer as a Plangate service does"):
            await runtime.plan_mermaid("pln_1")
        chart = 'flowchart TD\n    n0["0 · make · succeeded"]:::succeeded\n'
        service.texts["GET", "/plans/pln_1/graph.mmd"] = (200, chart, {"content-type": "text/vnd.mermaid"})
        assert await runtime.plan_mermaid("pln_1") == chart


# Threads.


async def test_the_state_of_a_thread_by_key_and_by_id() -> None:
    state = {"threadId": "thr_1", "write": 2, "document": {"a": 1}}
    where = ("GET", "/threads/thr_1/state")
    async with opened() as (service, runtime):
        answers(service, "POST", "/threads", {"id": "thr_1"}, 201)
        answers(service, *where, state)
        assert await runtime.thread_state("customer-17") == state
        assert service.bodies("POST", "/threads") == [{"threadKey": "customer-17"}]
        await runtime.thread_state("thr_1", at=0)
        assert len(service.bodies("POST", "/threads")) == 1
        searched = [s for a, s in zip(service.asked, service.searched, strict=True) if a[:2] == where]
        assert searched == [{}, {"at": "0"}]


async def test_the_log_follows_all_pages() -> None:
    async with opened() as (service, runtime):
        pages = [
            {"items": [{"write": 3}, {"write": 2}], "nextCursor": "c"},
            {"items": [{"write": 1}], "nextCursor": None},
        ]
        service.answers[("GET", "/threads/thr_1/state/log")] = lambda body: (200, pages.pop(0))
        assert [one["write"] for one in await runtime.thread_state_log("thr_1")] == [3, 2, 1]
        assert service.searched[-2:] == [{"limit": "50"}, {"limit": "48", "cursor": "c"}]


async def test_a_thread_is_forked_and_its_copy_queried() -> None:
    where = ("POST", "/threads/thr_1/fork")
    async with opened() as (service, runtime):
        answers(service, *where, {"id": "thr_2", "key": None}, 201)
        copy = await runtime.fork_thread("thr_1")
        await runtime.fork_thread("thr_1", at=3)
        assert service.bodies(*where) == [{}, {"at": 3}]
        service.streams[("POST", "/queries/stream")] = [WHOLE]
        assert [event["seq"] async for event in runtime.query("Hi", copy["id"])] == [1, 2]
        (asked,) = service.bodies("POST", "/queries/stream")
        assert asked == {"runtimeId": "rt_1", "prompt": "Hi", "threadId": "thr_2"}


async def test_a_thread_is_deleted_by_id_and_by_key() -> None:
    async with opened() as (service, runtime):
        answers(service, "POST", "/threads", {"id": "thr_1"}, 200)
        answers(service, "DELETE", "/threads/thr_1", {"id": "thr_1", "deleted": True})
        await runtime.delete_thread("customer-17")
        await runtime.delete_thread("thr_1")
        sent = [a[:2] for a in service.asked if "/threads" in a[1]]
        assert sent == [("POST", "/threads"), *[("DELETE", "/threads/thr_1")] * 2]


async def test_values_for_variables() -> None:
    async with opened() as (service, runtime):
        for events in (
            runtime.query("Hi", "t", {"n": 1}, data={"prices": [1, 2]}),
            runtime.run_specialist("helper", "Hi", inputs={"n": 1}, data={"prices": [1, 2]}),
        ):
            service.streams[("POST", "/queries/stream")] = [WHOLE]
            assert [event["seq"] async for event in events] == [1, 2]
        for asked in service.bodies("POST", "/queries/stream"):
            assert (asked["inputs"], asked["data"]) == ({"n": 1}, {"prices": [1, 2]})
        with pytest.raises(TypeError, match=r"^data is a mapping of names to values, not a list$"):
            runtime.query("Hi", "t", data=[1])  # type: ignore[arg-type]
