"""Which agents have which built-in tools, and the schemas of these tools."""

from typing import Any

import jsonschema_rs
import pytest
from plangate.spec.builtin import BuiltinTool
from plangate.spec.models import RuntimeSpec
from plangate.spec.toolkits import BUILTIN_TOOL_TOOLKITS, TOOLKITS, builtin_tools

ACTION = {
    "type": "object",
    "properties": {"kind": {"const": "refund"}, "amount": {"type": "integer"}},
    "required": ["kind", "amount"],
    "additionalProperties": False,
}
PLAN = {
    "type": "object",
    "description": "Refunds to make.",
    "properties": {"actions": {"type": "array", "items": {"$ref": "#/$defs/Action"}}},
    "required": ["actions"],
    "$defs": {"Action": ACTION},
}


def tools_of(role: str, toolkits: Any = (), plan: Any = None, **fields: Any) -> dict[str, BuiltinTool]:
    agent = {
        "name": "a",
        "role": role,
        "model": "m",
        "toolkits": toolkits,
        "plan": plan,
        "routes": fields.pop("routes", ["x", "y"]),
    }
    fields["toolkits"] = fields.pop("runtime", [])
    spec = RuntimeSpec.model_validate({"tenant": {"resourceId": "acme"}, "agents": [agent], **fields})
    return {tool.name: tool for tool in builtin_tools(spec, spec.agents[0])}


TEAM = ["artifact_publish", "artifact_get", "artifact_list", "read", "write", "edit"]
REFERENCES = ["resolveRef", "glimpseRef"]
ORDERS = {"name": "Orders", "schema": {"type": "array"}}


@pytest.mark.parametrize(
    ("role", "toolkits", "names"),
    [
        ("coordinator", [], ["call_agent", *TEAM]),
        ("planner", [], ["storePlan", "getPlan"]),
        ("executor", [], ["getPlan", "executePlan", *REFERENCES]),
        ("specialist", [], []),
        ("specialist", ["plans"], ["getPlan"]),
        ("coordinator", ["plans"], ["call_agent", "getPlan", *TEAM]),
        (
            "coordinator",
            [{"id": "artifacts", "config": {"tools": []}}],
            ["call_agent", "read", "write", "edit"],
        ),
        ("coordinator", ["workspace"], ["call_agent", *TEAM, "ls", "glob", "grep"]),
        ("planner", ["plans"], ["storePlan", "getPlan"]),
        ("specialist", ["references"], REFERENCES),
        ("specialist", ["agents"], ["call_agent"]),
        (
            "specialist",
            ["artifacts"],
            [f"artifact_{verb}" for verb in ("publish", "get", "list", "withdraw", "choose")],
        ),
        ("specialist", ["workspace"], ["read", "write", "edit", "ls", "glob", "grep"]),
        ("specialist", [{"id": "workspace", "config": {"tools": ["grep", "read"]}}], ["read", "grep"]),
        ("executor", [{"id": "plans", "config": {"tools": ["executePlan"]}}], ["executePlan", *REFERENCES]),
        ("executor", [{"id": "references", "config": {"tools": []}}], ["getPlan", "executePlan"]),
        ("executor", [{"id": "references", "config": {}}], ["getPlan", "executePlan", *REFERENCES]),
        ("specialist", [{"id": "plans", "config": {"tools": ["storePlan"]}}], []),
    ],
)
def test_roles_and_toolkits_give_tools(role: str, toolkits: Any, names: list[str]) -> None:
    assert list(tools_of(role, toolkits, references=[ORDERS])) == names


def test_an_executor_has_tools_for_references_if_there_can_be_any() -> None:
    plan_tools = ["getPlan", "executePlan"]
    analyst = {"name": "analyst", "role": "specialist", "model": "m"}

    def held_beside(**analyst_fields: Any) -> list[str]:
        agents = [
            {"name": "doer", "role": "executor", "model": "m"},
            {**analyst, **analyst_fields},
        ]
        spec = RuntimeSpec.model_validate({"tenant": {"resourceId": "acme"}, "agents": agents})
        return [tool.name for tool in builtin_tools(spec, spec.agents[0])]

    assert list(tools_of("executor")) == held_beside() == plan_tools
    assert list(tools_of("executor", ["references"])) == [*plan_tools, *REFERENCES]
    assert list(tools_of("executor", references=[ORDERS])) == [*plan_tools, *REFERENCES]
    assert held_beside(tools=["find"]) == [*plan_tools, *REFERENCES]  # a large result becomes a ToolResult
    assert held_beside(toolkits=["catalog"]) == [*plan_tools, *REFERENCES]  # and rows a QueryResult


def test_a_read_only_workspace_has_no_tools_that_write() -> None:
    workspace = {"transport": "client", "readOnly": True}
    assert list(tools_of("specialist", ["workspace"], workspace=workspace)) == ["read", "ls", "glob", "grep"]
    assert list(tools_of("coordinator", workspace=workspace)) == ["call_agent", *TEAM[:4]]


