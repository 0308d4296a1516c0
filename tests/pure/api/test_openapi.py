"""The API document: the committed one matches the code, and each operation is complete."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from plangate.glossary import FIELDS
from plangate.spec.models import RuntimeSpec
from pydantic.alias_generators import to_snake

from app.api.errors import STATUS_BY_ERROR, http_status
from app.api.examples import load_examples
from app.api.openapi import (
    BODIES,
    HEADER_PARAMETERS,
    INTEGER_BOUNDS,
    MORE_PROBLEMS,
    TAGS,
    operations,
    scope_of,
)
from app.base.errors import PlangateError
from app.commands.admin import openapi_text
from app.events import EVENT_TYPES
from app.tenancy.http import OPERATOR_SCOPE
from app.tenancy.models import SCOPES

ROOT = Path(__file__).parents[3]
COMMITTED = ROOT / "openapi" / "openapi.json"
OPEN_TO_ALL = {"checkHealth", "checkReadiness", "startSession"}
ANY_KEY = {"whoami", "endSession", "createTicket"}


@cache
def document() -> dict[str, Any]:
    """Return the committed document, which is what the code says: the first test below compares them."""
    committed: dict[str, Any] = json.loads(COMMITTED.read_text("utf-8"))
    return committed


def every() -> list[Any]:
    return [
        pytest.param(path, method, found, id=found["operationId"])
        for path, method, found in operations(document())
    ]


def nodes(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
    for item in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from nodes(item)


def resolved(reference: str) -> Any:
    found: Any = document()
    for step in reference.removeprefix("#/").split("/"):
        found = found[step]
    return found


def whole(node: dict[str, Any]) -> dict[str, Any]:
    return resolved(node["$ref"]) if "$ref" in node else node


def test_the_committed_document_is_the_codes() -> None:
    assert COMMITTED.read_text("utf-8") == openapi_text(), "run `make openapi`"


def test_operation_names_are_distinct() -> None:
    names = [found["operationId"] for _, _, found in operations(document())]
    assert len(names) == len(set(names))
    assert not (MORE_PROBLEMS.keys() | BODIES.keys()) - set(names), "the tables name operations that are gone"


def test_references_lead_somewhere() -> None:
    for node in nodes(document()):
        if isinstance(node.get("$ref"), str):
            resolved(node["$ref"])
        for reference in node.get("discriminator", {}).get("mapping", {}).values():
            resolved(reference)


@pytest.mark.parametrize("name", sorted(document()["components"]["schemas"]))
def test_schemas_are_schemas(name: str) -> None:
    jsonschema_rs.validator_for(
        {"$ref": f"#/components/schemas/{name}", "components": document()["components"]}
    )


@pytest.mark.parametrize(("path", "method", "found"), every())
def test_an_operation_documents_purpose_and_scope(path: str, method: str, found: dict[str, Any]) -> None:
    assert found["summary"]
    assert set(found["tags"]) <= {name for name, _, _ in TAGS}
    scope = scope_of(found)
    if found["operationId"] in OPEN_TO_ALL:
        assert scope is None
        assert "security" not in found
        return
    if found["operationId"] in ANY_KEY:
        assert found["security"] == [{"HTTPBearer": []}]
        return
    assert found["security"] == [{"HTTPBearer": [scope]}]
    if scope == OPERATOR_SCOPE:
        assert found["tags"] == ["operations"]
        assert found["x-plangate-operator"]
        assert "operator's key" in found["description"]
        assert "x-plangate-scope" not in found
        assert "#/components/parameters/Plangate-Tenant" not in str(found)
        return
    assert scope in SCOPES
    assert found["x-plangate-scope"] == scope
    assert f"`{scope}`" in found["description"]


@pytest.mark.parametrize(("path", "method", "found"), every())
def test_every_success_has_a_model(path: str, method: str, found: dict[str, Any]) -> None:
    good = {status: answer for status, answer in found["responses"].items() if status.startswith("2")}
    assert good
    for answer in good.values():
        assert answer["description"] != "Successful Response"
        assert answer["content"]
        for content in answer["content"].values():
            assert content["schema"]
    if {"201", "202"} & good.keys():
        assert all(answer["headers"]["Location"]["required"] for answer in good.values())


@pytest.mark.parametrize(("path", "method", "found"), every())
def test_problems_are_listed(path: str, method: str, found: dict[str, Any]) -> None:
    answers = {status: whole(answer) for status, answer in found["responses"].items()}
    bad = {status: answer for status, answer in answers.items() if not status.startswith("2")}
    assert set(bad) <= {str(status) for status in STATUS_BY_ERROR.values()} | {"default"}
    for answer in bad.values():
        assert answer["content"]["application/problem+json"]["schema"] == {
            "$ref": "#/components/schemas/Problem"
        }
    for status in {"429", "503"} & bad.keys():
        assert bad[status]["headers"]["Retry-After"]["required"]
    if found["operationId"] not in OPEN_TO_ALL:
        assert {"401", "403", "422", "429", "503", "default"} <= bad.keys()
    if "requestBody" in found:
        assert {"400", "413", "415"} <= bad.keys()


@pytest.mark.parametrize(("path", "method", "found"), every())
def test_every_parameter_has_a_description(path: str, method: str, found: dict[str, Any]) -> None:
    """Write it at the route, or in `PARAMETERS`."""
    assert [p["name"] for p in map(whole, found.get("parameters", ())) if not p.get("description")] == []


@pytest.mark.parametrize(("path", "method", "found"), every())
def test_every_operation_has_an_example_that_conforms(path: str, method: str, found: dict[str, Any]) -> None:
    """`make examples` records it, from the requests of tests/support/api_world.py."""
    shown = [
        content for answer in found["responses"].values() for content in answer.get("content", {}).values()
    ]
    assert sum("example" in content for content in shown) == 1
    for parameter in map(whole, found.get("parameters", ())):
        assert parameter["in"] != "path" or "example" in parameter
        if "example" in parameter:
            conforms(parameter["schema"], parameter["example"])
    for name, content in (*found.get("requestBody", {}).get("content", {}).items(), *json_contents(found)):
        assert "example" in content or name != "application/json", "the request has no example"
        if "example" in content:
            conforms(content["schema"], content["example"])


def json_contents(operation: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the JSON of successful responses that has an example."""
    for answer in operation["responses"].values():
        content = answer.get("content", {}).get("application/json", {})
        if "example" in content:
            yield "application/json", content


