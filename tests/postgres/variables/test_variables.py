"""Variables in tool calls, end to end: values move, and the model sees paths and receipts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.variables import service as agent_variables
from tests.postgres.approvals.test_gates import together
from tests.support import specs
from tests.support.client import Caller, eventually, good, output_of, refused
from tests.support.world import World, world

ANY: dict[str, Any] = {"inputSchema": {"type": "object"}}
ROWS = {
    "inputSchema": {"type": "object", "properties": {"rows": {"type": "array"}, "n": {"type": "integer"}}}
}
LOOK, PAY = specs.tool("look", **ANY), specs.tool("pay", **ROWS)


def spec(*tools: Any, toolkits: Any = ("variables",), **parts: Any) -> dict[str, Any]:
    tools = tools or (LOOK, PAY)
    agents = parts.pop("agents", None)
    solo = specs.agent(tools=[t["name"] for t in tools], toolkits=list(toolkits))
    return specs.scripted(*tools, agents=agents or [solo], **parts)


async def served(api: Caller, query: str, name: str, output: Any = None, **parts: Any) -> Any:
    """The arguments that a call of a tool had."""
    return (await api.serve(name, output, **parts))["args"]


async def state(api: Caller, query: dict[str, Any], **at: Any) -> Any:
    return (await api.read(f"/threads/{query['threadId']}/state", **at))["document"]


async def test_a_value_passes_from_one_call_to_the_next(api: Caller) -> None:
    """And neither call's result nor arguments are in what the model reads."""
    await api.register(spec())
    rows = [{"id": n, "text": "†state.x" if n == 3 else "row " * 20} for n in range(300)]
    query = await api.submit(
        specs.script(
            ("look", {"who": "†input.user.name", "_outputPath": "†state.found.rows"}),
            ("pay", {"rows": "†state.found.rows", "n": "†input.n"}),
            ("pay", {"rows": ["†state.found.rows.3.text", "††state", "a † b", "†state.found.rows.0"]}),
        ),
        inputs={"user": {"name": "Ann"}, "n": 2**63 - 1},
    )
    assert await served(api, query["id"], "look", rows) == {"who": "Ann"}
    assert await served(api, query["id"], "pay", "ok") == {"rows": rows, "n": 2**63 - 1}
    assert await served(api, query["id"], "pay", "ok") == {"rows": ["†state.x", "†state", "a † b", rows[0]]}
    ended = await api.ended(query["id"])
    receipt = output_of(ended)[0]["result"]
    assert receipt["written"] == [{"path": "†state.found.rows", "method": "set", "write": 1}]
    assert (receipt["type"], receipt["glimpse"]["count"]) == ("an array of 300", 300)
    assert await state(api, query) == {"found": {"rows": rows}}
    told = await api.events(query["id"], "tool-invocation", "state-write")
    assert [e["data"] for e in told if e["type"] == "state-write"] == [
        {"path": "†state.found.rows", "method": "set", "write": 1}
    ]
    calls = [e for e in told if e["type"] == "tool-invocation"]
    assert calls[2]["args"] == {"rows": "†state.found.rows", "n": "†input.n"}
    assert "row row" * 20 not in json.dumps(told)
    writer = next(e for e in told if e["type"] == "state-write")
    assert writer["workId"] == calls[0]["workId"]


