"""Withdrawing artifacts, and choosing among competing revisions: new records, never a change."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from app.artifacts.verify import problems
from tests.postgres.approvals.test_approval_floor import lay
from tests.support import specs
from tests.support.client import Caller, good, output_of, refused
from tests.support.world import World


async def verified(plangate: World) -> list[str]:
    services = plangate.services
    return [text async for _, text in problems(services.db, services.chainer, {})]


async def thread(api: Caller, key: str = "t") -> str:
    made = str((await api.do("/threads", {"threadKey": key}))["id"])
    good(await api.request("PUT", f"/threads/{made}/files/a", content=b"one"))
    return made


async def publish(api: Caller, thread_id: str, **parts: Any) -> Any:
    return await api.do("/artifacts", {"threadId": thread_id, "channel": "design", "path": "a", **parts})


async def listed(api: Caller, **params: Any) -> list[str]:
    return [a["id"] for a in (await api.read("/artifacts", **params))["items"]]


@pytest.fixture
async def home(api: Caller) -> str:
    return await thread(api)


@pytest.fixture
async def rivals(api: Caller, home: str) -> tuple[str, str, str]:
    """A record, and two that replace it."""
    first = (await publish(api, home))["id"]
    left, right = [(await publish(api, home, replaces=first))["id"] for _ in range(2)]
    return first, left, right


async def test_a_withdrawn_artifact_stays_readable_and_leaves_the_lists(
    plangate: World, api: Caller, home: str
) -> None:
    record, other = await publish(api, home), await publish(api, home)
    at = f"/artifacts/{record['id']}"
    made = await api.post(f"{at}/withdraw", {"reason": "The wrong part was measured."})
    assert (made.status_code, made.headers["location"]) == (201, at)
    (decision,) = made.json()["decisions"]
    assert made.json() == {**record, "status": "withdrawn", "decisions": [decision]} == await api.read(at)
    assert decision == {
        "id": decision["id"],
        "kind": "withdraw",
        "artifactId": record["id"],
        "reason": "The wrong part was measured.",
        "createdAt": decision["createdAt"],
        "principal": decision["principal"],
        "producer": {"workId": decision["producer"]["workId"], "kind": "host", "threadId": home},
    }
    assert (await api.get(f"{at}/content")).content == b"one"
    assert await listed(api) == await listed(api, status="active") == [other["id"]]
    assert await listed(api, status="withdrawn") == [record["id"]]
    assert await listed(api, status="superseded") == []
    assert await listed(api, includeSuperseded=True) == [other["id"], record["id"]]
    again = refused(await api.post(f"{at}/withdraw", {"reason": "Once more."}), 409, "artifact_withdrawn")
    assert again["detail"] == f"The artifact {record['id']} is already withdrawn."
    assert await verified(plangate) == []


async def test_a_decision_needs_a_reason_and_the_scope_to_write(
    plangate: World, api: Caller, rivals: tuple[str, str, str]
) -> None:
    _, left, right = rivals
    reader = await plangate.key("read", "queries:write")
    for verb, body in (("withdraw", {}), ("choose", {"over": [right]})):
        at = f"/artifacts/{left}/{verb}"
        refused(await reader.post(at, {**body, "reason": "Because."}), 403)
        refused(await api.post(at, body), 422)
        for reason in ("", "x" * 2001, "  "):
            refused(await api.post(at, {**body, "reason": reason}), 422, "invalid")
        refused(await plangate.other.post(at, {**body, "reason": "Because."}), 404, "artifact_not_found")
    refused(await api.post(f"/artifacts/{left}/choose", {"over": [], "reason": "Because."}), 422)
    assert (await api.read(f"/artifacts/{left}"))["status"] == "active"


async def test_a_chosen_revision_supersedes_its_competitors(
    plangate: World, api: Caller, home: str, rivals: tuple[str, str, str]
) -> None:
    first, left, right = rivals
    third = (await publish(api, home, replaces=first))["id"]
    foreign = (await publish(api, home))["id"]
    at = f"/artifacts/{left}/choose"
    for wrong in (first, left, foreign, "art_" + "0" * 26):
        body = refused(await api.post(at, {"over": [right, wrong], "reason": "Better."}), 422)
        assert body["errors"] == [
            {"pointer": "/over/1", "message": f"names no revision that competes with {left}: {wrong!r}"}
        ]
    made = await api.do(at, {"over": [right, right], "reason": "It passes the tests."})
    assert (made["status"], made["competesWith"]) == ("active", [third])
    found = {a["id"]: a for a in (await api.read("/artifacts", includeSuperseded=True))["items"]}
    assert {id: (found[id]["status"], found[id]["competesWith"]) for id in (left, right, third)} == {
        left: ("active", [third]),
        right: ("superseded", []),
        third: ("active", [left]),
    }
    assert found[left]["decisions"] == found[right]["decisions"]
    assert [(d["kind"], d["over"], d["reason"]) for d in found[right]["decisions"]] == [
        ("choose", [right], "It passes the tests.")
    ]
    assert await listed(api, status="superseded") == [right, first]
    body = refused(
        await api.post(f"/artifacts/{right}/choose", {"over": [third], "reason": "No."}),
        409,
        "artifact_passed_over",
    )
    assert body["detail"].endswith("Publish a new revision instead.")
    await api.do(f"/artifacts/{third}/withdraw", {"reason": "It is slow."})
    assert (await api.read(f"/artifacts/{left}"))["competesWith"] == []
    refused(
        await api.post(f"/artifacts/{third}/choose", {"over": [left], "reason": "No."}),
        409,
        "artifact_withdrawn",
    )
    assert await verified(plangate) == []


async def test_a_predecessor_is_active_again_once_what_replaced_it_is_withdrawn(
    plangate: World, api: Caller, home: str
) -> None:
    ids = [(await publish(api, home))["id"]]
    for _ in range(3):
        ids.append((await publish(api, home, replaces=ids[-1]))["id"])

    async def statuses() -> list[str]:
        found = {
            a["id"]: a["status"] for a in (await api.read("/artifacts", includeSuperseded=True))["items"]
        }
        assert await listed(api) == [id for id in reversed(ids) if found[id] == "active"]
        for status in ("superseded", "withdrawn"):
            assert await listed(api, status=status) == [id for id in reversed(ids) if found[id] == status]
        return [found[id] for id in ids]

    assert await statuses() == ["superseded", "superseded", "superseded", "active"]
    await api.do(f"/artifacts/{ids[1]}/withdraw", {"reason": "Its source was wrong."})
    assert await statuses() == ["superseded", "withdrawn", "superseded", "active"]
    await api.do(f"/artifacts/{ids[3]}/withdraw", {"reason": "It was slow."})
    assert await statuses() == ["superseded", "withdrawn", "active", "withdrawn"]
    await api.do(f"/artifacts/{ids[2]}/withdraw", {"reason": "It was slow, too."})
    assert await statuses() == ["active", "withdrawn", "withdrawn", "withdrawn"]
    assert (await api.read(f"/artifacts/{ids[0]}"))["status"] == "active"
    ids.append((await publish(api, home, replaces=ids[3]))["id"])
    assert await statuses() == ["superseded", "withdrawn", "withdrawn", "withdrawn", "active"]
    assert await verified(plangate) == []


async def test_a_choice_holds_until_the_chosen_revision_is_withdrawn(
    plangate: World, api: Caller, home: str, rivals: tuple[str, str, str]
) -> None:
    first, left, right = rivals

    async def statuses(*ids: str) -> list[str]:
        return [(await api.read(f"/artifacts/{id}"))["status"] for id in ids]

    await api.do(f"/artifacts/{left}/choose", {"over": [right], "reason": "Shorter."})
    later = (await publish(api, home, replaces=left))["id"]
    await api.do(f"/artifacts/{left}/withdraw", {"reason": "Replaced in a hurry."})
    assert await statuses(first, left, right, later) == ["superseded", "withdrawn", "superseded", "active"]
    await api.do(f"/artifacts/{later}/withdraw", {"reason": "Wrong."})
    assert await statuses(first, left, right, later) == ["superseded", "withdrawn", "active", "withdrawn"]
    third = (await publish(api, home, replaces=first))["id"]
    assert (await api.read(f"/artifacts/{right}"))["competesWith"] == [third]
    await api.do(f"/artifacts/{third}/choose", {"over": [right], "reason": "It passes the tests."})
    assert await statuses(first, right, third) == ["superseded", "superseded", "active"]
    for id in (third, right):
        await api.do(f"/artifacts/{id}/withdraw", {"reason": "Start again."})
    assert await statuses(first, right, third) == ["active", "withdrawn", "withdrawn"]
    assert await verified(plangate) == []


async def test_the_query_that_published_gets_the_event_of_a_hosts_decision(api: Caller, home: str) -> None:
    """Unless it is over: nothing follows the last event of a query."""
    await api.register(specs.scripted(specs.tool("check")))
    query = await api.submit(specs.script(("check", {"n": 1})), threadKey="t")
    (call,) = await api.claim("check")
    first = await publish(api, home, workId=call["workId"])
    left, right = [await publish(api, home, replaces=first["id"], workId=call["workId"]) for _ in range(2)]
    choice = {"over": [right["id"]], "reason": "Shorter."}
    chosen = await api.do(f"/artifacts/{left['id']}/choose", choice)
    (event,) = await api.events(query["id"], "artifact-decision")
    assert event["data"] == chosen["decisions"][0]
    assert (event["workId"], event["agent"]) == (left["producer"]["workId"], "solo")
    assert event["data"]["over"] == [right["id"]]
    good(await api.result(call, 1))
    await api.ended(query["id"])
    await api.do(f"/artifacts/{left['id']}/withdraw", {"reason": "Wrong."})
    assert [e["data"]["kind"] for e in await api.events(query["id"], "artifact-decision")] == ["choose"]


async def test_one_of_two_opposite_concurrent_choices_wins(plangate: World, api: Caller, home: str) -> None:
    other = await thread(api, "u")
    for _ in range(5):
        first = (await publish(api, home))["id"]
        left = (await publish(api, home, replaces=first))["id"]
        right = (await publish(api, other, replaces=first))["id"]
        answers = await asyncio.gather(
            api.post(f"/artifacts/{left}/choose", {"over": [right], "reason": "Left."}),
            api.post(f"/artifacts/{right}/choose", {"over": [left], "reason": "Right."}),
        )
        assert sorted(a.status_code for a in answers) == [201, 409]
        states = [(await api.read(f"/artifacts/{id}"))["status"] for id in (left, right)]
        assert sorted(states) == ["active", "superseded"]
    assert await verified(plangate) == []


async def test_a_repeated_request_decides_once(api: Caller, home: str) -> None:
    record = await publish(api, home)
    at, key = f"/artifacts/{record['id']}/withdraw", {"idempotency-key": "k1"}
    answers = [await api.post(at, {"reason": "Old."}, headers=key) for _ in range(2)]
    assert answers[0].json() == answers[1].json()
    assert [a.status_code for a in answers] == [201, 201]


async def test_uploading_withdrawn_content_again_is_a_new_artifact(api: Caller, home: str) -> None:
    async def upload() -> str:
        sent = await api.request("PUT", "/artifacts/design/b", params={"threadId": home}, content=b"b")
        return str(good(sent)["id"])

    first = await upload()
    assert await upload() == first
    await api.do(f"/artifacts/{first}/withdraw", {"reason": "Old."})
    second = await upload()
    assert second != first
    assert await listed(api) == [second]


def deciding(**parts: Any) -> specs.Spec:
    agent = specs.agent("solo", toolkits=["artifacts"], stateful=False)
    return specs.spec(agent, interpreter="scripted", **parts)


async def test_an_agent_withdraws_only_with_approval(
    plangate: World, api: Caller, home: str, rivals: tuple[str, str, str]
) -> None:
    _, left, right = rivals
    await api.register(deciding())
    script = specs.script(
        ("artifact_choose", {"id": left, "over": [right], "reason": "Shorter."}),
        ("artifact_withdraw", {"id": left, "reason": "Wrong after all."}),
        ("artifact_withdraw", {"id": left, "reason": "Twice."}),
        ("artifact_list", {"status": "withdrawn"}),
    )
    query = await api.submit(script, threadKey="t")
    for target in ("artifact_choose", "artifact_withdraw"):
        approval = await api.gate(query["id"])
        assert (approval["kind"], approval["target"]) == ("tool", target)
        assert await listed(api, status="withdrawn") == []
        good(await api.decide(approval["id"], digest=approval["digest"]))
    last = await api.gate(query["id"])
    good(await api.decide(last["id"], "reject", feedback="Enough."))
    chosen, withdrawn, rejected, found = output_of(await api.ended(query["id"]))
    assert (chosen["result"]["id"], chosen["result"]["competesWith"]) == (left, [])
    assert withdrawn["result"]["status"] == "withdrawn"
    assert "Enough." in rejected["error"]
    assert [a["id"] for a in found["result"]] == [left]
    events = await api.events(query["id"], "artifact-decision")
    assert [event["data"] for event in events] == withdrawn["result"]["decisions"]
    producer = withdrawn["result"]["decisions"][1]["producer"]
    assert (producer["kind"], producer["agent"], producer["queryId"]) == ("agent", "solo", query["id"])
    assert producer["callId"].startswith("wrk_")
    assert "principal" not in withdrawn["result"]["decisions"][1]
    assert (await api.read(f"/artifacts/{right}"))[
        "status"
    ] == "active"  # what was chosen over it is withdrawn
    assert await verified(plangate) == []


async def test_a_rule_for_the_tool_opens_its_gate_and_the_floor_closes_it(
    api: Caller, home: str, owner: asyncpg.Connection
) -> None:
    other = await thread(api, "u")
    mine, again, theirs = [await publish(api, where) for where in (home, home, other)]
    rules = {"tools": {"solo": {"artifact_withdraw": "never"}}}
    await api.register(deciding(approvalOverrides=rules))
    query = await api.run(
        specs.script(
            ("artifact_withdraw", {"id": mine["id"], "reason": "Old."}),
            ("artifact_withdraw", {"id": theirs["id"], "reason": "Old."}),
            ("artifact_withdraw", {"id": "art_" + "0" * 26, "reason": "Old."}),
        ),
        threadKey="t",
    )
    done, foreign, unknown = output_of(query)
    assert done["result"]["status"] == "withdrawn"
    assert foreign["error"].startswith(f"The artifact {theirs['id']} is in another thread.")
    assert unknown["error"].startswith("There is no artifact")
    assert (await api.read(f"/artifacts/{theirs['id']}"))["status"] == "active"
    await lay(owner, tools={"kind": "always"})
    query = await api.submit(
        specs.script(("artifact_withdraw", {"id": again["id"], "reason": "Old."})), threadKey="t"
    )
    await api.approve(query["id"])
    assert (await api.ended(query["id"]))["status"] == "succeeded"


async def test_the_decision_tools_require_the_toolkit_by_name(api: Caller) -> None:
    plain = [specs.agent("chief", "coordinator", routes=["helper"]), specs.agent("helper")]
    naming = [*plain[:1], specs.agent("helper", toolkits=["artifacts"])]
    for agents, has in ((plain, False), (naming, True)):
        spec = (await api.register(specs.spec(*agents)))["spec"]
        (prompt,) = [a["systemPrompt"] for a in spec["agents"] if a["name"] == "helper"]
        assert "artifact_publish" in prompt
        assert ("artifact_withdraw" in prompt, "artifact_choose" in prompt) == (has, has)


async def test_a_handler_withdraws_for_the_agent_that_called_it(api: Caller, home: str) -> None:
    record = await publish(api, home)
    foreign = await publish(api, await thread(api, "u"))
    await api.register(specs.scripted(specs.tool("check")))
    query = await api.submit(specs.script(("check", {"n": 1})), threadKey="t")
    (call,) = await api.claim("check")
    body = {"reason": "It fails.", "workId": call["workId"]}
    refused(await api.post(f"/artifacts/{foreign['id']}/withdraw", body), 422)
    made = await api.do(f"/artifacts/{record['id']}/withdraw", body)
    producer = made["decisions"][0]["producer"]
    assert (producer["agent"], producer["callId"]) == ("solo", call["workId"])
    (event,) = await api.events(query["id"], "artifact-decision")
    assert (event["data"], event["workId"]) == (made["decisions"][0], call["workId"])
    good(await api.result(call, 1))
    await api.ended(query["id"])
    refused(await api.post(f"/artifacts/{record['id']}/withdraw", body), 409)


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("UPDATE artifact_decisions SET kind = 'choose' WHERE n = 5", "{id} ({where}) was changed: kind"),
        ("UPDATE artifact_decisions SET artifact_id = 'art_1' WHERE n = 5", "{id} ({where}) was changed: artifact_id"),
        ("UPDATE artifact_decisions SET call_id = 'wrk_1' WHERE n = 5", "{id} ({where}) was changed: call_id"),
        ("DELETE FROM artifact_choices", "{chosen} (record 4 of thread {thread}) was changed: over_ids"),
        ("UPDATE artifact_decisions SET record = replace(convert_from(record, 'UTF8'), 'Old', 'New')::bytea WHERE n = 5",
         "{id} ({where}) was changed"),
        ("DELETE FROM artifact_decisions WHERE n = 4", "record 4 was removed from thread {thread}"),
        ("DELETE FROM artifact_decisions WHERE n = 5", "record 5 was removed from thread {thread}"),
        ("INSERT INTO artifact_decisions SELECT tenant_id, 'ard_x', thread_id, 7, record, mac, sha256('x'), kind, artifact_id, "
         "call_id, created_at FROM artifact_decisions WHERE n = 5", "ard_x (record 7 of thread {thread}) was inserted"),
    ],
)  # fmt: skip
async def test_verify_reports_a_tampered_decision(
    plangate: World,
    api: Caller,
    home: str,
    rivals: tuple[str, str, str],
    owner: asyncpg.Connection,
    statement: str,
    told: str,
) -> None:
    _, left, right = rivals
    await api.do(f"/artifacts/{left}/choose", {"over": [right], "reason": "Better."})
    await api.do(f"/artifacts/{left}/withdraw", {"reason": "Old."})
    await publish(api, home)
    assert await verified(plangate) == []
    chosen, id = [await owner.fetchval("SELECT id FROM artifact_decisions WHERE n = $1", n) for n in (4, 5)]
    await owner.execute("SET session_replication_role = replica")
    await owner.execute("DROP INDEX artifact_decisions_withdrawn")
    await owner.execute(statement)
    where = f"record 5 of thread {home}"
    assert told.format(id=id, chosen=chosen, where=where, thread=home) in await verified(plangate)


async def test_the_service_cannot_change_a_decision(
    plangate: World, api: Caller, home: str, owner: asyncpg.Connection
) -> None:
    record = await publish(api, home)
    await api.do(f"/artifacts/{record['id']}/withdraw", {"reason": "Old."})
    for table in ("artifact_decisions", "artifact_choices"):
        for statement in (f"DELETE FROM {table}", f"UPDATE {table} SET decision_id = ''"):
            with pytest.raises(asyncpg.PostgresError):
                await plangate.sql(statement)
        assert await plangate.sql(f"SELECT 1 FROM {table}", tenant="other") == []


async def test_decisions_are_deleted_with_their_thread(
    plangate: World, api: Caller, home: str, rivals: tuple[str, str, str], owner: asyncpg.Connection
) -> None:
    first, left, right = rivals
    other = await thread(api, "u")
    rival = (await publish(api, other, replaces=first))["id"]
    await api.do(f"/artifacts/{left}/choose", {"over": [right, rival], "reason": "Better."})
    await api.do(f"/artifacts/{right}/withdraw", {"reason": "Old."})
    assert (await api.read(f"/artifacts/{rival}"))["status"] == "superseded"
    good(await api.delete(f"/threads/{home}"))
    await plangate.services.deletions.finish_due()
    for table in ("artifact_decisions", "artifact_choices"):
        assert await owner.fetchval(f"SELECT count(*) FROM {table}") == 0
    assert (await api.read(f"/artifacts/{rival}"))["status"] == "active"
    assert await verified(plangate) == []
