"""Errors of specs: messages name the cause, and pointers use the author's spelling."""

from typing import Any

import pytest
from plangate.spec.assembly import MAX_PROBLEMS, SpecInvalid, assemble

OBJECT = {"type": "object"}
PLAN_SCHEMA = {
    "type": "object",
    "properties": {
        "actions": {
            "type": "array",
            "items": {"type": "object", "properties": {"kind": {"enum": ["refund", "credit"]}}},
        }
    },
}
PLAN = {"name": "Refunds", "schema": PLAN_SCHEMA}
T = {"name": "t", "inputSchema": OBJECT}


def agent(name: str = "helper", role: str = "specialist", **fields: Any) -> dict[str, Any]:
    return {"name": name, "role": role, "model": {"id": "m", "provider": "noop"}, **fields}


def front(name: str = "front", **fields: Any) -> dict[str, Any]:
    return agent(name, "coordinator", **{"routes": ["helper"], **fields})


def problems(*agents: Any, **fields: Any) -> list[tuple[str, str]]:
    with pytest.raises(SpecInvalid) as caught:
        assemble({"tenant": {"resourceId": "acme"}, "agents": list(agents), **fields})
    for problem in caught.value.problems:
        assert f"{problem.pointer or '(spec)'}: {problem.message}" in str(caught.value)
    return [(problem.pointer, problem.message) for problem in caught.value.problems]