async def test_state_lasts_across_queries_and_data_objects_do_not(api: Caller) -> None:
    await api.register(spec(data={"rates": {"eur": 1}, "shop": {"name": "base"}}))
    first = await api.submit(
        specs.script(
            ("look", {"a": "†shop.name", "b": "†rates.eur", "_outputPath": "†list", "_outputMethod": "push"}),
            ("look", {"a": "†list", "_outputPath": "†state.n"}),
            ("look", {"_outputPath": "†shop.size"}),
            ("look", {"a": "†shop"}),
        ),
        data={"shop": {"name": "mine"}},
        threadKey="t",
    )
    assert await served(api, first["id"], "look", 7) == {"a": "mine", "b": 1}
    assert await served(api, first["id"], "look", 5) == {"a": [7]}
    assert await served(api, first["id"], "look", "XL") == {}
    assert await served(api, first["id"], "look") == {"a": {"name": "mine", "size": "XL"}}
    await api.ended(first["id"])
    second = await api.submit(
        specs.script(("look", {"a": "†state.n", "b": "†shop"}), ("look", {"a": "†list"})), threadKey="t"
    )
    assert await served(api, second["id"], "look") == {"a": 5, "b": {"name": "base"}}
    error = output_of(await api.ended(second["id"]))[1]["error"]
    assert error.startswith('The call was not made. /a is "†list", which has no value: there is no †list')
    elsewhere = await api.run(specs.script(("look", {"a": "†state.n"})))
    assert '"†state" has no "n", it is empty.' in output_of(elsewhere)[0]["error"]


async def test_references_are_hydrated_outside_of_the_prompt(api: Caller, owner: Any) -> None:
    kind = {"name": "Basket", "schema": {"type": "object"}, "ttlMs": 60_000}
    await api.register(spec(references=[kind]))
    made = await api.do("/references", {"runtime": "default", "kind": "Basket", "value": {"rows": [1, 2]}})
    path = f"†ref.Basket.{made['id']}"
    query = await api.submit(specs.script(("pay", {"rows": f"{path}.rows"})))
    assert await served(api, query["id"], "pay") == {"rows": [1, 2]}
    await api.ended(query["id"])
    await owner.execute("UPDATE reference_values SET expires_at = now() - interval '1 s'")
    gone = await api.submit(
        specs.script(
            ("pay", {"rows": f"{path}.rows"}),
            ("pay", {"rows": "†ref.Basket"}),
            ("pay", {"rows": f"{path}.rows || †input.rows"}),
            ("pay", {"rows": "†artifact.art_1.content"}),
        ),
        inputs={"rows": [3]},
    )
    assert await served(api, gone["id"], "pay") == {"rows": [3]}
    first, second, _, fourth = output_of(await api.ended(gone["id"]))
    assert "has expired; create it again." in first["error"]
    assert "a stored reference is †ref.<Kind>.<id>" in second["error"]
    assert "has no value: There is no artifact 'art_1'." in fourth["error"]
    codes = [e["error"]["code"] for e in await api.events(gone["id"], "tool-invocation") if "error" in e]
    assert codes == ["variable_error"] * 3


