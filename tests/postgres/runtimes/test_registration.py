"""Registering a spec: all problems at once, and the stored spec is what runs."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from plangate.spec.prompts import layered_prompt

from tests.support import specs
from tests.support.client import Caller, good, refused
from tests.support.models import calls, results, says, thinks, turn_of
from tests.support.world import World

MINIMAL = {
    "tenant": {"resourceId": "acme", "version": "1"},
    "agents": [
        {
            "name": "helper",
            "role": "specialist",
            "stateful": False,
            "model": {"id": "claude-sonnet-4-5", "provider": "anthropic"},
            "systemPrompt": "You help.",
            "routes": [],
            "toolkits": [],
        }
    ],
    "references": [],
    "plans": [],
    "toolkits": [],
    "approvalPolicies": {"plans": {"kind": "always"}, "tools": {"kind": "never"}},
    "providers": {},
}


async def test_a_spec_without_additions_registers_unchanged(api: Caller) -> None:
    first = await api.post("/runtimes", MINIMAL)
    assert (first.status_code, good(first)["spec"]) == (201, MINIMAL)
    assert (await api.post("/runtimes", MINIMAL)).status_code == 200


async def test_the_interpreter_is_part_of_the_version(api: Caller) -> None:
    made = [
        await api.register(specs.spec(**parts))
        for parts in (
            {},
            {"interpreter": "noop"},
            {"interpreter": "mock", "mockResponse": "a"},
            {"interpreter": "mock", "mockResponse": "b"},
        )
    ]
    assert [m["version"] for m in made] == [1, 2, 3, 4]


async def test_all_problems_are_reported_with_the_authors_spelling(plangate: World, api: Caller) -> None:
    """Those that the library finds, and those that only the service can; where the author wrote them."""
    inside = {"kind": "http", "url": "http://10.0.0.1/"}
    spec = {
        "tenant": {"resource_id": "acme"},
        "agents": [
            {**specs.agent("a", tools=["gone"]), "references": [reference("R")]},
            specs.agent("b", model="gpt-4o-mini"),
            specs.agent("b", model={"id": "m", "provider": "openai"}),
        ],
        "tools": [
            specs.tool("t", transport=inside),
            specs.tool("u", transport={"kind": "http", "url": "ftp://x.test"}),
            specs.tool("v", transport={"kind": "python", "entryPoint": "none"}),
        ],
        "action_dispatcher": inside,
        "approval_predicates": {"p/q": "args.n >"},
        "limits": {"max_cost_usd": 1},
        "interpretr": "noop",
    }
    body = refused(await api.post("/runtimes", spec), 422, "invalid")
    told = {e["pointer"]: e["message"] for e in body["errors"]}
    assert body["detail"] == f"The spec has {len(body['errors'])} problems; see errors."
    private = (
        "Requests to '10.0.0.1' are refused: its address 10.0.0.1 is a private network. The operator can allow the "
        "host with PLANGATE_ALLOW_HOSTS."
    )
    expected = {
        "/interpretr": "unknown field 'interpretr'; did you mean 'interpreter'?",
        "/agents/2/name": "agent 'b' is declared twice, first at /agents/1/name: rename one",
        "/agents/0/tools/0": "agent 'a' names the tool 'gone', which is not in 'tools'; known are t, u, v",
        "/tools/1/transport/url": "tool 'u': 'ftp://x.test' is not an address that begins with http:// or https:// "
        "and names a host",
        "/agents/0/references/0/glimpse/n~1m": "is not a JMESPath expression: ",
        "/approval_predicates/p~1q": "is not a CEL expression that returns a boolean: ",
        "/agents/0/model": NO_PRICE,
        "/agents/2/model/id": NO_PRICE,
        "/tools/0/transport/url": private,
        "/tools/2/transport/entryPoint": "no entry point 'none' is installed in the group plangate.tools; "
        "expected one of: none",
        "/action_dispatcher/url": private,
    }
    assert told.keys() == expected.keys()
    for pointer, message in expected.items():
        assert told[pointer] == message or (message.endswith(": ") and told[pointer].startswith(message))
    assert (await api.do("/runtimes/validate", spec))["errors"] == body["errors"]
    assert await plangate.value("SELECT count(*) FROM runtimes") == 0


NO_PRICE = "no price is known for 'm', so limits.maxCostUsd cannot be enforced: use maxTokens, or a model with a known price"


def exploding() -> dict[str, Any]:
    """A schema with 2**40 paths: each definition refers to the next one twice."""
    twice = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    return {"properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": {**twice, "d40": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("parts", "pointer"),
    [
        ({"tools": [specs.tool("t", inputSchema=exploding())]}, "/tools/0/inputSchema"),
        ({"tools": [specs.tool("t", outputSchema=exploding())]}, "/tools/0/outputSchema"),
        ({"plans": [{"name": "P", "schema": exploding()}]}, "/plans/0/schema"),
        ({"references": [{"name": "R", "schema": exploding(), "ttlMs": 1000}]}, "/references/0/schema"),
        ({"agents": [specs.agent(outputSchema=exploding())]}, "/agents/0/outputSchema"),
        ({"stateSchema": exploding()}, "/stateSchema"),
        ({"inputSchema": exploding()}, "/inputSchema"),
    ],
)
async def test_a_schema_with_exploding_references_is_rejected(
    api: Caller, parts: dict[str, Any], pointer: str
) -> None:
    body = refused(await api.post("/runtimes", specs.spec(**{"agents": [specs.agent()], **parts})), 422)
    (error,) = [e for e in body["errors"] if "parts" in e["message"]]
    assert error["pointer"] == pointer
    assert error["message"].endswith("with its references followed the schema has over 50,000 parts")


@pytest.mark.parametrize("name", ["\x01", "\x7f\x1b[2J", "\\1", "\\g<0>", "\\q", "\\"])
@pytest.mark.parametrize("field", ["providers", "approvalPredicates"])
@pytest.mark.parametrize("path", ["/runtimes", "/runtimes/validate"])
async def test_odd_characters_in_names_are_problems_of_the_spec(
    api: Caller, path: str, field: str, name: str
) -> None:
    """A name was used as a template of `re.sub`, which a backslash in its `repr` made invalid: a 500."""
    answer = await api.post(path, {**MINIMAL, field: {name: 5}})
    errors = refused(answer, 422)["errors"] if path == "/runtimes" else good(answer)["errors"]
    assert any(e["pointer"].startswith(f"/{field}/") for e in errors)
    assert any(repr(name) in e["message"] for e in errors), errors


async def test_an_impossible_glimpse_is_rejected(api: Caller) -> None:
    glimpse = {
        "a": "lenght(rows)",
        "b": "rows[?x].{n: sort_by(@, &upper(name))}",
        "c": "length(rows, n)",
        "d": "join(names)",
        "e": "merge()",
        "f": "merge(a, b, c)",
        "g": "not_null(a, max_by(rows, &n).n)",
        "h": "rows[",
    }
    kind = {"name": "Basket", "schema": {}, "glimpse": glimpse}
    body = refused(await api.post("/runtimes", {**specs.mock(), "references": [kind]}), 422, "invalid")
    assert {e["pointer"].removeprefix("/references/0/glimpse/"): e["message"] for e in body["errors"]} == {
        name: f"is not a JMESPath expression: {why}"
        for name, why in {
            "a": "unknown function lenght()",
            "b": "unknown function upper()",
            "c": "length() takes 1 arguments, not 2",
            "d": "join() takes 2 arguments, not 1",
            "e": "merge() takes 1 arguments, not 0",
            "h": "Invalid jmespath expression: Incomplete expression",
        }.items()
    }


def reference(name: str) -> dict[str, Any]:
    return {"name": name, "schema": {"type": "object"}, "glimpse": {"n/m": "length("}}


async def test_a_spec_of_another_tenant_is_rejected(plangate: World) -> None:
    caller = await plangate.key("read", "runtimes:write")
    checked = await caller.do("/runtimes/validate", specs.spec(specs.agent(tools=["gone"]), tenant="other"))
    assert [e["pointer"] for e in checked["errors"]] == ["/agents/0/tools/0", "/tenant/resourceId"]
    assert checked["errors"][1]["message"] == "must be 'acme'"
    body = refused(await caller.post("/runtimes", specs.mock(tenant="other")), 404)
    assert body["detail"] == "tenant.resourceId is 'other'; this key works for 'acme'."


# -- prompts


async def test_the_registered_prompt_reaches_the_model(plangate: World, api: Caller) -> None:
    """The text is made once; its fingerprint stands on every model call; tools go as definitions."""
    prompt = {
        "identity": "You count.",
        "operationalRules": ["Be exact."],
        "tools": [{"name": "magic", "description": "Not there."}, {"name": "add", "description": "Mine."}],
        "safety": "Be kind.",
    }
    tools = [
        specs.tool("add", description="Adds.", approval="never"),
        specs.tool("pay", description="Pays."),
    ]
    agent = {k: v for k, v in specs.agent(tools=["add"]).items() if k != "systemPrompt"}
    spec = specs.mock(tools=tools) | {"agents": [{**agent, "prompt": prompt}]}
    registered = await api.register(spec)
    text = layered_prompt(
        identity="You count.",
        operational_rules=["Be exact."],
        tools=[{"name": "magic", "description": "Not there."}, {"name": "add", "description": "Mine."}],
        safety="Be kind.",
    ).text
    key = hashlib.sha256(text.encode()).hexdigest()
    assert registered["spec"]["agents"][0]["systemPrompt"] == text
    found = await api.read(f"/runtimes/{registered['id']}/agents/solo/prompt")
    assert found == {"agent": "solo", "text": text, "cacheKey": key}
    uses: list[tuple[str, Any]] = [("magic", {}), ("pay", {"n": 1})]
    model = thinks(plangate, lambda r: calls(*uses) if turn_of(r) == 1 else says(json.dumps(results(r))))
    query = await api.run()
    assert json.loads(query["output"]) == [
        "There is no tool 'magic'. You can call: add.",
        "There is no tool 'pay'. You can call: add.",
    ]
    assert [r.system for r in model.heard] == [text, text]
    assert [[(t.name, t.description, t.input_schema) for t in r.tools] for r in model.heard] == [
        [("add", "Adds.", specs.NUMBER)]
    ] * 2
    work = (await api.read(f"/queries/{query['id']}/work"))["items"]
    assert [w["promptCacheKey"] for w in work if w["kind"] == "model_call"] == [key, key]


async def test_a_changed_prompt_changes_the_fingerprint(api: Caller) -> None:
    keys = []
    for text in ("You help.", "You help!"):
        made = await api.register(specs.mock() | {"agents": [specs.agent(systemPrompt=text)]})
        keys.append((await api.read(f"/runtimes/{made['id']}/agents/solo/prompt"))["cacheKey"])
    assert keys == [hashlib.sha256(t).hexdigest() for t in (b"You help.", b"You help!")]


async def test_the_system_prompt_is_the_runtimes_and_never_remembered(plangate: World, api: Caller) -> None:
    model = thinks(plangate, lambda _: says("ok"))
    for text in ("Old.", "New."):
        agent = specs.agent(stateful=True, systemPrompt=text)
        runtime = await api.register(specs.mock() | {"agents": [agent]})
        await api.run(text, threadKey="t", runtimeId=runtime["id"])
    old, new = model.heard
    assert (old.system, new.system) == ("Old.", "New.")
    assert [m.role for m in new.messages] == ["user", "assistant", "user"]
    assert "Old." in str(new.messages[0])  # what was said is remembered


async def test_an_interpreter_may_be_a_provider(api: Caller) -> None:
    """Chosen per agent: one follows its script, one echoes, one says its text."""
    names = ("noop", "house")
    helpers = [specs.agent(n, model={"id": "m", "provider": n}) for n in names]
    chief = specs.agent("chief", "coordinator", routes=[*names], model={"id": "m", "provider": "scripted"})
    await api.register(
        specs.spec(chief, *helpers, providers={"house": {"kind": "mock"}}, mockResponse="I am a mock.")
    )
    asks = [("call_agent", {"agent": n, "prompt": "Is anybody there?"}) for n in names]
    query = await api.run(specs.script(*asks))
    told = [r["result"] for r in json.loads(query["output"])["results"]]
    assert told == ["Is anybody there?", "I am a mock."]


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (
            {"identity": "I", "mood": "x"},
            "the prompt of agent 'solo' cannot be rendered: unknown prompt layer 'mood'; the layers are identity, "
            "communication, operationalRules, tools, domainKnowledge, safety, outputFormat, examples",
        ),
        (
            {"identity": "I", "safety": {"a": 1}},
            "the prompt of agent 'solo' cannot be rendered: the section 'Safety' (safety) takes text or a list of "
            "texts, not a dict",
        ),
        (
            {"safety": "x"},
            "the prompt of agent 'solo' cannot be rendered: the prompt layer 'identity' is required",
        ),
        (
            {"identity": " "},
            "the prompt of agent 'solo' cannot be rendered: the section 'Identity' (identity) is empty: say who the "
            "agent is",
        ),
    ],
)
async def test_unrenderable_layers_are_spec_errors(api: Caller, prompt: Any, message: str) -> None:
    agent = {k: v for k, v in specs.agent().items() if k != "systemPrompt"}
    body = refused(await api.post("/runtimes", specs.mock() | {"agents": [{**agent, "prompt": prompt}]}), 422)
    assert body["errors"] == [{"pointer": "/agents/0/prompt", "message": message}]