def tool(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": OBJECT, **fields}


REFUSED: list[tuple[str, list[Any], dict[str, Any], str, str]] = [
    ("duplicate agents", [agent(), agent()], {}, "/agents/1/name", "agent 'helper' is declared twice"),
    ("no routes", [front(routes=[])], {}, "/agents/0/routes", "coordinator 'front' has no routes"),
    (
        "a route to itself",
        [front(routes=["front", "helper"]), agent()],
        {},
        "/agents/0/routes/0",
        "agent 'front' has a route to itself",
    ),
    (
        "a route to nobody",
        [front(routes=["helpr"]), agent()],
        {},
        "/agents/0/routes/0",
        "agent 'front' has a route to 'helpr', which is not an agent; did you mean 'helper'?",
    ),
    (
        "a route twice",
        [front(routes=["helper", "helper"]), agent()],
        {},
        "/agents/0/routes/1",
        "agent 'front' has two routes to 'helper'",
    ),
    (
        "an agent override for nobody",
        [agent()],
        {"approvalOverrides": {"agents": {"ghost": {"tools": "always"}}}},
        "/approvalOverrides/agents/ghost",
        "approvalOverrides.agents names 'ghost', which is not an agent",
    ),
    (
        "a tool override for nobody",
        [agent()],
        {"approval_overrides": {"tools": {"ghost": {"getPlan": "always"}}}},
        "/approval_overrides/tools/ghost",
        "approvalOverrides.tools names 'ghost', which is not an agent",
    ),
    (
        "an override for no tool",
        [agent()],
        {"tools": [T], "approvalOverrides": {"tools": {"helper": {"tt": "always"}}}},
        "/approvalOverrides/tools/helper/tt",
        "an approval rule of agent 'helper' names 'tt', which is not a tool; did you mean 't'?",
    ),
    (
        "an agent's rule for no tool",
        [agent(tool_approval_policies={"gone": "always"})],
        {},
        "/agents/0/tool_approval_policies/gone",
        "an approval rule of agent 'helper' names 'gone', which is not a tool",
    ),
    *(
        (
            f"{what} of the transport {kind}",
            [agent()],
            {"tools": [tool("t", transport={"kind": kind, "url": "https://x.test/in", **transport})]},
            f"/tools/0/transport/{place}",
            f"tool 't': {message}",
        )
        for kind in ("http", "mcp")
        for what, transport, place, message in (
            (
                "a scheme",
                {"url": "ftp://x.test"},
                "url",
                "'ftp://x.test' is not an address that begins with http://",
            ),
            (
                "no host",
                {"url": "https:///x"},
                "url",
                "'https:///x' is not an address that begins with http://",
            ),
            ("a port", {"url": "https://x.test:p/"}, "url", "'https://x.test:p/' is not a URL"),
            (
                "a password",
                {"url": "https://ann:pw@x.test/"},
                "url",
                "an address holds no name or password: use a header with a secret",
            ),
            ("a fragment", {"url": "https://x.test/#a"}, "url", "an address has no fragment"),
            ("a name", {"headers": {"a b": "1"}}, "headers/a b", "'a b' is not the name of a header"),
            (
                "a line break",
                {"headers": {"a": "1\r\nb: 2"}},
                "headers/a",
                "the value of the header 'a' has characters",
            ),
            (
                "a header twice",
                {"headers": {"A": "1", "a": "2"}},
                "headers/a",
                "the header 'a' stands here twice",
            ),
            *(
                (
                    "the header " + name,
                    {"headers": {name: "1"}},
                    f"headers/{name}",
                    f"the service writes the header {name!r}",
                )
                for name in (
                    "Host",
                    "Content-Length",
                    "Idempotency-Key",
                    "Webhook-Signature",
                    "mcp-session-id",
                )
            ),
        )
    ),
    (
        "no such transport",
        [agent()],
        {"tools": [tool("t", transport={"kind": "pigeon"})]},
        "/tools/0/transport",
        "its 'kind' must be one of http, client, mcp, python",
    ),
    (
        "an unregistered predicate of the runtime",
        [agent()],
        {
            "approvalPolicies": {"tools": {"kind": "dynamic", "value": "bigg"}},
            "approvalPredicates": {"big": "true"},
        },
        "/approvalPolicies/tools",
        "approvalPolicies.tools names the predicate 'bigg', which is not registered: add it to "
        "'approvalPredicates'; did you mean 'big'?",
    ),
    (
        "an unregistered predicate of a tool",
        [agent()],
        {"tools": [tool("t", approval={"kind": "dynamic", "value": "big"})]},
        "/tools/0/approval",
        "the approval of tool 't' names the predicate 'big', which is not registered",
    ),
    (
        "an unregistered predicate of an agent",
        [agent(approvalPolicies={"tools": {"kind": "dynamic", "value": "big"}})],
        {},
        "/agents/0/approvalPolicies/tools",
        "the policy of agent 'helper' names the predicate 'big', which is not registered",
    ),
    (
        "an unregistered predicate of an override",
        [agent()],
        {"approvalOverrides": {"agents": {"helper": {"tools": {"kind": "dynamic", "value": "big"}}}}},
        "/approvalOverrides/agents/helper/tools",
        "the override for agent 'helper' names the predicate 'big', which is not registered",
    ),
    (
        "an unregistered predicate of an agent's tool",
        [agent(tools=["t"], toolApprovalPolicies={"t": {"kind": "dynamic", "value": "big"}})],
        {"tools": [T]},
        "/agents/0/toolApprovalPolicies/t",
        "the rule of agent 'helper' for tool 't' names the predicate 'big', which is not registered",
    ),
    (
        "a builtin name",
        [agent()],
        {"tools": [tool("storePlan")]},
        "/tools/0/name",
        "tool 'storePlan' is built in (toolkit 'plans')",
    ),
    *(
        (
            "a name of actions",
            [agent()],
            {"tools": [tool(name)]},
            "/tools/0/name",
            f"tool '{name}' has a name under which processes claim the actions of plans: choose another name",
        )
        for name in ("actions", "actions.refund")
    ),
    (
        "a builtin name of a later version",
        [agent()],
        {"tools": [tool("artifact_publish")]},
        "/tools/0/name",
        "tool 'artifact_publish' is built in (toolkit 'artifacts')",
    ),
    *(
        (
            "a result that has nowhere to go",
            [agent(tools=["t"], toolkits=["variables"])],
            {"tools": [tool("t", inputSchema={"properties": {"_outputPath": {"const": path}}})]},
            "/tools/0/inputSchema/properties/_outputPath",
            f"agent 'helper' has variables, and the results of its tool 't' have nowhere to go: {why}",
        )
        for path, why in [
            ("state.x", "'state.x' is not a path: it begins with one †"),
            ("††state.x", "'††state.x' is not a path: it begins with one †"),
            ("†state..x", "'†state..x' is not a path: at character 7: a segment is missing here"),
            ("†state.x && †input.x", "'†input.x' cannot be written: †input is read-only"),
        ]
    ),
    (
        "a name like a builtin one",
        [agent()],
        {"tools": [tool("getplan")]},
        "/tools/0/name",
        "the name of tool 'getplan' differs from the builtin tool 'getPlan' only by case or look-alike",
    ),
    (
        "a name by case",
        [agent()],
        {"tools": [tool("send"), tool("Send")]},
        "/tools/1/name",
        "the name of tool 'Send' differs from the tool 'send' only by case or look-alike characters",
    ),
    (
        "a name by digits",
        [agent()],
        {"tools": [tool("pool"), tool("p0o1")]},
        "/tools/1/name",
        "the name of tool 'p0o1' differs from the tool 'pool' only by case or look-alike characters",
    ),
    (
        "a name by capital i",
        [agent()],
        {"tools": [tool("fill"), tool("fiIl")]},
        "/tools/1/name",
        "the name of tool 'fiIl' differs from the tool 'fill' only by case or look-alike characters",
    ),
    (
        "a name by another script",
        [agent()],
        {"tools": [tool("send"), tool("s\u0435nd")]},
        "/tools/1/name",
        "differs from the tool 'send' only by case or look-alike characters",
    ),
    (
        "a name by full width",
        [agent()],
        {"tools": [tool("send"), tool("\uff53end")]},
        "/tools/1/name",
        "differs from the tool 'send' only by case or look-alike characters",
    ),
    (
        "duplicate tools",
        [agent()],
        {"tools": [T, T]},
        "/tools/1/name",
        "tool 't' is declared twice, first at /tools/0",
    ),
    (
        "an invalid schema",
        [agent()],
        {"tools": [tool("t", outputSchema={"type": "objekt"})]},
        "/tools/0/outputSchema/type",
        "the schema of tool 't' is not usable",
    ),
    (
        "an external reference",
        [agent()],
        {"tools": [{"name": "t", "input_schema": {"properties": {"a": {"$ref": "https://x.test/a"}}}}]},
        "/tools/0/input_schema/properties/a/$ref",
        "the schema of tool 't' is not usable: $ref 'https://x.test/a' leaves the document",
    ),
    (
        "an invalid schema of a reference",
        [agent(references=[{"name": "R", "schema": {"type": 3}}])],
        {},
        "/agents/0/references/0/schema/type",
        "the schema of reference 'R' is not usable",
    ),
    (
        "an invalid schema of an answer",
        [agent(outputSchema={"type": 3})],
        {},
        "/agents/0/outputSchema/type",
        "the schema of agent 'helper' is not usable",
    ),
    (
        "an invalid schema of inputs",
        [agent()],
        {"inputSchema": {"type": 3}},
        "/inputSchema/type",
        "the schema of the runtime's inputs is not usable",
    ),
    (
        "an invalid schema of state",
        [agent()],
        {"state_schema": {"type": 3}},
        "/state_schema/type",
        "the schema of the runtime's state is not usable",
    ),
    (
        "an unknown tool",
        [agent(tools=["tt"])],
        {"tools": [T]},
        "/agents/0/tools/0",
        "agent 'helper' names the tool 'tt', which is not in 'tools'; did you mean 't'?",
    ),
    (
        "a tool twice",
        [agent(tools=["t", "t"])],
        {"tools": [T]},
        "/agents/0/tools/1",
        "agent 'helper' names the tool 't' twice",
    ),
    (
        "a builtin tool among the tools",
        [agent(tools=["getPlan"])],
        {},
        "/agents/0/tools/0",
        "agent 'helper' names the builtin tool 'getPlan': remove it from 'tools'",
    ),
    ("a planner without a plan", [agent("p", "planner")], {}, "/agents/0/plan", "planner 'p' has no plan"),
    (
        "an executor without a plan",
        [agent("e", "executor")],
        {},
        "/agents/0/plan",
        "executor 'e' has no plan",
    ),
    (
        "an unknown plan",
        [agent("p", "planner", plan="Refund")],
        {"plans": [PLAN]},
        "/agents/0/plan",
        "agent 'p' names the plan 'Refund', which is not declared; did you mean 'Refunds'?",
    ),
    (
        "a plan twice",
        [agent()],
        {"plans": [PLAN, PLAN]},
        "/plans/1/name",
        "plan 'Refunds' is declared twice, first at /plans/0",
    ),
    (
        "one plan with two meanings",
        [agent("p", "planner", plan={**PLAN, "variables": True})],
        {"plans": [PLAN]},
        "/agents/0/plan/name",
        "plan 'Refunds' is declared differently at /plans/0",
    ),
    (
        "one reference with two meanings",
        [
            agent(references=[{"name": "R", "schema": OBJECT}]),
            agent("b", references=[{"name": "R", "schema": {}}]),
        ],
        {},
        "/agents/1/references/0/name",
        "reference 'R' is declared differently at /agents/0/references/0",
    ),
    (
        "the service's own kind of reference",
        [agent(references=[{"name": "ToolResult", "schema": {}}])],
        {},
        "/agents/0/references/0/name",
        "reference 'ToolResult' is the service's own, of results that are too large for a prompt",
    ),
    (
        "no plan to choose",
        [agent("p", "planner")],
        {},
        "/agents/0/plan",
        "planner 'p' has no plan: name or declare one in 'plan'",
    ),
    (
        "several plans to choose from",
        [agent("p", "executor")],
        {"plans": [{"name": "P", "schema": OBJECT}, {"name": "Q", "schema": OBJECT}]},
        "/agents/0/plan",
        "executor 'p' has no plan: name one of 'P', 'Q' in 'plan'",
    ),
    (
        "a dynamic rule for plans",
        [agent()],
        {
            "approvalPolicies": {"plans": {"kind": "dynamic", "value": "x"}},
            "approvalPredicates": {"x": "true"},
        },
        "/approvalPolicies/plans",
        "a dynamic rule is for tools",
    ),
    (
        "two coordinators with policies",
        [
            front(approvalPolicies={"plans": "never"}),
            front("other", approvalPolicies={"plans": "never"}),
            agent(),
        ],
        {},
        "/agents/1/approvalPolicies",
        "coordinators 'front' and 'other' both have approval policies",
    ),
    (
        "a provider nobody declared",
        [{**agent(), "model": {"id": "m", "provider": "hause"}}],
        {"providers": {"house": {"kind": "openai"}}},
        "/agents/0/model/provider",
        "agent 'helper' names the provider 'hause', which is not in 'providers'; did you mean 'house'?",
    ),
    (
        "a provider without a kind",
        [agent()],
        {"providers": {"house": {}}},
        "/providers/house/kind",
        "provider 'house' needs a 'kind'",
    ),
    (
        "a provider with two keys",
        [agent()],
        {"providers": {"openai": {"apiKey": "sk", "apiKeyEnv": "K"}}},
        "/providers/openai/apiKeyEnv",
        "provider 'openai' has an 'apiKey' and an 'apiKeyEnv'",
    ),
    (
        "a dispatcher without an address",
        [agent()],
        {"actionDispatcher": {"kind": "http", "url": "x.test"}},
        "/actionDispatcher/url",
        "actionDispatcher: 'x.test' is not an address that begins with http:// or https://",
    ),
    (
        "a dispatcher's tool in an agent's hands",
        [agent(tools=["t"])],
        {"tools": [T], "actionDispatcher": {"kind": "tool", "tool": "t"}},
        "/actionDispatcher/tool",
        "the tool 't' dispatches approved actions, so no agent may call it: remove it from",
    ),
    (
        "a dispatcher's tool that is none",
        [agent()],
        {"actionDispatcher": {"kind": "tool", "tool": "t"}},
        "/actionDispatcher/tool",
        "actions are dispatched through the tool 't', which is not in 'tools'",
    ),
    (
        "a dispatcher for no kind",
        [agent()],
        {"plans": [PLAN], "actionDispatchers": {"refunt": "client", "credit": "client"}},
        "/actionDispatchers/refunt",
        "there is a dispatcher for actions of kind 'refunt', which no plan has; did you mean 'refund'?",
    ),
    (
        "a toolkit nobody knows",
        [agent(toolkits=["plan"])],
        {},
        "/agents/0/toolkits/0",
        "toolkit 'plan' is unknown",
    ),
    (
        "a toolkit twice",
        [agent(toolkits=["plans", "plans"])],
        {},
        "/agents/0/toolkits/1",
        "agent 'helper' names the toolkit 'plans' twice",
    ),
    (
        "a toolkit of the runtime twice",
        [agent()],
        {"toolkits": ["plans", {"id": "plans"}]},
        "/toolkits/1/id",
        "toolkit 'plans' is named twice",
    ),
    (
        "a toolkit narrowed to nothing it has",
        [agent(toolkits=[{"id": "references", "config": {"tools": ["resolveRf"]}}])],
        {},
        "/agents/0/toolkits/0/config/tools/0",
        "toolkit 'references' has no tool 'resolveRf'; did you mean 'resolveRef'?",
    ),
    (
        "calling agents without routes",
        [agent(toolkits=["agents"])],
        {},
        "/agents/0/toolkits/0",
        "agent 'helper' names the toolkit 'agents' but has no routes",
    ),
    (
        "prompts that grow beyond measure",
        [agent(f"a{n}", tools=["t"]) for n in range(100)],
        {"tools": [tool("t", description="x" * 90_000)]},
        "/agents",
        "come to 9000100 characters, more than 8000000",
    ),
    (
        "two prompts",
        [agent(prompt="a", systemPrompt="b")],
        {},
        "/agents/0/prompt",
        "agent 'helper' has a 'prompt' and a 'systemPrompt'",
    ),
    (
        "a prompt that cannot be rendered",
        [agent(prompt={"identity": "I", "safty": "x"})],
        {},
        "/agents/0/prompt",
        "the prompt of agent 'helper' cannot be rendered: unknown prompt layer 'safty'",
    ),
    (
        "storage of its own",
        [agent()],
        {"storageFactories": {"kv": {"url": "redis://x"}, "plans": None, "memory": None}},
        "/storageFactories",
        "the service owns its storage",
    ),
    (
        "a reserved data object",
        [agent()],
        {"data": {"input": 1}},
        "/data/input",
        "'input' has a reserved name",
    ),
    (
        "a data object no variable can say",
        [agent()],
        {"data": {"a/b": 1}},
        "/data/a~1b",
        "'a/b' cannot be named",
    ),
    ("data that is no JSON", [agent()], {"data": {"a": float("nan")}}, "/data", "this is not JSON"),
    (
        "an answer of another interpreter",
        [agent()],
        {"interpreter": "noop", "mockResponse": "x"},
        "/mockResponse",
        "'mockResponse' is the text of the interpreter 'mock', not of 'noop'",
    ),
]


@pytest.mark.parametrize(
    ("agents", "fields", "pointer", "message"),
    [case[1:] for case in REFUSED],
    ids=[case[0].replace(" ", "-") for case in REFUSED],
)
def test_invalid_specs_are_rejected(agents: Any, fields: Any, pointer: str, message: str) -> None:
    found = problems(*agents, **fields)

    assert any(at == pointer and message in said for at, said in found), found


def test_all_errors_are_reported_at_once() -> None:
    broken_plan = agent("p", "planner", plan={"name": "P"}, maxTurns=0, routes=["gone"])
    found = problems(
        front(routes=["p", "nobody"]),
        broken_plan,
        {"name": "x", "role": "boss"},
        tools=[tool("t", inputSchema=3), tool("u", transport={"kind": "http"}), tool("U")],
        approvalPolicies={"plans": "perhaps", "tools": {"kind": "dynamic", "value": "big"}},
        approvalOverrides={"agents": {"x": {"tools": "always"}, "y": {}}},
        actionDispatchers={"a": "client", "b": 3},
        limit={},
    )

    assert sorted(at for at, _ in found) == [
        "/actionDispatchers/b",
        "/agents/0/routes/1",
        "/agents/1/maxTurns",
        "/agents/1/plan/schema",
        "/agents/1/routes/0",
        "/agents/2/model",
        "/agents/2/role",
        "/approvalOverrides/agents/y",
        "/approvalPolicies/plans",
        "/approvalPolicies/tools",
        "/limit",
        "/tools/0/inputSchema",
        "/tools/1/transport/url",
        "/tools/2/name",
    ]


def test_errors_that_follow_from_others_are_omitted() -> None:
    found = problems(
        front(routes=["x"]),
        {"name": "x", "role": "boss", "model": "m"},
        agent("e", "executor", plan="P"),
        agent("s", tools=["t"]),
        plans=[{"name": "P"}],
        tools=[{"name": "t"}],
        actionDispatchers={"unknown": "client"},
    )

    assert [at for at, _ in found] == ["/agents/1/role", "/plans/0/schema", "/tools/0/inputSchema"]


def test_missing_and_unknown_fields_are_reported() -> None:
    found = problems({"name": "a", "role": "specialist", "modle": "m"}, agnets=[])

    assert ("/agents/0/model", "field 'model' is required") in found
    assert ("/agents/0/modle", "unknown field 'modle'; did you mean 'model'?") in found
    assert ("/agnets", "unknown field 'agnets'; did you mean 'agents'?") in found


@pytest.mark.parametrize("raw", [None, [], "spec", 3])
def test_a_spec_is_an_object(raw: Any) -> None:
    with pytest.raises(SpecInvalid, match="a spec is an object"):
        assemble(raw)


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {1: 2},
        {"tenant": 3, "agents": 3, "tools": 3, "providers": 3, "toolkits": {}, "plans": None},
        {"tenant": {"resourceId": "a"}, "agents": [3, None, [], "a"], "tools": ["t"], "references": [{}]},
        {"tenant": {"resourceId": "a"}, "agents": [agent(toolkits=3, references=[3], plan=[], prompt=3)]},
        {"tenant": {"resourceId": "a"}, "agents": [], "approvalOverrides": {"tools": {"a": 3}, "agents": []}},
    ],
)
def test_nonsense_is_rejected_cleanly(raw: Any) -> None:
    with pytest.raises(SpecInvalid) as caught:
        assemble(raw)
    assert caught.value.problems