async def test_artifacts_are_read_outside_of_the_prompt(plangate: World, api: Caller) -> None:
    """The record, and the text as it was published, whatever the file is by now."""
    await api.register(spec())
    thread = str((await api.do("/threads", {"threadKey": "t"}))["id"])

    async def published(path: str, data: bytes) -> str:
        await api.request("PUT", f"/threads/{thread}/files/{path}", content=data)
        asked = {"threadId": thread, "channel": "design", "path": path, "title": "Nr. 1"}
        return str((await api.do("/artifacts", asked))["id"])

    id, binary = await published("a.md", "†state é".encode()), await published("b", b"\xff")
    await api.request("PUT", f"/threads/{thread}/files/a.md", content=b"changed")
    query = await api.submit(
        specs.script(
            ("look", {"a": f"†artifact.{id}.content", "b": f"†artifact.{id}.title"}),
            ("look", {"a": f"†artifact.{id}.nothing || †artifact.{id}.targetChanged"}),
            ("look", {"a": f"†artifact.{binary}.content"}),
            ("look", {"a": "†artifact"}),
            ("look", {"a": 1, "_outputPath": f"†artifact.{id}"}),
        ),
        threadKey="t",
    )
    assert await served(api, query["id"], "look") == {"a": "†state é", "b": "Nr. 1"}
    assert await served(api, query["id"], "look") == {"a": True}
    *_, third, fourth, fifth = output_of(await api.ended(query["id"]))
    assert f"has no value: The artifact {binary!r} is not text." in third["error"]
    assert "an artifact is †artifact.<id>, its text †artifact.<id>.content." in fourth["error"]
    assert "cannot be written, †artifact is read-only" in fifth["error"]
    assert await plangate.value("SELECT count(*) FROM call_variables") == 2


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"n": "†state.totls"}, 'has no value: "†state" has no "totls"; did you mean \'totals\'?'),
        ({"n": "†state.totals.net.x"}, '"†state.totals.net" is an integer.'),
        ({"n": "†inptu.a"}, "there is no †inptu; did you mean 'input'?"),
        ({"n": "†state..a"}, '/n is "†state..a": at character 7: a segment is missing here'),
        ({"n": "†state.totals"}, '/n: "†state.totals" is an object, and this must be integer'),
        ({"n": 1, "_outputPath": "†input.a"}, "†input is read-only"),
        ({"n": 1, "_outputPath": "state.a"}, "a variable begins with †"),
        ({"n": 1, "_outputPath": "†state.a", "_outputMethod": "add"}, "_outputMethod is one of set, merge,"),
        ({"n": 1, "_outputMethod": "push"}, "_outputPath is missing"),
        ({"n": '†state."a\\u0000"'}, "which no key can hold"),
    ],
)
async def test_an_invalid_variable_is_reported_and_nothing_is_sent(
    plangate: World, api: Caller, args: Any, said: str
) -> None:
    await api.register(spec())
    await api.do("/threads", {"threadKey": "t"})
    prompt = specs.script(("look", {"_outputPath": "†state.totals"}), ("pay", args))
    query = await api.submit(prompt, threadKey="t", inputs={"a": 1})
    await api.serve("look", {"net": 1})
    ended = output_of(await api.ended(query["id"]))
    assert said in ended[1]["error"]
    (error,) = [e["error"] for e in await api.events(query["id"], "tool-invocation") if "error" in e]
    assert error["code"] == "variable_error"
    assert await plangate.value("SELECT count(*) FROM outgoing_calls WHERE name = 'pay'") == 0


async def test_an_error_in_one_call_does_not_affect_others(plangate: World, api: Caller) -> None:
    await api.register(spec())
    query = await together(plangate, ("pay", {"n": "†input.nothing"}), ("look", {"a": 1}))
    await api.serve("look", "seen")
    failed, seen = json.loads((await api.ended(query))["output"])
    assert seen == "seen"
    assert failed.startswith("The call was not made.")


async def test_calls_of_one_turn_that_write_one_path_are_ordered(plangate: World, api: Caller) -> None:
    await api.register(spec())
    path = {"_outputPath": "†state.list", "_outputMethod": "push"}
    query = await together(plangate, *(("look", {"n": n, **path}) for n in range(6)))
    for _ in range(6):
        (call,) = await api.claim("look")
        good(await api.result(call, call["args"]["n"]))
    ended = await api.ended(query)
    done = await api.events(query, "state-write")
    receipts = [json.loads(text)["written"][0]["write"] for text in json.loads(ended["output"])]
    assert sorted(receipts) == [e["data"]["write"] for e in done] == [1, 2, 3, 4, 5, 6]
    held = (await state(api, ended))["list"]
    assert [held[n - 1] for n in receipts] == list(range(6))


async def test_without_the_toolkit_nothing_changes(plangate: World, api: Caller) -> None:
    await api.register(spec(toolkits=()))
    args = {"a": "†input.x", "_outputPath": "†state.y", "b": "††"}
    query = await api.submit(specs.script(("look", args)), inputs={"x": 1})
    assert await served(api, query["id"], "look", "plain") == args
    assert output_of(await api.ended(query["id"]))[0]["result"] == "plain"
    assert await plangate.value("SELECT count(*) FROM documents") == 0
    assert await plangate.value("SELECT count(*) FROM call_variables") == 0