def test_an_agent_without_a_source_has_no_tool_that_reads_one() -> None:
    def held(*sources: str) -> dict[str, BuiltinTool]:
        return tools_of("specialist", [{"id": "catalog", "config": {"sources": sources}}])

    reading = {"sample_table_data", "execute_query"}
    assert held("shop").keys() - held().keys() == reading
    assert held("shop")["search_catalog"].input_schema["properties"]["source"]["enum"] == ["shop"]
    assert "source" not in held()["search_catalog"].input_schema["properties"]


def test_a_runtime_toolkit_entry_only_narrows() -> None:
    entry = [{"id": "references", "config": {"tools": ["glimpseRef"]}}]

    assert list(tools_of("executor", runtime=entry, references=[ORDERS])) == [
        "getPlan",
        "executePlan",
        "glimpseRef",
    ]
    assert list(tools_of("specialist", ["references"], runtime=entry)) == ["glimpseRef"]
    assert list(tools_of("specialist", runtime=entry)) == []


def test_every_agent_beside_a_coordinator_can_hand_over_unless_narrowed() -> None:
    def held(runtime: Any = (), own: Any = ()) -> list[str]:
        agents = [
            {"name": "chief", "role": "coordinator", "model": "m", "routes": ["hand"]},
            {"name": "hand", "role": "specialist", "model": "m", "toolkits": own},
        ]
        spec = RuntimeSpec.model_validate(
            {"tenant": {"resourceId": "acme"}, "agents": agents, "toolkits": runtime}
        )
        return [tool.name for tool in builtin_tools(spec, spec.agents[1])]

    none: list[dict[str, Any]] = [{"id": i, "config": {"tools": []}} for i in ("artifacts", "workspace")]
    assert held() == TEAM
    assert held(none) == held((), none) == []
    assert held([{"id": "workspace", "config": {"tools": ["read"]}}]) == [*TEAM[:3], "read"]


def test_an_agent_without_routes_cannot_call_agents() -> None:
    assert tools_of("specialist", ["agents"], routes=[]) == {}


def test_call_agent_is_cut_to_the_routes() -> None:
    tool = tools_of("coordinator")["call_agent"]

    assert tool.toolkit == "agents"
    assert tool.input_schema["properties"]["agent"]["enum"] == ["x", "y"]
    check = jsonschema_rs.validator_for(dict(tool.input_schema))
    assert check.is_valid({"agent": "x", "prompt": "do it"})
    assert check.is_valid({"agent": "x", "prompt": {"tool": "t", "args": {}}})
    assert not check.is_valid({"agent": "z", "prompt": "do it"})
    assert not check.is_valid({"agent": "x", "prompt": 3})


@pytest.mark.parametrize("declared", [True, False])
def test_store_plan_has_the_schema_of_the_agents_plan(declared: bool) -> None:
    plan = {"name": "Refunds", "schema": PLAN}
    held = tools_of("planner", plan="Refunds", plans=[plan]) if declared else tools_of("planner", plan=plan)
    schema = dict(held["storePlan"].input_schema)

    assert schema["properties"]["specName"]["enum"] == ["Refunds"]
    assert schema["properties"]["body"]["description"] == "Refunds to make."
    check = jsonschema_rs.validator_for(schema)
    body = {"actions": [{"kind": "refund", "amount": 3}]}
    assert check.is_valid({"specName": "Refunds", "body": body})
    assert check.is_valid({"specName": "Refunds", "planId": "mine", "body": body})
    assert not check.is_valid({"specName": "Other", "body": body})
    assert not check.is_valid({"specName": "Refunds", "body": {"actions": [{"kind": "refund"}]}})


def test_actions_may_name_declared_references() -> None:
    action = {"kind": "refund", "amount": 3, "references": [{"kind": "Order", "id": "1"}]}
    arguments = {"specName": "Refunds", "body": {"actions": [action]}}
    plan = {"name": "Refunds", "schema": PLAN}
    kinds = [{"name": "Order", "schema": {"type": "object"}}]

    def valid(**fields: Any) -> bool:
        tool = tools_of("planner", plan=plan, **fields)["storePlan"]
        return bool(jsonschema_rs.validator_for(dict(tool.input_schema)).is_valid(arguments))

    assert valid(references=kinds)
    assert not valid()
    assert "references" not in ACTION["properties"]


