"""Memory beyond a thread: `†memory`, the toolkit `memory`, and the routes under /memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from plangate.spec.variable_schemas import data_name_problem

from app.agents.builtin_tools.memory import MemoryTools
from app.agents.prompt_window import PromptRecord
from app.base.json.limits import LIMITS, JsonLimits
from app.base.postgres.database import Tx
from app.documents import service
from app.documents.call_writes import prepare
from app.documents.models import Author, DocumentId, DocumentLimits, WriteRequest
from app.journal.models import Scope
from app.tools.results import Answer
from tests.postgres.variables.test_state import ref
from tests.support import specs
from tests.support.client import Caller, output_of, refused
from tests.support.graphs import count, executed, flowing, hands, make, stored
from tests.support.json_processes import note_functions
from tests.support.world import World

AT = "/memory/default/acme"
LOOK = specs.tool("look", inputSchema={"type": "object"})
CLERK = specs.agent(tools=["look"], toolkits=["variables"])
FRIEND = specs.agent(toolkits=["memory"])


async def document(api: Caller, at: str = AT) -> Any:
    return (await api.read(at))["document"]


async def notes(plangate: World, query_id: str) -> str:
    """What the agent of a query was told when its run began."""
    record = await plangate.value(
        "SELECT input FROM work_records WHERE query_id = $1 AND kind = 'model_call' AND position = 1",
        query_id,
    )
    return PromptRecord.load(record).notes


# -- variables -----------------------------------------------------------------------------------------------


async def test_a_call_writes_memory_and_a_call_in_another_thread_reads_it(
    plangate: World, api: Caller
) -> None:
    await api.register(specs.scripted(LOOK, agents=[CLERK]))
    first = await api.submit(specs.script(("look", {"_outputPath": "†memory.customer"})), threadKey="one")
    await api.serve("look", {"name": "Ada", "visits": [1]})
    (receipt,) = output_of(await api.ended(first["id"]))
    assert receipt["result"]["written"] == [{"path": "†memory.customer", "method": "set", "write": 1}]
    (told,) = await api.events(first["id"], "state-write")
    assert told["data"] == {"path": "†memory.customer", "method": "set", "write": 1}

    calls = (("look", {"who": "†memory.customer.name", "_outputPath": "†memory.customer.visits"}),)
    prompt = specs.script(*((name, {**args, "_outputMethod": "push"}) for name, args in calls))
    second = await api.submit(prompt, threadKey="two")
    (call,) = await api.claim("look")
    assert call["args"] == {"who": "Ada"}
    await api.result(call, 2)
    await api.ended(second["id"])
    assert '- †memory.customer.name: a string, "Ada"\n' in await notes(plangate, second["id"])
    assert await document(api) == {"customer": {"name": "Ada", "visits": [1, 2]}}
    log = (await api.read(f"{AT}/log"))["items"]
    assert [(w["write"], w["path"], w["method"], w["queryId"], w["workId"]) for w in log] == [
        (2, "†memory.customer.visits", "push", second["id"], call["workId"]),
        (1, "†memory.customer", "set", first["id"], told["workId"]),
    ]


async def test_versions_of_one_name_share_memory(api: Caller) -> None:
    write = specs.script(("look", {"_outputPath": "†memory.n"}))
    for parts, value in (({}, 1), ({"data": {"second": 2}}, 2), ({"name": "other"}, 3)):
        runtime = await api.register(specs.scripted(LOOK, agents=[CLERK], **parts))
        query = await api.submit(write, runtimeId=runtime["id"])
        await api.serve("look", value)
        await api.ended(query["id"])
    assert await document(api) == {"n": 2}
    assert await document(api, "/memory/other/acme") == {"n": 3}
    assert [w["write"] for w in (await api.read(f"{AT}/log"))["items"]] == [2, 1]


async def test_a_plan_reads_and_writes_memory(api: Caller) -> None:
    await api.register(flowing())
    await api.do(AT, {"path": "†memory.base", "value": 40})
    plan = await stored(api, count("†memory.sum"), make("†memory.base", "†memory.sum"))
    async with hands(api) as mine:
        over = await executed(api, plan)
    assert over["status"] == "executed", over["result"]
    assert mine.payload(0) == {"n": 40}  # what action 1 wrote
    assert await document(api) == {"base": 40, "sum": 40}
    assert (await api.read(f"{AT}/log"))["items"][0]["workId"] is not None


async def test_a_plan_that_reads_what_memory_lacks_is_not_stored(api: Caller) -> None:
    await api.register(flowing())
    await api.do(AT, {"path": "†memory.total", "value": 1})
    body = {"specName": "Flow", "body": {"actions": [count("†memory.totals")]}}
    error = refused(await api.post("/plans", body), 422)
    assert "did you mean 'total'?" in error["errors"][0]["message"]


async def test_a_fork_shares_the_memory(api: Caller) -> None:
    await api.register(specs.scripted(LOOK, agents=[CLERK]))
    thread = (await api.do("/threads", {"threadKey": "t"}))["id"]
    await api.do(AT, {"path": "†memory.n", "value": 1})
    copy = await api.do(f"/threads/{thread}/fork", {})
    query = await api.submit(specs.script(("look", {"n": "†memory.n"})), threadId=copy["id"])
    (call,) = await api.claim("look")
    assert call["args"] == {"n": 1}
    await api.result(call, None)
    await api.ended(query["id"])


def test_a_data_object_cannot_be_named_memory() -> None:
    assert data_name_problem("memory") == "data object 'memory' has a reserved name: rename it"


# -- the toolkit ---------------------------------------------------------------------------------------------


async def test_an_agent_remembers_and_recalls_in_another_thread(plangate: World, api: Caller) -> None:
    await api.register(specs.scripted(agents=[FRIEND]))
    calls = (
        ("recall", {}),
        ("remember", {"path": "customer", "value": {"name": "Ada"}}),
        ("remember", {"path": "seen", "value": "tea", "method": "push"}),
        ("remember", {"path": 'prices."net.eur"', "value": None}),
    )
    first = await api.run(specs.script(*calls), threadKey="one")
    empty, *written = [entry["result"] for entry in output_of(first)]
    assert empty == {}
    assert written[0] == {
        "written": [{"path": "†memory.customer", "method": "set", "write": 1}],
        "type": "an object",
        "sizeBytes": 14,
    }
    assert "Nothing is remembered yet." in await notes(plangate, first["id"])
    assert len(await api.events(first["id"], "state-write")) == 3

    calls = (("recall", {"path": "customer.name"}), ("recall", {"path": "customer.nam"}), ("recall", {}))
    second = await api.run(specs.script(*calls), threadKey="two")
    name, missing, all_of_it = output_of(second)
    assert name["result"] == "Ada"
    assert missing["error"].startswith("Nothing was recalled. ")
    assert "did you mean 'name'?" in missing["error"]
    assert all_of_it["result"] == {"customer": {"name": "Ada"}, "seen": ["tea"], "prices": {"net.eur": None}}
    assert await notes(plangate, second["id"]) == (
        "# Memory\n\nAt the beginning of this task the memory holds:\n"
        "- customer: an object of 1 keys\n"
        '- customer.name: a string, "Ada"\n'
        '- seen: an array of 1, ["tea"]\n'
        "- prices: an object of 1 keys\n"
        '- prices."net.eur": null, null\n'
    )


async def test_errors_of_the_memory_tools_are_returned_to_the_model(api: Caller) -> None:
    await api.register(specs.scripted(agents=[FRIEND]))
    calls = (
        ("remember", {"path": "n", "value": 1}),
        ("remember", {"path": "n", "value": 2, "method": "push"}),
        ("remember", {"path": "a..b", "value": 1}),
        ("recall", {"path": "†memory.n"}),
        ("remember", {"path": "n"}),
    )
    query = await api.run(specs.script(*calls))
    _, push, hole, dagger, nothing = [entry.get("error") for entry in output_of(query)]
    assert push == "Nothing was remembered: push needs an array to append to, and there is an integer."
    assert hole.startswith("The path cannot be used: at character 2: a segment is missing here")
    assert dagger.startswith("The path cannot be used: at character 0: leave out †memory. in front")
    assert nothing.startswith("The arguments do not match the tool's schema, so the call was not made: ")
    assert await document(api) == {"n": 1}


async def test_a_receipt_can_be_written_to_a_path(api: Caller) -> None:
    """An agent with both toolkits: what `remember` writes itself is not taken for the result of the call."""
    await api.register(specs.scripted(agents=[specs.agent(toolkits=["memory", "variables"])]))
    args = {"path": "n", "value": "†input.n", "_outputPath": "†state.receipt"}
    query = await api.run(specs.script(("remember", args)), threadKey="t", inputs={"n": 7})
    assert await document(api) == {"n": 7}
    state = await document(api, f"/threads/{query['threadId']}/state")
    assert state["receipt"]["written"] == [{"path": "†memory.n", "method": "set", "write": 1}]


async def test_a_large_memory_is_recalled_as_a_reference(api: Caller) -> None:
    await api.register(specs.scripted(agents=[FRIEND]))
    await api.do(AT, {"path": "†memory.rows", "value": ["x" * 100] * 1000})
    (entry,) = output_of(await api.run(specs.script(("recall", {"path": "rows"}))))
    assert set(entry["result"]) == {"kind", "id", "glimpse", "sizeBytes", "note"}


async def test_large_memories_are_read_and_written_in_another_process(
    plangate: World, api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("app.documents.service", "app.base.json.offload"):
        monkeypatch.setattr(f"{module}.LIMITS", JsonLimits(inline_bytes=100, process_bytes=500))
    ran = note_functions(monkeypatch)
    await api.register(specs.scripted(agents=[FRIEND]))
    await api.do(AT, {"path": "†memory.big", "value": "x" * 1000})
    calls = (("remember", {"path": "n", "value": 1}), ("recall", {"path": "n"}))
    query = await api.run(specs.script(*calls))
    assert output_of(query)[1]["result"] == 1
    assert '- big: a string, "xxx' in await notes(plangate, query["id"])
    assert {"apply_change", "fill_record", "memory_section"} <= set(ran)


# -- HTTP ----------------------------------------------------------------------------------------------------


async def test_memory_over_http(plangate: World, api: Caller) -> None:
    await api.register(specs.mock())
    assert await api.read(AT) == {"runtime": "default", "resource": "acme", "write": 0, "document": {}}
    made = await api.post(AT, {"path": "†memory.names", "value": ["Ada"]})
    assert made.status_code == 201
    assert made.json() == {
        "write": 1,
        "path": "†memory.names",
        "method": "set",
        "value": ["Ada"],
        "sizeBytes": 7,
        "glimpse": ["Ada"],
        "failed": False,
        "workId": None,
        "queryId": None,
        "agent": None,
        "forkedFrom": None,
        "principal": "operator",
        "at": made.json()["at"],
    }
    body = {"path": "†memory.names", "method": "push", "value": "Bo"}
    for _ in range(2):
        await api.do(AT, body, headers={"Idempotency-Key": "once"})
    assert await api.read(AT) == {
        "runtime": "default",
        "resource": "acme",
        "write": 2,
        "document": {"names": ["Ada", "Bo"]},
    }
    assert (await api.get(made.headers["location"])).json()["document"] == {"names": ["Ada"]}
    first = await api.read(f"{AT}/log", limit=1)
    rest = await api.read(f"{AT}/log", limit=1, cursor=first["nextCursor"])
    assert [w["principal"] for w in (*first["items"], *rest["items"])] == ["operator", "operator"]
    for path, why in (("†state.n", "one place in the memory"), ("†memory", "one place"), ("n", "one place")):
        error = refused(await api.post(AT, {"path": path, "value": 1}), 422)
        assert why in error["detail"] and error["errors"][0]["pointer"] == "/path"
    error = refused(await api.post(AT, {**body, "path": "†memory"}), 422)
    refused(await api.get(AT, at=3), 404)


async def test_a_name_with_a_slash_has_a_memory(api: Caller) -> None:
    await api.register(specs.mock(name="a/b é"))
    at = f"/memory/{quote('a/b é', safe='')}/acme"
    made = await api.post(at, {"path": "†memory.n", "value": 1})
    assert (await api.get(made.headers["location"])).json()["document"] == {"n": 1}
    assert len((await api.read(f"{at}/log"))["items"]) == 1


async def test_memories_of_other_tenants_are_not_found(plangate: World, api: Caller) -> None:
    await api.register(specs.mock())
    await api.do(AT, {"path": "†memory.n", "value": 1})
    await plangate.other.register(specs.mock(tenant="other"))
    assert await document(plangate.other, "/memory/default/other") == {}
    for caller, at in ((plangate.other, AT), (api, "/memory/default/other"), (api, "/memory/none/acme")):
        for method, path, body in (
            ("GET", at, None),
            ("GET", f"{at}/log", None),
            ("POST", at, {"path": "†memory.n", "value": 2}),
            ("POST", f"{at}/log", {"path": "†memory.n", "value": 2, "workId": "wrk_1"}),
            ("DELETE", at, None),
        ):
            refused(await caller.request(method, path, json=body), 404, "not_found")
    assert await document(api) == {"n": 1}
    reader = await plangate.key("read")
    assert await document(reader) == {"n": 1}
    refused(await reader.post(AT, {"path": "†memory.n", "value": 2}), 403)
    refused(await reader.delete(AT), 403)


async def test_a_handler_writes_the_memory_of_its_runtime(api: Caller) -> None:
    await api.register(specs.mock(name="elsewhere"))
    await api.register(specs.scripted(LOOK))
    query = await api.submit(specs.script(("look", {})))
    (call,) = await api.claim("look")
    body = {"path": "†memory.n", "value": 1, "workId": call["workId"]}
    error = refused(await api.post("/memory/elsewhere/acme/log", body), 422)
    assert error["detail"] == "Nothing was written: workId is work of another runtime."
    written = await api.do(f"{AT}/log", body)
    assert (written["workId"], written["queryId"], written["agent"]) == (call["workId"], query["id"], "solo")
    await api.result(call, None)
    await api.ended(query["id"])
    assert [e["data"]["path"] for e in await api.events(query["id"], "state-write")] == ["†memory.n"]
    refused(await api.post(f"{AT}/log", body), 409, "conflict")


# -- deletion ------------------------------------------------------------------------------------------------


async def test_a_deleted_memory_disappears_with_its_log(plangate: World, api: Caller) -> None:
    await api.register(specs.mock())
    for n in range(3):
        await api.do(AT, {"path": "†memory.secret", "value": f"sesame {n}"})
    assert (await api.delete(AT)).json() == {"runtime": "default", "resource": "acme", "deleted": True}
    assert await api.read(AT) == {"runtime": "default", "resource": "acme", "write": 3, "document": {}}
    assert (await api.read(f"{AT}/log"))["items"] == []
    error = refused(await api.get(AT, at=2), 404)
    assert error["detail"] == "Write 2 was deleted, with all writes up to 3."
    written = await api.do(AT, {"path": "†memory.n", "value": 1})
    assert written["write"] == 4
    await service.purge_forgotten(plangate.services.db)
    rows = await plangate.sql("SELECT n, value FROM document_writes ORDER BY n")
    assert [(r["n"], bytes(r["value"])) for r in rows] == [(4, b"1")]
    assert not await plangate.value("SELECT purge_due FROM documents")
    assert await document(api) == {"n": 1}
    assert (await api.read(AT, at=4))["document"] == {"n": 1}
    assert (await api.read(AT, at=0))["document"] == {}
    assert (await api.delete(AT)).status_code == (await api.delete(AT)).status_code == 200


@pytest.mark.limits(documents=DocumentLimits(checkpoint_writes=3))
async def test_a_version_of_a_memory_is_rebuilt_from_the_writes_after_its_deletion(api: Caller) -> None:
    await api.register(specs.mock())
    for n in range(4):
        await api.do(AT, {"path": "†memory.old", "method": "push", "value": n})
    await api.delete(AT)
    for n in range(5):
        await api.do(AT, {"path": "†memory.new", "method": "push", "value": n})
    for at in range(5, 10):
        assert (await api.read(AT, at=at))["document"] == {"new": list(range(at - 4))}


async def test_a_write_prepared_before_a_deletion_restores_nothing(plangate: World, api: Caller) -> None:
    await api.register(specs.mock())
    await api.do(AT, {"path": "†memory.secret", "value": "sesame"})
    db, documents = plangate.services.db, plangate.services.documents
    large = "x" * LIMITS.process_bytes  # only such a write is prepared
    write = WriteRequest(DocumentId.memory("default"), ref("†memory.n"), "set", large)
    prepared = await prepare(db, "acme", documents, write)
    assert prepared is not None
    await api.delete(AT)
    async with db.transaction("acme") as tx:
        await documents.write(tx, write, Author(principal="me"), prepared)
    assert await document(api) == {"n": large}


async def test_deleted_writes_are_removed_by_a_periodic_task(plangate: World, api: Caller) -> None:
    await api.register(specs.mock())
    await api.do(AT, {"path": "†memory.secret", "value": "sesame"})
    await api.delete(AT)
    (purge,) = [c for c in plangate.services.sweeps if getattr(c, "func", None) is service.purge_forgotten]
    await purge()
    assert await plangate.sql("SELECT 1 FROM document_writes") == []


async def test_memory_is_an_object(plangate: World, api: Caller) -> None:
    await api.register(specs.scripted(LOOK, agents=[CLERK]))
    query = await api.submit(specs.script(("look", {"_outputPath": "†memory"})))
    await api.serve("look", [1])
    (entry,) = output_of(await api.ended(query["id"]))
    assert "the memory of a runtime is an object, and would be an array of 1" in entry["error"]
    assert await document(api) == {}


async def test_remembering_again_after_a_crash_writes_once(plangate: World, api: Caller) -> None:
    await api.register(specs.scripted(agents=[FRIEND]))
    args = {"path": "n", "value": 1, "method": "push"}
    query = await api.run(specs.script(("remember", args)))
    (told,) = await api.events(query["id"], "state-write")

    async def transaction(verb: Callable[[Tx], Awaitable[Any]]) -> Any:
        async with plangate.services.db.transaction("acme") as tx:
            return await verb(tx)

    again: Any = SimpleNamespace(
        args=args,
        scope=Scope(query["id"], query["threadId"], told["workId"], None, "solo"),
        run=SimpleNamespace(
            runtime=SimpleNamespace(name="default"),
            lease=SimpleNamespace(epoch=1),
            read=transaction,
            in_fenced_transaction=transaction,
        ),
    )
    variables: Any = None
    remember = MemoryTools(plangate.services.documents, variables).verbs()["remember"]
    assert await remember(again) == Answer({"written": [told["data"]], "type": "an integer", "sizeBytes": 1})
    assert await document(api) == {"n": [1]}
