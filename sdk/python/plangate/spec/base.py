"""What every model of the spec language shares: strictness, both spellings, names, and the wire form."""

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
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

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
_SECTION: Final = re.compile(r"\n\n(?:Args|Raises|Example):\n")
_TENANT_ID: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


def _meaning_alone(schema: dict[str, Any]) -> None:
    """Keep only the meaning in a JSON Schema: arguments, errors and examples are for readers of Python."""
    if "description" in schema:
        schema["description"] = _SECTION.split(schema["description"], maxsplit=1)[0]


class SpecModel(BaseModel):
    """A frozen piece of a spec: camelCase on the wire, snake_case accepted, unknown fields refused.

    `always_on_wire` names the fields (in Python's spelling) that the wire form shows even when they hold
    their default or are empty; every other field is left out then.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_alias=True,
        validate_by_name=True,
        hide_input_in_errors=True,
        json_schema_extra=_meaning_alone,
    )

    always_on_wire: ClassVar[frozenset[str]] = frozenset()

    @model_validator(mode="wrap")
    @classmethod
    def _explain_unknown_fields(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        data = without_excess_keys(cls, data)
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
        if name in fields or name in known:
            return f"field {name!r} is given twice, in camelCase and in snake_case: keep one"
        return unknown_field(name, known)

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON object on the wire, without unset, empty and Python-only fields."""
        wire: dict[str, Any] = {}
        for name, field in type(self).model_fields.items():
            if field.exclude:
                continue
            value = getattr(self, name)
            if name not in self.always_on_wire and (value == field.default or value in (None, "", (), {})):
                continue
            plain = _plain(value)
            if plain == {} and isinstance(value, SpecModel) and name not in self.always_on_wire:
                continue
            wire[field.alias or name] = plain
        return wire


def is_unknown_field(detail: Any) -> bool:
    """Return whether this error is about an unknown key of the object itself."""
    return detail["type"] == "extra_forbidden" and len(detail["loc"]) == 1


def _plain(value: Any) -> Any:
    """Return `value` as JSON; opaque JSON of the author (schemas, data) stays unchanged."""
    if isinstance(value, SpecModel):
        return value.to_wire()
    if isinstance(value, Mapping):
        return {str(key): _plain(held) for key, held in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(held) for held in value]
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
