"""`GET /plans/{id}/graph` and `/graph.mmd`: plans of any form and status as JSON and Mermaid."""

from __future__ import annotations

from typing import Any

from tests.support import specs
from tests.support.client import Caller, good, refused
from tests.support.graphs import FLOW, add, carry_out, count, executed, flowing, hands, make, note, stored
from tests.support.world import World

MERMAID = "text/vnd.mermaid"


async def chart(api: Caller, plan: dict[str, Any]) -> str:
    answer = await api.get(f"/plans/{plan['id']}/graph.mmd")
    assert answer.is_success, answer.text
    assert answer.headers["content-type"] == f"{MERMAID}; charset=utf-8"
    return answer.text


async def test_a_plan_is_drawn_as_a_draft_and_after_its_end(api: Caller) -> None:
    await api.register(flowing())
    plan = await stored(
        api,
        add("†state.a", "†input.b", path="†state.sum"),
        make(1, "†state.a"),
        count("†state.sum"),
        count("†state.a"),
    )
    nodes = [("add", ["†state.a", "†input.b"], ["†state.sum"]), ("make", [], ["†state.a"])]
    nodes += [("count", ["†state.sum"], []), ("count", ["†state.a"], [])]
    edges = [
        {"from": 1, "to": 0, "path": "†state.a"},
        {"from": 0, "to": 2, "path": "†state.sum"},
        {"from": 1, "to": 3, "path": "†state.a"},
    ]
    draft = {
        "planId": plan["id"],
        "revision": 1,
        "status": "draft",
        "nodes": [
            {"index": n, "kind": kind, "reads": reads, "writes": writes, "status": None, "attempts": 0}
            for n, (kind, reads, writes) in enumerate(nodes)
        ],
        "edges": edges,
        "edgesLeftOut": 0,
    }
    assert await api.read(f"/plans/{plan['id']}/graph") == draft
    assert (await chart(api, plan)).splitlines() == [
        "flowchart TD",
        '    n0["0 · add"]',
        '    n1["1 · make"]',
        '    n2["2 · count"]',
        '    n3["3 · count"]',
        '    n1 -->|"†state.a"| n0',
        '    n0 -->|"†state.sum"| n2',
        '    n1 -->|"†state.a"| n3',
    ]

    def do(action: dict[str, Any]) -> Any:
        return ValueError("no luck") if action["index"] == 0 else carry_out(action)

    async with hands(api, do):
        over = await executed(api, plan, inputs={"b": 2})
    found = await api.read(f"/plans/{over['id']}/graph")
    assert (found["status"], found["edges"]) == ("failed", edges)
    assert [(node["status"], node["attempts"]) for node in found["nodes"]] == [
        ("failed", 1),
        ("succeeded", 1),
        ("skipped", 0),
        ("succeeded", 1),
    ]
    assert (await chart(api, plan)).splitlines()[1:5] == [
        '    n0["0 · add · failed"]:::failed',
        '    n1["1 · make · succeeded"]:::succeeded',
        '    n2["2 · count · skipped"]:::skipped',
        '    n3["3 · count · succeeded"]:::succeeded',
    ]


async def test_a_plan_is_drawn_while_it_waits(api: Caller) -> None:
    await api.register(flowing())
    plan = await stored(api, make(1, "†state.a"), count("†state.a"))
    query = await api.do(f"/plans/{plan['id']}/execute", {})
    await api.gate(query["id"])
    waiting = await api.read(f"/plans/{plan['id']}/graph")
    assert (waiting["status"], [node["status"] for node in waiting["nodes"]]) == ("draft", [None, None])
    await api.approve(query["id"])
    (call,) = await api.claim("actions")
    found = await api.read(f"/plans/{plan['id']}/graph")
    assert found["status"] == "executing"
    assert [(node["status"], node["attempts"]) for node in found["nodes"]] == [
        ("dispatched", 1),
        ("pending", 0),
    ]
    assert '["0 · make · dispatched"]:::dispatched' in await chart(api, plan)
    good(await api.result(call, None, "no luck"))
    await api.ended(query["id"])


async def test_a_batch_has_no_edges(api: Caller) -> None:
    await api.register(specs.planning())
    body = {"reason": "storm", "actions": [specs.BOOK, specs.REFUND]}
    plan = await api.do("/plans", {"specName": "Routing", "runtime": "default", "body": body})
    found = await api.read(f"/plans/{plan['id']}/graph")
    assert found["edges"] == []
    assert [(node["kind"], node["reads"], node["writes"]) for node in found["nodes"]] == [
        ("book", [], []),
        ("refund", [], []),
    ]
    assert await chart(api, plan) == 'flowchart TD\n    n0["0 · book"]\n    n1["1 · refund"]\n'


async def test_the_newest_revision_is_drawn(api: Caller) -> None:
    await api.register(flowing())
    thread = {"planId": "p", "threadKey": "t"}
    first = await stored(api, make(1, "†state.a"), count("†state.a"), **thread)
    await stored(api, note("nothing"), **thread)
    found = await api.read(f"/plans/{first['id']}/graph")
    assert (found["revision"], [node["kind"] for node in found["nodes"]]) == (2, ["note"])


async def test_model_written_text_stays_text_in_the_drawing(api: Caller) -> None:
    hostile = '"]\nclick n0 href "javascript:alert(1)"\n%%{init: {}}%% <b>'
    flow = {
        **FLOW,
        "schema": {
            "type": "object",
            "properties": {
                "actions": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"kind": {"type": "string"}}},
                }
            },
        },
    }
    await api.register({**flowing(), "plans": [flow]})
    plan = await stored(api, {"kind": hostile, "_outputPath": '†state."a\\"]\\nclick n0 b"'})
    (node,) = (await api.read(f"/plans/{plan['id']}/graph"))["nodes"]
    assert (node["kind"], node["writes"]) == (hostile, ['†state."a\\"]\\nclick n0 b"'])
    assert await chart(api, plan) == (
        'flowchart TD\n    n0["0 · #34;#93;#65533;click n0 href #34;javascript#58;alert#40;1#41;#34;#65533;'
        '#37;#37;#123;init#58; #123;#125;#125;#37;#37; #60;b#62;"]\n'
    )


async def test_the_graph_route_honors_accept_mermaid(api: Caller) -> None:
    await api.register(flowing())
    plan = await stored(api, note("x"))
    where = f"/plans/{plan['id']}/graph"
    for accept, kind in [("*/*", "application/json"), (f"{MERMAID}, application/json;q=0.1", MERMAID)]:
        answer = await api.request("GET", where, headers={"accept": accept})
        assert answer.headers["content-type"].partition(";")[0] == kind
        assert answer.headers["vary"] == "Accept"


async def test_a_plan_of_another_tenant_is_not_drawn(plangate: World, api: Caller) -> None:
    await api.register(flowing())
    plan = await stored(api, note("x"))
    problem = refused(await api.get("/plans/pln_nothing/graph"), 404)
    assert problem["detail"] == "There is no plan 'pln_nothing'."
    await plangate.tenant("other")
    refused(await plangate.other.get(f"/plans/{plan['id']}/graph"), 404)
