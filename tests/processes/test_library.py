"""The Python library against a real service: queries, approvals, local handlers, kills, and errors."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import httpx
import plangate
import pytest
from plangate import define_runtime, define_specialist, define_tool
from plangate.api.calls import Api
from plangate.client import ServiceClient
from plangate.context import ReferenceCalls
from plangate.handler_calls import error_text
from plangate.handlers import LocalHandler, local_handlers
from plangate.journal import Journal
from plangate.local_calls import LocalCalls
from pydantic import BaseModel

from tests.support.forked import Forked
from tests.support.service import copy_data_directory

REPOSITORY = Path(__file__).resolve().parents[2]
START_S, PATIENCE_S = 60.0, 20.0
Event = dict[str, Any]


class Server:
    """`plangate serve` as an operator runs it; killed and started again on its port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = self.key = ""
        self._port = 0
        self._process: Forked | None = None

    def start(self) -> None:
        copy_data_directory(self.folder / "data", {})
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PLANGATE_")}
        command = ["serve", "--port", str(self._port), "--data-dir", str(self.folder / "data")]
        printed, prints = os.pipe()
        with (self.folder / "log").open("a") as log:
            self._process = Forked("app", command, env=environment, stdout=prints, stderr=log.fileno())
        os.close(prints)
        self._printed = open(printed)  # noqa: SIM115 - open as long as the process may print
        listens, key_in = (self._printed.readline().strip() for _ in range(2))
        assert listens, (self.folder / "log").read_text()[-2000:]
        self.url = listens.rsplit(" ", 1)[1]
        self.key = Path(key_in.rsplit(" ", 1)[1]).read_text().strip()
        self._port = int(self.url.rsplit(":", 1)[1])

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            process.wait(START_S)
            self._printed.close()

    def runtime(self, spec: Any, **parts: Any) -> plangate.Runtime:
        return plangate.create_runtime(spec, url=self.url, api_key=self.key, **parts)

    def client(self, tenant: str, transport: httpx.AsyncBaseTransport | None = None) -> ServiceClient:
        return ServiceClient(self.url, self.key, tenant, transport=transport)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="plangate-test-", dir="/tmp"))
    made.chmod(0o711)  # Postgres runs as another user when the tests run as root
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    running = Server(folder)
    try:
        running.start()
        yield running
    finally:
        running.stop()


# Specs.


class Refund(BaseModel):
    kind: Literal["refund"]
    order: str
    amount: Decimal


class Note(BaseModel):
    kind: Literal["note"]
    text: str


AnyAction = plangate.TaggedUnion(Refund, Note)


class RefundPlan(BaseModel):
    actions: list[AnyAction]  # type: ignore[valid-type]
    reason: str = ""


Refunds = plangate.define_plan("Refunds", RefundPlan)
Orders = plangate.define_reference("Orders", {"orders": list[str]}, glimpse={"count": "length(orders)"})


def call(tool: str, **args: Any) -> dict[str, Any]:
    return {"tool": tool, "args": args}


def script(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"script": list(calls)}


def solo(tenant: str, *tools: plangate.DefinedTool, **parts: Any) -> plangate.DefinedRuntime:
    """One agent with tools that its prompt calls."""
    agent = define_specialist("solo", "m-1", "You help.", tools=list(tools))
    return define_runtime(tenant, [agent], interpreter="scripted", **parts)


def desk(tenant: str, *tools: plangate.DefinedTool, **parts: Any) -> plangate.DefinedRuntime:
    """A coordinator, a planner with tools and an executor."""
    planner = plangate.define_planner(
        "planner", "m-1", "You plan.", plan=Refunds, tools=list(tools), references=[Orders]
    )
    executor = plangate.define_executor("executor", "m-1", "You execute.", plan=Refunds)
    front = plangate.define_coordinator("front", "m-1", "You route.", routes=[planner, executor])
    return define_runtime(tenant, [front, planner, executor], interpreter="scripted", **parts)


def delegated(*planning: dict[str, Any]) -> dict[str, Any]:
    """The coordinator's script: the planner does this, the executor executes plan p1."""
    return script(
        call("call_agent", agent="planner", prompt=json.dumps(script(*planning))),
        call("call_agent", agent="executor", prompt=script(call("executePlan", planId="p1"))),
    )


def stored(*actions: dict[str, Any]) -> dict[str, Any]:
    return call("storePlan", specName="Refunds", planId="p1", body={"actions": list(actions)})


async def all_of(events: AsyncIterator[Event]) -> list[Event]:
    async with asyncio.timeout(PATIENCE_S):
        return [event async for event in events]


async def approving(runtime: plangate.Runtime, events: AsyncIterator[Event]) -> list[Event]:
    seen = []
    async with asyncio.timeout(PATIENCE_S):
        async for event in events:
            seen.append(event)
            if event["type"] == "approval-required":
                approval = event["data"]
                await runtime.respond_to_approval(approval["id"], "approve", digest=approval["digest"])
    return seen


def of(events: list[Event], kind: str) -> list[Event]:
    return [event for event in events if event["type"] == kind]


