"""The common base of all spec models: strictness, both spellings, names, and the wire form."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError
from pydantic_core.core_schema import no_info_before_validator_function

from plangate.field_docs import describe_fields
from plangate.spec.bounds import MaxEntries, error_details, truncate, without_excess_keys
from plangate.spec.schemas import normalize_schema

MAX_ITEMS: Final = 500  # of a list or mapping in a spec, but for tools
MAX_TOOLS: Final = 2_000
MAX_KEY_CHARS: Final = 200  # of a key, an id, or the name of something that is declared elsewhere
MAX_TEXT_CHARS: Final = 1_000_000
MAX_PROMPT_CHARS: Final = 10_000_000  # with the table of the agent's tools
MAX_URL_CHARS: Final = 8_000
MAX_COUNT: Final = 10**12
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_NOTES: Final = frozenset({"title", "description", "default", "deprecated", "examples"})
_SECTION: Final = re.compile(r"\n\n(?:Args|Raises|Example):\n")
_TENANT_ID: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


def describe_on_wire(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Describe the model to readers of JSON: its meaning without arguments, errors and examples, which are Python's."""
    describe_fields(schema, model)
    if "description" in schema:
        schema["description"] = _SECTION.split(schema["description"], maxsplit=1)[0]
    for name, field in schema.get("properties", {}).items():
        if "const" in field and "default" in field:  # it tells a variant of a union from the others
            del field["default"]
            schema["required"] = [*schema.get("required", ()), name]
    allow_nulls(schema)


