"""A large spec is checked in a separate process, with the same result as a small one."""

from __future__ import annotations

from typing import Any

import pytest

from app.base.json.process_pool import JsonProcessPool, ProcessLimits
from app.runtimes.large_specs import LARGE_SPEC_BYTES
from tests.support import specs
from tests.support.client import Caller, good, refused
from tests.support.json_processes import note_functions
from tests.support.world import World

LONG = "x" * (LARGE_SPEC_BYTES // 2)


def large(*tools: dict[str, Any], **parts: Any) -> dict[str, Any]:
    names = [tool["name"] for tool in tools]
    described = [specs.tool(f"described{n}", description=LONG) for n in range(3)]
    return specs.spec(specs.agent(tools=names), tools=[*tools, *described], interpreter="mock", **parts)


@pytest.fixture
def in_processes(plangate: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The functions that processes ran."""
    return note_functions(monkeypatch)


async def test_a_large_spec_is_registered_and_runs(api: Caller, in_processes: list[str]) -> None:
    spec = large(mockResponse="Hello.")
    checked = good(await api.post("/runtimes/validate", spec))
    made = await api.register(spec)
    assert in_processes == ["parse_spec", "assemble_large_spec"] * 2
    assert checked["spec"] == made["spec"]
    assert made["spec"]["tools"][2]["description"] == LONG
    again = await api.post("/runtimes", spec)
    assert (again.status_code, again.json()["id"]) == (200, made["id"])
    assert (await api.read(f"/runtimes/{made['id']}"))["spec"] == made["spec"]
    assert (await api.run())["output"] == "Hello."


async def test_a_large_spec_has_the_problems_of_a_small_one(api: Caller, in_processes: list[str]) -> None:
    small = specs.spec(specs.agent(tools=[f"gone{n}" for n in range(30)]), colour="red")
    whole = {**small, "data": {"x": LONG * 3}}
    expected = good(await api.post("/runtimes/validate", small))
    assert good(await api.post("/runtimes/validate", whole)) == expected
    assert refused(await api.post("/runtimes", whole), 422)["errors"] == expected["errors"]
    assert in_processes == ["parse_spec", "assemble_large_spec"] * 2


async def test_secrets_of_a_large_spec_are_moved(plangate: World, api: Caller) -> None:
    made = await api.register(large(providers={"openai": {"apiKey": "sk-literal"}}))
    assert "sk-literal" not in str(made)
    assert made["spec"]["providers"]["openai"]["apiKey"].keys() == {"secret"}
    assert await plangate.value("SELECT count(*) FROM secrets") == 1


async def test_a_large_spec_of_another_tenant_is_rejected(api: Caller, plangate: World) -> None:
    key = await plangate.key("runtimes:write")
    refused(await key.post("/runtimes", {**large(), "tenant": {"resourceId": "other"}}), 404, "not_found")
    checked = good(await key.post("/runtimes/validate", {**large(), "tenant": {"resourceId": "other"}}))
    assert checked["errors"] == [{"pointer": "/tenant/resourceId", "message": "must be 'acme'"}]


@pytest.mark.parametrize("body", [[LONG] * 3, LONG * 3])
async def test_a_large_body_that_is_not_an_object_is_rejected(api: Caller, body: Any) -> None:
    refused(await api.post("/runtimes", body), 422, "invalid")


async def test_a_large_body_that_is_not_json_is_malformed(api: Caller) -> None:
    text = '{"name": "' + LONG * 3
    response = await api.request(
        "POST", "/runtimes", content=text, headers={"content-type": "application/json"}
    )
    refused(response, 400, "malformed")


async def test_a_spec_that_takes_too_much_memory_is_rejected(plangate: World, api: Caller) -> None:
    limits = ProcessLimits(
        memory_bytes=1, poll_ms=0
    )  # measured before the first answer, however fast that is
    plangate.services.runtimes.processes = JsonProcessPool(limits)
    problem = refused(await api.post("/runtimes", large()), 413, "too_large")
    assert problem["detail"].startswith("The value needs more memory or time")
    good(await api.post("/runtimes", specs.mock()))