def contiguous(events: list[Event]) -> bool:
    return [event["seq"] for event in events] == list(range(1, len(events) + 1))


def outcomes(events: list[Event], tool: str) -> list[Any]:
    """What the calls of a tool came to: results and the messages of errors."""
    ended = [e for e in of(events, "tool-invocation") if e["toolName"] == tool and e["state"] != "call"]
    return [e["result"] if e["state"] == "result" else e["error"]["message"] for e in ended]


async def until(holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        await asyncio.sleep(0.01)


# Queries.


async def test_a_mock_query_streams_its_journal(server: Server) -> None:
    heard: list[str] = []

    async def every(event: Event) -> None:
        heard.append(event["type"])

    def broken(event: Event) -> None:
        raise RuntimeError("a hook must not end the query")

    spec = define_runtime("mocked", [define_specialist("helper", "m-1", "You help.")])
    answer = {"mock_response": "Hello there."}
    async with server.runtime(spec, testing=answer, event_hooks={"*": every, "text": broken}) as runtime:
        events = await all_of(runtime.run_specialist("helper", "Hi", "thread-1"))
        assert contiguous(events)
        assert "".join(e["text"] for e in of(events, "text")) == "Hello there."
        assert events[-1]["type"] == "finish"
        assert events[-1]["output"] == "Hello there."
        assert heard == [e["type"] for e in events]

        query = await runtime.get_query(events[0]["queryId"], wait_ms=1)
        assert (query["status"], query["output"]) == ("succeeded", "Hello there.")
        assert {w["kind"] for w in await runtime.work(query["id"])} == {"query", "agent", "model_call"}

        again = await all_of(runtime.query(None, None, resume=query["id"]))
        rest = await all_of(runtime.query(None, None, resume=events[2]))
        assert again == events
        assert rest == events[3:]

        other = await all_of(runtime.run_specialist("helper", {"any": ["json"]}))
        assert other[0]["threadId"] != events[0]["threadId"]
        assert (await runtime.get_query(other[0]["queryId"]))["prompt"] == '{"any": ["json"]}'


async def test_registering_again_is_the_same_runtime(server: Server) -> None:
    spec = solo("registered")
    async with server.runtime(spec) as one:
        async with server.runtime(spec) as two:
            assert (two.id, two.version, two.url) == (one.id, 1, server.url)
        runtime = await server.runtime(one.spec)
        assert (runtime.id, runtime.spec) == (one.id, one.spec)
        await runtime.aclose()
        await runtime.aclose()
        with pytest.raises(plangate.PlangateError, match="not open"):
            await runtime.get_query("qry_1")


async def test_the_signing_secret_is_shown_once_to_the_program(server: Server) -> None:
    look = define_tool("look", {}, transport={"kind": "http", "url": "https://tools.example.com/look"})
    async with server.runtime(solo("signed", look)) as runtime:
        assert (runtime.signing_secret or "").startswith("whsec_")
    async with server.runtime(solo("signed", look)) as runtime:
        assert runtime.signing_secret is None
    async with server.runtime(solo("unsigned", define_tool("look", {}))) as runtime:
        assert runtime.signing_secret is None


async def test_a_plan_is_stored_approved_and_dispatched(server: Server) -> None:
    dispatched: list[tuple[Any, plangate.CallContext]] = []

    @define_tool("look_up", {"order": str})
    async def look_up(args: Any, ctx: plangate.CallContext) -> Any:
        ctx.progress("looking", 1, 2)
        ctx.emit("order-read", {"lines": 2})
        await ctx.progress("found", milestone="order")
        handle = await ctx.references.create(Orders, {"orders": [args["order"], "o-2"]})
        assert await ctx.references.glimpse("Orders", handle["id"]) == {"count": 2}
        return handle

    @define_tool("price", {"order": str})
    def price(args: Any, ctx: plangate.CallContext) -> Any:
        ctx.progress("counting")
        kept = ctx.references.create("Orders", {"orders": [args["order"]]})
        value = ctx.references.resolve("Orders", kept["id"])
        assert ctx.prices is ctx["prices"] is ctx["services"]["prices"]
        return {"price": ctx.prices[value["orders"][0]], "call": ctx.work_id, "agent": ctx["agent"]}

    def dispatch(actions: Any, ctx: plangate.CallContext) -> Any:
        dispatched.append((actions, ctx))
        return {"entitiesAffected": len(actions), "summary": "Refunded.", "details": Decimal("9.90")}

    prompt = delegated(
        call("look_up", order="o-1"),
        call("price", order="o-1"),
        stored(
            {
                "kind": "refund",
                "order": "o-1",
                "amount": {"$result": "[1].price"},
                "references": [{"kind": "Orders", "id": {"$result": "[0].id"}}],
            },
            {"kind": "note", "text": "sorry"},
        ),
    )
    spec = desk("planned", look_up, price)
    services = {"prices": {"o-1": Decimal("9.90")}}
    async with server.runtime(spec, services=services, action_dispatcher=dispatch) as runtime:
        assert runtime.spec["actionDispatcher"] == {"kind": "client"}
        events = await approving(runtime, runtime.query(prompt, "desk-1"))
        assert contiguous(events)
        assert events[-1]["type"] == "finish"
        assert [e["label"] for e in of(events, "tool-progress")] == ["looking", "found", "counting"]
        assert [(e["eventType"], e["data"]) for e in of(events, "custom")] == [("order-read", {"lines": 2})]
        (priced,) = outcomes(events, "price")
        assert (priced["price"], priced["agent"]) == ("9.90", "planner")
        assert priced["call"].startswith("wrk_")

        ((actions, ctx),) = dispatched
        assert [a["kind"] for a in actions] == ["refund", "note"]
        assert actions[0]["payload"] == {"order": "o-1", "amount": "9.90"}
        (handle,) = actions[0]["references"]
        assert ctx["resolved_refs"] == {"Orders": {handle["id"]: {"orders": ["o-1", "o-2"]}}}
        assert (ctx.attempt, ctx["revision"], len(ctx.idempotency_key)) == (1, 1, 40)

        plan = await runtime.get_plan(ctx.plan_id)
        assert (plan["status"], plan["digest"]) == ("executed", ctx.digest)
        rows = await runtime.plan_actions(ctx.plan_id)
        assert [row["status"] for row in rows] == ["succeeded", "succeeded"]
        assert rows[0]["result"]["details"] == "9.90"
        assert await runtime.resolve_reference("Orders", handle["id"]) == {"orders": ["o-1", "o-2"]}
        assert await runtime.reference_glimpse("Orders", handle["id"]) == {"count": 2}
        made = await runtime.create_reference(Orders, {"orders": ["o-1", "o-2"]})
        assert made == {"kind": "Orders", "id": handle["id"], "glimpse": {"count": 2}}

        (approval,) = of(events, "approval-required")
        with pytest.raises(plangate.Conflict):
            await runtime.respond_to_approval(approval["data"]["id"], "reject", "no")


async def test_actions_reach_the_dispatcher_of_their_kind(server: Server) -> None:
    done: list[Any] = []

    @define_tool("write_note", {"text": str})
    async def write_note(args: Any, ctx: plangate.CallContext) -> None:
        done.append(("note", args["text"], ctx.attempt))

    def refund(actions: Any, ctx: plangate.CallContext) -> Any:
        done.append(("refund", [a["payload"]["order"] for a in actions], ctx.attempt))
        raise RuntimeError("the bank is closed")

    spec = desk(
        "kinds", tools=[write_note], action_dispatchers={"note": {"kind": "tool", "tool": "write_note"}}
    )
    actions = ({"kind": "refund", "order": "o-1", "amount": "1"}, {"kind": "note", "text": "hi"})
    dispatcher = plangate.ActionDispatcher(refund, replay="safe")
    async with server.runtime(spec, action_dispatcher=dispatcher) as runtime:
        assert runtime.spec["actionDispatcher"] == {"kind": "client", "replay": "safe"}
        events = await approving(runtime, runtime.query(delegated(stored(*actions)), "kinds-1"))
        assert sorted(done) == [("note", "hi", 1), ("refund", ["o-1"], 1)]
        plan_id = of(events, "approval-required")[0]["data"]["target"]
        rows = await runtime.plan_actions(plan_id)
        assert [row["status"] for row in rows] == ["failed", "succeeded"]
        assert rows[0]["error"]["message"] == "RuntimeError: the bank is closed"


async def test_another_runtime_does_not_claim_its_actions(server: Server) -> None:
    def never(actions: Any, ctx: Any) -> None:
        raise AssertionError("actions of another runtime")

    note = {"kind": "note", "text": "hi"}
    written = desk("shared", name="mine", action_dispatcher={"kind": "client", "replay": "safe"})
    async with (
        server.runtime(desk("shared", name="other").wire, action_dispatcher=never),
        server.runtime(written, action_dispatcher=lambda actions, ctx: None) as mine,
    ):
        events = await approving(mine, mine.query(delegated(stored(note)), "shared-1"))
    assert outcomes(events, "executePlan")[0]["status"] == "executed"


async def test_cancelling_ends_the_stream(server: Server) -> None:
    async with server.runtime(desk("cancelled"), action_dispatcher=lambda actions, ctx: None) as runtime:
        seen = []
        async for event in runtime.query(delegated(stored({"kind": "note", "text": "hi"})), "c-1"):
            seen.append(event)
            if event["type"] == "approval-required":
                assert (await runtime.cancel(event["queryId"]))["status"] == "cancelled"
        assert contiguous(seen)
        assert (seen[-1]["type"], seen[-1]["error"]["code"]) == ("error", "cancelled")


# Predicates.


@pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])
async def test_a_local_predicate_decides_whether_approval_is_required(server: Server, sync: bool) -> None:
    """Also where it errs, or says anything but a bool: then somebody is asked."""
    seen: list[tuple[Any, Any]] = []

    def is_big(args: Any, ctx: Any) -> Any:
        seen.append((args["amount"], ctx))
        if args["amount"] < 0:
            raise ValueError("no such amount")
        return args["amount"] > 100 if args["amount"] else None

    async def awaited(args: Any, ctx: Any) -> Any:
        return is_big(args, ctx)

    pay = define_tool("pay", {"amount": int}, approval={"kind": "dynamic", "value": "is_big"})
    paid: list[int] = []
    tool = pay(lambda args, ctx: paid.append(args["amount"]))
    predicates = {"is_big": is_big if sync else awaited}
    amounts = (50, 500, 0, -1, 100)
    async with server.runtime(solo("predicates", tool), approval_predicates=predicates) as runtime:
        assert runtime.spec["approvalPredicates"] == {"is_big": {"kind": "client"}}
        prompt = script(*(call("pay", amount=amount) for amount in amounts))
        events = await approving(runtime, runtime.run_specialist("solo", prompt))
        assert events[-1]["type"] == "finish"
        gates = [e["data"]["glimpses"]["args"]["amount"] for e in of(events, "approval-required")]
        records = [w for w in await runtime.work(events[0]["queryId"]) if w["kind"] == "predicate"]
    assert paid == [amount for amount, _ in seen] == list(amounts)
    assert gates == [500, 0, -1]
    told = [record.get("error", {}).get("message") for record in records]
    assert told == [
        None,
        None,
        "The predicate 'is_big' did not answer: TypeError: the approval predicate 'is_big' must return a bool, True "
        "where an approval is required, not None.",
        "The predicate 'is_big' did not answer: ValueError: no such amount.",
        None,
    ]
    _, ctx = seen[0]
    assert (ctx["tool"], ctx["agent"], ctx["resourceId"]) == ("pay", "solo", "predicates")
    assert set(ctx) == {"tool", "agent", "threadId", "queryId", "resourceId", "spentUsd"}
    assert (ctx["threadId"], ctx["queryId"]) == (events[0]["threadId"], events[0]["queryId"])


