"""Artifacts in variables of a plan: checked when stored, shown at the gate, sent as approved."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from app.base.json.strict_json import canonical
from app.plans.executor import PlanExecution
from tests.support import specs
from tests.support.client import Caller, good, inner, output_of
from tests.support.graphs import (
    begun,
    came_to_nothing,
    executed,
    flaws,
    flowing,
    hands,
    make,
    note,
    state,
    statuses,
    stored,
    subject,
    told,
)
from tests.support.world import World

NOBODY = "art_" + "0" * 26
TEXT = "# The design\n" + "It stands. " * 30


async def put(api: Caller, thread: str, path: str, data: bytes) -> None:
    good(await api.request("PUT", f"/threads/{thread}/files/{path}", content=data))


async def published(api: Caller, data: bytes = TEXT.encode(), **parts: Any) -> dict[str, Any]:
    """An artifact of a thread of its own: not that of any plan."""
    thread = str((await api.do("/threads", {"threadKey": "makers"}))["id"])
    await put(api, thread, "design.md", data)
    asked = {"threadId": thread, "channel": "design", "path": "design.md", "title": "A design", **parts}
    made: dict[str, Any] = await api.do("/artifacts", asked)
    return made


def digest(value: Any) -> str:
    return hashlib.sha256(canonical(value)).hexdigest()


async def test_the_approved_text_is_sent_whatever_happens_to_the_file(api: Caller) -> None:
    await api.register(flowing())
    record = await published(api)
    at = f"†artifact.{record['id']}"
    plan = await stored(
        api,
        make([at, f"{at}.title"], "†state.seen"),
        note(f"{at}.content"),
        make([f"{at}.nothing || {at}.targetChanged", f"{at}.content", "†state.seen.1"]),
        threadKey="plan",
    )
    assert plan["threadId"] != record["producer"]["threadId"]
    query = await begun(api, plan)
    approval = await api.gate(query["id"])
    shown = {one.pop("variable"): one for one in (await subject(api, approval))["variables"]}
    assert shown[at] == {
        "digest": digest(record),
        "type": "an object",
        "sizeBytes": len(canonical(record)),
        "glimpse": shown[at]["glimpse"],
    }
    assert shown[f"{at}.title"] == {
        "digest": digest("A design"),
        "type": "a string",
        "sizeBytes": 10,
        "glimpse": "A design",
    }
    assert shown[f"{at}.content"] == {
        "digest": record["digest"]["value"],
        "type": "a string",
        "sizeBytes": record["sizeBytes"],
        "glimpse": TEXT[:79] + "…",
    }
    assert shown[f"{at}.nothing"] == {}
    assert shown[f"{at}.targetChanged"]["glimpse"] is False
    (event,) = await api.events(query["id"], "approval-required")
    assert TEXT[:100] not in str(event["data"])
    # The target changes, goes, and the record is replaced: of what was approved nothing changes.
    thread = record["producer"]["threadId"]
    await put(api, thread, "design.md", b"something else")
    await published(api, b"another design", replaces=record["id"])
    good(await api.delete(f"/threads/{thread}/files/design.md"))
    assert (await api.read(f"/artifacts/{record['id']}"))["status"] == "superseded"
    async with hands(api) as mine:
        good(await api.decide(approval["id"]))
        await api.ended(query["id"])
    assert await statuses(api, plan) == ["succeeded"] * 3
    assert mine.payload(0) == {"value": [record, "A design"]}
    assert mine.payload(1) == {"text": TEXT}
    assert mine.payload(2) == {"value": [False, TEXT, "A design"]}
    assert await state(api, plan) == {"seen": [record, "A design"]}


async def test_a_plan_of_agents_is_approved_and_sent_with_artifacts(api: Caller) -> None:
    await api.register(flowing())
    record = await published(api)
    body = {"actions": [note(f"†artifact.{record['id']}.content")]}
    store = {"tool": "storePlan", "args": {"specName": "Flow", "planId": "p", "body": body}}
    async with hands(api) as mine:
        accepted = await api.submit(
            specs.script(
                ("call_agent", {"agent": "planner", "prompt": store}),
                ("call_agent", {"agent": "doer", "prompt": {"tool": "executePlan", "args": {"planId": "p"}}}),
            )
        )
        await api.approve(accepted["id"])
        query = await api.ended(accepted["id"])
    assert inner(output_of(query)[1])["status"] == "executed"
    assert mine.payload(0) == {"text": TEXT}


async def test_a_plan_cannot_name_a_missing_artifact(plangate: World, api: Caller) -> None:
    await api.register(flowing())
    record, theirs = await published(api), await published(plangate.other)
    at = f"†artifact.{record['id']}"
    for variable, why in (
        (f"†artifact.{NOBODY}", f"There is no artifact '{NOBODY}'"),
        (f"†artifact.{NOBODY}.content", f"There is no artifact '{NOBODY}'"),
        (f"†artifact.{theirs['id']}.content", f"There is no artifact '{theirs['id']}'"),
        (f"†artifact.{theirs['id']}.title", f"There is no artifact '{theirs['id']}'"),
        ("†artifact.x", "There is no artifact 'x'"),
        (f"{at}.titel", f'"{at}" has no "titel"; did you mean \'title\'?'),
        (f"{at}.content.x", f'"{at}.content" is a string'),
    ):
        ((place, message),) = await flaws(api, make(1), make([variable]))
        assert place == "/1/value/0"
        assert message == f'nothing provides "{variable}", and no action writes it: {why}'
    ((place, message),) = await flaws(api, make("†artifact"))
    assert (place, message) == (
        "/0",
        '"†artifact": an artifact is †artifact.<id>, its text †artifact.<id>.content.',
    )
    ((place, message),) = await flaws(api, make(1, f"{at}.title"))
    assert "†artifact is read-only" in message
    await stored(api, make(f"†artifact.{NOBODY} || {at}.title"))


async def test_a_text_that_cannot_be_sent_opens_no_gate(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    await api.register(flowing())
    binary, record = await published(api, b"\xff\xfe"), await published(api)
    at = f"†artifact.{binary['id']}.content"
    plan = await stored(api, make(1), note(at))
    assert await came_to_nothing(api, plan) == (
        f'A variable of the plan has no value. /body/actions/1/text: "{at}" has no value: '
        f"The artifact '{binary['id']}' is not text."
    )
    monkeypatch.setattr("app.variables.service.MAX_REPLACED_BYTES", 100)
    plan = await stored(api, note(f"†artifact.{record['id']}.content"))
    assert (await came_to_nothing(api, plan)).endswith(
        f"With {record['id']} the artifacts of this call have {len(TEXT)} bytes, more than 100: pass their ids, or paths."
    )
    monkeypatch.undo()
    plan = await stored(api, note(f"{at} || †artifact.{record['id']}.content"))
    async with hands(api) as mine:
        assert (await executed(api, plan))["status"] == "executed"
    assert mine.payload(0) == {"text": TEXT}


async def test_an_error_about_a_field_names_its_variable(api: Caller) -> None:
    await api.register(flowing())
    at = f"†artifact.{(await published(api))['id']}"
    plan = await stored(api, note(f"{at}.sizeBytes"))
    message = await came_to_nothing(api, plan)
    assert "the action does not match its schema: " in message
    assert f"{at}.sizeBytes" in message


async def test_a_text_lost_after_the_approval_fails_its_action(plangate: World, api: Caller) -> None:
    await api.register(flowing())
    record = await published(api)
    at = f"†artifact.{record['id']}"
    plan = await stored(api, note(f"{at}.content"), make(f"{at}.title"))
    query = await begun(api, plan)
    await api.gate(query["id"])
    digest = bytes.fromhex(record["digest"]["value"])
    await plangate.services.workspaces.blobs.delete("acme", digest)
    async with hands(api) as mine:
        await api.approve(query["id"])
        await api.ended(query["id"])
    assert await statuses(api, plan) == ["failed", "succeeded"]
    code, message = (await told(api, plan))[0]
    assert code == "variable_error"
    assert message.startswith(
        f'Nothing was sent. /text is "{at}.content", which has no value: The stored body '
    )
    assert mine.payload(1) == {"value": "A design"}


async def test_a_text_lost_before_a_retry_leaves_the_action_unknown(
    plangate: World, api: Caller, owner: Any
) -> None:
    """Nothing was sent this time; what the first time did nobody knows."""
    await api.register(flowing())
    record = await published(api)
    plan = await stored(api, note(f"†artifact.{record['id']}.content"))
    query = await begun(api, plan)
    await api.approve(query["id"])
    (call,) = await api.claim("actions")
    await owner.execute("UPDATE outgoing_calls SET claimed_until = now() - interval '1 s'")
    await plangate.services.calls.lapse_due()
    await api.until(query["id"], "waiting", "outcome_unknown")
    await plangate.services.workspaces.blobs.delete("acme", bytes.fromhex(record["digest"]["value"]))
    for attempts in (1, 2):
        await api.do(f"/plans/{plan['id']}/actions/0", {"outcome": "retry"})
        await api.until(query["id"], "waiting", "outcome_unknown")
        (row,) = (await api.read(f"/plans/{plan['id']}/actions"))["items"]
        assert (row["status"], row["workId"], row["attempts"]) == ("unknown", call["workId"], 1), attempts
        assert row["error"]["message"].startswith(
            "It was sent before, and not again. Nothing was sent. /text "
        )
        assert (await api.read(f"/work-records/{row['workId']}"))["status"] == "unknown"
    await api.do(f"/plans/{plan['id']}/actions/0", {"outcome": "succeeded"})
    assert (await api.ended(query["id"]))["status"] == "succeeded"


async def test_a_text_other_than_the_approved_one_is_not_sent(
    plangate: World, api: Caller, owner: Any
) -> None:
    """Somebody who can write to the database makes the record name another body."""
    await api.register(flowing())
    record, other = await published(api), await published(api, b"Pay Mallory.")
    at = f"†artifact.{record['id']}.content"
    plan = await stored(api, note(at))
    query = await begun(api, plan)
    await api.gate(query["id"])
    was, is_now = record["digest"]["value"], other["digest"]["value"]
    await owner.execute(
        "UPDATE artifacts SET record = replace(convert_from(record, 'UTF8'), $1, $2)::bytea, body_bytes = 12 WHERE id = $3",
        was,
        is_now,
        record["id"],
    )
    async with hands(api) as mine:
        await api.approve(query["id"])
        await api.ended(query["id"])
    assert mine.seen == []
    assert (await told(api, plan))[0] == (
        "variable_error",
        f"Nothing was sent. /text is \"{at}\", which has no value: The text of the artifact '{record['id']}' is not what "
        "was approved.",
    )


async def test_no_transaction_is_open_while_a_text_is_read(
    plangate: World, api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text is read before the row says `dispatched`: what holds the query waits for no disk."""
    await api.register(flowing())
    plan = await stored(api, note(f"†artifact.{(await published(api))['id']}.content"))
    order = []
    read, send = plangate.services.workspaces.read_body, PlanExecution._send

    async def reading(*args: Any) -> bytes:
        order.append("read")
        return await read(*args)

    async def sending(*args: Any, **named: Any) -> Any:
        order.append("send")
        return await send(*args, **named)

    monkeypatch.setattr(plangate.services.workspaces, "read_body", reading)
    monkeypatch.setattr(PlanExecution, "_send", sending)
    async with hands(api):
        assert (await executed(api, plan))["status"] == "executed"
    assert order == ["read", "read", "send"]


async def test_values_outside_prompts_count_when_they_are_sent(plangate: World, api: Caller) -> None:
    """Looking whether it is there, as the plan is stored and as it reaches its gate, is no use of it."""
    await api.register(flowing())
    record = await published(api)
    at = f"†artifact.{record['id']}"
    plan = await stored(api, note(f"{at}.content"), make([f"{at}.content", f"{at}.title"]))
    query = await begun(api, plan)
    await api.gate(query["id"])
    assert await plangate.sql("SELECT 1 FROM artifact_uses") == []
    async with hands(api):
        await api.approve(query["id"])
        await api.ended(query["id"])
    (used,) = await plangate.sql("SELECT work_id, artifact_id, size_bytes, prompt_bytes FROM artifact_uses")
    work = {w["id"]: w["kind"] for w in (await api.read(f"/queries/{query['id']}/work"))["items"]}
    assert (work[used["work_id"]], used["artifact_id"]) == ("plan_execution", record["id"])
    assert (used["size_bytes"], used["prompt_bytes"]) == (len(TEXT), 0)
