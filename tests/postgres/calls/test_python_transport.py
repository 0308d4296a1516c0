"""Tools and dispatchers with the transport `python`: entry points that the operator installed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from app.deployment import Deployment
from app.tools.transports.python import installed_functions
from tests.support import specs
from tests.support.client import Caller, inner, output_of, refused
from tests.support.cluster import Cluster
from tests.support.world import World, world

MODULE = '''
"""What an operator wrote."""
import asyncio
import threading

CALLS = []
HELD = threading.Event()


def add(args, ctx):
    CALLS.append((dict(args), ctx.tool_use_id, ctx.work_id, ctx.agent, ctx["resource_id"]))
    return {"sum": args["n"] + 1}


async def add_later(args, ctx):
    await asyncio.sleep(0)
    return args["n"] + 2


def refuse(args, ctx):
    raise LookupError("no such order")


def give_up(args, ctx):
    raise TimeoutError("the ledger is slow")


def leave(args, ctx):
    raise SystemExit(3)


async def leave_later(args, ctx):
    raise SystemExit(3)


def run_out(args, ctx):
    raise StopIteration


def count(args, ctx):
    return 2**64


def spell(args, ctx):
    return "a\\0b"


def flood(args, ctx):
    return "x" * (16 * 1024 * 1024)


async def hang(args, ctx):
    await asyncio.Event().wait()


def block(args, ctx):
    HELD.wait(10)


def carry(actions, ctx):
    CALLS.append(([a["kind"] for a in actions], ctx.plan_id, ctx.attempt, ctx["resolved_refs"], ctx.idempotency_key))
    return {"entitiesAffected": len(actions)}


not_callable = 5
'''
RAISING = ("refuse", "give_up", "leave", "leave_later", "run_out")
NAMES = ("add", "add_later", *RAISING, "count", "spell", "flood", "hang", "block", "carry", "not_callable")


@pytest.fixture
def operator_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An installed distribution with entry points; gives its module once it is imported."""
    (tmp_path / "operators_tools.py").write_text(MODULE)
    info = tmp_path / "operators_tools-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: operators-tools\nVersion: 1.0\n")
    points = [f"ledger.{name} = operators_tools:{name}" for name in NAMES]
    broken = "ledger.broken = operators_tools_that_is_not_there:x"
    (info / "entry_points.txt").write_text("\n".join(["[plangate.tools]", *points, broken, ""]))
    monkeypatch.syspath_prepend(str(tmp_path))
    installed_functions.cache_clear()
    yield lambda: sys.modules["operators_tools"]
    installed_functions.cache_clear()
    module = sys.modules.pop("operators_tools", None)
    if module is not None:
        module.HELD.set()


@pytest_asyncio.fixture
async def plangate(cluster: Cluster, site: Deployment, operator_code: Any) -> AsyncIterator[World]:
    async with world(site, cluster.operator_key) as running:
        yield running


def spec(function: str, **tool: Any) -> dict[str, Any]:
    transport = {"kind": "python", "entryPoint": f"ledger.{function}"}
    return specs.scripted({**specs.tool("add"), "transport": transport, **tool})


async def answered(api: Caller) -> dict[str, Any]:
    found: dict[str, Any] = output_of(await api.run(specs.script(("add", {"n": 1}))))[0]
    return found


async def test_a_function_gets_the_arguments_and_the_call(api: Caller, operator_code: Any) -> None:
    await api.register(spec("add"))
    assert (await answered(api))["result"] == {"sum": 2}
    ((args, use_id, work_id, agent, tenant),) = operator_code().CALLS
    assert (args, use_id, agent, tenant) == ({"n": 1}, "scripted-tool-1", "solo", "acme")
    assert work_id.startswith("wrk_")
    (call,) = (await api.read("/tool-calls"))["items"]
    assert (call["workId"], call["sender"], call["status"]) == (work_id, "service", "done")


@pytest.mark.parametrize(
    ("function", "told"),
    [
        ("refuse", "LookupError: no such order"),
        ("give_up", "TimeoutError: the ledger is slow"),
        ("leave", "SystemExit: 3"),
        ("leave_later", "SystemExit: 3"),
        ("run_out", "RuntimeError: coroutine raised StopIteration"),
        (
            "count",
            "add ran, but its result cannot be kept: The value cannot be written as JSON: Integer exceeds 64-bit "
            "range",
        ),
        (
            "flood",
            "add ran, but its result cannot be kept: it has 16777218 bytes, and the most is 16777216.",
        ),
        (
            "not_callable",
            "Nothing was called: TypeError: the entry point 'ledger.not_callable' is not a function",
        ),
        (
            "broken",
            "Nothing was called: ModuleNotFoundError: No module named 'operators_tools_that_is_not_there'",
        ),
    ],
)
async def test_exceptions_are_errors_for_the_model(api: Caller, function: str, told: str) -> None:
    await api.register(spec(function))
    assert (await answered(api))["error"] == told


async def test_a_result_that_is_not_json_is_an_error(api: Caller) -> None:
    await api.register(spec("spell"))
    assert (await answered(api))["error"].startswith(
        "add ran, but its result cannot be kept: A string contains NUL (\\u0000), which cannot be stored. "
    )


async def test_async_functions_run_on_the_loop(api: Caller) -> None:
    await api.register(spec("add_later"))
    assert (await answered(api))["result"] == 3


@pytest.mark.parametrize("function", ["hang", "block"])
async def test_a_function_that_exceeds_its_timeout_is_unknown(api: Caller, function: str) -> None:
    await api.register(spec(function, timeoutMs=100))
    assert (await answered(api))["error"] == (
        "It is unknown whether add ran: it did not return within 0.1 s. Check before you repeat it."
    )


async def test_an_unknown_entry_point_is_rejected_at_registration(api: Caller) -> None:
    (flaw,) = refused(await api.post("/runtimes", spec("nothing")), 422)["errors"]
    assert flaw["pointer"] == "/tools/0/transport/entryPoint"
    assert flaw["message"].startswith(
        "no entry point 'ledger.nothing' is installed in the group plangate.tools; expected one of: ledger.add"
    )


async def test_a_process_without_the_function_reports_it(
    cluster: Cluster, site: Deployment, plangate: World, api: Caller
) -> None:
    """The operator took it out after it was registered."""
    await api.register(spec("add"))
    await plangate.services.worker.drain(0)
    sys.path.pop(0)
    installed_functions.cache_clear()
    async with world(site, cluster.operator_key) as bare:
        async with asyncio.timeout(10):
            told = (await answered(bare.api))["error"]
    assert told == (
        "Nothing was called: LookupError: this process has no entry point 'ledger.add' in the group plangate.tools"
    )


async def test_approved_actions_reach_a_function(api: Caller, operator_code: Any) -> None:
    await api.register(specs.planning(actionDispatcher={"kind": "python", "entryPoint": "ledger.carry"}))
    query = (await api.submit(specs.store_and_execute()))["id"]
    await api.approve(query)
    assert inner(output_of(await api.ended(query))[1])["entitiesAffected"] == 2
    plan = (await api.read("/plans"))["items"][0]
    ((kinds, plan_id, attempt, refs, key),) = operator_code().CALLS
    assert (kinds, plan_id, attempt, refs, len(key)) == (["book", "refund"], plan["id"], 1, {}, 40)
