"""The path of a tool call: invalid calls, unclaimed calls, nested agents."""

from __future__ import annotations

import json
from typing import Any

import pytest
from plangate.spec.toolkits import TEAM_TOOLS

from tests.support import specs
from tests.support.client import Caller, eventually, good, output_of, refused
from tests.support.models import calls, results, says, thinks, turn_of
from tests.support.world import World

SCHEMA_SAYS = "The arguments do not match the tool's schema, so the call was not made: "


@pytest.mark.parametrize(
    ("name", "written", "code", "told"),
    [
        ("ad", "{}", "unknown_tool", "There is no tool 'ad'. You can call: add."),
        ("Add", '{"n": 1}', "unknown_tool", "There is no tool 'Add'. You can call: add."),
        ("pay", '{"n": 1}', "unknown_tool", "There is no tool 'pay'. You can call: add."),
        ("add", '{"n": "1"}', "bad_arguments", SCHEMA_SAYS + '/n: must be integer, not "1"'),
        ("add", "", "bad_arguments", SCHEMA_SAYS + '/: the property "n" is missing'),
        ("add", "[1]", "bad_arguments", "The arguments must be a JSON object; the call was not made."),
        ("add", '{"n": 1', "bad_arguments", "The arguments are not valid JSON, so the call was not made: "),
        (
            "add",
            '{"n": 1, "n": 2}',
            "bad_arguments",
            "The arguments are not valid JSON, so the call was not made: ",
        ),
        (
            "add",
            '{"n": NaN}',
            "bad_arguments",
            "The arguments are not valid JSON, so the call was not made: ",
        ),
        (
            "add",
            '{"n": "\0"}',
            "bad_arguments",
            "The arguments are not valid JSON, so the call was not made: ",
        ),
        (
            "add",
            r'{"n": "\u0000"}',
            "bad_arguments",
            "The arguments are not valid JSON, so the call was not made: ",
        ),
        (
            "add",
            '{"n": "\ud800"}',
            "bad_arguments",
            "The arguments are not valid JSON, so the call was not made: ",
        ),
        (
            "add",
            r'{"n": "\ud800"}',
            "bad_arguments",
            "The arguments are not valid JSON, so the call was not made: ",
        ),
        ("add", "\udfff", "bad_arguments", "The arguments are not valid JSON, so the call was not made: "),
        ("a\0d", '{"n": 1}', "unknown_tool", "There is no tool 'a_d'. You can call: add."),
        ("add\ud800", '{"n": 1}', "unknown_tool", "There is no tool 'add_'. You can call: add."),
    ],
)
async def test_an_invalid_call_is_an_error_for_the_model(
    plangate: World, api: Caller, name: str, written: str, code: str, told: str
) -> None:
    """No gate, no predicate, no intent: although every call of this tool would ask a person."""
    tools = [specs.tool("add", approval={"kind": "dynamic", "value": "p"}), specs.tool("pay")]
    agents = [specs.agent(tools=["add"]), specs.agent("other", tools=["pay"])]
    await api.register(specs.scripted(*tools, agents=agents, approvalPredicates={"p": {"kind": "client"}}))
    model = thinks(plangate, lambda r: calls((name, written)) if turn_of(r) == 1 else says(results(r)[0]))
    query = await api.run(agent="solo")
    assert query["output"].startswith(told)
    assert told.endswith(": ") or query["output"] == told
    assert model.heard[1].messages[-1].blocks[0].is_error  # type: ignore[union-attr]
    assert (await api.read("/tool-calls"))["items"] == (await api.read("/approvals"))["items"] == []
    (failed,) = [e for e in await api.events(query["id"], "tool-invocation") if e["state"] == "error"]
    assert failed["error"] == {"code": code, "message": query["output"]}


async def test_no_call_of_a_truncated_turn_is_made(plangate: World, api: Caller) -> None:
    """Also one that looks whole: what follows it may belong to it."""
    await api.register(specs.scripted(specs.tool("add", approval="always")))
    cut = calls(("add", {"n": 1}), ("add", '{"n"'), stop_reason="max_tokens")
    thinks(plangate, lambda r: cut if turn_of(r) == 1 else says(json.dumps(results(r))))
    query = await api.run()
    told = (
        "The turn was cut at the model's output limit, so this call was not made: its arguments may be incomplete. "
        "Write shorter arguments, or make fewer calls in one turn."
    )
    assert json.loads(query["output"]) == [told, told]
    assert (await api.read("/tool-calls"))["items"] == (await api.read("/approvals"))["items"] == []


async def test_a_truncated_turn_without_calls_ends_the_run(plangate: World, api: Caller) -> None:
    await api.register(specs.mock())
    thinks(plangate, lambda _: calls(stop_reason="max_tokens"))
    query = await api.run()
    (finish,) = await api.events(query["id"], "finish")
    assert (query["status"], finish["finishReason"]) == ("succeeded", "max_tokens")


# -- what is too large