# Outages.


@pytest.mark.long
async def test_a_killed_service_loses_and_repeats_nothing(server: Server) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    calls: list[int] = []

    @define_tool("count", {"n": int})
    async def count(args: Any, ctx: Any) -> int:
        calls.append(args["n"])
        if args["n"] == 3:
            begun.set()
            await go_on.wait()
        return int(args["n"] * 10)

    async def kill_and_restart() -> None:
        await begun.wait()
        await asyncio.to_thread(server.stop, signal.SIGKILL)
        go_on.set()  # the result finds nobody at first
        await asyncio.sleep(0.5)
        await asyncio.to_thread(server.start)

    prompt = script(*(call("count", n=n) for n in range(1, 6)))
    async with server.runtime(solo("killed", count)) as runtime:
        killing = asyncio.create_task(kill_and_restart())
        async with asyncio.timeout(45):
            events = [event async for event in runtime.run_specialist("solo", prompt, "k-1")]
        await killing
    assert contiguous(events)
    assert events[-1]["type"] == "finish"
    assert outcomes(events, "count") == [10, 20, 30, 40, 50]
    assert calls == [1, 2, 3, 4, 5]


CARELESS = """
import asyncio
from plangate import create_runtime, define_runtime, define_specialist, define_tool
tool = define_tool("act", {}, handler=lambda args, ctx: 1)
helper = define_specialist("helper", "m-1", "You help.", tools=[tool])
async def main():
    runtime = await create_runtime(define_runtime("careless", [helper], interpreter="scripted"))
    events = runtime.run_specialist("helper", {"tool": "act"})
    await anext(events)
    async for event in runtime.run_specialist("helper", {"tool": "act"}):
        break
    print("left")
asyncio.run(main())
"""


