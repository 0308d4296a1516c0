"""Approval predicates that are functions: registration, calls and results."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import plangate
import pytest
import pytest_asyncio
from plangate import define_runtime, define_specialist, define_tool

from tests.pure.sdk.fake_service import FakeService, fake_service

BIG = {"kind": "dynamic", "value": "big"}
CTX = {
    "tool": "pay",
    "agent": "clerk",
    "threadId": "thr_1",
    "queryId": "qry_1",
    "resourceId": "acme",
    "spentUsd": 0.25,
}


@pytest_asyncio.fixture
async def service() -> AsyncIterator[FakeService]:
    async with fake_service() as running:
        yield running


def spec(rule: Any = BIG, **parts: Any) -> plangate.DefinedRuntime:
    pay = define_tool("pay", {"amount": int}, approval=rule)
    return define_runtime("acme", [define_specialist("clerk", "m-1", "You pay.", tools=[pay])], **parts)


def digest(runtime: str, predicate: str) -> str:
    told = {"predicate": predicate, "runtime": runtime}
    text = json.dumps(told, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def asked(amount: int = 1, predicate: str = "big", runtime: str = "default") -> dict[str, Any]:
    """A predicate's call as the service offers it."""
    identity = {"toolUseId": "wrk_7", "queryId": "qry_1", "threadId": "thr_1", "agent": "clerk"}
    return {
        "purpose": "predicate",
        "name": f"predicates.{predicate}",
        "definitionDigest": digest(runtime, predicate),
        "args": {"amount": amount},
        "predicate": CTX,
        "context": {**identity, "runtimeId": "rt_1"},
    }


# What the function gets and gives.


async def test_a_function_is_registered_as_a_predicate_of_this_process(service: FakeService) -> None:
    async with service.runtime(spec(), approval_predicates={"big": lambda args, ctx: True}):
        (registered,) = service.bodies("POST", "/runtimes")
        assert registered["approvalPredicates"] == {"big": {"kind": "client"}}
        assert registered["approvalOverrides"]["tools"] == {"clerk": {"pay": BIG}}
        (claim,) = service.bodies("POST", "/tool-calls/claim")[:1]
        # sha256 of {"predicate":"big","runtime":"default"}
        (served,) = claim["tools"]
        assert served == {
            "name": "predicates.big",
            "definitionDigest": "6ff48bf7750b6789a5303e7752b129c25e01d3ccaa5dc1bf5fd6885130566a67",
        }


@pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])
async def test_a_function_decides_about_arguments_and_context(service: FakeService, sync: bool) -> None:
    seen: list[tuple[Any, Any, str]] = []

    def decide(args: Any, ctx: Any) -> bool:
        seen.append((args, ctx, threading.current_thread().name))
        return bool(args["amount"] > 100)

    async def awaited(args: Any, ctx: Any) -> bool:
        return decide(args, ctx)

    async with service.runtime(spec(), approval_predicates={"big": decide if sync else awaited}):
        assert await service.outcome(asked(amount=101)) == {"output": True}
        assert await service.outcome(asked(amount=100)) == {"output": False}
    assert [(args, dict(ctx)) for args, ctx, _ in seen] == [({"amount": 101}, CTX), ({"amount": 100}, CTX)]
    assert all(thread.startswith("plangate-call") == sync for _, _, thread in seen)


@pytest.mark.parametrize(
    ("returned", "kind"),
    [(None, "None"), (1, "a int"), ("true", "a str"), ({"output": True}, "a dict")],
)
async def test_only_a_bool_is_an_answer(service: FakeService, returned: Any, kind: str) -> None:
    async with service.runtime(spec(), approval_predicates={"big": lambda args, ctx: returned}):
        assert await service.outcome(asked()) == {
            "error": "TypeError: the approval predicate 'big' must return a bool, True where an approval is "
            f"required, not {kind}"
        }


async def test_an_exception_of_a_predicate_is_reported(service: FakeService) -> None:
    def broken(args: Any, ctx: Any) -> bool:
        raise LookupError("no such customer")

    async with service.runtime(spec(), approval_predicates={"big": broken}):
        assert await service.outcome(asked()) == {"error": "LookupError: no such customer"}