@pytest.mark.parametrize(
    ("own", "shown"),
    [({"rows": 1000}, {"rows": 1000}), ("y" * 4094, "y" * 4094), ("y" * 4095, None), (None, None)],
)
async def test_a_large_result_keeps_its_own_small_glimpse(api: Caller, own: Any, shown: Any) -> None:
    reader = specs.agent(tools=["add"], toolkits=["references"])
    await api.register(specs.scripted(specs.tool("add"), agents=[reader]))
    query = (await api.submit(specs.script(("add", {"n": 1}))))["id"]
    value = {"glimpse": own, "rows": ["x" * 100] * 1000}
    await api.serve("add", value)
    (entry,) = output_of(await api.ended(query))
    found = entry["result"]
    size = len(json.dumps(value, separators=(",", ":")))
    assert found.keys() == {"kind", "id", "glimpse", "sizeBytes", "note"}
    assert (found["kind"], found["sizeBytes"]) == ("ToolResult", size)
    assert found["note"] == (
        f"The result of add has {size} bytes, too many for a prompt. It is kept under this handle: pass the handle on, "
        "or read a part with resolveRef and a path."
    )
    if shown is not None:
        assert found["glimpse"] == shown
    else:
        assert 0 < len(json.dumps(found["glimpse"])) <= 4200


@pytest.mark.parametrize("toolkits", [[], [{"id": "references", "config": {"tools": ["glimpseRef"]}}]])
async def test_an_agent_without_a_reader_is_not_pointed_to_one(api: Caller, toolkits: Any) -> None:
    agents = [specs.agent(tools=["add"], toolkits=toolkits)]
    await api.register(specs.scripted(specs.tool("add"), agents=agents))
    query = (await api.submit(specs.script(("add", {"n": 1}))))["id"]
    await api.serve("add", "x" * 70_000)
    (entry,) = output_of(await api.ended(query))
    assert entry["result"]["note"] == (
        "The result of add has 70000 bytes, too many for a prompt. It is kept under this handle: pass the handle on, or "
        "ask for less: you have no tool that reads it."
    )


async def test_a_result_that_cannot_be_stored_is_an_error(api: Caller) -> None:
    """As it came it had fewer than 16 MiB; as it is stored, numbers are longer."""
    await api.register(specs.scripted(specs.tool("add")))
    query = (await api.submit(specs.script(("add", {"n": 1}))))["id"]
    (call,) = await api.claim("add")
    body = f'{{"claimToken": "{call["claimToken"]}", "output": [{",".join(["1e5"] * 2_500_000)}]}}'
    headers = {"content-type": "application/json"}
    path = f"/tool-calls/{call['workId']}/result"
    assert (await api.request("POST", path, content=body, headers=headers)).status_code == 200
    (entry,) = output_of(await api.ended(query))
    assert entry["error"].startswith("add ran, but its result cannot be kept. ")


async def test_a_result_needs_an_output_or_an_error(api: Caller) -> None:
    """A tool that returned nothing says so: its output is null."""
    await api.register(specs.scripted(specs.tool("add")))
    query = (await api.submit(specs.script(("add", {"n": 1}))))["id"]
    (call,) = await api.claim("add")
    path, token = f"/tool-calls/{call['workId']}/result", {"claimToken": call["claimToken"]}
    for incomplete in ({}, {"error": None}):
        problem = refused(await api.post(path, token | incomplete), 422)
        (error,) = problem["errors"]
        assert error["message"].endswith(
            'send output or error; send "output": null if the tool returned nothing'
        )
    good(await api.post(path, token | {"output": None}))
    (entry,) = output_of(await api.ended(query))
    assert entry["result"] is None


# -- what nobody takes


@pytest.mark.parametrize(
    ("transport", "seconds"), [("client", 3600), ({"kind": "client", "claimWithinMs": 5000}, 5)]
)
async def test_an_unclaimed_call_becomes_an_error(
    plangate: World, api: Caller, owner: Any, transport: Any, seconds: int
) -> None:
    await api.register(specs.scripted(specs.tool("add", transport=transport)))
    query = (await api.submit(specs.script(("add", {"n": 1}))))["id"]
    await api.until(query, "waiting", "client_call")
    await eventually(lambda: lets_go(plangate), "no worker holds it")
    row = "SELECT extract(epoch FROM claim_before - created_at) FROM outgoing_calls"
    assert await owner.fetchval(row) == seconds
    await owner.execute("UPDATE outgoing_calls SET claim_before = now()")
    await plangate.services.calls.lapse_due()
    (entry,) = output_of(await api.ended(query))
    assert entry == {
        "tool": "add",
        "error": "No process claimed the call of add in time, so it was not made.",
    }
    (failed,) = [e for e in await api.events(query, "tool-invocation") if e["state"] == "error"]
    assert failed["error"]["code"] == "not_served"


