"""Claimed calls when the runtime closes: calls that have not started are returned, running ones finish."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import plangate
import pytest
from plangate import define_runtime, define_specialist, define_tool
from plangate.api.calls import Api
from plangate.client import ServiceClient
from plangate.context import ReferenceCalls
from plangate.handlers import LocalHandler, local_handlers
from plangate.local_calls import MAX_NAMES_PER_CLAIM, LocalCalls

from tests.pure.sdk.fake_service import PATIENCE_S, FakeService, fake_service

CLAIM = ("POST", "/tool-calls/claim")


def spec_with(handler: Any) -> plangate.DefinedRuntime:
    tool = define_tool("act", {}, handler=handler)
    return define_runtime("acme", [define_specialist("helper", "m-1", "You help.", tools=[tool])])


def offers(service: FakeService, spec: plangate.DefinedRuntime) -> asyncio.Event:
    """The next claim is given one call; the event says that it was asked for."""
    asked = asyncio.Event()
    (served,) = local_handlers(spec.wire, spec.local_tools, {}, None, {})
    call = {"workId": "wrk_1", "queryId": "qry_1", "purpose": "tool", "args": {}}
    left = [{**call, "name": served.name, "definitionDigest": served.digest}]

    def claimed(body: Any) -> tuple[int, Any]:
        asked.set()
        given = [{**left.pop(), "claimToken": body["claimToken"]}] if left else []
        return 200, {"calls": given}

    service.answers[CLAIM] = claimed
    return asked


def told(service: FakeService) -> list[tuple[str, Any]]:
    """What was said of the call, in order."""
    return [
        (path.rsplit("/", 1)[1], {key: value for key, value in body.items() if key != "claimToken"})
        for method, path, _, body in service.asked
        if path.startswith("/tool-calls/wrk_1/")
    ]


async def test_a_canceled_opening_returns_its_claims() -> None:
    begun: list[Any] = []
    spec = spec_with(lambda args, ctx: begun.append(args))
    async with fake_service() as service:
        asked = offers(service, spec)
        answer = service.held[CLAIM] = asyncio.Event()

        async def opened() -> None:
            async with service.runtime(spec):
                raise AssertionError("it was cancelled before")

        opening = asyncio.create_task(opened())
        async with asyncio.timeout(PATIENCE_S):
            await asked.wait()
            opening.cancel()
            answer.set()
            with pytest.raises(asyncio.CancelledError):
                await opening
        assert told(service) == [("release", {})]
        assert begun == []


@pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])
async def test_closing_waits_for_running_calls(sync: bool) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    home = asyncio.get_running_loop()

    async def handler(args: Any, ctx: Any) -> str:
        begun.set()
        await go_on.wait()
        return "done"

    def blocking(args: Any, ctx: Any) -> str:
        return asyncio.run_coroutine_threadsafe(handler(args, ctx), home).result(PATIENCE_S)

    spec = spec_with(blocking if sync else handler)
    async with fake_service() as service:
        offers(service, spec)
        runtime = await service.runtime(spec)
        async with asyncio.timeout(PATIENCE_S):
            await begun.wait()
            closing = asyncio.create_task(runtime.aclose())
            await asyncio.sleep(0)
            go_on.set()
            await closing
        assert told(service) == [("result", {"output": "done"})]


async def test_the_result_of_a_handler_that_returns_nothing_is_null() -> None:
    spec = spec_with(lambda args, ctx: None)
    async with fake_service() as service:
        offers(service, spec)
        posted = asyncio.Event()
        service.answers["POST", "/tool-calls/wrk_1/result"] = lambda _: (
            posted.set() or (200, {"adopted": True})
        )
        async with asyncio.timeout(PATIENCE_S), await service.runtime(spec):
            await posted.wait()
        assert told(service) == [("result", {"output": None})]


async def test_a_canceled_close_cancels_running_calls(caplog: pytest.LogCaptureFixture) -> None:
    """The claim is held no longer than the shortest lease, so that others need not wait for it."""
    begun, seen = asyncio.Event(), []

    async def endless(args: Any, ctx: Any) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    spec = spec_with(endless)
    async with fake_service() as service:
        offers(service, spec)
        runtime = await service.runtime(spec)
        async with asyncio.timeout(PATIENCE_S):
            await begun.wait()
            closing = asyncio.create_task(runtime.aclose())
            await asyncio.sleep(0)
            with caplog.at_level(logging.WARNING, "plangate"):
                closing.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await closing
        assert told(service) == [("heartbeat", {"leaseMs": 1000})]
        assert seen == ["cancelled"]
    assert [record.getMessage() for record in caplog.records] == [
        "calls still run and are cut off: 1; each is made again where its replay is safe, else its outcome is unknown"
    ]


async def test_a_canceled_handler_may_still_return_a_result() -> None:
    begun = asyncio.Event()

    async def careful(args: Any, ctx: Any) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "undone"
        return "done"

    spec = spec_with(careful)
    async with fake_service() as service:
        offers(service, spec)
        runtime = await service.runtime(spec)
        async with asyncio.timeout(PATIENCE_S):
            await begun.wait()
            closing = asyncio.create_task(runtime.aclose())
            await asyncio.sleep(0)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
        assert told(service) == [("result", {"output": "undone"})]


async def test_claimed_calls_are_served_when_the_next_claim_fails() -> None:
    """A claim names 500 tools at most, so that there are several; one that fails loses nothing of the others."""
    spec = spec_with(lambda args, ctx: "done")
    (act,) = local_handlers(spec.wire, spec.local_tools, {}, None, {})
    served = [act, *(LocalHandler(f"t{n}", "d", act.handler) for n in range(MAX_NAMES_PER_CLAIM))]
    async with fake_service() as service:
        offers(service, spec)
        first = service.answers[CLAIM]

        def refused_later(body: Any) -> tuple[int, Any]:
            if body["tools"][0]["name"] == "act":
                return first(body)
            return 403, {"type": "forbidden", "detail": "This key may not serve t499."}

        service.answers[CLAIM] = refused_later
        client = ServiceClient(service.url, "key", "acme")
        calls = LocalCalls(client, served, {}, ReferenceCalls(Api(client), "rt_1", {}))
        with pytest.raises(plangate.Forbidden):
            await calls.start()
        await calls.aclose()
        await client.aclose()
        assert told(service) == [("result", {"output": "done"})]