async def test_a_result_that_cannot_be_written_is_returned_to_the_model(api: Caller) -> None:
    await api.register(spec(stateSchema={"properties": {"n": {"type": "integer"}}}))
    query = await api.submit(
        specs.script(
            ("look", {"_outputPath": "†state.n"}),
            ("look", {"_outputPath": "†state.n"}),
            ("look", {"_outputPath": "†state.n", "_outputMethod": "push"}),
        )
    )
    for result in ("one", 1, 2):
        await api.serve("look", result)
    first, second, third = output_of(await api.ended(query["id"]))
    assert first["error"] == (
        "look ran, but its result was not written: the state would not match the runtime's stateSchema: /n: must be "
        'integer, not "one". Its result: one'
    )
    assert second["result"]["written"][0]["write"] == 1
    assert "push needs an array to append to, and there is an integer. Its result: 2" in third["error"]
    assert await state(api, query) == {"n": 1}
    assert len(await api.events(query["id"], "state-write")) == 1


async def test_outputs_with_alternatives_and_to_several_paths(api: Caller) -> None:
    await api.register(spec())
    both = "†state.a && †state.b"
    choice = "†state.yes || †state.no"
    query = await api.submit(
        specs.script(
            ("look", {"_outputPath": both}),
            ("look", {"_outputPath": choice}),
            ("look", {"_outputPath": choice}),
            ("look", {"_outputPath": choice}),
            ("look", {"_outputPath": choice}),
            ("look", {"_outputPath": f"{both} || †state.no"}),
        )
    )
    for result in (
        1,
        {"_output": "†state.no", "value": 2},
        {"plain": 3},
        {"_output": "†state.other", "value": 4},
    ):
        await api.serve("look", result)
    await api.serve("look", error="Out of stock.")
    await api.serve("look", {"_output": both, "value": 5})
    results = output_of(await api.ended(query["id"]))
    assert results[0]["result"]["written"] == [
        {"path": "†state.a", "method": "set", "write": 1},
        {"path": "†state.b", "method": "set", "write": 2},
    ]
    assert "the tool's `_output` must name one of" in results[3]["error"]
    assert results[4]["error"] == "Out of stock. (This error was written to †state.no.)"
    assert await state(api, query) == {
        "a": 5,
        "b": 5,
        "no": {"code": "tool_error", "message": "Out of stock."},
        "yes": {"plain": 3},
    }
    assert await state(api, query, at=3) == {"a": 1, "b": 1, "no": 2}
    log = (await api.read(f"/threads/{query['threadId']}/state/log"))["items"]
    assert [w["write"] for w in log if w["failed"]] == [5]


async def test_a_stored_value_cannot_choose_its_output_path(api: Caller) -> None:
    kind = {"name": "Found", "schema": {"type": "object"}}
    await api.register(spec(toolkits=("variables", "references"), references=[kind]))
    value = {"_output": "†state.no", "value": "hush"}
    made = await api.do("/references", {"runtime": "default", "kind": "Found", "value": value})
    asked = {"kind": "Found", "id": made["id"], "_outputPath": "†state.yes || †state.no"}
    query = await api.run(specs.script(("resolveRef", asked)))
    assert output_of(query)[0]["result"]["written"][0]["path"] == "†state.yes"
    assert await state(api, query) == {"yes": value}


async def test_writing_to_several_paths_is_all_or_nothing(api: Caller) -> None:
    await api.register(spec())
    query = await api.submit(specs.script(("look", {"_outputPath": "†state.a && †state.a.b"})))
    await api.serve("look", "text")
    assert "a is a string, which has nothing below it" in output_of(await api.ended(query["id"]))[0]["error"]
    assert await state(api, query) == {}


async def test_a_tool_may_prescribe_its_output_path(api: Caller) -> None:
    """Also where an approver changes the arguments, which have no such parameter."""
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "_outputPath": {"const": "†state.kept"}},
        "required": ["n", "_outputPath"],
        "additionalProperties": False,
    }
    await api.register(spec(specs.tool("keep", inputSchema=schema, approval="always")))
    query = await api.submit(
        specs.script(("keep", {"n": 1}), ("keep", {"n": 1, "_outputPath": "†state.else"}))
    )
    gate = await api.gate(query["id"])
    good(await api.decide(gate["id"], args={"n": 2}))
    assert await served(api, query["id"], "keep", "it") == {"n": 2}
    results = output_of(await api.ended(query["id"]))
    assert '"path":"†state.kept"' in results[0]["result"]
    assert await state(api, query) == {"kept": "it"}
    assert "the results of this tool go to †state.kept" in results[1]["error"]