async def lets_go(plangate: World) -> bool:
    return plangate.services.worker.busy == 0


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("heartbeat", {}),
        ("progress", {"label": "halfway"}),
        ("result", {"output": 1}),
        ("result", {"error": "no"}),
        ("release", {}),
    ],
)
async def test_a_call_needs_a_claim_for_every_request(api: Caller, verb: str, body: dict[str, Any]) -> None:
    await api.register(specs.scripted(specs.tool("add")))
    query = (await api.submit(specs.script(("add", {"n": 1}))))["id"]
    (call,) = await api.claim("add")
    path = f"/tool-calls/{call['workId']}/{verb}"
    refused(await api.post(path, {"claimToken": "another", **body}), 409, "claim_lapsed")
    refused(await api.post(path, body), 422)
    assert await api.events(query, "tool-progress") == []
    good(await api.result(call, 2))
    assert output_of(await api.ended(query)) == [{"tool": "add", "result": 2}]


# -- agents


async def test_cancelling_a_parent_cancels_its_children(plangate: World, api: Caller) -> None:
    """At every depth: a gate, an open call and the agents between."""
    tools = [specs.tool("add"), specs.tool("pay", approval="always")]
    agents = [
        specs.agent("chief", "coordinator", routes=["middle"]),
        specs.agent("middle", routes=["one", "two"], toolkits=["agents"]),
        specs.agent("one", tools=["add"]),
        specs.agent("two", tools=["pay"]),
    ]
    await api.register(specs.scripted(*tools, agents=agents))

    def answer(request: Any) -> Any:
        if turn_of(request) > 1:
            return says("done")
        if "chief" in request.system:
            return calls(("call_agent", {"agent": "middle", "prompt": "go"}))
        if "middle" in request.system:
            return calls(*(("call_agent", {"agent": name, "prompt": "go"}) for name in ("one", "two")))
        return calls(("add" if "You are one." in request.system else "pay", {"n": 1}))

    thinks(plangate, answer)
    query = (await api.submit())["id"]
    await api.gate(query)
    await api.until(query, "waiting")
    ended = await api.do(f"/queries/{query}/cancel")
    assert ended["status"] == "cancelled"
    work = (await api.read(f"/queries/{query}/work"))["items"]
    assert sorted((w["kind"], w["name"], w["status"]) for w in work if w["kind"] != "model_call") == [
        ("agent", "chief", "cancelled"),
        ("agent", "middle", "cancelled"),
        ("agent", "one", "cancelled"),
        ("agent", "two", "cancelled"),
        ("query", "agent", "cancelled"),
        ("tool_call", "add", "cancelled"),
        ("tool_call", "call_agent", "cancelled"),
        ("tool_call", "call_agent", "cancelled"),
        ("tool_call", "call_agent", "cancelled"),
        ("tool_call", "pay", "cancelled"),
    ]
    assert [c["status"] for c in (await api.read("/tool-calls"))["items"]] == ["withdrawn"]
    assert [a["status"] for a in (await api.read("/approvals"))["items"]] == ["cancelled"]


async def test_a_called_agent_has_its_own_transcript_model_and_tools(plangate: World, api: Caller) -> None:
    """And its structured answer is what the calling one reads."""
    agents = [
        specs.agent("chief", "coordinator", routes=["helper"], model={"id": "large", "provider": "noop"}),
        specs.agent(
            "helper",
            tools=["add"],
            model={"id": "small", "provider": "noop"},
            outputSchema={"type": "object", "required": ["sum"]},
        ),
    ]
    await api.register(specs.spec(*agents, tools=[specs.tool("add")]))

    def answer(request: Any) -> Any:
        if "helper" in request.system:
            return says('{"sum": 3}' if turn_of(request) == 2 else "three")
        ask = ("call_agent", {"agent": "helper", "prompt": {"add": [1, 2]}})
        return calls(ask) if turn_of(request) == 1 else says(results(request)[0])

    model = thinks(plangate, answer)
    assert (await api.run("What is 1 + 2?"))["output"] == '{"sum": 3}'
    helper = model.heard[1]
    assert [(r.model, [t.name for t in r.tools]) for r in model.heard[:2]] == [
        ("large", ["call_agent", *TEAM_TOOLS]),
        ("small", [*TEAM_TOOLS, "add"]),
    ]
    assert [b.text for m in helper.messages for b in m.blocks] == ['{"add":[1,2]}']  # type: ignore[union-attr]


async def test_a_script_gets_the_errors_of_its_calls(api: Caller) -> None:
    await api.register(specs.scripted(specs.tool("add")))
    calls = ['{"tool": "a\\u0000b"}', *(f'{{"tool": "add", "args": {{"n": {n}}}}}' for n in ODD_NUMBERS)]
    query = await api.run(f'{{"script": [{", ".join(calls)}]}}')
    assert query["status"] == "succeeded"
    errors = [entry["error"] for entry in output_of(query)]
    assert errors[0] == "There is no tool 'a_b'. You can call: add."
    assert len(errors) == 1 + len(ODD_NUMBERS)
    assert all(
        e.startswith("The arguments are not valid JSON, so the call was not made: ") for e in errors[1:]
    )


ODD_NUMBERS = ("NaN", "1e999", '"\\u0000"', '"\\ud800"')
