"""Opening a runtime: requests, early errors, and event hooks."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import queue
import threading
import warnings
from contextlib import AsyncExitStack
from typing import Any

import plangate
import pytest
from plangate import define_runtime, define_specialist, define_tool

from tests.pure.sdk.fake_service import PATIENCE_S, FakeService, fake_service

HELPER = define_specialist("helper", "m-1", "You help.")
SPEC = define_runtime("acme", [HELPER])
SCRIPTED = define_runtime("acme", [HELPER], interpreter="scripted")


def event(seq: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"seq": seq, "type": kind, "queryId": "qry_1", **fields}


WHOLE = [event(1, "query-status"), event(2, "text", text="Hi"), event(3, "finish")]


async def asked(service: FakeService, runtime: plangate.Runtime, events: Any) -> dict[str, Any]:
    """The body with which a query was started."""
    service.streams[("POST", "/queries/stream")] = [WHOLE]
    assert [e["seq"] async for e in events] == [1, 2, 3]
    body: dict[str, Any] = service.bodies("POST", "/queries/stream")[-1]
    return body


# What is sent.


async def test_every_call_names_the_tenant_and_the_key() -> None:
    tool = define_tool("look", {}, handler=lambda args, ctx: 1)
    spec = define_runtime("acme", [define_specialist("helper", "m-1", "You help.", tools=[tool])])
    async with fake_service() as service:
        service.answers[("GET", "/queries/qry_1")] = lambda body: (200, {"status": "running"})
        service.streams[("GET", "/queries/qry_1/stream")] = [WHOLE]
        async with service.runtime(spec) as runtime:
            (served,) = service.bodies("POST", "/tool-calls/claim")[0]["tools"]
            await asked(service, runtime, runtime.query("Hi", "t"))
            await service.outcome({**served, "args": {}})
            await runtime.get_query("qry_1")
            async for _ in runtime.query(None, None, resume="qry_1"):
                pass
        paths = {(method, path.split("/")[1]) for method, path, _, _ in service.asked}
        assert paths >= {
            ("POST", "runtimes"),
            ("POST", "queries"),
            ("GET", "queries"),
            ("POST", "tool-calls"),
        }
        assert {headers["plangate-tenant"] for _, _, headers, _ in service.asked} == {"acme"}
        assert {headers["authorization"] for _, _, headers, _ in service.asked} == {"Bearer key"}


async def test_a_key_may_end_with_a_newline() -> None:
    async with fake_service() as service:
        await (await plangate.create_runtime(SPEC, url=service.url, api_key="plg_1\n")).aclose()
        assert service.headers("POST", "/runtimes")[0]["authorization"] == "Bearer plg_1"


async def test_a_query_is_sent_as_documented() -> None:
    async with fake_service() as service, service.runtime(SPEC) as runtime:
        longest = "ü" * 200
        assert await asked(service, runtime, runtime.query("Hi", longest, {"n": 1})) == {
            "runtimeId": "rt_1",
            "prompt": "Hi",
            "threadKey": longest,
            "inputs": {"n": 1},
        }
        assert await asked(service, runtime, runtime.query({"tool": "ö"}, "t")) == {
            "runtimeId": "rt_1",
            "prompt": '{"tool": "ö"}',
            "threadKey": "t",
        }
        for specialist in (HELPER, "helper"):
            assert await asked(service, runtime, runtime.run_specialist(specialist, "Hi")) == {
                "runtimeId": "rt_1",
                "prompt": "Hi",
                "agent": "helper",
            }


# Without a model.


async def test_testing_answers_with_a_mock() -> None:
    async with fake_service() as service:
        async with service.runtime(SPEC, testing={"mock_response": "Hello."}):
            pass
        async with service.runtime(SPEC.wire, testing={"mock_response": "Hello."}, interpreter="mock"):
            pass
        for registered in service.bodies("POST", "/runtimes"):
            assert (registered["interpreter"], registered["mockResponse"]) == ("mock", "Hello.")


@pytest.mark.parametrize("interpreter", ["scripted", "noop"])
async def test_the_interpreter_is_part_of_the_version(interpreter: Any) -> None:
    async with fake_service() as service:
        for spec in (SPEC, SPEC.wire, SPEC.spec):
            async with service.runtime(spec, interpreter=interpreter):
                pass
        registered = service.bodies("POST", "/runtimes")
        assert [body["interpreter"] for body in registered] == [interpreter] * 3
        assert all("mockResponse" not in body for body in registered)


MOCK = {"mock_response": "a"}
SHAPE = 'testing is {"mock_response": text}, with this one key and a string'


@pytest.mark.parametrize(
    ("spec", "given", "error", "message"),
    [
        (
            SPEC,
            {"testing": MOCK, "interpreter": "noop"},
            ValueError,
            "testing answers with a mock; leave interpreter='noop' out",
        ),
        (
            SPEC,
            {"testing": MOCK, "interpreter": "scripted"},
            ValueError,
            "testing answers with a mock; leave interpreter='scripted' out",
        ),
        (
            SCRIPTED,
            {"testing": MOCK},
            ValueError,
            "testing answers with a mock, but the spec's interpreter is 'scripted'",
        ),
        (
            SCRIPTED.wire,
            {"testing": MOCK},
            ValueError,
            "testing answers with a mock, but the spec's interpreter is 'scripted'",
        ),
        (SPEC, {"testing": {}}, ValueError, SHAPE),
        (SPEC, {"testing": {"mock_response": 1}}, ValueError, SHAPE),
        (SPEC, {"testing": {**MOCK, "seed": 1}}, ValueError, SHAPE),
        (SPEC, {"testing": "a"}, TypeError, 'testing is {"mock_response": text}, not a str'),
        (
            SPEC,
            {"event_hooks": {"txt": print}},
            ValueError,
            "event_hooks: unknown event type 'txt'; did you mean 'text'?",
        ),
        (
            SPEC,
            {"event_hooks": {"text": 1}},
            TypeError,
            "event_hooks: the hook for 'text' is not a function",
        ),
        (
            SPEC,
            {"event_hooks": [print]},
            TypeError,
            'event_hooks is a mapping of types of event, or "*", to functions',
        ),
        ("acme", {}, TypeError, "spec is what define_runtime returns, not a str"),
        (
            SPEC,
            {"action_dispatcher": "mine"},
            TypeError,
            "the handler of an ActionDispatcher is a function (actions, ctx), not a str",
        ),
        (
            SPEC,
            {"url": "localhost:8700"},
            ValueError,
            "url is an address such as http://127.0.0.1:8700, not 'localhost:8700'",
        ),
        (
            SPEC,
            {"url": "http://"},
            ValueError,
            "url is an address such as http://127.0.0.1:8700, not 'http://'",
        ),
        *(
            (SPEC, {"url": url}, ValueError, f"url is an address such as http://127.0.0.1:8700, not {url!r}")
            for url in ("http://localhost:port", "http://[::1", "http://localhost:99999", "ftp://localhost")
        ),
        (SPEC, {"url": 8700}, ValueError, "url is an address such as http://127.0.0.1:8700, not 8700"),
        (SPEC, {"api_key": b"plg_1"}, TypeError, "api_key is the text of a key, not a bytes"),
        *(
            (
                SPEC,
                {"api_key": key},
                ValueError,
                "api_key is not a key: keys begin with 'plg_' and have letters and digits only",
            )
            for key in ("plg_é", "plg_1\nplg_2", "plg_\0")
        ),
        (
            SPEC,
            {"api_key": None},
            ValueError,
            "a key is needed for http://127.0.0.1:9: pass api_key or set PLANGATE_API_KEY (`plangate serve` on "
            "this machine prints in which file its key is)",
        ),
    ],
)
def test_invalid_arguments_are_reported_at_once(
    spec: Any, given: Any, error: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PLANGATE_API_KEY", raising=False)
    with pytest.raises(error) as refused:
        plangate.create_runtime(spec, **{"url": "http://127.0.0.1:9", "api_key": "key", **given})
    assert str(refused.value) == message


# Arguments of queries.


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (
            lambda r: r.query("Hi", None),
            ValueError,
            "thread_id is missing: it is any string of yours that names the conversation",
        ),
        (lambda r: r.query("Hi", "x" * 201), ValueError, "thread_id is a string of 1 to 200 characters"),
        (lambda r: r.query("Hi", 7), ValueError, "thread_id is a string of 1 to 200 characters"),
        (lambda r: r.query("Hi", ""), ValueError, "thread_id is a string of 1 to 200 characters"),
        (
            lambda r: r.query({1, 2}, "t"),
            TypeError,
            "the prompt is neither text nor JSON: Object of type set is not JSON serializable",
        ),
        (
            lambda r: r.query(float("nan"), "t"),
            ValueError,
            "the prompt is neither text nor JSON: Out of range float values are not JSON compliant",
        ),
        (
            lambda r: r.query(None, "t"),
            ValueError,
            "the prompt is missing: it is text, or anything else that JSON has a form for",
        ),
        (
            lambda r: r.query("Hi", "t", ["n"]),
            TypeError,
            "inputs is a mapping of names to values, not a list",
        ),
        (
            lambda r: r.query("Hi", "t", resume="17"),
            ValueError,
            "resume is the id of a query (qry_...), or an event with its queryId and seq",
        ),
        (
            lambda r: r.query("Hi", "t", resume={"queryId": "qry_1", "seq": -1}),
            ValueError,
            "resume is the id of a query (qry_...), or an event with its queryId and seq",
        ),
        (
            lambda r: r.run_specialist("helpr", "Hi"),
            ValueError,
            "the spec has no agent 'helpr'; did you mean 'helper'?",
        ),
    ],
)
async def test_invalid_query_arguments_are_rejected_at_the_call(
    ask: Any, error: type[Exception], message: str
) -> None:
    async with fake_service() as service, service.runtime(SPEC) as runtime:
        with pytest.raises(error) as refused:
            ask(runtime)
        assert str(refused.value) == message
        assert service.bodies("POST", "/queries/stream") == []


async def test_the_first_awaited_call_opens_a_runtime_once() -> None:
    async with fake_service() as service:
        service.answers[("GET", "/queries/qry_1")] = lambda body: (200, {"status": "running"})
        runtime = service.runtime(SPEC)
        with pytest.raises(
            plangate.PlangateError, match="it is registered by the first call that is awaited"
        ):
            _ = runtime.id
        events = runtime.query("Hi", "t")
        assert service.asked == []
        await asyncio.gather(*(runtime.get_query("qry_1") for _ in range(5)), asked(service, runtime, events))
        assert (runtime.id, len(service.bodies("POST", "/runtimes"))) == ("rt_1", 1)
        await runtime.aclose()
        for use in (runtime.get_query("qry_1"), anext(runtime.query("Hi", "t"))):
            with pytest.raises(plangate.PlangateError, match="the runtime is not open: it was closed"):
                await use
        async with runtime:
            await runtime.get_query("qry_1")
        assert len(service.bodies("POST", "/runtimes")) == 2


async def test_a_failed_opening_is_retried() -> None:
    async with fake_service() as service:
        service.answers[("GET", "/queries/qry_1")] = lambda body: (200, {"status": "running"})
        service.answers[("POST", "/runtimes")] = lambda body: (422, {"type": "invalid", "detail": "no"})
        runtime = service.runtime(SPEC)
        with pytest.raises(plangate.InvalidRequest):
            await runtime.get_query("qry_1")
        del service.answers[("POST", "/runtimes")]
        assert await runtime.get_query("qry_1") == {"status": "running"}
        await runtime.aclose()


async def test_a_dropped_runtime_warns_once_and_takes_no_more_calls(caplog: Any) -> None:
    tool = define_tool("look", {}, handler=lambda args, ctx: 1)
    spec = define_runtime("acme", [define_specialist("helper", "m-1", "You help.", tools=[tool])])
    before = asyncio.all_tasks()
    async with fake_service() as service:
        runtime = await service.runtime(spec)
        assert len(service.bodies("POST", "/tool-calls/claim")) >= 1
        del runtime
        gc.collect()
        ending = [t for t in asyncio.all_tasks() - before if t.get_name().startswith("plangate-")]
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.wait(ending)
        with warnings.catch_warnings(action="ignore", category=ResourceWarning):
            del ending
            gc.collect()  # nobody closed the connections
    (said,) = [record.getMessage() for record in caplog.records if "dropped" in record.getMessage()]
    assert said.startswith("the runtime 'default' was dropped without being closed: ")


async def test_a_runtime_that_serves_nothing_claims_nothing() -> None:
    rule = {"kind": "dynamic", "value": "large"}
    tool = define_tool("look", {}, approval=rule, handler=lambda args, ctx: 1)
    helper = define_specialist("helper", "m-1", "You help.", tools=[tool])
    spec = define_runtime("acme", [helper], approval_predicates={"large": {"kind": "client"}})
    with pytest.raises(
        ValueError, match="the approval predicate 'large' is a function, and it was not given"
    ):
        plangate.create_runtime(spec, url="http://127.0.0.1:9", api_key="key")
    async with fake_service() as service:
        async with service.runtime(spec, serve=False) as runtime:
            await asked(service, runtime, runtime.query("Hi", "t"))
        assert {path for _, path, _, _ in service.asked} == {"/runtimes", "/whoami", "/queries/stream"}


def test_a_sync_runtime_needs_no_event_loop(caplog: Any) -> None:
    with contextlib.ExitStack() as held:
        runner = held.enter_context(asyncio.Runner())
        service = serve_in_thread(held, runner)
        service.answers[("GET", "/queries/qry_1")] = lambda body: (200, {"status": "running"})
        service.answers[("GET", "/artifacts/art_1")] = lambda body: (200, {"id": "art_1"})
        service.streams[("POST", "/queries/stream")] = [WHOLE, WHOLE]
        with plangate.SyncRuntime(service.runtime(SPEC)) as runtime:
            assert (runtime.id, runtime.get_query("qry_1")) == ("rt_1", {"status": "running"})
            assert [event["seq"] for event in runtime.query("Hi", "t")] == [1, 2, 3]
            assert runtime.artifacts.get("art_1") == {"id": "art_1"}
            assert {"query", "artifacts", "get_query"} <= set(dir(runtime))
            with pytest.raises(ValueError, match="thread_id is missing"):
                runtime.query("Hi", None)
        with pytest.raises(plangate.PlangateError, match="it was closed"):
            runtime.get_query("qry_1")
        runtime.close()
        lazily = plangate.SyncRuntime(service.runtime(SPEC))
        assert next(lazily.query("Hi", "t"))["seq"] == 1
        assert "dropped" not in caplog.text
        del lazily
        gc.collect()
        assert caplog.text.count("was dropped without being closed") == 1
    with pytest.raises(TypeError, match="SyncRuntime takes what create_runtime or connect returns"):
        plangate.SyncRuntime(SPEC)  # type: ignore[arg-type]


def serve_in_thread(held: contextlib.ExitStack, runner: asyncio.Runner) -> FakeService:
    """Run the fake service in a thread until the stack is closed."""
    started: queue.Queue[FakeService] = queue.Queue()
    end = asyncio.Event()
    loop = runner.get_loop()

    async def serve() -> None:
        async with fake_service() as service:
            started.put(service)
            await end.wait()

    thread = threading.Thread(target=runner.run, args=(serve(),))
    thread.start()
    held.callback(thread.join)
    held.callback(loop.call_soon_threadsafe, end.set)
    return started.get(timeout=PATIENCE_S)


async def test_connecting_opens_the_newest_version_of_a_name() -> None:
    def version(id: str, retired: str | None = None) -> dict[str, Any]:
        return {"id": id, "name": "shop", "version": 1, "retiredAt": retired}

    async with fake_service() as service:
        versions = [version("rt_3", "2026-01-01T00:00:00Z"), version("rt_2"), version("rt_1")]
        service.answers[("GET", "/runtimes")] = lambda body: (200, {"items": versions, "nextCursor": None})
        service.answers[("GET", "/runtimes/rt_2")] = lambda body: (
            200,
            {**version("rt_2"), "spec": SPEC.wire},
        )
        given = {"url": service.url, "api_key": "key"}
        async with plangate.connect("shop", tenant="acme", **given) as runtime:
            body = await asked(service, runtime, runtime.run_specialist("helper", "Hi"))
            assert (body["runtimeId"], runtime.spec) == ("rt_2", SPEC.wire)
            with pytest.raises(ValueError, match="the spec has no agent 'helpr'"):
                runtime.run_specialist("helpr", "Hi")
        assert service.searched[0] == {"name": "shop", "limit": "50"}
        assert service.headers("GET", "/runtimes")[0]["plangate-tenant"] == "acme"
        versions.clear()
        missing = plangate.connect("shop", **given)
        with pytest.raises(plangate.NotFound, match="No runtime 'shop' is registered"):
            await missing
        assert "plangate-tenant" not in service.headers("GET", "/runtimes")[-1]
    with pytest.raises(TypeError, match="name is the name of a registered runtime, not None"):
        plangate.connect(None)  # type: ignore[arg-type]


def test_use_in_another_event_loop_is_reported() -> None:
    """The usual slip of who opens it in one `asyncio.run` and uses it in another."""
    held = AsyncExitStack()

    async def opened() -> plangate.Runtime:
        service = await held.enter_async_context(fake_service())
        return await held.enter_async_context(service.runtime(SPEC))

    with asyncio.Runner() as one, asyncio.Runner() as other:
        runtime = one.run(opened())
        assert runtime.id == "rt_1"
        with pytest.raises(plangate.PlangateError) as refused:
            other.run(runtime.get_query("qry_1"))
        one.run(held.aclose())
    assert str(refused.value) == (
        "the runtime was opened in another event loop: open and use it within one `asyncio.run`"
    )


@pytest.mark.parametrize("status", [200, 404])
async def test_an_address_of_another_program_is_reported(status: int) -> None:
    async with fake_service() as service:
        service.texts[("POST", "/runtimes")] = (status, "<h1>Hello</h1>", {})
        with pytest.raises(plangate.PlangateError) as refused:
            await service.runtime(SPEC)
        told = f"{service.url} does not answer as a Plangate service does: is url the address of one?"
        assert str(refused.value) == (told if status == 200 else f"{told} (404 unknown)")


async def test_a_redirecting_address_is_reported() -> None:
    async with fake_service() as service:
        service.texts[("POST", "/runtimes")] = (301, "", {"location": "https://acme.example.com/runtimes"})
        with pytest.raises(plangate.ApiError) as refused:
            await service.runtime(SPEC)
    assert str(refused.value) == (
        f"{service.url} sends callers on to https://acme.example.com/runtimes: give the address of the service "
        "itself as url. (301 unknown)"
    )


@pytest.mark.parametrize("given", ["", ".", "..", None, {"queryId": "qry_1"}])
async def test_an_invalid_id_is_reported(given: Any) -> None:
    async with fake_service() as service, service.runtime(SPEC) as runtime:
        with pytest.raises(ValueError) as refused:
            await runtime.get_query(given)
        assert str(refused.value) == f"{given!r} is not an id such as 'qry_...'"


# Hooks.


async def test_hooks_are_called_in_order(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[tuple[str, int]] = []

    def texts(told: dict[str, Any]) -> None:
        heard.append(("text", told["seq"]))
        raise RuntimeError("a hook must not end the query")

    async def every(told: dict[str, Any]) -> None:
        heard.append(("*", told["seq"]))

    async with (
        fake_service() as service,
        service.runtime(SPEC, event_hooks={"*": every, "text": texts}) as runtime,
    ):
        with caplog.at_level(logging.ERROR, "plangate"):
            await asked(service, runtime, runtime.query("Hi", "t"))
    assert heard == [("*", 1), ("text", 2), ("*", 2), ("*", 3)]
    assert [record.getMessage() for record in caplog.records] == ["the event hook for 'text' failed"]


@pytest.mark.parametrize(("version", "warnings"), [("0.1.7", 0), ("0.2.0", 1)])
async def test_a_service_of_an_unknown_version_is_warned_of(
    version: str, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with fake_service() as service:
        service.answers[("GET", "/whoami")] = lambda body: (200, {"version": version})
        async with service.runtime(SPEC):
            pass
    found = [
        record for record in caplog.records if f"the service has version {version}" in record.getMessage()
    ]
    assert len(found) == warnings
