"""References in variables of a plan: pinned, approved by digest, read when an action is sent."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.client import Caller, good, refused
from tests.support.graphs import (
    SEATS,
    add,
    begun,
    came_to_nothing,
    executed,
    flowing,
    hands,
    make,
    seats,
    state,
    statuses,
    stored,
)
from tests.support.world import World

EXPIRE = "UPDATE reference_values SET expires_at = now() - interval '1 s'"
MIB = 1024 * 1024


async def test_references_through_variables_are_pinned_and_hydrated(
    plangate: World, api: Caller, owner: Any
) -> None:
    await api.register(flowing(references=[SEATS]))
    _, ref = await seats(api, {"rows": [{"a.b": "†state.x"}]})
    plan = await stored(api, make([ref, f'{ref}.rows.0."a.b"', f"†input.no || {ref}.rows"]))
    await owner.execute(EXPIRE)
    assert await plangate.services.references.sweep() == 0
    query = await begun(api, plan)
    approval = await api.gate(query["id"])
    await owner.execute("UPDATE reference_pins SET until = until - interval '8 days' WHERE until IS NOT NULL")
    assert await plangate.services.references.sweep() == 0
    async with hands(api) as mine:
        good(await api.decide(approval["id"]))
        await api.ended(query["id"])
    rows = [{"a.b": "†state.x"}]
    assert mine.payload(0) == {"value": [{"rows": rows}, "†state.x", rows]}
    assert mine.seen[0]["references"] == []
    await plangate.services.references.sweep()
    assert await plangate.value("SELECT count(*) FROM reference_values WHERE value IS NOT NULL") == 0


async def test_a_reference_that_a_plan_reads_is_used_once(api: Caller) -> None:
    """At its dispatch: the checks at the gate are no use."""
    await api.register(flowing(references=[SEATS]))
    id, ref = await seats(api, {"rows": [1, 2]})
    query = await begun(api, await stored(api, make(f"{ref}.rows")))
    await api.approve(query["id"])
    async with hands(api):
        await api.ended(query["id"])
    items = (await api.read(f"/queries/{query['id']}/work"))["items"]
    uses = [(item["kind"], use["use"], use["id"]) for item in items for use in item.get("references", ())]
    assert uses == [("plan_execution", "hydrate", id)]


async def test_a_plan_cannot_name_an_expired_reference(api: Caller, owner: Any) -> None:
    await api.register(flowing(references=[SEATS]))
    id, ref = await seats(api, [1])
    await owner.execute(EXPIRE)
    body = {"specName": "Flow", "runtime": "default", "body": {"actions": [make(f"{ref}.0")]}}
    problem = refused(await api.post("/plans", body), 410, "reference_expired")
    assert problem["detail"] == f"The reference Seats/{id} has expired; create it again."


@pytest.mark.parametrize("path", ["", ".rows"])
async def test_a_reference_deleted_before_the_gate_fails_the_plan(api: Caller, path: str) -> None:
    await api.register(flowing(references=[SEATS]))
    id, ref = await seats(api, {"rows": []})
    plan = await stored(api, make(1), make(ref + path))
    good(await api.delete(f"/references/Seats/{id}"))
    message = await came_to_nothing(api, plan)
    assert f"There is no reference Seats/{id}." in message
    assert "/body/actions/1" in message


@pytest.mark.parametrize("path", ["", ".rows"])
async def test_a_reference_deleted_at_the_gate_fails_the_plan_unsent(
    plangate: World, api: Caller, path: str
) -> None:
    await api.register(flowing(references=[SEATS]))
    id, ref = await seats(api, {"rows": []})
    plan = await stored(api, make(1), make(ref + path))
    query = await begun(api, plan)
    await api.gate(query["id"])
    good(await api.delete(f"/references/Seats/{id}"))
    await api.approve(query["id"])
    assert (await api.ended(query["id"]))["error"]["message"] == (
        f"There is no reference Seats/{id}. /body/actions/1/value: There is no reference Seats/{id}."
    )
    assert await plangate.value("SELECT count(*) FROM outgoing_calls") == 0
    assert (await api.read(f"/plans/{plan['id']}"))["status"] == "draft"


async def test_a_reference_deleted_during_execution_fails_its_reader(api: Caller) -> None:
    await api.register(flowing(references=[SEATS]))
    id, ref = await seats(api, {"rows": []})
    plan = await stored(api, make(1, "†state.a"), make(["†state.a", f"{ref}.rows"]), make(2))
    query = await begun(api, plan)
    await api.approve(query["id"])
    await api.until(query["id"], "waiting", "client_call")
    for call in await api.claim("actions", max=2):
        if call["actions"][0]["index"] == 0:
            good(await api.delete(f"/references/Seats/{id}"))
        good(await api.result(call, {"entitiesAffected": 1, "details": 1}))
    await api.ended(query["id"])
    over = await api.read(f"/plans/{plan['id']}")
    assert await statuses(api, plan) == ["succeeded", "failed", "succeeded"]
    assert over["result"]["actions"][1]["error"] == {
        "code": "variable_error",
        "message": f'Nothing was sent. /value/1 is "{ref}.rows", which has no value: There is no reference Seats/{id}.',
    }


async def test_a_missing_path_in_a_reference_fails_before_the_gate(api: Caller) -> None:
    await api.register(flowing(references=[SEATS]))
    _, ref = await seats(api, {"rows": [1]})
    plan = await stored(api, make(f"{ref}.rows.1"))
    assert await came_to_nothing(api, plan) == (
        f'A variable of the plan has no value. /body/actions/0/value: "{ref}.rows.1" has no value: "{ref}.rows" is an '
        "array of 1."
    )


async def test_each_action_may_use_as_many_bytes_of_references_as_one_dispatch_carries(
    api: Caller, owner: Any
) -> None:
    """A plan may use more; and nothing is approved that could not be sent."""
    await api.register(flowing(references=[SEATS]))
    refs = [(await seats(api, {"n": n}))[1] for n in range(3)]
    await owner.execute("UPDATE reference_values SET size_bytes = $1", 40 * MIB)
    plan = await stored(api, *(make(f"{ref}.n", f"†state.n{n}") for n, ref in enumerate(refs)))
    async with hands(api):
        over = await executed(api, plan)
    assert over["status"] == "executed", over["result"]
    assert await state(api, plan) == {"n0": 0, "n1": 1, "n2": 2}


async def test_more_references_than_one_dispatch_carries_are_not_approved(api: Caller, owner: Any) -> None:
    await api.register(flowing(references=[SEATS]))
    (_, first), (id, second) = [await seats(api, {"n": n}) for n in range(2)]
    await owner.execute("UPDATE reference_values SET size_bytes = $1", 40 * MIB)
    plan = await stored(api, make([f"{first}.n", f"{second}.n"]))
    assert await came_to_nothing(api, plan) == (
        f"One dispatch carries at most {64 * MIB} bytes of references: Seats/{id} with its {40 * MIB} would make it "
        f"{80 * MIB}. Split the actions into several plans, or store less in a reference."
    )


async def test_a_stored_value_fills_a_missing_one(api: Caller) -> None:
    await api.register(flowing(references=[SEATS]))
    _, ref = await seats(api, {"rows": [1]})
    plan = await stored(
        api, make(1, "†state.a"), make(f"†state.a || {ref}.rows.0"), add(f"{ref}.rows.0", "†input.n")
    )

    def do(action: dict[str, Any]) -> Any:
        return ValueError("no luck") if action["index"] == 0 else {"entitiesAffected": 1}

    async with hands(api, do) as mine:
        await executed(api, plan, inputs={"n": 1})
    assert await statuses(api, plan) == ["failed", "succeeded", "succeeded"]
    assert [mine.payload(n) for n in (1, 2)] == [{"value": 1}, {"numbers": [1, 1]}]


async def test_references_of_an_action_cannot_be_variables(api: Caller) -> None:
    """They are hydrated beside its fields, in which a variable may stand for a part of the same value."""
    await api.register(flowing(references=[SEATS]))
    id, ref = await seats(api, {"rows": [1]})
    handle = {"kind": "Seats", "id": id}
    plan = await stored(api, make(f"{ref}.rows") | {"references": [handle]})
    query = await begun(api, plan)
    await api.approve(query["id"])
    call = await api.serve("actions", {"entitiesAffected": 1})
    assert call["actions"][0]["payload"] == {"value": [1]}
    assert call["resolvedRefs"] == {"Seats": {id: {"rows": [1]}}}
    await api.ended(query["id"])
    body = {"specName": "Flow", "runtime": "default"}
    for references, status in [("†state.refs", 422), ([{"kind": "Seats", "id": "†input.id"}], 404)]:
        actions = {"actions": [make(1) | {"references": references}]}
        refused(await api.post("/plans", {**body, "body": actions}), status)
