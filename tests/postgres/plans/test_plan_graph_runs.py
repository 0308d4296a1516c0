"""Executing graphs: limits in flight, takeover by another process, unknown outcomes, early ends."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import Any

import pytest

from app.plans.executor import PlanExecution
from tests.postgres.variables.test_state import Pen, thread
from tests.support.client import Caller, eventually, good, refused
from tests.support.graphs import (
    begun,
    count,
    did,
    executed,
    flowing,
    hands,
    index,
    is_done,
    make,
    note,
    running,
    state,
    statuses,
    stored,
    subject,
    taken,
)
from tests.support.world import World, world

EXPIRE = "UPDATE queries SET lease_expires_at = now() - interval '1 s' WHERE status = 'running'"


# -- at the same time


@pytest.mark.parametrize(("runtime_limits", "most"), [({"maxParallelActions": 3}, 3), ({}, 8)])
async def test_the_number_of_actions_in_flight_is_limited(
    api: Caller, runtime_limits: dict[str, int], most: int
) -> None:
    await api.register(flowing(limits=runtime_limits))
    plan = await stored(api, *(make(n, f"†state.n{n}") for n in range(10)))
    query = await running(api, plan)
    outside: dict[int, dict[str, Any]] = {}

    async def dispatched() -> list[int]:
        return [n for n, status in enumerate(await statuses(api, plan)) if status == "dispatched"]

    async def refilled(done: int, count: int) -> bool:
        return await is_done(api, plan, done) and len(await dispatched()) >= count

    for left in range(10, 0, -1):
        outside |= {index(call): call for call in await taken(api)}
        assert len(outside) == min(most, left)
        assert await dispatched() == sorted(outside)
        done = max(outside)
        good(await api.result(outside.pop(done), did(done)))
        if left > 1:
            await eventually(partial(refilled, done, min(most, left - 1)), "the next action is sent")
    await api.ended(query)
    assert await statuses(api, plan) == ["succeeded"] * 10


async def test_three_requests_really_meet_at_an_http_dispatcher(site: Any, cluster: Any) -> None:
    """Each answer waits for three to be there."""
    inside, most, met = 0, 0, asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal inside, most, met
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1]) for line in head.lower().splitlines() if b"content-length" in line
        )
        await reader.readexactly(length)
        inside += 1
        most = max(most, inside)
        if inside == 3:
            met.set()
            met = asyncio.Event()
        else:
            await met.wait()
        inside -= 1
        body = b'{"output":{"entitiesAffected":1}}'
        writer.write(
            b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        async with world(site, cluster.operator_key, allow_hosts=["localhost"]) as process:
            url = f"http://localhost:{port}/act"
            await process.api.register(
                flowing(limits={"maxParallelActions": 3}, actionDispatcher={"kind": "http", "url": url})
            )
            plan = await stored(process.api, *(make(n, f"†state.n{n}") for n in range(12)))
            over = await executed(process.api, plan)
    finally:
        server.close()
        await server.wait_closed()
    assert over["status"] == "executed", over["result"]
    assert most == 3


async def test_with_a_limit_of_one_actions_run_in_plan_order(api: Caller) -> None:
    await api.register(flowing(limits={"maxParallelActions": 1}))
    plan = await stored(api, make("†state.c"), make(1, "†state.b"), make("†state.b", "†state.c"), make(2))
    async with hands(api) as mine:
        await executed(api, plan)
    assert mine.order == [1, 2, 0, 3]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 6))])
async def test_random_graphs_end_as_a_reference_model_predicts(api: Caller, seed: int) -> None:
    """Against a plain reading of the rules: actions in their order, one after another."""
    draw = random.Random(seed)
    await api.register(flowing(limits={"maxParallelActions": draw.choice([1, 2, 8])}))
    actions, fails = [], set[int]()
    for n in range(24):
        earlier = [f"†state.p{m}" for m in range(n)] + [f"†state.e{m}" for m in range(n)]
        reads = draw.sample(earlier, min(len(earlier), draw.choice([0, 1, 2, 3])))
        text = draw.choice([" || ", " && "]).join(reads) if reads else n
        path = f"†state.p{n} || †state.e{n}" if draw.random() < 0.5 else f"†state.p{n} && †state.e{n}"
        actions.append(make(text, path))
        if draw.random() < 0.3:
            fails.add(n)
    there: dict[str, Any] = {}
    wanted, handled, payloads = list[str](), set[int](), dict[int, Any]()
    for n, action in enumerate(actions):
        text, paths = action["value"], action["_outputPath"].split(" ")
        value: Any = n
        if isinstance(text, str):
            reads = text.split(" ")[::2]
            given = [there[read] for read in reads if read in there]
            every = "||" not in text
            if len(given) < (len(reads) if every else 1):
                wanted.append("skipped")
                continue
            value = given[-1 if every else 0]
        payloads[n] = {"value": value}
        if n not in fails:
            wanted.append("succeeded")
            there |= dict.fromkeys(paths[::2] if "&&" in paths else paths[:1], value)
            continue
        wanted.append("failed")
        if "||" in paths:
            handled.add(n)
            there[paths[2]] = {"code": "dispatch_failed", "message": f"no {n}"}
    plan = await stored(api, *actions)

    def do(action: dict[str, Any]) -> Any:
        n = action["index"]
        return ValueError(f"no {n}") if n in fails else did(action["payload"]["value"])

    async with hands(api, do) as mine:
        over = await executed(api, plan)
    assert await statuses(api, plan) == wanted
    assert {n: mine.payload(n) for n in mine.order} == payloads
    assert len(mine.order) == len(payloads)
    assert await state(api, plan) == {path.removeprefix("†state."): value for path, value in there.items()}
    assert over["status"] == ("executed" if fails & set(payloads) <= handled else "failed")


@pytest.mark.long
async def test_a_thousand_actions(api: Caller) -> None:
    """Of which the first has no luck, and all but the last depend on it; the plan has no room for one more."""
    await api.register(flowing())
    actions = [
        make(0, "†state.n0"),
        *(make(f"†state.n{n - 1}", f"†state.n{n}") for n in range(1, 500)),
        *(make([f"†state.n{n}", "†state.n0"], "†state.all", "push") for n in range(498)),
        count("†state.all"),
        note("††state"),
    ]
    body = {"specName": "Flow", "runtime": "default", "body": {"actions": [*actions, make(1)]}}
    problem = refused(await api.post("/plans", body), 422)
    assert problem["errors"][0]["message"] == "a plan has 1000 actions at most; this has 1001: make several"
    plan = await stored(api, *actions)
    query = (await begun(api, plan))["id"]
    approval = await api.gate(query)
    shown = (await subject(api, approval))["variables"]
    assert [v["resultOf"] for v in shown][:499] == [[n] for n in range(499)]
    assert shown[499] == {"variable": "†state.all", "resultOf": list(range(500, 998))}

    def do(action: dict[str, Any]) -> Any:
        return did(None) if action["index"] else ValueError("no luck")

    async with hands(api, do) as mine:
        good(await api.decide(approval["id"]))

        async def is_over() -> Any:
            return (await api.read(f"/queries/{query}"))["endedAt"]

        await eventually(is_over, "the plan is over", patience_s=100)
    assert sorted(mine.order) == [0, 999]
    assert await statuses(api, plan) == ["failed", *["skipped"] * 998, "succeeded"]
    result = (await api.read(f"/plans/{plan['id']}"))["result"]
    assert result["summary"] == "1 of 1000 actions took effect."


# -- another process in the middle


async def test_another_process_continues_with_the_same_values(
    plangate: World, api: Caller, owner: Any, site: Any, cluster: Any
) -> None:
    """Nothing is sent twice, and what others wrote meanwhile is not read."""
    await api.register(flowing(limits={"maxParallelActions": 2}))
    pen = Pen(plangate, await thread(api, "t"))
    await pen.write("†state.rate", 3)
    await pen.write("†state.list", [0])
    plan = await stored(
        api,
        make("†state.rate", "†state.list", "push"),
        make(["†state.list", "†state.rate", "†input.n"], "†state.all"),
        note("†state.after || †input.text"),
        make(["†state.list", "†state.all", "††x"]),
        threadKey="t",
    )
    query = (await begun(api, plan, inputs={"n": 5, "text": "†state.x"}))["id"]
    await api.approve(query)
    await api.until(query, "waiting", "client_call")
    first, second = sorted(await taken(api), key=index)
    assert (index(first), index(second)) == (0, 2)
    good(await api.result(first, did(3)))
    await api.until(query, "waiting", "client_call")
    (third,) = await taken(api)
    assert third["actions"][0]["payload"] == {"value": [[0, 3], 3, 5]}
    await pen.write("†state.rate", 99)
    await pen.write("†state.list", ["gone"])
    for task in plangate.services.worker._tasks:  # a process that is gone renews no lease and takes no query
        task.cancel()
    async with world(site, cluster.operator_key, started=False) as other:
        await owner.execute(EXPIRE)
        await other.services.start()
        good(await other.api.result(second, did(None)))
        good(await other.api.result(third, did({"n": 1})))
        async with hands(other.api) as mine:
            await other.api.ended(query)
    assert mine.seen[0]["payload"] == {"value": [[0, 3], {"n": 1}, "†x"]}
    assert mine.order == [3]
    assert (await api.read(f"/plans/{plan['id']}"))["status"] == "executed"
    rows = (await api.read(f"/plans/{plan['id']}/actions"))["items"]
    assert [(row["status"], row["attempts"]) for row in rows] == [("succeeded", 1)] * 4
    assert await state(api, plan) == {"rate": 99, "list": ["gone"], "all": {"n": 1}}


async def test_actions_sent_before_a_crash_count_as_in_flight(
    plangate: World,
    api: Caller,
    owner: Any,
    site: Any,
    cluster: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process goes as it is about to send an action of which two became ready at once."""
    await api.register(flowing(limits={"maxParallelActions": 2}))
    plan = await stored(api, make("†state.a"), make("†state.a"), make(1, "†state.a"), make(2))
    died, carry = asyncio.Event(), PlanExecution._carry_out_batch
    query = await running(api, plan)
    calls = {index(call): call for call in await taken(api)}
    assert sorted(calls) == [2, 3]
    first = plangate.services.db

    async def stops(self: PlanExecution, execution_id: str, n: int, dispatched: Any) -> Any:
        if n == 0 and self._run.db is first:
            died.set()
            await asyncio.Event().wait()
        return await carry(self, execution_id, n, dispatched)

    monkeypatch.setattr(PlanExecution, "_carry_out_batch", stops)
    good(await api.result(calls[2], did(1)))
    await died.wait()
    for task in plangate.services.worker._tasks:
        task.cancel()
    async with world(site, cluster.operator_key, started=False) as other:
        await owner.execute(EXPIRE)
        await other.services.start()
        await other.api.until(query, "waiting", "client_call")
        assert await statuses(other.api, plan) == ["dispatched", "pending", "succeeded", "dispatched"]
        good(await other.api.result(calls[3], did(None)))
        async with hands(other.api):
            await other.api.ended(query)
    assert await statuses(api, plan) == ["succeeded"] * 4
