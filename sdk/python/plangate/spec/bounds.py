"""Bounds that hold before Pydantic collects errors.

Pydantic reports everything that is wrong with a value. A list of 400,000 wrong elements, or an object with as many
unknown keys, would take seconds to check and megabytes to report. Lists and mappings of models therefore have a maximum,
which is part of their JSON Schema, and stop at the first errors; of the unknown keys of an object only the first are
looked at. Free JSON values are not bounded here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

from pydantic import (
    BaseModel,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    ValidatorFunctionWrapHandler,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError
from pydantic_core.core_schema import no_info_wrap_validator_function

MAX_ERRORS: Final = 20
"""The errors that an answer lists. One more is collected, so that the answer can say that there are more."""

MAX_NAME_CHARS: Final = 200
"""Of a name of the caller's that an error repeats."""

_MAX_STEP: Final = (
    8  # entries that are checked together; one failure makes their errors be collected one by one
)


class MaxEntries:
    """Limits a list or mapping in a model to `count` entries, and its errors to the first ones."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_wrap_validator_function(self._validate, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        json_schema = handler(schema)
        json_schema["maxItems" if json_schema.get("type") == "array" else "maxProperties"] = self.count
        return json_schema

    def _validate(self, value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        if not isinstance(value, list | tuple | Mapping):
            return validate(value)
        if len(value) > self.count:
            raise PydanticCustomError("too_long", "it holds more than {count} entries", {"count": self.count})
        return _validate_in_steps(value, validate) if len(value) > 1 else validate(value)


def _validate_in_steps(
    value: list[Any] | tuple[Any, ...] | Mapping[Any, Any], validate: ValidatorFunctionWrapHandler
) -> Any:
    """Validate a few entries at a time, and stop after the first errors."""
    entries: list[Any] | tuple[Any, ...] = list(value.items()) if isinstance(value, Mapping) else value
    copy: Callable[[Any], Any] = dict if isinstance(value, Mapping) else type(value)
    valid: list[Any] = []
    errors: list[InitErrorDetails] = []
    start, step = 0, 1
    while start < len(entries) and len(errors) <= MAX_ERRORS:
        end = start + step
        try:
            valid.append(validate(copy(entries[start:end])))
        except ValidationError as error:
            if step == 1:
                offset = 0 if isinstance(value, Mapping) else start
                errors += [_shift_location(detail, offset) for detail in error.errors(include_url=False)]
                start = end
            step = 1
        else:
            start, step = end, min(2 * step, _MAX_STEP)
    if errors:
        raise ValidationError.from_exception_data("entries", errors, hide_input=True)
    if isinstance(valid[0], dict):
        return {key: item for part in valid for key, item in part.items()}
    return type(valid[0])(item for part in valid for item in part)


def _shift_location(detail: Any, offset: int) -> InitErrorDetails:
    """Return the error of an entry at its own index: it was validated as the first entry of its slice."""
    place, *rest = detail["loc"]
    loc = (place + offset if isinstance(place, int) else place, *rest)
    return error_details(detail["type"], detail["msg"], loc)


def error_details(kind: str, message: str, loc: tuple[int | str, ...]) -> InitErrorDetails:
    """Return an error with exactly this message."""
    error = PydanticCustomError(kind, "{message}", {"message": message})
    return InitErrorDetails(type=error, loc=loc, input=None)


def without_excess_keys(model: type[BaseModel], data: Any) -> Any:
    """Return the object without its unknown keys beyond the first; return any other value unchanged.

    What is left of the unknown keys is one more than errors are reported of, so that the object stays invalid.
    """
    if not isinstance(data, dict) or len(data) <= MAX_ERRORS:
        return data
    fields = model.model_fields
    known = {*fields, *(field.alias for field in fields.values() if field.alias)}
    return dict(_bound_values(data, known)) if len(data) > len(known) + MAX_ERRORS else data


def _bound_values(data: dict[Any, Any], known: Collection[str]) -> Iterator[tuple[Any, Any]]:
    unknown = 0
    for key, value in data.items():
        if key not in known:
            unknown += 1
            if unknown > MAX_ERRORS + 1:
                continue
        yield key, value


def truncate(text: str, chars: int = MAX_NAME_CHARS) -> str:
    """Return the text, shortened if it is longer."""
    return text if len(text) <= chars else f"{text[: chars - 1]}…"