def conforms(schema: dict[str, Any], value: Any) -> None:
    jsonschema_rs.validator_for({**schema, "components": document()["components"]}).validate(value)


def test_the_examples_are_of_operations() -> None:
    names = {found["operationId"] for _, _, found in operations(document())}
    assert load_examples().keys() == names


@pytest.mark.parametrize(("path", "method", "found"), every())
def test_headers_are_documented_where_they_are_read(path: str, method: str, found: dict[str, Any]) -> None:
    named = {whole(p)["name"] for p in found.get("parameters", ()) if whole(p)["in"] == "header"}
    keyed = found["operationId"] not in OPEN_TO_ALL and scope_of(found) != OPERATOR_SCOPE
    expected = {"Plangate-Tenant", "Plangate-Principal"} if keyed else set()
    if method == "post":
        expected.add("Idempotency-Key")
    if path.endswith(("/events", "/stream")) and method == "get" and "tool-calls" not in path:
        expected.add("Last-Event-ID")
    conditional = ("/threads/{thread_id}/files/{path}", "/artifacts/{channel}/{name}", "/content")
    if path.endswith(conditional):
        expected |= {"If-Match", "If-None-Match"}
        expected |= {"Range", "If-Range"} if method == "get" else set()
        expected |= {"Idempotency-Key"} if "channel" in path else set()
    assert named == expected
    assert named <= HEADER_PARAMETERS.keys()


def test_the_document_has_every_event() -> None:
    event = resolved("#/components/schemas/Event")
    assert event["discriminator"]["propertyName"] == "type"
    assert tuple(event["discriminator"]["mapping"]) == tuple(sorted(EVENT_TYPES))
    for path, method, status in (
        ("/events/stream", "get", "200"),
        ("/queries/{query_id}/stream", "get", "200"),
        ("/queries/stream", "post", "200"),
    ):
        content = document()["paths"][path][method]["responses"][status]["content"]
        assert list(content) == ["text/event-stream"]
        assert content["text/event-stream"]["schema"] == {"$ref": "#/components/schemas/Event"}