async def test_builtin_tools_take_and_give_variables(api: Caller) -> None:
    """A called agent's answer, and the whole of a reference that is too large for a prompt."""
    chief = specs.agent("chief", "coordinator", routes=["helper"], toolkits=["variables", "references"])
    helper = specs.agent("helper", outputSchema={"type": "object"})
    await api.register(
        spec(agents=[chief, helper], references=[{"name": "Big", "schema": {"type": "array"}}])
    )
    value = [{"n": n, "text": "x" * 50} for n in range(2000)]
    made = await api.do("/references", {"runtime": "default", "kind": "Big", "value": value})
    query = await api.run(
        specs.script(
            ("resolveRef", {"kind": "Big", "id": "†input.id", "_outputPath": "†state.big"}),
            ("call_agent", {"agent": "helper", "prompt": "†input.task", "_outputPath": "†state.said"}),
        ),
        inputs={"id": made["id"], "task": {"script": [], "answer": {"ok": [1]}}},
    )
    assert output_of(query)[1]["result"]["type"] == "an object"
    assert await state(api, query) == {"big": value, "said": {"ok": [1]}}


# -- gates


async def test_a_value_behind_a_reference_is_only_in_the_subject_of_a_call(api: Caller) -> None:
    """The event and the list show the variable that stands for it."""
    gated = specs.tool("pay", approval="always", **ROWS)
    await api.register(spec(gated, references=[{"name": "Rows", "schema": {"type": "array"}}]))
    made = await api.do("/references", {"kind": "Rows", "value": ["behind a reference"]})
    variable = f"†ref.Rows.{made['id']}"
    query = await api.submit(specs.script(("pay", {"rows": variable, "n": 1})))
    gate = await api.gate(query["id"])
    assert gate["glimpses"] == {
        "args": {"rows": variable, "n": 1},
        "variables": [
            {
                "pointer": "/rows",
                "variable": variable,
                "type": "an array of 1",
                "sizeBytes": made["sizeBytes"],
            }
        ],
    }
    subject = await api.read(f"/approvals/{gate['id']}/subject")
    assert subject["args"] == {"rows": ["behind a reference"], "n": 1}
    good(await api.decide(gate["id"], digest=gate["digest"]))
    assert await served(api, query["id"], "pay") == {"rows": ["behind a reference"], "n": 1}
    await api.ended(query["id"])
    on_record = [await api.events(query["id"]), await api.read(f"/queries/{query['id']}/work")]
    assert "behind a reference" not in json.dumps(on_record)


@pytest.mark.parametrize("votes", [1, 2])
@pytest.mark.parametrize("replaced", [False, True])
async def test_an_edit_never_copies_a_value_behind_a_reference_into_an_event(
    plangate: World, api: Caller, votes: int, replaced: bool
) -> None:
    """The approver sends all arguments, with the value that the subject shows, a changed one, or the value elsewhere."""
    rule = {"kind": "always", "approvers": {"minimum": votes}}
    await api.register(
        spec(
            specs.tool("pay", approval=rule, inputSchema={"type": "object"}),
            references=[{"name": "Rows", "schema": {"type": "array"}}],
        )
    )
    rows = ["behind a reference", "and more of it"]
    made = await api.do("/references", {"kind": "Rows", "value": rows})
    variable = f"†ref.Rows.{made['id']}"
    query = await api.submit(specs.script(("pay", {"rows": variable, "n": 1})))
    gate = await api.gate(query["id"])
    subject = await api.read(f"/approvals/{gate['id']}/subject")
    sent = {"rows": rows[:1] if replaced else subject["args"]["rows"], "copy": {"of": rows}, "n": 2}
    ann, bob = [await plangate.key("approvals:decide", principal=name) for name in ("ann", "bob")]
    decided = good(await ann.decide(gate["id"], args=sent, digest=gate["digest"]))
    if votes == 2:
        good(await bob.decide(gate["id"], digest=decided["digest"]))
    assert await served(api, query["id"], "pay") == sent
    ended = await api.ended(query["id"])
    shown = {"rows": f"[edited: {variable}]" if replaced else variable, "copy": {"of": variable}, "n": 2}
    (decision,) = await api.events(query["id"], "approval-decision")
    assert decision["data"]["args"] == shown
    assert (await api.events(query["id"], "tool-invocation"))[-1]["sentArgs"] == shown
    events = await api.events(query["id"])
    assert "behind a reference" not in json.dumps([events, ended["output"]])