class Forgetful(httpx.AsyncBaseTransport):
    """Loses the answers to the first requests of a kind, after the service has done its work."""

    def __init__(self, method: str, path: str, times: int) -> None:
        self._inner = httpx.AsyncHTTPTransport()
        self._forgets = (method, path)
        self.left = times

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await self._inner.handle_async_request(request)
        if (request.method, request.url.path) == self._forgets and self.left:
            self.left -= 1
            await answer.aclose()
            raise httpx.ReadError("the answer was lost")
        return answer

    async def aclose(self) -> None:
        await self._inner.aclose()


async def test_a_lost_answer_starts_a_query_once(server: Server) -> None:
    spec = define_runtime("lost", [define_specialist("helper", "m-1", "You help.")], interpreter="noop")
    async with server.runtime(spec) as runtime:
        transport = Forgetful("POST", "/queries/stream", 2)
        client = server.client("lost", transport)
        body = {"runtimeId": runtime.id, "prompt": "Hi", "agent": "helper", "threadKey": "l-1"}
        events = await all_of(Journal(body).events(client))
        assert transport.left == 0
        assert contiguous(events)
        listed = await client.request("GET", "/queries", params={"runtimeId": runtime.id})
        assert [query["id"] for query in listed["items"]] == [events[0]["queryId"]]
        await client.aclose()