async def test_only_function_predicates_are_served(service: FakeService) -> None:
    """Under the runtime's name, so that a runtime of another name is not asked."""
    late = {"odd": lambda args, ctx: True, "big": "args.amount > 100"}
    defined = spec(name="desk", approval_predicates={"big": lambda args, ctx: True, "ünused": bool_of})
    async with service.runtime(defined, approval_predicates=late):
        (registered,) = service.bodies("POST", "/runtimes")
        assert registered["approvalPredicates"] == {
            "big": "args.amount > 100",
            "ünused": {"kind": "client"},
            "odd": {"kind": "client"},
        }
        assert service.bodies("POST", "/tool-calls/claim")[0]["tools"] == [
            {"name": "predicates.ünused", "definitionDigest": digest("desk", "ünused")},
            {"name": "predicates.odd", "definitionDigest": digest("desk", "odd")},
        ]
        assert await service.outcome(asked(predicate="ünused", runtime="desk")) == {"output": True}


def bool_of(args: Any, ctx: Any) -> bool:
    return bool(args)


@pytest.mark.parametrize("form", ["wire", "model"])
async def test_a_spec_as_data_gets_its_functions_at_opening(service: FakeService, form: str) -> None:
    data = spec(approval_predicates={"big": bool_of})
    given = data.wire if form == "wire" else data.spec
    async with service.runtime(given, approval_predicates={"big": bool_of}):
        assert await service.outcome(asked()) == {"output": True}


# What is refused, before anything is sent.


def opened(defined: Any, **parts: Any) -> plangate.Runtime:
    return plangate.create_runtime(defined, url="http://127.0.0.1:9", api_key="key", **parts)


NOT_GIVEN = (
    "the approval predicate 'big' is a function, and it was not given: pass it to create_runtime, as "
    "approval_predicates={'big': function} with a function (args, ctx)"
)


@pytest.mark.parametrize(
    "make",
    [
        lambda: opened(spec(approval_predicates={"big": {"kind": "client"}})),
        lambda: opened(spec(approval_predicates={"big": bool_of}).wire),
        lambda: opened(spec(approval_predicates={"big": bool_of}).spec),
    ],
    ids=["defined", "wire", "model"],
)
def test_a_missing_function_is_reported_at_once(make: Any) -> None:
    with pytest.raises(ValueError, match="approval predicate") as refused:
        make()
    assert str(refused.value) == NOT_GIVEN


def test_an_unregistered_predicate_is_rejected_at_once() -> None:
    told = "the approval of tool 'pay' names the predicate 'big', which is not registered: add it to 'approvalPredicates'"
    with pytest.raises(ValueError, match="not registered") as refused:
        opened(spec())
    assert told in str(refused.value)
    with pytest.raises(ValueError, match="not registered") as refused:
        opened(spec().wire, approval_predicates={"bigg": bool_of})
    assert f"{told}; did you mean 'bigg'?" in str(refused.value)
    with pytest.raises(ValueError, match="not registered") as refused:
        spec(approval_predicates={"small": "true"})
    assert f"{told}; known are small" in str(refused.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            ["big"],
            "approval_predicates is a mapping of ids to CEL expressions or functions (args, ctx), not a list",
        ),
        ({"big": 3}, "the approval predicate 'big' is a CEL expression or a function (args, ctx), not a int"),
        (
            {"big": lambda args: True},
            "the approval predicate 'big' must take (args, ctx), but takes (args)",
        ),
    ],
)
@pytest.mark.parametrize(
    "make",
    [
        lambda given: spec(approval_predicates=given),
        lambda given: opened(spec(), approval_predicates=given),
        lambda given: opened(spec().wire, approval_predicates=given),
    ],
    ids=["define", "open", "open-data"],
)
def test_an_invalid_predicate_is_rejected(make: Any, given: Any, message: str) -> None:
    with pytest.raises(TypeError) as refused:
        make(given)
    assert str(refused.value) == message