@pytest.mark.parametrize(("path", "method", "found"), every())
def test_an_operation_has_one_media_type(path: str, method: str, found: dict[str, Any]) -> None:
    """A generator makes one function of an operation, which returns one kind of thing."""
    assert len(found.get("requestBody", {}).get("content", {"": 0})) == 1
    good = [answer for status, answer in found["responses"].items() if status.startswith("2")]
    assert len({kind for answer in good for kind in answer["content"]}) == 1


def test_a_spec_is_the_librarys() -> None:
    for path in ("/runtimes", "/runtimes/validate"):
        body = document()["paths"][path]["post"]["requestBody"]["content"]["application/json"]
        assert body["schema"] == {"$ref": "#/components/schemas/RuntimeSpec"}
    fields = {field.alias for field in RuntimeSpec.model_fields.values()}
    dropped = {"storageFactories"}  # it can only be null
    assert set(resolved("#/components/schemas/RuntimeSpec")["properties"]) == fields - dropped


def test_the_schema_of_a_spec_includes_short_forms() -> None:
    validator = jsonschema_rs.validator_for(
        {"$ref": "#/components/schemas/RuntimeSpec", "components": document()["components"]}
    )
    text = (ROOT / "README.md").read_text().partition("runtime.json\" <<'JSON'\n")[2].partition("\nJSON\n")[0]
    spec = json.loads(text)
    assert spec["agents"][0]["model"] == "none"
    spec["agents"][0]["toolkits"] = ["plans"]
    tool = {"name": "look", "inputSchema": {}, "transport": "client", "approval": "always"}
    spec |= {"tools": [tool], "approvalPolicies": {"plans": "never"}, "actionDispatcher": "client"}
    validator.validate(spec)
    RuntimeSpec.model_validate(spec)
    for field, value in (
        ("transport", "http"),
        ("approval", "sometimes"),
        ("transport", {"url": "https://x.test"}),
    ):
        assert not validator.is_valid({**spec, "tools": [{**tool, field: value}]})


def test_tags_are_in_the_order_of_the_guides() -> None:
    page = (ROOT / "docs" / "guides" / "README.md").read_text()
    guides = re.findall(r"^\| \[[^\]]+\]\((\w+)\.md\)", page, re.MULTILINE)
    places = [guides.index(guide) for _, guide, _ in TAGS if guide is not None]
    assert places == sorted(places)
    used = {tag for _, _, found in operations(document()) for tag in found["tags"]}
    assert used == {tag["name"] for tag in document()["tags"]}
    assert all(server["url"] for server in document()["servers"])


def schemas() -> Iterator[dict[str, Any]]:
    """Every schema of the document, and every part of one."""
    yield from nodes(document()["components"])
    yield from nodes(document()["paths"])


def test_generators_understand_the_schemas() -> None:
    """openapi-python-client drops a schema with a default of a union; a bound of 1.0 makes a float of an integer."""
    for schema in schemas():
        if "default" in schema:
            assert not {"oneOf", "$ref"} & schema.keys(), schema
        if schema.get("type") == "integer":
            bounds = [schema[name] for name in INTEGER_BOUNDS & schema.keys()]
            assert all(type(bound) is int for bound in bounds), schema
        for name, field in schema.get("properties", {}).items():
            if isinstance(field, dict) and isinstance(schema.get("required", []), list):
                assert field.get("type") != "null", f"{name} can only be null"
                assert not ("default" in field and name in schema.get("required", ())), name


def test_an_optional_field_has_no_default() -> None:
    """openapi-typescript requires the fields with one, so that a request would have to send them."""
    for schema in schemas():
        fields = schema.get("properties", {})
        if isinstance(schema.get("required", []), list):
            told = [name for name, field in fields.items() if isinstance(field, dict) and "default" in field]
            assert not told, (schema.get("title"), told)
    strategy = resolved("#/components/schemas/SubmitQuery")["properties"]["ifBusy"]
    assert strategy["description"].endswith('Default: `"queue"`.')


@pytest.mark.parametrize("name", sorted(document()["components"]["schemas"]))
def test_every_field_has_a_description(name: str) -> None:
    """Write it as a string below the field, or in the section `Args:` of the class. A name that means the same in every
    model is in plangate/glossary.py."""
    fields = document()["components"]["schemas"][name].get("properties", {})
    assert [field for field, schema in fields.items() if not schema.get("description")] == []


