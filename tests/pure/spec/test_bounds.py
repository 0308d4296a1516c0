"""Lists, mappings and unknown keys of models are bounded before their errors are collected."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from plangate.spec.base import SpecModel, at_most
from plangate.spec.bounds import MAX_ERRORS
from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

COLLECTED = MAX_ERRORS + 1


class Part(SpecModel):
    name: Annotated[str, Field(max_length=10)]
    sizes: Annotated[tuple[int, ...], at_most(1000)] = ()


class Whole(SpecModel):
    parts: Annotated[list[Part], at_most(1000)] = Field(default_factory=list)
    named: Annotated[dict[str, Annotated[dict[str, Part], at_most(1000)]], at_most(1000)] = Field(
        default_factory=dict
    )


def errors(data: Any) -> list[Any]:
    with pytest.raises(ValidationError) as caught:
        Whole.model_validate(data)
    return caught.value.errors()


@pytest.mark.parametrize("hint", [list[int], tuple[int, ...], dict[str, int]])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 50, 100])
def test_valid_entries_are_kept_in_order(hint: Any, count: int) -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(Annotated[hint, at_most(100)])
    value = {str(n): n for n in range(count)} if hint == dict[str, int] else list(range(count))
    validated = adapter.validate_python(value)
    assert validated == (tuple(value) if hint == tuple[int, ...] else value)


@pytest.mark.parametrize("value", ["text", 7])
def test_a_value_that_is_not_a_list_is_rejected_once(value: Any) -> None:
    assert len(errors({"parts": value})) == 1


@pytest.mark.parametrize("wrong", [[0], [30], [3, 30, 39], list(range(40))])
def test_the_first_errors_have_their_places(wrong: list[int]) -> None:
    parts: list[Any] = [{"name": "ok"} for _ in range(40)]
    for n in wrong:
        parts[n] = {"name": 7}
    assert [error["loc"] for error in errors({"parts": parts})] == [
        ("parts", n, "name") for n in wrong[:COLLECTED]
    ]


def test_errors_of_nested_mappings_name_both_keys() -> None:
    named = {f"a{n}": {f"b{m}": {} for m in range(500)} for n in range(500)}
    found = errors({"named": named})
    assert len(found) == COLLECTED
    assert found[-1]["loc"] == ("named", "a0", "b20", "name")


def test_a_list_that_is_too_long_is_one_error() -> None:
    (error,) = errors({"parts": [0] * 1001})
    assert error["msg"] == "it holds more than 1000 entries"


def test_the_first_of_many_unknown_keys_are_reported() -> None:
    found = errors({**{f"k{n}": 0 for n in range(70_000)}, "parts": [{}]})
    assert [error["loc"] for error in found if error["loc"][0] != "parts"] == [
        (f"k{n}",) for n in range(COLLECTED)
    ]
    assert ("parts", 0, "name") in [error["loc"] for error in found]


def test_a_long_unknown_key_is_cut_in_the_message() -> None:
    (error,) = errors({"x" * 1_000_000: 0})
    assert len(error["msg"]) < 500


def test_validation_work_is_bounded() -> None:
    """Every entry of every list is wrong: as few are looked at as are reported."""
    looked_at = 0

    def count(value: Any) -> Any:
        nonlocal looked_at
        looked_at += 1
        raise ValueError("no")

    class Counted(SpecModel):
        deep: Annotated[
            list[Annotated[list[Annotated[int, BeforeValidator(count)]], at_most(1000)]], at_most(10_000)
        ]

    with pytest.raises(ValidationError):
        Counted.model_validate({"deep": [[0] * 100 for _ in range(10_000)]})
    assert looked_at == COLLECTED


def test_the_maxima_are_part_of_the_json_schema() -> None:
    properties = Whole.model_json_schema()["properties"]
    parts, named = (properties[name]["anyOf"][0] for name in ("parts", "named"))
    assert parts["maxItems"] == 1000
    assert named["maxProperties"] == 1000
    assert named["additionalProperties"]["maxProperties"] == 1000