async def test_an_unreachable_service_is_reported(server: Server) -> None:
    client = ServiceClient("http://127.0.0.1:9", "key", "acme")
    with pytest.raises(plangate.ServiceUnavailable, match=r"127\.0\.0\.1:9 did not answer"):
        await client.request("GET", "/queries", patience_s=0.2)
    await client.aclose()
    with pytest.raises(plangate.ServiceUnavailable, match="closed"):
        await client.request("GET", "/queries")


async def test_a_loop_may_be_left(server: Server) -> None:
    """The reader ends with the iterator that nobody holds; the query goes on."""
    spec = define_runtime("left", [define_specialist("helper", "m-1", "You help.")], interpreter="noop")
    async with server.runtime(spec) as runtime:
        async for event in runtime.run_specialist("helper", "Hi"):
            query_id = event["queryId"]
            break
        await until(lambda: not [t for t in asyncio.all_tasks() if t.get_name() == "plangate-read"], "an end")
        assert (await runtime.get_query(query_id, wait_ms=5_000))["status"] == "succeeded"


async def test_a_program_that_closes_nothing_warns_and_ends(server: Server) -> None:
    environment = {**os.environ, "PLANGATE_URL": server.url, "PLANGATE_API_KEY": server.key}
    # A loop that ends while a connection is being made: anyio's own coroutine for it is then never awaited.
    anyios = "ignore:coroutine 'connect_tcp:RuntimeWarning"
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-W", anyios, "-c", CARELESS, env=environment, stdout=-1, stderr=-1
    )
    async with asyncio.timeout(PATIENCE_S):
        said, complained = await program.communicate()
    assert (program.returncode, said) == (0, b"left\n")
    (line,) = complained.decode().splitlines()
    assert line.startswith("the runtime 'default' was dropped without being closed: ")


async def test_closing_ends_readers(server: Server) -> None:
    runtime = await server.runtime(desk("closed"), action_dispatcher=lambda actions, ctx: None)
    gate = asyncio.Event()

    async def read() -> None:
        async for event in runtime.query(delegated(stored({"kind": "note", "text": "hi"})), "c-1"):
            if event["type"] == "approval-required":
                gate.set()

    reading = asyncio.create_task(read())
    async with asyncio.timeout(PATIENCE_S):
        await gate.wait()
    await runtime.aclose()
    with pytest.raises(plangate.ServiceUnavailable, match="closed"):
        async with asyncio.timeout(PATIENCE_S):
            await reading


def test_the_librarys_readme_runs(server: Server) -> None:
    text = (REPOSITORY / "sdk/python/README.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    environment = {**os.environ, "PLANGATE_URL": server.url, "PLANGATE_API_KEY": server.key}
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    *_, last, output = done.stdout.splitlines()
    assert last.endswith(" finish")
    assert json.loads(output)["results"][0]["result"] == 5


# Handlers.


class Odd:
    """What JSON has no form for comes as its text."""

    def __str__(self) -> str:
        return "an odd thing"


def raised(error: BaseException) -> Any:
    raise error


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)

HANDLED: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "none": (lambda ctx: None, None),
    "model": (lambda ctx: Note(kind="note", text="hi"), {"kind": "note", "text": "hi"}),
    "odd": (lambda ctx: {"odd": Odd(), 1: {2}}, {"odd": "an odd thing", "1": [2]}),
    "error": (lambda ctx: raised(ValueError("no such order")), "ValueError: no such order"),
    "silent": (lambda ctx: raised(LookupError()), "LookupError"),
    "stop": (lambda ctx: raised(StopIteration("over")), "coroutine raised StopIteration"),
    "exit": (lambda ctx: raised(SystemExit(3)), "SystemExit: 3"),
    "endless": (lambda ctx: ENDLESS, "ValueError: the value contains itself"),
    "large": (lambda ctx: 2**70, "ran, but its result cannot be used"),
    "surrogate": (lambda ctx: "\ud800", "ran, but its result cannot be used"),
    "raw": (lambda ctx: raised(ValueError("\ud800\0")), "ValueError: ?\N{REPLACEMENT CHARACTER}"),
    "state": (lambda ctx: ctx.state.push("", 1), "ValueError: '' is not a path: "),
    "artifact": (lambda ctx: ctx["artifacts"].publish("design", "no.md"), "NotFound: There is nothing at "),
    "unknown": (lambda ctx: ctx.db, "AttributeError: this call has no 'db'; it has agent, "),
    "reference": (lambda ctx: ctx.references.create("Nothing", 1), "InvalidRequest: "),
}


@pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])
async def test_the_model_reads_every_handler_error(server: Server, sync: bool) -> None:
    def blocking(args: Any, ctx: Any) -> Any:
        return HANDLED[args["what"]][0](ctx)

    async def awaited(args: Any, ctx: Any) -> Any:
        result = HANDLED[args["what"]][0](ctx)
        return await result if args["what"] in ("reference", "state", "artifact") else result

    tool = define_tool("act", {"what": str}, handler=blocking if sync else awaited)
    prompt = script(*(call("act", what=what) for what in HANDLED))
    async with server.runtime(solo("handlers", tool)) as runtime:
        events = await all_of(runtime.run_specialist("solo", prompt))
    for (what, (_, expected)), found in zip(HANDLED.items(), outcomes(events, "act"), strict=True):
        assert found == expected or (isinstance(expected, str) and expected in found), what
        assert "Traceback" not in str(found)


@pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])
async def test_a_handler_publishes_and_keeps_state(server: Server, sync: bool) -> None:
    """What it publishes belongs to the agent's run; what it writes is read by the next call, by a model and by a host."""

    def blocking(args: Any, ctx: Any) -> Any:
        first = ctx.artifacts.upload("analysis", "a.txt", f"{args['n']} done", summary="Counted.")
        made = ctx.artifacts.publish("handoff", first["path"], parent_artifact_ids=[first["id"]])
        ctx.state.push("ids", made["id"])
        assert ctx.artifacts.read(made["id"]) == b"1 done"
        assert [a["id"] for a in ctx.artifacts.list(agent="solo")] == [made["id"], first["id"]]
        return {"made": made["id"], "steps": ctx.artifacts.lineage(first["id"])["descendants"][0]["depth"]}

    async def awaited(args: Any, ctx: Any) -> Any:
        first = await ctx.artifacts.upload("analysis", "a.txt", f"{args['n']} done", summary="Counted.")
        made = await ctx.artifacts.publish("handoff", first["path"], parent_artifact_ids=[first["id"]])
        await ctx.state.push("ids", made["id"])
        assert await ctx.artifacts.read(made["id"]) == b"1 done"
        assert [a["id"] for a in await ctx.artifacts.list(agent="solo")] == [made["id"], first["id"]]
        return {
            "made": made["id"],
            "steps": (await ctx.artifacts.lineage(first["id"]))["descendants"][0]["depth"],
        }

    tool = define_tool("count", {"n": int}, handler=blocking if sync else awaited)
    look = define_tool("look", {}, handler=lambda args, ctx: ctx.state.get("ids.0"))
    key = f"counted-{sync}"
    async with server.runtime(solo("counting", tool, look)) as runtime:
        prompt = script(call("count", n=1), call("look"))
        events = await all_of(runtime.run_specialist("solo", prompt, key))
        (counted,) = outcomes(events, "count")
        assert outcomes(events, "look") == [counted["made"]]
        assert counted["steps"] == 1
        published = of(events, "artifact-published")
        assert [(e["agent"], e["data"]["channel"]) for e in published] == [
            ("solo", "analysis"),
            ("solo", "handoff"),
        ]
        (run,) = [w for w in await runtime.work(events[-1]["queryId"]) if w["kind"] == "agent"]
        producers = [e["data"]["producer"] for e in published]
        assert [(p["workId"], p["kind"], p["agent"]) for p in producers] == [(run["id"], "agent", "solo")] * 2
        assert (await runtime.thread_state(key))["document"] == {"ids": [counted["made"]]}
        hosts = await runtime.artifacts.upload(key, "handoff", "b.txt", "mine")
        assert hosts["producer"]["kind"] == "host"
        found = await runtime.artifacts.list(thread_id=key, channel="handoff")
        assert [a["id"] for a in found] == [hosts["id"], counted["made"]]
        assert await runtime.artifacts.read(hosts["id"]) == b"mine"


async def test_handlers_run_side_by_side(server: Server) -> None:
    together = threading.Barrier(4)

    @define_tool("meet", {})
    def meet(args: Any, ctx: Any) -> int:
        return int(together.wait(PATIENCE_S) >= 0)

    async with server.runtime(solo("together", meet)) as runtime:
        queries = [all_of(runtime.run_specialist("solo", script(call("meet")))) for _ in range(4)]
        for events in await asyncio.gather(*queries):
            assert outcomes(events, "meet") == [1]


@contextlib.asynccontextmanager
async def serving(
    runtime: plangate.Runtime, client: ServiceClient, served: LocalHandler, lease_ms: int = 30_000
) -> AsyncIterator[LocalCalls]:
    calls = LocalCalls(client, [served], {}, ReferenceCalls(Api(client), runtime.id, {}), lease_ms=lease_ms)
    await calls.start()
    try:
        yield calls
    finally:
        await calls.aclose()


LEASE_S = 4  # long enough for a machine that stalls for a second or two


async def test_a_claim_is_extended_while_its_handler_runs(server: Server) -> None:
    tool = define_tool("slow", {})

    @tool
    def slow(args: Any, ctx: Any) -> str:
        time.sleep(LEASE_S + 1.5)
        return "done"

    client = server.client("slow")
    async with server.runtime(solo("slow", tool)) as runtime:
        (served,) = local_handlers(runtime.spec, {"slow": slow}, {}, None, {})
        async with serving(runtime, client, served, lease_ms=LEASE_S * 1000):
            events = await all_of(runtime.run_specialist("solo", script(call("slow"))))
    await client.aclose()
    assert outcomes(events, "slow") == ["done"]


