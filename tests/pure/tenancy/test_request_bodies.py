"""Rules of all request bodies."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

import app.api.http  # noqa: F401 - imports every module with routes, and so every body
from app.tenancy.request_body import Body
from app.tools.routes import Result


def bodies(base: type[Body] = Body) -> list[type[Body]]:
    own = base.__subclasses__()
    return [*own, *(body for other in own for body in bodies(other))]


@pytest.mark.parametrize("body", bodies(), ids=lambda body: body.__name__)
def test_null_unsets_an_optional_field(body: Any) -> None:
    optional = [field.alias for field in body.model_fields.values() if not field.is_required()]
    try:
        body.model_validate(dict.fromkeys(optional))
    except ValidationError as error:
        assert not {detail["loc"][0] for detail in error.errors() if detail["loc"]} & set(optional)
    properties = body.model_json_schema()["properties"]
    for name in optional:
        assert {"type": "null"} in properties[name].get("anyOf", [{"type": "null"}])


def test_a_null_value_is_kept() -> None:
    assert Result.model_validate({"claimToken": "t" * 24, "output": None}).model_fields_set >= {"output"}