async def test_an_approver_sees_values_and_their_variables(api: Caller) -> None:
    gated = specs.tool("pay", approval="always", **ROWS)
    await api.register(spec(LOOK, gated))
    prompt = specs.script(
        ("look", {"_outputPath": "†state.rows"}), ("pay", {"rows": "†state.rows", "n": "†input.n"})
    )
    query = await api.submit(prompt, inputs={"n": 5})
    rows = [f"row {n}" for n in range(500)]
    await api.serve("look", rows)
    gate = await api.gate(query["id"])
    subject = await api.read(f"/approvals/{gate['id']}/subject")
    assert subject["args"] == {"rows": rows, "n": 5}
    glimpse = {"count": 500, "sample": rows[:3]}
    size = len(json.dumps(rows, separators=(",", ":")))
    assert gate["glimpses"] == {
        "args": {"rows": {"glimpse": glimpse, "sizeBytes": size}, "n": 5},
        "variables": [
            {
                "pointer": "/rows",
                "variable": "†state.rows",
                "type": "an array of 500",
                "sizeBytes": size,
                "glimpse": glimpse,
            },
            {"pointer": "/n", "variable": "†input.n", "type": "an integer", "sizeBytes": 1, "glimpse": 5},
        ],
    }
    good(await api.decide(gate["id"], digest=gate["digest"]))
    assert await served(api, query["id"], "pay") == {"rows": rows, "n": 5}
    await api.ended(query["id"])


async def test_changes_after_the_gate_opened_have_no_effect(plangate: World, api: Caller, owner: Any) -> None:
    """P20: the values behind the variables are those of the subject, also in the process that takes over."""
    gated = specs.tool("pay", approval="always", **ROWS)
    await api.register(spec(LOOK, gated))
    script = specs.script(("look", {"_outputPath": "†state.rows"}), ("pay", {"rows": "†state.rows"}))
    query = await api.submit(script)
    await api.serve("look", [1])
    gate = await api.gate(query["id"])
    await api.until(query["id"], "waiting")
    await owner.execute("""UPDATE documents SET body = '{"rows": [2]}'""")
    good(await api.decide(gate["id"], digest=gate["digest"]))
    assert await served(api, query["id"], "pay") == {"rows": [1]}
    await api.ended(query["id"])


async def test_arguments_of_an_approver_are_literal(api: Caller) -> None:
    gated = specs.tool("pay", approval="always", **ANY)
    await api.register(spec(gated))
    query = await api.submit(specs.script(("pay", {"a": "†input.a"})), inputs={"a": 1})
    gate = await api.gate(query["id"])
    done = good(await api.decide(gate["id"], args={"a": "†input.a"}))
    assert done["glimpses"] == {"args": {"a": "†input.a"}}
    assert await served(api, query["id"], "pay") == {"a": "†input.a"}
    await api.ended(query["id"])


# -- crashes