async def test_closing_returns_calls_that_have_not_started(server: Server) -> None:
    begun: list[Any] = []
    tool = define_tool("late", {})
    late = tool(lambda args, ctx: begun.append(args))
    client = server.client("released")
    claimed, closing = asyncio.Event(), asyncio.Event()
    ask = client.request

    async def held_back(method: str, where: str, *args: Any, **named: Any) -> Any:
        answer = await ask(method, where, *args, **named)
        if where.endswith("/claim") and answer["calls"]:
            claimed.set()
            await closing.wait()
        return answer

    client.request = held_back  # type: ignore[assignment,method-assign]
    async with server.runtime(solo("released", tool)) as runtime:
        served = local_handlers(runtime.spec, {"late": late}, {}, None, {})
        calls = LocalCalls(client, served, {}, ReferenceCalls(Api(client), runtime.id, {}))
        await calls.start()
        query = runtime.run_specialist("solo", script(call("late")))
        first = await anext(query)
        async with asyncio.timeout(PATIENCE_S):
            await claimed.wait()
        ending = asyncio.create_task(calls.aclose())
        await asyncio.sleep(0)
        closing.set()
        await ending
        listed = await ask("GET", "/tool-calls", params={"queryId": first["queryId"]})
        assert [c["status"] for c in listed["items"]] == ["open"]
        assert begun == []
        await query.aclose()
    await client.aclose()


async def test_only_the_exact_definition_receives_calls(server: Server) -> None:
    """The digest is the service's, for floats and texts too."""
    schema = {
        "type": "object",
        "properties": {"x": {"type": "number", "minimum": 1e-7, "description": "é\u2028\U0001f600"}},
    }
    taken: list[Any] = []
    tool = define_tool("exact", schema, 'Takes "x".')

    def take(args: Any, ctx: Any) -> Any:
        taken.append(args)
        return args["x"]

    exact = tool(take)
    client = server.client("exact")
    runtime = await server.runtime(solo("exact", tool))
    (right,) = local_handlers(runtime.spec, {"exact": exact}, {}, None, {})
    wrong = LocalHandler(right.name, "0" * 64, right.handler)
    events = runtime.run_specialist("solo", script(call("exact", x=0.5)))
    seen = [await anext(events)]
    async with serving(runtime, client, wrong):
        while seen[-1]["type"] != "tool-invocation":
            seen.append(await anext(events))
        await asyncio.sleep(0.3)
        assert taken == []
    async with serving(runtime, client, right):
        seen += await all_of(events)
    assert outcomes(seen, "exact") == [0.5]
    assert contiguous(seen)
    await client.aclose()
    await runtime.aclose()


# What is refused.


async def test_refusals_of_the_service_are_errors(server: Server) -> None:
    spec = define_runtime(
        "refused",
        [define_specialist("helper", "m-1", "You help.")],
        interpreter="noop",
        input_schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    )
    async with server.runtime(spec) as runtime:
        with pytest.raises(plangate.InvalidRequest, match="inputSchema") as invalid:
            await all_of(runtime.run_specialist("helper", "Hi", inputs={"n": "x"}))
        assert invalid.value.status == 422
        assert invalid.value.errors[0]["pointer"] == "/inputs/n"
        assert (await all_of(runtime.run_specialist("helper", "Hi", inputs={"n": 1})))[-1]["type"] == "finish"
        with pytest.raises(plangate.NotFound):
            await runtime.get_query("qry_1")
        with pytest.raises(plangate.NotFound):
            await all_of(runtime.query(None, None, resume="qry_1"))
        with pytest.raises(plangate.NotFound):
            await runtime.artifacts.get("art_1")
        for wrong in ({"decision": "maybe"}, {"id": ".."}):
            with pytest.raises(ValueError, match=r"decision|id"):
                await runtime.respond_to_approval(**{"id": "apr_1", "decision": "approve", **wrong})  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="thread_id"):
            runtime.query("Hi", None)
        with pytest.raises(ValueError, match="200 characters"):
            runtime.query("Hi", "x" * 201)
        with pytest.raises(ValueError, match="resume"):
            runtime.query("Hi", "t", resume="17")
        with pytest.raises(ValueError, match="did you mean 'helper'"):
            runtime.run_specialist("helpr", "Hi")
    with pytest.raises(plangate.Unauthenticated):
        await plangate.create_runtime(spec, url=server.url, api_key="not a key")


SPEC = solo("eager")
REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"testing": "text"}, TypeError, "mock_response"),
    ({"testing": {}}, ValueError, "mock_response"),
    ({"testing": {"mock_response": 1}}, ValueError, "mock_response"),
    ({"testing": {"mock_response": "a"}, "interpreter": "noop"}, ValueError, "interpreter='noop'"),
    ({"testing": {"mock_response": "a"}}, ValueError, "interpreter is 'scripted'"),
    ({"interpreter": "magic"}, plangate.SpecInvalid, "interpreter"),
    ({"services": ["db"]}, TypeError, "services"),
    ({"services": {"references": 1}}, ValueError, "references"),
    ({"services": {"tool_use_id": 1}}, ValueError, "tool_use_id"),
    ({"action_dispatcher": "client"}, TypeError, "ActionDispatcher"),
    ({"action_dispatcher": lambda actions: None}, TypeError, "actions, ctx"),
    ({"approval_predicates": {"p": 3}}, TypeError, "a CEL expression or a function"),
    ({"event_hooks": {"txt": print}}, ValueError, "did you mean 'text'"),
    ({"event_hooks": {"text": 1}}, TypeError, "not a function"),
    ({"url": "localhost:8700"}, ValueError, "http://"),
    ({"url": "http://localhost:8700", "api_key": None}, ValueError, "PLANGATE_API_KEY"),
    ({"spec": "spec"}, TypeError, "define_runtime"),
]


