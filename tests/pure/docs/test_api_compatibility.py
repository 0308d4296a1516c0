"""The comparison with the released API document finds exactly the incompatible changes."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.api_compatibility import ROOT, incompatible_changes, main, unannounced

DOCUMENT: dict[str, Any] = {
    "paths": {
        "/things": {
            "post": {
                "operationId": "createThing",
                "parameters": [
                    {"name": "dry", "in": "query", "required": False, "schema": {"type": "boolean"}}
                ],
                "requestBody": {
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/New"}}}
                },
                "responses": {
                    "201": {
                        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}}
                    }
                },
            }
        }
    },
    "components": {
        "schemas": {
            "New": {
                "type": "object",
                "additionalProperties": False,
                "required": ["name"],
                "properties": {
                    "name": {"type": "string", "maxLength": 10},
                    "mode": {"enum": ["fast", "slow"], "type": "string"},
                    "model": {"anyOf": [{"type": "string"}, {"type": "object", "properties": {}}]},
                    "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                },
            },
            "Thing": {
                "type": "object",
                "required": ["id", "count"],
                "properties": {
                    "id": {"type": "string"},
                    "count": {"type": "integer"},
                    "status": {"enum": ["open", "done"], "type": "string"},
                    "parts": {"type": "array", "items": {"$ref": "#/components/schemas/Thing"}},
                    "result": {"description": "Any JSON."},
                },
            },
        }
    },
}
Change = Callable[[dict[str, Any]], object]


def schemas(document: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    both = document["components"]["schemas"]
    return both["New"], both["Thing"]


def post(document: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = document["paths"]["/things"]["post"]
    return operation


BREAKING: list[tuple[Change, str]] = [
    (lambda d: d["paths"].clear(), "`POST /things` was removed"),
    (lambda d: post(d).update(operationId="make"), "`createThing`, the operation id of POST /things, is make now"),
    (lambda d: post(d)["parameters"].clear(), "`POST /things dry` was removed"),
    (lambda d: post(d)["parameters"][0].update(required=True), "`POST /things dry` is required now"),
    (lambda d: schemas(d)[0]["required"].append("mode"), "`New.mode` is required now"),
    (lambda d: schemas(d)[0]["properties"].pop("mode"), "`New.mode` was removed"),
    (lambda d: schemas(d)[0]["properties"]["name"].update(maxLength=5), "`New.name` has maxLength 5 now"),
    (lambda d: schemas(d)[0]["properties"]["mode"]["enum"].remove("slow"), "`New.mode` no longer accepts slow"),
    (lambda d: schemas(d)[0]["properties"]["model"]["anyOf"].pop(0), "`New.model` no longer accepts a string"),
    (lambda d: schemas(d)[0]["properties"]["note"]["anyOf"].pop(1), "`New.note` no longer accepts null"),
    (lambda d: schemas(d)[1]["properties"].pop("status"), "`Thing.status` was removed"),
    (lambda d: schemas(d)[1]["required"].remove("count"), "`Thing.count` may be missing now"),
    (lambda d: schemas(d)[1]["properties"]["count"].update(type="string"), "`Thing.count` is of type string now, not integer"),
    (lambda d: schemas(d)[1]["properties"]["id"].update(type=["string", "null"]), "`Thing.id` may be null now"),
]  # fmt: skip
COMPATIBLE: list[Change] = [
    lambda d: d["paths"].update({"/more": {}}),
    lambda d: schemas(d)[0]["properties"].update(extra={"type": "string"}),
    lambda d: schemas(d)[0]["required"].remove("name"),
    lambda d: schemas(d)[0]["properties"]["name"].update(maxLength=20),
    lambda d: schemas(d)[0]["properties"]["mode"]["enum"].append("idle"),
    lambda d: schemas(d)[1]["properties"].update(extra={"type": "string"}),
    lambda d: schemas(d)[1]["required"].append("parts"),
    lambda d: schemas(d)[1]["properties"]["status"]["enum"].append("late"),
    lambda d: schemas(d)[1]["properties"].update(result={"anyOf": [{"type": "object"}, {"type": "null"}]}),
]


@pytest.mark.parametrize("change, expected", BREAKING, ids=[expected for _, expected in BREAKING])
def test_an_incompatible_change_is_found(change: Change, expected: str) -> None:
    new = copy.deepcopy(DOCUMENT)
    change(new)
    assert incompatible_changes(DOCUMENT, new) == [expected]


@pytest.mark.parametrize("change", COMPATIBLE)
def test_a_compatible_change_is_not_reported(change: Change) -> None:
    new = copy.deepcopy(DOCUMENT)
    change(new)
    assert incompatible_changes(DOCUMENT, new) == []


def test_a_change_that_the_changelog_names_is_accepted() -> None:
    changes = ["`Thing.count` may be missing now", "`New.mode` was removed"]
    changelog = "## [Unreleased]\n\n- `New.mode` is gone.\n\n## [0.1.0]\n\n- `Thing.count` is new.\n"
    assert unannounced(changes, changelog) == changes[:1]


def test_the_document_is_compatible_with_itself() -> None:
    document = json.loads((ROOT / "openapi" / "openapi.json").read_text())
    assert incompatible_changes(document, document) == []


def test_the_check_fails_until_the_changelog_names_the_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "openapi").mkdir()
    document, changelog = tmp_path / "openapi" / "openapi.json", tmp_path / "CHANGELOG.md"
    document.write_text(json.dumps(DOCUMENT))
    changelog.write_text("## [Unreleased]\n\n## [0.1.0]\n\n`Thing.count` is new.\n")
    assert main("--release", root=tmp_path) == 0
    assert main(root=tmp_path) == 0
    changed = copy.deepcopy(DOCUMENT)
    del changed["components"]["schemas"]["Thing"]["properties"]["count"]
    document.write_text(json.dumps(changed))
    assert main(root=tmp_path) == 1
    assert capsys.readouterr().out.startswith("`Thing.count` was removed\n")
    changelog.write_text("## [Unreleased]\n\n- `Thing.count` is gone.\n\n## [0.1.0]\n")
    assert main(root=tmp_path) == 0