async def test_after_a_crash_a_call_has_the_same_values_and_writes_once(
    cluster: Any, site: Any, owner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends between the write and the record of the call; the next one finds both values and write."""
    died: list[str] = []
    deliver = agent_variables.VariableService.deliver

    async def once(self: Any, run: Any, scope: Any, output: Any, outcome: Any) -> Any:
        receipt = await deliver(self, run, scope, output, outcome)
        if not died:
            died.append(scope.work_id)
            run.lease.lost = True  # what a process that is killed here writes no more
        return receipt

    monkeypatch.setattr(agent_variables.VariableService, "deliver", once)
    async with world(site, cluster.operator_key) as first:
        await first.api.register(spec())
        query = await first.api.submit(
            specs.script(
                (
                    "look",
                    {"a": "†state.list || †input.a", "_outputPath": "†state.list", "_outputMethod": "push"},
                ),
                ("pay", {"rows": "†state.list"}),
            ),
            inputs={"a": 0},
        )
        assert await served(first.api, query["id"], "look", "x") == {"a": 0}
        await eventually_died(died)
        assert await state(first.api, query) == {"list": ["x"]}
        await owner.execute(
            "UPDATE queries SET lease_expires_at = now() - interval '1 s' WHERE status = 'running'"
        )
    async with world(site, cluster.operator_key) as second:
        assert await served(second.api, query["id"], "pay", 1) == {"rows": ["x"]}
        ended = await second.api.ended(query["id"])
        assert output_of(ended)[0]["result"]["written"] == [
            {"path": "†state.list", "method": "push", "write": 1}
        ]
        assert await state(second.api, query) == {"list": ["x"]}
        assert len(await second.api.events(query["id"], "state-write")) == 1


async def eventually_died(died: list[str]) -> None:
    async def there() -> Any:
        return died or None

    await eventually(there, "the call was delivered")


# -- what the model is told


async def test_variables_are_listed_after_the_prompt(plangate: World, api: Caller) -> None:
    kind = {"name": "Basket", "schema": {"type": "object"}}
    runtime = await api.register(
        spec(specs.tool("pay", **ROWS), references=[kind], data={"rates": {"eur": 1.5}})
    )
    asked: list[Any] = []
    real = plangate.services.providers.of

    async def of(runtime: Any, agent: Any) -> Any:
        provider, vendor = await real(runtime, agent)

        class Heard:
            def stream(self, request: Any) -> Any:
                asked.append(request)
                return provider.stream(request)

        return Heard(), vendor

    plangate.services.providers.of = of  # type: ignore[method-assign]
    query = await api.submit(
        specs.script(("pay", {"n": 1, "_outputPath": "†state.later"})), inputs={"who": {"first name": "Ann"}}
    )
    await api.serve("pay", 1)
    await api.ended(query["id"])
    first, second = asked
    prompt = await api.read(f"/runtimes/{runtime['id']}/agents/solo/prompt")
    assert first.system == second.system == prompt["text"]
    assert first.notes == second.notes
    assert first.notes.endswith(
        "At the beginning of this task there are:\n"
        "- †input.who: an object of 1 keys\n"
        '- †input.who."first name": a string, "Ann"\n'
        "- †state: an empty object\n"
        "- †memory: an empty object\n"
        "- †rates.eur: a number, 1.5\n"
        "- †ref.Basket.<id>: the value of a stored reference\n"
    )
    (tool,) = first.tools
    assert tool.input_schema["properties"]["n"] == {
        "anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^†"}]
    }
    assert set(tool.input_schema["properties"]) == {"rows", "n", "_outputPath", "_outputMethod"}
    shown = (await api.read(f"/runtimes/{runtime['id']}/agents/solo/tools"))["tools"][0]["inputSchema"]
    assert shown == tool.input_schema


async def test_data_with_an_invalid_variable_name_is_rejected(api: Caller) -> None:
    await api.register(spec())
    answer = await api.post("/queries", {"prompt": "x", "data": {"state": 1, "a b": 2, "fine": 3}})
    body = refused(answer, 422, "invalid")
    assert [e["pointer"] for e in body["errors"]] == ["/data/state", "/data/a b"]