@pytest.mark.parametrize(("given", "error", "message"), REFUSED)
def test_invalid_arguments_are_rejected_at_once(
    given: dict[str, Any], error: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PLANGATE_API_KEY", raising=False)
    parts = {"spec": SPEC, "url": "http://127.0.0.1:9", "api_key": "key", **given}
    with pytest.raises(error, match=message):
        plangate.create_runtime(parts.pop("spec"), **parts)


def test_a_dispatcher_without_actions_is_rejected() -> None:
    tools = [define_tool("send", {})]
    spec = desk("eager", tools=tools, action_dispatcher={"kind": "tool", "tool": "send"})
    with pytest.raises(ValueError, match="of kind 'tool'"):
        plangate.create_runtime(
            spec, url="http://127.0.0.1:9", api_key="key", action_dispatcher=lambda actions, ctx: None
        )


def test_the_environment_names_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANGATE_URL", "not an address")
    with pytest.raises(ValueError, match="not an address"):
        plangate.create_runtime(SPEC)


def test_texts_of_errors_are_bounded() -> None:
    assert len(error_text(ValueError("x" * 50_000))) == 20_000
    assert error_text(KeyError("k")) == "KeyError: 'k'"


# A service of one's own.

USER = """
import sys, time
from plangate.local_service import LocalService
print(LocalService.acquire().pid, flush=True)
time.sleep(60)
"""


def start_user() -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", USER], stdout=subprocess.PIPE, text=True)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


OWN = """
import asyncio, os, sys
import plangate
from plangate.local_service import LocalService

spec = plangate.define_runtime(
    "own", [plangate.define_specialist("helper", "m-1", "You help.")], interpreter="noop"
)

def pid():
    return LocalService._running[-1].pid

async def asked():
    async with plangate.create_runtime(spec) as one:
        async with plangate.create_runtime(spec) as two:
            assert one.url == two.url
        events = [event async for event in one.run_specialist("helper", "Hi")]
    assert events[-1]["type"] == "finish"
    return events[0]["queryId"]

async def known(query_id):
    async with plangate.create_runtime(spec) as runtime:
        try:
            return (await runtime.get_query(query_id))["status"]
        except plangate.NotFound:
            return None

query_id = asyncio.run(asked())
first = pid()
os.kill(first, 0)  # it is there, though no runtime is open
assert asyncio.run(known(query_id)) == "succeeded"
assert pid() == first
os.environ["PLANGATE_DATA_DIR"] = sys.argv[1]
assert asyncio.run(known(query_id)) is None
assert pid() != first
print(first, pid(), flush=True)
sys.stdin.readline()
"""


@pytest.mark.long
async def test_without_an_address_the_library_starts_a_service(folder: Path) -> None:
    """Who opens a runtime again finds the same service and the same data at once; other data have a service of
    their own."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PLANGATE_")}
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-c", OWN, str(folder / "other")),
        env={
            **environment,
            "PLANGATE_DATA_DIR": str(folder / "own"),
            "DATABASE_URL": "postgresql://nobody@127.0.0.1:9/the-program's",
        },
        stdin=-1,
        stdout=-1,
        stderr=-1,
    )
    assert program.stdout is not None
    async with asyncio.timeout(START_S):
        said = await program.stdout.readline()
        first, second = map(int, said.split())
        assert alive(second)
        assert not alive(first), "other data were asked for, and nobody used it"
        _, complained = await program.communicate(b"\n")
    assert (program.returncode, complained) == (0, b"")
    assert not alive(second)


@pytest.mark.long
async def test_a_service_ends_with_the_program_that_is_killed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANGATE_DATA_DIR", str(folder / "own"))
    user = start_user()
    assert user.stdout is not None
    pid = int(await asyncio.to_thread(user.stdout.readline))
    assert alive(pid)
    user.kill()
    user.wait()
    user.stdout.close()
    await until(lambda: not alive(pid), "the service ends with the program that started it")


async def test_a_service_that_stops_is_reported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLANGATE_URL", raising=False)
    monkeypatch.setenv("PLANGATE_DATA_DIR", str(folder / "not-a-folder"))
    (folder / "not-a-folder").write_text("")
    with pytest.raises(plangate.ServiceNotStarted, match=r"ended before it listened(.|\n)*not-a-folder"):
        await plangate.create_runtime(SPEC)
    monkeypatch.setattr(sys, "path", [str(folder)])
    with pytest.raises(plangate.ServiceNotInstalled, match="pip install plangate-server"):
        await plangate.create_runtime(SPEC)
