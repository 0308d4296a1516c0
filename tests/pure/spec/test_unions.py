"""Discriminated unions of actions: validation, the exported schema, and errors."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

import pytest
from plangate.spec.plan_schemas import action_kinds, discriminator
from plangate.spec.schemas import check_schema, normalize_schema
from plangate.spec.unions import TaggedUnion
from pydantic import BaseModel, Field, TypeAdapter, ValidationError


class Kind(StrEnum):
    SHIP = "ship"


class Refund(BaseModel):
    kind: Literal["refund"]
    amount: int


class Note(BaseModel):
    kind: str = "note"
    text: str


class Ship(BaseModel):
    kind: Literal[Kind.SHIP] = Kind.SHIP


class Group(BaseModel):
    kind: Literal["group"] = "group"
    actions: list[Action] = []


Action = TaggedUnion(Group, Note)
Group.model_rebuild()


def test_values_become_instances_of_their_models() -> None:
    adapter = TypeAdapter(list[TaggedUnion(Refund, Note, Ship)])  # type: ignore[misc]
    made = adapter.validate_python(
        [{"kind": "note", "text": "a"}, {"kind": "refund", "amount": 1}, Ship(), {"kind": "ship"}]
    )
    assert made == [Note(text="a"), Refund(kind="refund", amount=1), Ship(), Ship()]
    assert [type(action) for action in made] == [Note, Refund, Ship, Ship]
    assert adapter.dump_python(made, mode="json")[0] == {"kind": "note", "text": "a"}


@pytest.mark.parametrize("value", [{"kind": "other"}, {"text": "a"}, {"kind": 3}, 5, None])
def test_an_unknown_kind_names_the_known_ones(value: Any) -> None:
    with pytest.raises(ValidationError, match="'kind' must be 'refund' or 'note'"):
        TypeAdapter(TaggedUnion(Refund, Note)).validate_python(value)


def test_the_exported_schema() -> None:
    schema = normalize_schema({"actions": list[TaggedUnion(Refund, Note, Ship)]})  # type: ignore[misc]
    items = schema["properties"]["actions"]["items"]
    assert items["discriminator"] == {
        "propertyName": "kind",
        "mapping": {"refund": "#/$defs/Refund", "note": "#/$defs/Note", "ship": "#/$defs/Ship"},
    }
    assert items["oneOf"] == [{"$ref": "#/$defs/Refund"}, {"$ref": "#/$defs/Note"}, {"$ref": "#/$defs/Ship"}]
    for name, tag in (("Refund", "refund"), ("Note", "note"), ("Ship", "ship")):
        definition = schema["$defs"][name]
        assert "kind" in definition["required"]
        assert definition["properties"]["kind"]["const"] == tag
        assert "default" not in definition["properties"]["kind"]
    assert check_schema(schema) == []
    assert discriminator(schema) == "kind"
    assert action_kinds(schema) == {"refund", "note", "ship"}


def test_the_models_themselves_are_left_alone() -> None:
    TypeAdapter(TaggedUnion(Refund, Note)).json_schema()
    assert Note.model_json_schema()["required"] == ["text"]


def test_recursive_unions() -> None:
    class Plan(BaseModel):
        actions: list[Action]

    schema = normalize_schema(Plan)
    assert schema["$defs"]["Group"]["required"] == ["kind"]
    assert schema["$defs"]["Note"]["required"] == ["kind", "text"]
    assert check_schema(schema) == []
    plan = Plan.model_validate({"actions": [{"kind": "group", "actions": [{"kind": "note", "text": "x"}]}]})
    assert plan.actions[0].actions[0] == Note(text="x")
    for variant in normalize_schema(Group)["properties"]["actions"]["items"]["oneOf"]:
        assert variant["required"] == ["kind"]


def test_a_custom_discriminator_and_an_alias_work() -> None:
    class Credit(BaseModel):
        action_type: Literal["credit"] = Field(alias="actionType")

    class Debit(BaseModel):
        action_type: str = Field(default="debit", alias="actionType")

    for name in ("action_type", "actionType"):
        union = TaggedUnion(Credit, Debit, discriminator=name)
        assert type(TypeAdapter(union).validate_python({"actionType": "debit"})) is Debit
        assert TypeAdapter(union).json_schema()["discriminator"]["propertyName"] == "actionType"


class NoField(BaseModel):
    text: str


class Two(BaseModel):
    kind: Literal["a", "b"]


class Plain(BaseModel):
    kind: str


class Empty(BaseModel):
    kind: str = ""


class Number(BaseModel):
    kind: Literal[1]


class OtherNote(BaseModel):
    kind: Literal["note"]


class Renamed(BaseModel):
    kind: Literal["renamed"] = Field(alias="type")


@pytest.mark.parametrize(
    ("models", "error", "message"),
    [
        ((), ValueError, "at least two models; it got 0"),
        ((Refund,), ValueError, "at least two models; it got 1"),
        ((Refund, int), TypeError, "takes Pydantic model classes, not <class 'int'>"),
        ((Refund, Note(text="a")), TypeError, "takes Pydantic model classes, not Note"),
        ((Refund, "Note"), TypeError, "takes Pydantic model classes, not 'Note'"),
        ((Refund, NoField), ValueError, "NoField has no field 'kind'"),
        ((Refund, Two), ValueError, r"Two\.kind says no value of its own: declare it as Literal"),
        ((Refund, Plain), ValueError, r"Plain\.kind says no value of its own"),
        ((Refund, Empty), ValueError, r"Empty\.kind says no value of its own"),
        ((Refund, Number), ValueError, r"Number\.kind says no value of its own"),
        ((Note, OtherNote), ValueError, "Note and OtherNote both have kind='note'"),
        ((Note, Note), ValueError, "Note and Note both have kind='note'"),
        ((Refund, Renamed), ValueError, "Refund calls the discriminator field 'kind' and Renamed 'type'"),
    ],
)
def test_invalid_unions_are_rejected(models: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        TaggedUnion(*models)