def test_messages_contain_no_secret() -> None:
    with pytest.raises(SpecInvalid) as caught:
        assemble(
            {"agents": 3, "providers": {"x": {"kind": "?", "apiKey": "sk-secret", "apikey": "sk-secret"}}}
        )

    assert "sk-secret" not in str(caught.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{f"x{n}": n} for n in range(50_000)]},
        {"tools": [tool(f"tool{n}", transport={"kind": "pigeon"}) for n in range(2_000)]},
        {"agents": [agent(f"a{n}", routes=[f"b{m}" for m in range(200)]) for n in range(400)]},
        {"agents": [agent(tools=[f"t{n}" for n in range(50_000)])]},
        {"agents": [agent("p", "planner", plan=PLAN, tools=["t"] * 2_000)] * 400},
        {f"unknown{n}": n for n in range(50_000)},
        {"approvalOverrides": {"tools": {f"a{n}": {"t": "always"} for n in range(50_000)}}},
    ],
)
def test_a_flood_of_mistakes_is_answered_with_a_bounded_list(fields: Any) -> None:
    with pytest.raises(SpecInvalid) as caught:
        assemble({"tenant": {"resourceId": "acme"}, "agents": [agent()], **fields})

    assert 0 < len(caught.value.problems) <= MAX_PROBLEMS
