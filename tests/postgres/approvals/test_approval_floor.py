"""The operator's floor: no gate of the tenant is weaker, whatever a spec says."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

import pytest
from plangate.spec.toolkits import TEAM_TOOLS

from app.deployment import Deployment
from tests.support import specs
from tests.support.client import Caller, good, inner, output_of, refused
from tests.support.forked import run
from tests.support.service import plain_environment
from tests.support.world import World, world

ALWAYS = {"kind": "always"}
REMEMBER = {"kind": "always", "rememberable": True}


async def lay(owner: Any, tenant: str = "acme", **floor: Any) -> None:
    """What `plangate tenants set --approval-floor` does."""
    assert await owner.fetchval("SELECT set_tenant($1, NULL, $2::text::jsonb)", tenant, json.dumps(floor))


async def call(api: Caller, thread: str | None = None, **parts: Any) -> str:
    parts = {**parts, **({"threadKey": thread} if thread else {})}
    return str((await api.submit(specs.script(("pay", {"n": 7})), **parts))["id"])


async def paid(api: Caller, query: str) -> None:
    await api.serve("pay", 1)
    assert output_of(await api.ended(query)) == [{"tool": "pay", "result": 1}]


async def lives_s(plangate: World, approval: dict[str, Any]) -> int:
    sql = "SELECT extract(epoch FROM expires_at - requested_at)::int FROM approvals WHERE id = $1"
    return int(await plangate.value(sql, approval["id"]))


async def test_a_floor_gates_a_tool_that_no_spec_gates(plangate: World, api: Caller, owner: Any) -> None:
    await api.register(specs.scripted(specs.tool("pay", approval="never")))
    await paid(api, await call(api))
    await lay(owner, tools=ALWAYS)
    query = await call(api)
    approval = await api.gate(query)
    assert approval["rule"] == ALWAYS
    assert await plangate.value("SELECT count(*) FROM outgoing_calls WHERE query_id = $1", query) == 0
    good(await api.decide(approval["id"]))
    await paid(api, query)
    await lay(owner)
    await paid(api, await call(api))


async def test_a_floor_applies_to_its_tenant_and_declared_tools(
    plangate: World, api: Caller, owner: Any
) -> None:
    await lay(owner, tools=ALWAYS)
    other = plangate.other
    await other.register(specs.scripted(specs.tool("pay"), tenant="other"))
    await paid(other, await call(other))
    await api.register(
        specs.spec(
            specs.agent("chief", "coordinator", routes=["solo"]), specs.agent("solo"), interpreter="scripted"
        )
    )
    query = await api.run(specs.script(("call_agent", {"agent": "solo", "prompt": {"script": []}})))
    assert output_of(query)[0]["result"]["results"] == []
    assert (await api.read("/approvals"))["items"] == []


async def test_a_floor_gates_plans_that_policy_lets_through(api: Caller, owner: Any) -> None:
    await api.register(specs.planning(approvalPolicies={"plans": "never"}))
    free = await api.submit(specs.store_and_execute())
    await api.serve("actions", None)
    await api.ended(free["id"])
    (row,) = (await api.read("/approvals"))["items"]
    assert (row["decidedBy"], row["rule"]) == ("policy", {"kind": "never"})
    await lay(owner, plans={"kind": "always", "approvers": {"minimum": 2}})
    gated = await api.submit(specs.store_and_execute(plan_id="p2"))
    approval = await api.gate(gated["id"])
    assert approval["rule"] == {"kind": "always", "approvers": {"minimum": 2}}
    assert good(await api.decide(approval["id"]))["status"] == "pending"


async def test_a_floor_gates_the_plans_of_hosts(api: Caller, owner: Any) -> None:
    await api.register(specs.planning(approvalPolicies={"plans": "never"}))
    await lay(owner, plans=ALWAYS)
    plan = await api.do("/plans", {"specName": "Routing", "body": specs.BODY})
    query = await api.do(f"/plans/{plan['id']}/execute", {})
    assert (await api.gate(query["id"]))["rule"] == ALWAYS


async def test_a_floor_can_require_more_approvers_and_exclude_the_requester(
    plangate: World, api: Caller, owner: Any
) -> None:
    await lay(owner, tools={"kind": "never", "approvers": {"minimum": 2, "notRequester": True}})
    await api.register(specs.scripted(specs.tool("pay", approval=ALWAYS)))
    query = await call(api)
    approval = await api.gate(query)
    refused(await api.decide(approval["id"]), 403, "forbidden")
    for name, status in (("ann", "pending"), ("bob", "approved")):
        key = await plangate.key("approvals:decide", principal=name)
        assert good(await key.decide(approval["id"]))["status"] == status
    await paid(api, query)


async def test_a_floor_shortens_the_expiry_of_a_rule_or_query(
    plangate: World, api: Caller, owner: Any
) -> None:
    await lay(owner, tools={"kind": "never", "approvalExpiresInMs": 60_000}, plans=ALWAYS)
    lives = []
    for rule, parts in (
        (ALWAYS, {}),
        ({**ALWAYS, "approvalExpiresInMs": 5_000}, {}),
        ({**ALWAYS, "approvalExpiresInMs": 90_000}, {}),
        (ALWAYS, {"approvalExpiresInMs": 3_600_000}),
        (ALWAYS, {"approvalExpiresInMs": 4_000}),
    ):
        await api.register(specs.scripted(specs.tool("pay", approval=rule)))
        lives.append(await lives_s(plangate, await api.gate(await call(api, **parts))))
    assert lives == [60, 5, 60, 60, 4]


@pytest.mark.parametrize(("own", "ends"), [(None, "failed"), ("reject", "succeeded")])
async def test_a_floor_sets_on_expiry_where_the_rule_does_not(
    plangate: World, api: Caller, owner: Any, own: str | None, ends: str
) -> None:
    await lay(owner, tools={**ALWAYS, "onExpiry": "fail"})
    rule = {**ALWAYS, "onExpiry": own} if own else ALWAYS
    await api.register(specs.scripted(specs.tool("pay", approval=rule)))
    query = await call(api)
    await api.gate(query)
    await owner.execute("UPDATE approvals SET expires_at = now()")
    await plangate.services.approvals.expire_due()
    assert (await api.ended(query))["status"] == ends


async def test_a_floor_without_rememberable_ends_remembering(api: Caller, owner: Any) -> None:
    await api.register(specs.scripted(specs.tool("pay", approval=REMEMBER)))
    query = await call(api, "t")
    good(await api.decide((await api.gate(query))["id"], scope="thread"))
    await paid(api, query)
    await paid(api, await call(api, "t"))
    await lay(owner, tools=ALWAYS)
    query = await call(api, "t")
    approval = await api.gate(query)
    body = refused(await api.decide(approval["id"], scope="thread"), 422)
    assert body["errors"][0]["message"] == "the rule of this gate is not 'rememberable': remove 'scope'"
    await api.do(f"/queries/{query}/cancel")
    await lay(owner, tools={**REMEMBER, "approvers": {"minimum": 2}})
    query = await call(api, "t")
    await api.gate(query)  # one vote stands behind the grant, and two are asked for now
    await api.do(f"/queries/{query}/cancel")
    await lay(owner, tools=REMEMBER)
    await paid(api, await call(api, "t"))


async def test_a_call_at_a_gate_keeps_its_rule(cluster: Any, site: Any, idle: World, owner: Any) -> None:
    """A floor that is taken away opens no gate that is shut: a process that takes the query over asks nobody less."""
    api = idle.api
    await lay(owner, tools=ALWAYS)
    await api.register(specs.scripted(specs.tool("pay")))
    async with world(site, cluster.operator_key):
        query = await call(api)
        approval = await api.gate(query)
        await api.until(query, "waiting")
    await lay(owner)
    good(await api.decide(approval["id"], "reject", feedback="No."))
    async with world(site, cluster.operator_key):
        assert output_of(await api.ended(query)) == [
            {"tool": "pay", "error": "The call was rejected and not made. Feedback: No."}
        ]


async def test_a_call_that_was_sent_is_not_gated_again(
    cluster: Any, site: Any, idle: World, owner: Any
) -> None:
    """A floor that comes while a call is under way holds from the next gate on."""
    api = idle.api
    await api.register(specs.scripted(specs.tool("pay")))
    async with world(site, cluster.operator_key):
        query = await call(api)
        await api.until(query, "waiting", "client_call")
    await lay(owner, tools=ALWAYS)
    async with world(site, cluster.operator_key):
        await paid(api, query)
    assert (await api.read("/approvals"))["items"] == []


async def test_the_rule_in_force_is_shown_with_its_origin(api: Caller, owner: Any) -> None:
    runtime = await api.register(
        specs.scripted(
            specs.tool("pay", approval=ALWAYS),
            specs.tool("look", approval="never"),
            specs.tool("say"),
            agents=[
                specs.agent("chief", "coordinator", routes=["solo"], tools=["pay", "look", "say"]),
                specs.agent("solo"),
            ],
        )
    )

    async def shown() -> dict[str, tuple[str, str]]:
        tools = (await api.read(f"/runtimes/{runtime['id']}/agents/chief/tools"))["tools"]
        return {t["name"]: (t["approval"]["kind"], t["approvalOrigin"]) for t in tools}

    plain = {
        **dict.fromkeys(TEAM_TOOLS, ("never", "default")),
        "call_agent": ("never", "default"),
        "pay": ("always", "approvalOverrides.tools"),  # where assembly writes what a tool says
        "look": ("never", "approvalOverrides.tools"),
        "say": ("never", "approvalPolicies"),
    }
    assert await shown() == plain
    await lay(owner, tools=ALWAYS)
    assert await shown() == {**plain, "look": ("always", "floor"), "say": ("always", "floor")}
    await lay(owner, tools={**ALWAYS, "approvers": {"minimum": 2}})
    assert (await shown())["pay"] == ("always", "floor")
    await lay(owner, plans=ALWAYS)
    assert await shown() == plain


async def test_an_executor_meets_both_gates(api: Caller, owner: Any) -> None:
    """The built-in executePlan is gated by name only, its plan by the floor."""
    await lay(owner, plans=ALWAYS, tools=ALWAYS)
    await api.register(specs.planning(approvalPolicies={"plans": "never"}))
    query = await api.submit(specs.store_and_execute())
    assert (await api.gate(query["id"]))["kind"] == "plan"
    await api.approve(query["id"])
    await api.serve("actions", None)
    _, executed = map(inner, output_of(await api.ended(query["id"])))
    assert executed["status"] == "executed"


# -- the operator's command


async def plangate_command(site: Deployment, *arguments: str) -> tuple[int, str, str]:
    env = {**plain_environment(), "DATABASE_URL": site.dsn, "PLANGATE_SECRET_KEY": "s" * 40}
    done = await asyncio.to_thread(partial(run, "app", "tenants", *arguments, env=env))
    return done.returncode, done.stdout, done.stderr


async def test_the_operator_sets_and_changes_a_floor(site: Deployment, owner: Any) -> None:
    tools = json.dumps({"tools": "always"})
    made = await plangate_command(site, "create", "fresh", "--approval-floor", tools)
    assert made == (0, "Tenant fresh made.\n", "")
    row = "SELECT limits::text, approval_floor::text FROM tenants WHERE tenant_id = 'fresh'"
    limits, floor = await owner.fetchrow(row)
    assert json.loads(floor) == {"tools": {"kind": "always"}}
    assert json.loads(limits)["runningQueries"] == 50
    again = await plangate_command(site, "create", "fresh", "--approval-floor", "{}")
    assert again[1] == (
        "Tenant fresh exists already. Nothing was changed; `plangate tenants set` changes it.\n"
    )
    assert await plangate_command(site, "set", "fresh", "--limits", '{"runningQueries": 2}') == (
        0,
        "Tenant fresh set.\n",
        "",
    )
    limits, same = await owner.fetchrow(row)
    assert (json.loads(limits), same) == ({"runningQueries": 2}, floor)
    await plangate_command(site, "set", "fresh", "--approval-floor", "{}")
    assert tuple(await owner.fetchrow(row)) == (limits, "{}")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["set", "acme"], "Nothing to set: give --limits, --approval-floor, or both."),
        (
            ["set", "nobody", "--approval-floor", "{}"],
            "There is no tenant 'nobody'; make it with `plangate tenants create`.",
        ),
        (["set", "acme", "--approval-floor", "{"], "--approval-floor is not JSON: "),
        (["set", "acme", "--approval-floor", "[]"], "--approval-floor must be a JSON object."),
        (["set", "acme", "--approval-floor", '{"tool": "always"}'], "The approval floor is not "),
        (
            ["set", "acme", "--approval-floor", '{"tools": {"kind": "dynamic", "value": "big"}}'],
            "The approval floor cannot be dynamic: its predicate would be the tenant's own. "
            "Use 'always' or 'never'.",
        ),
        (
            ["create", "new", "--limits", '{"queries": 5}'],
            "--limits: unknown limit 'queries'; expected one of: "
            "runningQueries, queuedQueries, requestsPerSecond, bytes, maxReferenceBytes, openStreams, "
            "openStreamsPerKey.",
        ),
        (
            ["set", "acme", "--limits", '{"bytes": 0}'],
            "--limits: bytes must be a whole number from 1; leave it out for no limit.",
        ),
    ],
)
async def test_invalid_floors_and_limits_are_rejected_with_one_line(
    site: Deployment, owner: Any, arguments: list[str], said: str
) -> None:
    code, out, err = await plangate_command(site, *arguments)
    assert (code, out) == (1, "")
    assert err.startswith(f"plangate: {said}")
    assert len(err.splitlines()) == 1
    assert [r[0] for r in await owner.fetch("SELECT approval_floor::text FROM tenants")] == ["{}", "{}"]
    assert [r[0] for r in await owner.fetch("SELECT limits::text FROM tenants")] == ["{}", "{}"]
