"""Discriminated unions of action models, as a plan's `actions` wants them."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Union, get_origin

from pydantic import BaseModel, Discriminator, GetCoreSchemaHandler, GetJsonSchemaHandler, Tag
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

_FIELD: Final = "the discriminator field"


def TaggedUnion(*models: type[BaseModel], discriminator: str = "kind") -> Any:
    """Return a union of models that one field distinguishes, for use as a type hint.

    Values validate to instances of the very classes given. In the exported JSON Schema the field is required
    in each variant, even where the model has a default for it, and the union names its discriminator.

    Args:
        models: At least two model classes. Each has the discriminator field as a `Literal` of one string, or
            as a string with a non-empty default.
        discriminator: The name of that field.

    Raises:
        TypeError: for something that is no Pydantic model class.
        ValueError: for fewer than two models, a model without a value of its own in the discriminator field,
            or a value that two models share; the message names the models.

    Example:
        >>> from typing import Literal
        >>> from pydantic import BaseModel
        >>> class Refund(BaseModel):
        ...     kind: Literal["refund"]
        ...     amount: int
        >>> class Note(BaseModel):
        ...     kind: str = "note"
        ...     text: str
        >>> Action = TaggedUnion(Refund, Note)
        >>> plan = define_plan("Refunds", {"actions": list[Action]})
        >>> plan.to_wire()["schema"]["properties"]["actions"]["items"]["discriminator"]["propertyName"]
        'kind'
    """
    for model in models:
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            raise TypeError(f"TaggedUnion takes Pydantic model classes, not {model!r}")
    if len(models) < 2:
        raise ValueError(f"TaggedUnion takes at least two models; it got {len(models)}")
    owners: dict[str, type[BaseModel]] = {}
    for model in models:
        tag = _tag(model, discriminator)
        if tag in owners:
            raise ValueError(
                f"{owners[tag].__name__} and {model.__name__} both have {discriminator}={tag!r}; "
                f"each model of a TaggedUnion needs a value of its own"
            )
        owners[tag] = model
    rule = _UnionTags(_wire_name(models, discriminator), discriminator, owners)
    # A union is made of its members at run time, which no annotation can say.
    members: Any = Union.__getitem__(tuple(Annotated[model, Tag(tag)] for tag, model in owners.items()))
    return Annotated[members, rule.discriminator(), rule]


class _UnionTags:
    """The tags of a `TaggedUnion`: they select the model of a value and appear in the exported schema."""

    def __init__(self, wire: str, field: str, owners: Mapping[str, type[BaseModel]]) -> None:
        self._wire = wire
        self._field = field
        self._owners = owners

    def discriminator(self) -> Discriminator:
        names = [repr(tag) for tag in self._owners]
        return Discriminator(
            self._tag_of,
            custom_error_type="tagged_union",
            custom_error_message=f"{self._wire!r} must be {', '.join(names[:-1])} or {names[-1]}",
        )

    def _tag_of(self, value: Any) -> str | None:
        fields = value if isinstance(value, Mapping) else {self._field: getattr(value, self._field, None)}
        tag = fields.get(self._wire, fields.get(self._field))
        return tag if isinstance(tag, str) and tag in self._owners else None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler(source)

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler(core_schema)
        mapping: dict[str, Any] = {}
        for tag, variant in zip(self._owners, schema["oneOf"], strict=True):
            self._require_tag(tag, variant, handler)
            mapping[tag] = variant.get("$ref", variant)
        return {**schema, "discriminator": {"propertyName": self._wire, "mapping": mapping}}

    def _require_tag(self, tag: str, variant: JsonSchemaValue, handler: GetJsonSchemaHandler) -> None:
        """Make the field required, and its value the tag, in the variant's definition.

        In a recursive model the definition may be in the making; then the demand stands beside the `$ref`.
        """
        try:
            definition = handler.resolve_ref_schema(variant)
        except LookupError:
            definition = variant
        tag_schema = definition.setdefault("properties", {}).get(self._wire, {"type": "string"})
        own = {key: value for key, value in tag_schema.items() if key not in ("default", "enum")}
        definition["properties"][self._wire] = {**own, "const": tag}
        required = definition.get("required", [])
        if self._wire not in required:
            definition["required"] = [self._wire, *required]


def _field_of(model: type[BaseModel], discriminator: str) -> FieldInfo:
    for name, field in model.model_fields.items():
        if discriminator in (name, field.alias, field.validation_alias):
            return field
    raise ValueError(f"{model.__name__} has no field {discriminator!r}, {_FIELD} of the union")


def _tag(model: type[BaseModel], discriminator: str) -> str:
    field = _field_of(model, discriminator)
    values = typing.get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    if len(values) == 1 and isinstance(values[0], str):
        return str.__str__(values[0])
    if isinstance(field.default, str) and field.default:
        return str.__str__(field.default)
    raise ValueError(
        f'{model.__name__}.{discriminator} says no value of its own: declare it as Literal["..."] with one '
        f"string, or as str with a non-empty default"
    )


def _wire_name(models: tuple[type[BaseModel], ...], discriminator: str) -> str:
    names: dict[str, str] = {}
    for model in models:
        field = _field_of(model, discriminator)
        alias = field.validation_alias or field.alias
        names.setdefault(alias if isinstance(alias, str) else discriminator, model.__name__)
    if len(names) > 1:
        (one, first), (other, second), *_ = names.items()
        raise ValueError(f"{first} calls {_FIELD} {one!r} and {second} {other!r}; it needs one name")
    return next(iter(names))
