"""Opening a runtime and asking of it: what is sent, what is refused before anything is, and what a hook hears."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import Any

import plangate
import pytest
from plangate import define_runtime, define_specialist, define_tool

from tests.pure.library.fake_service import FakeService, fake_service

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


async def test_a_key_may_come_with_the_line_end_of_its_file() -> None:
    async with fake_service() as service:
        await (await plangate.create_runtime(SPEC, url=service.url, api_key="plg_1\n")).aclose()
        assert service.headers("POST", "/runtimes")[0]["authorization"] == "Bearer plg_1"


async def test_what_a_query_asks() -> None:
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
async def test_an_interpreter_is_a_part_of_what_is_registered(interpreter: Any) -> None:
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
def test_what_cannot_work_is_said_at_once(
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
async def test_arguments_of_a_query_are_refused_before_it_is_read(
    ask: Any, error: type[Exception], message: str
) -> None:
    async with fake_service() as service, service.runtime(SPEC) as runtime:
        with pytest.raises(error) as refused:
            ask(runtime)
        assert str(refused.value) == message
        assert service.bodies("POST", "/queries/stream") == []


async def test_what_is_not_open_says_how_to_open_it() -> None:
    runtime = plangate.create_runtime(SPEC, url="http://127.0.0.1:9", api_key="key")
    told = (
        "the runtime is not open: use `async with create_runtime(...) as runtime`, or "
        "`runtime = await create_runtime(...)` and `await runtime.aclose()` at the end"
    )
    for use in (lambda: runtime.id, lambda: runtime.spec, lambda: runtime.query("Hi", "t")):
        with pytest.raises(plangate.PlangateError) as refused:
            use()
        assert str(refused.value) == told
    await runtime.aclose()


def test_another_event_loop_is_said() -> None:
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
async def test_an_address_of_something_else_is_said(status: int) -> None:
    async with fake_service() as service:
        service.texts[("POST", "/runtimes")] = (status, "<h1>Hello</h1>", {})
        with pytest.raises(plangate.PlangateError) as refused:
            await service.runtime(SPEC)
        told = f"{service.url} does not answer as a Plangate service does: is url the address of one?"
        assert str(refused.value) == (told if status == 200 else f"{told} (404 unknown)")


async def test_an_address_that_sends_callers_on_is_said() -> None:
    async with fake_service() as service:
        service.texts[("POST", "/runtimes")] = (301, "", {"location": "https://acme.example.com/runtimes"})
        with pytest.raises(plangate.ApiError) as refused:
            await service.runtime(SPEC)
    assert str(refused.value) == (
        f"{service.url} sends callers on to https://acme.example.com/runtimes: give the address of the service "
        "itself as url. (301 unknown)"
    )


@pytest.mark.parametrize("given", ["", ".", "..", None, {"queryId": "qry_1"}])
async def test_what_is_no_id_is_said(given: Any) -> None:
    async with fake_service() as service, service.runtime(SPEC) as runtime:
        with pytest.raises(ValueError) as refused:
            await runtime.get_query(given)
        assert str(refused.value) == f"{given!r} is not an id such as 'qry_...'"


# Hooks.


async def test_hooks_hear_what_is_read_in_order(caplog: pytest.LogCaptureFixture) -> None:
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