@pytest.mark.parametrize("by", ["plan", "toolkit"])
def test_the_planner_schema_mentions_variables(by: str) -> None:
    plan = {"name": "Refunds", "schema": PLAN} | ({"variables": True} if by == "plan" else {})
    tool = tools_of("planner", ["variables"] if by == "toolkit" else [], plan=plan)["storePlan"]
    check = jsonschema_rs.validator_for(dict(tool.input_schema))

    def told(**action: Any) -> bool:
        return check.is_valid({"specName": "Refunds", "body": {"actions": [{"kind": "refund", **action}]}})

    assert told(amount=3)
    assert told(amount="†state.cents", _outputPath="†state.done", _outputMethod="push")
    assert not told(amount="three")
    assert not told(amount=3, _outputPath="state.done")
    assert not told(amount=3, _outputMethod="add")
    assert not told(amount=3, more=1)
    assert not check.is_valid(
        {"specName": "Refunds", "body": {"actions": [{"kind": "†input.kind", "amount": 3}]}}
    )
    assert "_outputPath" not in ACTION["properties"] and ACTION["properties"]["amount"] == {"type": "integer"}


def test_a_plan_with_variables_is_checked_by_the_tool_itself() -> None:
    """A variable may stand anywhere inside of a field; storePlan knows where, and a schema of it would not."""
    tool = tools_of("planner", plan={"name": "Refunds", "schema": PLAN, "variables": True})["storePlan"]
    check = jsonschema_rs.validator_for(dict(tool.validation_schema))
    assert check.is_valid(
        {"specName": "Refunds", "body": {"actions": [{"kind": "refund", "amounts": ["†a.b"]}]}}
    )
    assert not check.is_valid({"specName": "Other", "body": {}})
    assert not check.is_valid({"specName": "Refunds", "body": []})
    plain = tools_of("planner", plan={"name": "Refunds", "schema": PLAN})["storePlan"]
    assert plain.validation_schema == plain.input_schema


def test_the_planner_schema_shows_references_and_paths() -> None:
    handles = {"type": "array", "minItems": 1, "items": {"type": "object"}}
    fields = {"kind": {"const": "s"}, "references": handles, "_outputPath": {"const": "†state.kept"}}
    step = {"type": "object", "properties": fields, "required": ["kind", "references"]}
    schema = {"type": "object", "properties": {"actions": {"type": "array", "items": step}}}
    tool = tools_of("planner", plan={"name": "P", "schema": schema, "variables": True})["storePlan"]
    shown = tool.input_schema["properties"]["body"]["properties"]["actions"]["items"]["properties"]
    assert shown["references"] == handles
    assert shown["_outputPath"] == {"const": "†state.kept"}


def test_a_referenced_field_is_described_unchanged() -> None:
    rows = {"type": "array", "items": {"type": "integer"}}
    more = {"$ref": "#/properties/actions/items/properties/rows/items"}
    step = {"type": "object", "properties": {"kind": {"const": "s"}, "rows": rows, "first": more}}
    schema = {"type": "object", "properties": {"actions": {"type": "array", "items": step}}}
    tool = tools_of("planner", plan={"name": "P", "schema": schema, "variables": True})["storePlan"]
    check = jsonschema_rs.validator_for(dict(tool.input_schema))

    def told(**action: Any) -> bool:
        return check.is_valid({"specName": "P", "body": {"actions": [{"kind": "s", **action}]}})

    assert told(rows=[1], first=1) and told(first="†state.rows.0")
    assert not told(rows="†state.rows") and not told(first="one")


def test_references_inside_the_plans_schema_still_lead_to_their_targets() -> None:
    step = {
        "type": "object",
        "properties": {
            "kind": {"const": "s"},
            "again": {"$ref": "#/properties/actions/items"},
            "all": {"$ref": "#"},
            "old": {"$ref": "#/definitions/D"},
            "$ref": {"const": "#"},
        },
    }
    plan = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"actions": {"type": "array", "items": step}},
        "definitions": {"D": {"const": "#"}},
        "required": ["actions"],
    }
    tool = tools_of("planner", plan={"name": "P", "schema": plan})["storePlan"]
    check = jsonschema_rs.validator_for(dict(tool.input_schema))

    def valid(**fields: Any) -> bool:
        return bool(check.is_valid({"specName": "P", "body": {"actions": [{"kind": "s", **fields}]}}))

    assert valid(again={"kind": "s"}, all={"actions": []}, old="#", **{"$ref": "#"})
    assert not valid(again={"kind": "t"})
    assert not valid(all={})
    assert not valid(old="x")


def test_the_prompt_explains_references() -> None:
    resolve, glimpse = TOOLKITS["references"]

    assert "only when the full value is needed" in resolve.description
    assert "do not ask for it again" in glimpse.description
    assert "hydrate" in resolve.description
    assert "hydrates" in glimpse.description


def test_every_builtin_schema_is_valid() -> None:
    for tools in TOOLKITS.values():
        for tool in tools:
            jsonschema_rs.meta.validate(dict(tool.input_schema))
            assert BUILTIN_TOOL_TOOLKITS[tool.name] == tool.toolkit
            assert tool.description
