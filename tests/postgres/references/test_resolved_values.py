"""Values that models read with resolveRef: in prompts while their query lives, in no event or record."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.llm.messages import Text, ToolResultPart, ToolUse, TurnDone, Usage
from tests.support import specs
from tests.support.client import Caller, good, output_of, refused
from tests.support.world import World

SECRET = "a-value-that-stays-behind-its-reference"
SEATS: specs.Spec = {
    "name": "Seats",
    "schema": {"type": "array"},
    "ttlMs": 3_600_000,
    "glimpse": {"count": "length(@)"},
}
EXPIRE = "UPDATE reference_values SET expires_at = now() - interval '1 s'"
LOOK = specs.tool("look", approval="always")
READS_AND_LOOKS = {"answer": {"$result": "[0]"}}


class Reader:
    """A model that makes a call and then is done; `read` has the results that it was given in each turn."""

    def __init__(self, world: World, name: str, args: dict[str, Any]) -> None:
        self._call = ToolUse("call-1", name, json.dumps(args))
        self.read: list[list[str]] = []
        world.services.providers.of = self.of  # type: ignore[method-assign]

    async def of(self, *_: Any) -> tuple[Reader, str]:
        return self, "openai"

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        blocks = [block for message in request.messages for block in message.blocks]
        self.read.append([block.content for block in blocks if isinstance(block, ToolResultPart)])
        last = request.messages[-1].blocks[-1]
        if isinstance(last, ToolResultPart):
            yield TurnDone((Text("done"),), "end_turn", Usage(), "m")
        else:
            yield TurnDone((self._call,), "tool_use", Usage(), "m")


async def clerk(api: Caller, **parts: Any) -> dict[str, Any]:
    """An agent that reads references and may look once somebody approves; returns a reference to a secret."""
    agent = specs.agent(toolkits=["references"], tools=["look"], **parts.pop("agent", {}))
    await api.register(specs.scripted(LOOK, agents=[agent], references=[SEATS], **parts))
    made: dict[str, Any] = await api.do("/references", {"kind": "Seats", "value": [SECRET]})
    return made


def handle(made: dict[str, Any]) -> dict[str, Any]:
    return {"kind": made["kind"], "id": made["id"]}


def kept(made: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**handle(made), "glimpse": {"count": 1}, "sizeBytes": made["sizeBytes"], **more}


def read_then_look(made: dict[str, Any]) -> str:
    script = json.loads(specs.script(("resolveRef", handle(made)), ("look", {"n": 1})))
    return json.dumps({**script, **READS_AND_LOOKS})


async def result_event(api: Caller, query_id: str) -> dict[str, Any]:
    """The event with the result of the only call."""
    told = await api.events(query_id, "tool-invocation")
    (found,) = (event for event in told if event["state"] == "result")
    return found


async def on_record(api: Caller, query_id: str) -> str:
    """Everything that is on record of a query."""
    found = [
        await api.events(query_id),
        await api.read(f"/queries/{query_id}"),
        await api.read(f"/queries/{query_id}/work"),
        await api.read("/work-records", queryId=query_id),
    ]
    return json.dumps(found)


async def test_a_model_reads_the_value_and_its_glimpse(plangate: World, api: Caller) -> None:
    made = await clerk(api)
    model = Reader(plangate, "resolveRef", handle(made))
    query = await api.run("Read it.")
    assert [list(map(json.loads, read)) for read in model.read] == [
        [],
        [{"value": [SECRET], "glimpse": {"count": 1}}],
    ]
    told = await result_event(api, query["id"])
    assert told["result"] == kept(made, shownBytes=made["sizeBytes"])
    (work,) = (await api.read("/work-records", queryId=query["id"], kind="tool_call"))["items"]
    record = await api.read(f"/work-records/{work['id']}")
    assert record["output"] == told["result"]
    assert SECRET not in await on_record(api, query["id"])


async def test_a_part_of_a_value_is_in_no_event(plangate: World, api: Caller) -> None:
    made = await clerk(api)
    model = Reader(plangate, "resolveRef", {**handle(made), "path": "[0]"})
    query = await api.run("Read it.")
    assert json.loads(model.read[-1][0])["value"] == SECRET
    told = await result_event(api, query["id"])
    assert told["result"] == kept(made, path="[0]", shownBytes=len(SECRET) + 2)
    assert SECRET not in await on_record(api, query["id"])


async def test_a_script_reports_the_recorded_result(api: Caller) -> None:
    """Its last turn is a part of the journal."""
    made = await clerk(api)
    query = await api.run(specs.script(("resolveRef", handle(made))))
    assert output_of(query)[0]["result"] == kept(made, shownBytes=made["sizeBytes"])
    assert SECRET not in await on_record(api, query["id"])


async def test_a_restarted_run_reads_the_value_again(plangate: World, api: Caller, owner: Any) -> None:
    """Past its TTL too: the value is pinned while the query lives, and no longer."""
    made = await clerk(api)
    query = (await api.submit(read_then_look(made)))["id"]
    await api.until(query, "waiting", "approval")
    await owner.execute(EXPIRE)
    assert await plangate.services.references.sweep() == 0
    assert good(await api.get(f"/references/Seats/{made['id']}")) == [SECRET]
    await api.approve(query)
    await api.serve("look")
    over = await api.ended(query)
    assert json.loads(over["output"]) == {"value": [SECRET], "glimpse": {"count": 1}}
    refused(await api.get(f"/references/Seats/{made['id']}"), 410, "reference_expired")


async def test_a_deletion_overrides_the_pin_and_the_run_continues(api: Caller) -> None:
    made = await clerk(api)
    query = (await api.submit(read_then_look(made)))["id"]
    await api.until(query, "waiting", "approval")
    good(await api.delete(f"/references/Seats/{made['id']}"))
    await api.approve(query)
    await api.serve("look")
    over = await api.ended(query)
    assert over["status"] == "succeeded"
    assert json.loads(over["output"]) == kept(made, note="The value is no longer available.")


async def test_memory_holds_the_handle_and_the_glimpse(plangate: World, api: Caller) -> None:
    made = await clerk(api, agent={"stateful": True})
    model = Reader(plangate, "resolveRef", handle(made))
    await api.run("Read it.", threadKey="t")
    second = await api.run("And again.", threadKey="t")
    why = "The value is no longer available here. Resolve the reference again if you need it."
    of_first, read_again = model.read[-1]
    assert json.loads(of_first) == kept(made, note=why)
    assert json.loads(read_again)["value"] == [SECRET]
    thread = await api.read(f"/threads/{second['threadId']}/messages")
    assert SECRET not in json.dumps(thread)


async def test_a_value_named_by_an_approver_is_read(api: Caller) -> None:
    made = await clerk(api, approvalOverrides={"tools": {"solo": {"resolveRef": "always"}}})
    other = await api.do("/references", {"kind": "Seats", "value": ["another"]})
    query = (await api.submit(read_then_look(made)))["id"]
    gate = await api.gate(query)
    good(await api.decide(gate["id"], args=handle(other)))
    await api.gate(query, not_=gate["id"])
    await api.approve(query)
    await api.serve("look")
    read = (await api.ended(query))["output"]
    note, _, text = read.rpartition("\n")
    assert note.startswith("An approver changed the arguments of this call.")
    assert json.loads(text) == {"value": ["another"], "glimpse": {"count": 1}}


async def test_a_value_that_cannot_be_written_is_not_in_the_error(plangate: World, api: Caller) -> None:
    made = await clerk(api)
    agent = specs.agent(toolkits=["references", "variables"], tools=["look"])
    await api.register(specs.scripted(LOOK, agents=[agent], references=[SEATS]))
    asked = {**handle(made), "_outputPath": "†state.text.below"}
    script = specs.script(
        ("resolveRef", {**handle(made), "path": "'plain'", "_outputPath": "†state.text"}),
        ("resolveRef", asked),
    )
    query = await api.run(script)
    error = output_of(query)[1]["error"]
    assert "its result was not written" in error and made["id"] in error
    assert SECRET not in await on_record(api, query["id"])


async def test_a_receipt_shows_only_the_glimpse_of_the_reference(api: Caller) -> None:
    made = await clerk(api)
    agent = specs.agent(toolkits=["references", "variables"])
    await api.register(specs.scripted(agents=[agent], references=[SEATS]))
    query = await api.run(specs.script(("resolveRef", {**handle(made), "_outputPath": "†state.seats"})))
    receipt = output_of(query)[0]["result"]
    assert (receipt["type"], receipt["glimpse"]) == ("an array of 1", {"count": 1})
    assert (await api.read(f"/threads/{query['threadId']}/state"))["document"] == {"seats": [SECRET]}
    assert SECRET not in await on_record(api, query["id"])


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("abs([0])", "abs() takes number, not string"),
        ("sum(@)", "sum() takes array-number, not string"),
        ("sort_by(@, &missing)", "sort_by() takes string or number, not null"),
    ],
)
async def test_the_error_of_a_path_names_types_and_no_value(api: Caller, path: str, reason: str) -> None:
    made = await clerk(api)
    query = await api.run(specs.script(("resolveRef", {**handle(made), "path": path})))
    assert reason in output_of(query)[0]["error"]
    assert SECRET not in await on_record(api, query["id"])