def allow_nulls(schema: dict[str, Any]) -> None:
    """Say in the JSON Schema of a model that its optional fields may be null."""
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        if name not in required:
            schema["properties"][name] = _nullable(field)


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema that also accepts null."""
    if any(choice == {"type": "null"} for choice in schema.get("anyOf", ())) or not schema.keys() - _NOTES:
        return schema
    notes = {key: item for key, item in schema.items() if key in _NOTES}
    rules = {key: item for key, item in schema.items() if key not in _NOTES}
    choices = rules["anyOf"] if rules.keys() == {"anyOf"} else [rules]
    return {"anyOf": [*choices, {"type": "null"}], **notes}


class Shorthand:
    """Annotates a field with the short form that the service accepts, too, for its JSON Schema."""

    def __init__(self, **short: Any) -> None:
        """`short` are the keywords of a JSON Schema."""
        self._short = short

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        long = handler(core_schema)
        return {"anyOf": [self._short, *(long["anyOf"] if set(long) == {"anyOf"} else [long])]}


class WireModel(BaseModel):
    """A frozen JSON object: camelCase on the wire, unknown fields rejected, null is unset."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_alias=True,
        hide_input_in_errors=True,
    )

    @model_validator(mode="wrap")
    @classmethod
    def _explain_unknown_fields(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Bound the unknown fields, and name what each may mean."""
        data = without_nulls(cls, without_excess_keys(cls, data))
        try:
            return handler(data)
        except ValidationError as error:
            details: list[Any] = list(error.errors(include_url=False))
            if not any(is_unknown_field(detail) for detail in details):
                raise
            lines = [error_details(d["type"], cls._message(d), d["loc"]) for d in details]
        raise ValidationError.from_exception_data(cls.__name__, lines, hide_input=True)

    @classmethod
    def _message(cls, detail: Any) -> str:
        if not is_unknown_field(detail):
            return str(detail["msg"])
        name = str(detail["loc"][0])
        fields = cls.model_fields
        known = [field.alias or key for key, field in fields.items()]
        if cls.model_config.get("validate_by_name") and (name in fields or name in known):
            return f"field {name!r} is given twice, in camelCase and in snake_case: keep one"
        return unknown_field(name, known)


class SpecModel(WireModel):
    """A part of a spec, which also accepts snake_case.

    `always_on_wire` names the fields (in Python's spelling) that the wire form shows even when they hold
    their default or are empty; every other field is left out then. A dump in JSON mode has the same fields.
    """

    model_config = ConfigDict(validate_by_name=True, json_schema_extra=describe_on_wire)

    always_on_wire: ClassVar[frozenset[str]] = frozenset()

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON object on the wire, without unset, empty and Python-only fields."""
        fields = type(self).model_fields
        return {fields[name].alias or name: _plain(getattr(self, name)) for name in self._names_on_wire()}

    @model_serializer(mode="wrap")
    def _dump(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo):  # type: ignore[no-untyped-def]
        """Leave out of a dump in JSON mode what the wire form leaves out.

        The result has no annotation: with one, JSON Schemas of responses would describe it and not the fields.
        """
        dumped: dict[str, Any] = handler(self)
        if not info.mode_is_json():
            return dumped
        fields = type(self).model_fields
        names = self._names_on_wire()
        names_to_keep = {(fields[name].alias or name) if info.by_alias else name for name in names}
        return {key: item for key, item in dumped.items() if key in names_to_keep}

    def _names_on_wire(self) -> list[str]:
        return [
            name
            for name, field in type(self).model_fields.items()
            if name in self.always_on_wire or self._is_on_wire(name, getattr(self, name), field.default)
        ]

    def _is_on_wire(self, name: str, value: Any, default: Any) -> bool:
        """Return whether the wire form has a field that it need not have."""
        if isinstance(value, SpecModel) and not value._names_on_wire():
            return False
        return not (value == default or value in (None, "", (), {}))


def without_nulls(model: type[BaseModel], data: Any) -> Any:
    """Return the object without null where it unsets a field: those that have another default."""
    if not isinstance(data, Mapping) or not any(item is None for item in data.values()):
        return data
    unset: set[str] = set()
    for name, field in model.model_fields.items():
        if not field.is_required() and field.default is not None:
            unset |= {name, field.alias or name}
    return {key: item for key, item in data.items() if item is not None or key not in unset}


class _SetEntries:
    """Ignores the entries of a mapping in a model that are null."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_before_validator_function(self._drop_nulls, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        json_schema = handler(schema)
        if isinstance(entries := json_schema.get("additionalProperties"), dict):
            json_schema["additionalProperties"] = _nullable(entries)
        return json_schema

    @staticmethod
    def _drop_nulls(value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return {key: item for key, item in value.items() if item is not None}


set_entries: Final = _SetEntries()
"""Marks a mapping of a model in which an entry that is null is unset."""


def is_unknown_field(detail: Any) -> bool:
    """Return whether this error is about an unknown key of the object itself."""
    return detail["type"] == "extra_forbidden" and len(detail["loc"]) == 1


def _plain(value: Any) -> Any:
    """Return `value` as JSON; opaque JSON of the author (schemas, data) stays unchanged."""
    if isinstance(value, SpecModel):
        return value.to_wire()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def unknown_field(name: str, known: Iterable[str]) -> str:
    """Return the message about an unknown field, with the known one that it may mean."""
    name = truncate(name)
    return f"unknown field {name!r}{did_you_mean(to_camel(name), known)}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint for the end of a message: the closest known name, or all known names."""
    names = sorted(known)[:MAX_ITEMS]
    folded = {other.casefold(): other for other in names}
    close = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {folded[close[0]]!r}?"
    return f"; known are {', '.join(names)}" if 0 < len(names) <= 8 else ""


def at_most(count: int) -> MaxEntries:
    """Bound a list or mapping in a model: checked before its entries are, and part of its JSON Schema."""
    return MaxEntries(count)


def _name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise PydanticCustomError(
            "name",
            "{name} is not a name: use 1 to 64 ASCII letters, digits, '_' or '-', beginning with a letter "
            "or '_'",
            {"name": repr(truncate(value))},
        )
    return value


def _tenant_id(value: str) -> str:
    if not _TENANT_ID.fullmatch(value):
        raise PydanticCustomError(
            "tenant_id",
            "{name} is not a tenant id: use 1 to 63 lower-case ASCII letters, digits, '_' or '-', beginning "
            "with a letter or digit",
            {"name": repr(truncate(value))},
        )
    return value


def _schema(value: Any) -> dict[str, Any]:
    try:
        return normalize_schema(value)
    except TypeError as error:
        raise PydanticCustomError("json_schema", "{reason}", {"reason": str(error)}) from error


Name = Annotated[str, Field(json_schema_extra={"maxLength": 64}), AfterValidator(_name)]
"""Of agents, tools, plans and references."""

TenantId = Annotated[str, Field(json_schema_extra={"maxLength": 63}), AfterValidator(_tenant_id)]

Key = Annotated[str, Field(max_length=MAX_KEY_CHARS)]
"""A key of a mapping, an id, or a name of something that is declared elsewhere."""

Text = Annotated[str, Field(max_length=MAX_TEXT_CHARS)]

Url = Annotated[str, Field(min_length=1, max_length=MAX_URL_CHARS)]

JsonSchema = Annotated[dict[str, Any], BeforeValidator(_schema)]
"""A JSON Schema as plain data, from whatever `normalize_schema` takes."""

Count = Annotated[int, Field(strict=True, ge=1, le=MAX_COUNT)]
CENTURY_MS: Final = 100 * 366 * 24 * 3600 * 1000
Milliseconds = Annotated[int, Field(strict=True, ge=1, le=CENTURY_MS)]
"""No longer than clocks and databases have times for."""

Flag = Annotated[bool, Field(strict=True)]
