"""Saying what is wrong, in a line that repeats values only in part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import jsonschema_rs
import orjson
from plangate.json_pointer import json_pointer

from app.base.errors import truncate
from app.base.json.strict_json import NotJson, canonical

MESSAGE_CHARS: Final = 200
_VALUE_CHARS: Final = 60  # of an offending value that a message repeats
_MAX_BRANCHES: Final = 4
LENIENT: Final = "or:"
"""Names that begin so mark what is allowed beside a rule, in a schema for values with placeholders."""


def message_of(error: jsonschema_rs.ValidationError, *, nested: bool = False) -> str:
    """Return an error as one line, for a person or a model that has to correct the value."""
    kind: Any = error.kind
    name: str = kind.name
    if name == "type":
        text = f"must be {_listed(kind.types)}, not {described(error.instance)}"
    elif name == "required":
        text = f"the property {quote(kind.property)} is missing"
    elif name in ("additionalProperties", "unevaluatedProperties"):
        text = f"these properties are not allowed: {', '.join(map(quote, kind.unexpected))}"
    elif name == "falseSchema" and error.schema_path[-1:] == ["additionalProperties"]:
        text = "no properties are allowed here"
    elif name == "falseSchema":
        text = f"nothing is allowed here, but there is {described(error.instance)}"
    elif name in ("enum", "const"):
        options = kind.options if name == "enum" else [kind.expected_value]
        text = f"must be {_listed([_text(option) for option in options])}, not {described(error.instance)}"
    elif name == "not" and isinstance(kind.schema, Mapping) and "$ref" in kind.schema:
        text = f"{described(error.instance)} matches what is excluded here"
    elif name in ("anyOf", "oneOf") and kind.context and not nested:
        text = _branches(error, kind)
    else:
        text = _without_middle(error.message)
    return truncate(text, MESSAGE_CHARS)


def _branches(error: jsonschema_rs.ValidationError, kind: Any) -> str:
    """Why each alternative does not match: the first error of each."""
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.OneOfMultipleValid):
        return "matches more than one of the alternatives, where exactly one is wanted"
    depth = len(error.instance_path)
    reasons = []
    for number, failures in enumerate(kind.context[:_MAX_BRANCHES], 1):
        if failures:
            first = _innermost(failures[0])
            below = json_pointer(first.instance_path[depth:])
            reason = truncate(message_of(first, nested=True), _VALUE_CHARS)
            reasons.append(f"({number}) {f'{below}: ' if below else ''}{reason}")
    return f"matches none of {len(kind.context)} alternatives: {'; '.join(reasons)}"


def of_rule(error: jsonschema_rs.ValidationError) -> Sequence[jsonschema_rs.ValidationError]:
    """Return the errors of the rule of a place that a placeholder could take; none for other rules."""
    context: Sequence[Any] = getattr(error.kind, "context", None) or ()
    if len(context) != 2 or error.schema_path[-1:] != ["anyOf"] or not context[1]:
        return ()
    name = [*map(str, context[1][0].schema_path[:2])]
    rule: Sequence[jsonschema_rs.ValidationError] = context[0]
    return rule if name[:1] == ["$defs"] and name[1].startswith(LENIENT) else ()


def _innermost(error: jsonschema_rs.ValidationError) -> jsonschema_rs.ValidationError:
    while rule := of_rule(error):
        error = rule[0]
    return error


def schema_message(error: jsonschema_rs.ValidationError) -> str:
    """Why a schema is not one."""
    if error.message.endswith('is not a "regex"'):
        return (
            f"the pattern {quote(str(error.instance))} is not one that is matched in linear time: "
            f"lookaround and back-references are not supported, nor are very large repetitions"
        )
    return message_of(error)


def described(value: Any) -> str:
    """Return a value for a message: the whole value if it is short, else its beginning or its size."""
    if isinstance(value, Mapping):
        return f"an object of {len(value)} properties"
    if isinstance(value, list):
        return f"an array of {len(value)} items"
    return _text(value)


def _text(value: Any) -> str:
    """JSON text of a value, cut; the long part of a long string is never encoded."""
    if isinstance(value, str):
        return quote(value)
    try:
        return truncate(canonical(value).decode(), _VALUE_CHARS)
    except NotJson:
        return truncate(str(value), _VALUE_CHARS)


def _listed(options: Sequence[str]) -> str:
    return " or ".join(options) if len(options) < 3 else f"one of {', '.join(options)}"


def quote(text: str) -> str:
    return orjson.dumps(truncate(text, _VALUE_CHARS)).decode()


def _without_middle(text: str) -> str:
    """Remove the middle of a message. The validator's messages begin with the value, which may be huge, and
    end with the rule."""
    if len(text) <= 3 * _VALUE_CHARS:
        return text
    return f"{text[:_VALUE_CHARS]} … {text[-_VALUE_CHARS:]}"
