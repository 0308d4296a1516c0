"""Arguments of a call without values that came from references, for events and prompts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson
from plangate.json_pointer import escape_step

MIN_RECOGNIZED_CHARS: Final = 8
"""A shorter text, or a number, that an approver writes elsewhere is not taken for the value of a reference."""


def hide_reference_values(
    args: Mapping[str, Any], original: Mapping[str, Any], variables: Mapping[str, str]
) -> dict[str, Any]:
    """Return the arguments that an approver sent, as events show them. Call it through `offload`.

    `original` are the arguments before the edit, and `variables` the variables whose values came from references, by the
    JSON pointer to the value in `original`. Such a value becomes its variable, in its own place and, if it is an object,
    an array or a text, in every other. Another value in its place becomes a note.
    """
    values: dict[str, Any] = {}
    _collect(original, "", variables, values)
    return _hide_fields(args, "", variables, values)


def reference_variables(glimpses: bytes) -> dict[str, str]:
    """Return the variables of a call whose values came from references, by the JSON pointer to the value. `glimpses` are
    those of its approval: these variables have no glimpse there."""
    variables = orjson.loads(glimpses).get("variables") or ()
    return {v["pointer"]: v["variable"] for v in variables if "pointer" in v and "glimpse" not in v}


def _collect(value: Any, pointer: str, variables: Mapping[str, str], values: dict[str, Any]) -> None:
    if pointer in variables:
        values[pointer] = value
    elif isinstance(value, dict):
        for name, inner in value.items():
            _collect(inner, f"{pointer}/{escape_step(name)}", variables, values)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _collect(inner, f"{pointer}/{index}", variables, values)


def _hide_fields(
    fields: Mapping[str, Any], pointer: str, variables: Mapping[str, str], values: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        name: _hide(value, f"{pointer}/{escape_step(name)}", variables, values)
        for name, value in fields.items()
    }


def _hide(value: Any, pointer: str, variables: Mapping[str, str], values: Mapping[str, Any]) -> Any:
    if pointer in values:
        variable = variables[pointer]
        return variable if value == values[pointer] else f"[edited: {variable}]"
    if isinstance(value, dict | list) or (isinstance(value, str) and len(value) >= MIN_RECOGNIZED_CHARS):
        for place, hidden in values.items():
            if value and value == hidden:
                return variables[place]
    if isinstance(value, dict):
        return _hide_fields(value, pointer, variables, values)
    if isinstance(value, list):
        return [_hide(inner, f"{pointer}/{index}", variables, values) for index, inner in enumerate(value)]
    return value