def test_the_nearest_class_describes_a_field() -> None:
    described = resolved("#/components/schemas/ToolInvocationEvent")["properties"]
    assert described["args"]["description"] == "The arguments, as the model wrote them."  # its own
    assert described["seq"]["description"] == "Its number in the journal of the query, from 1."  # of its base
    assert described["toolName"]["description"] == FIELDS["tool_name"]
    limits = resolved("#/components/schemas/LimitsSpec")["properties"]
    assert limits["maxDepth"]["description"] == "How deep agents call agents; unset, 8."  # from Args
    used = {to_snake(name) for schema in schemas() for name in schema.get("properties", {})}
    assert not FIELDS.keys() - used, "the glossary has names that no model uses"


def test_every_slug_of_a_problem_has_a_section_with_its_status() -> None:
    slugs = resolved("#/components/schemas/Problem")["properties"]["type"]["enum"]
    page = (ROOT / "docs" / "problems.md").read_text()
    sections = dict(re.findall(r"^## (\w+)\n\n(\d{3})\. ", page, re.MULTILINE))
    assert list(sections) == slugs
    kinds = [PlangateError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    for kind in kinds:
        if hasattr(kind, "kind") and kind.__module__.startswith("app."):
            assert sections[kind.kind] == str(http_status(kind.__new__(kind))), kind


def test_subjects_are_discriminated_by_kind() -> None:
    path = document()["paths"]["/approvals/{approval_id}/subject"]["get"]["responses"]["200"]
    assert path["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Subject"}
    assert resolved("#/components/schemas/Subject")["discriminator"] == {
        "propertyName": "kind",
        "mapping": {
            "plan": "#/components/schemas/PlanSubject",
            "tool": "#/components/schemas/ToolSubject",
        },
    }


def test_timestamps_have_the_format_date_time() -> None:
    found = set()
    for schema in schemas():
        for name, field in schema.get("properties", {}).items():
            if name.endswith("At") or name in ("at", "claimedUntil"):
                kinds = [field, *field.get("anyOf", ())]
                if any(kind.get("type") == "string" for kind in kinds):
                    assert any(kind.get("format") == "date-time" for kind in kinds), (name, field)
                    found.add(name)
    assert {"at", "createdAt", "decidedAt", "claimedUntil"} <= found


def test_fields_are_in_camel_case() -> None:
    for name, schema in document()["components"]["schemas"].items():
        for field in schema.get("properties", {}):
            assert "_" not in field, f"{name}.{field}"


def test_every_field_of_a_body_has_a_maximum() -> None:
    """Free JSON values have none: they are bounded by the size of the body."""
    assert not [place for place, schema in _parts_of_bodies() if _is_unbounded(schema)]


def _is_unbounded(schema: dict[str, Any]) -> bool:
    if {"enum", "const", "format", "pattern"} & schema.keys():
        return False
    kind = schema.get("type")
    if kind == "object" and "properties" not in schema:
        return schema.get("additionalProperties") is not True and "maxProperties" not in schema
    wanted = {"string": "maxLength", "array": "maxItems", "integer": "maximum", "number": "maximum"}
    return kind in wanted and wanted[kind] not in schema


def _parts_of_bodies() -> Iterator[tuple[str, dict[str, Any]]]:
    seen: set[str] = set()
    waiting = [
        (operation["operationId"], content["schema"])
        for _, _, operation in operations(document())
        for kind, content in operation.get("requestBody", {}).get("content", {}).items()
        if kind == "application/json"
    ]
    while waiting:
        place, schema = waiting.pop()
        name = schema.get("$ref")
        if name in seen:
            continue
        if name is not None:
            seen.add(name)
            place, schema = name.rpartition("/")[2], resolved(name)
        yield place, schema
        waiting += [(f"{place}.{field}", held) for field, held in schema.get("properties", {}).items()]
        waiting += [(place, held) for held in [*schema.get("anyOf", ()), *schema.get("oneOf", ())]]
        waiting += [
            (f"{place}[]", held)
            for keyword in ("items", "additionalProperties", "propertyNames")
            if isinstance(held := schema.get(keyword), dict)
        ]
    assert "RuntimeSpec" in {name.rpartition("/")[2] for name in seen}
