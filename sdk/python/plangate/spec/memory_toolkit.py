"""The built-in toolkit `memory` as data: what a runtime remembers beyond a thread, for agents without variables."""

from __future__ import annotations

from typing import Final

from plangate.spec.builtin import BuiltinTool, text, tool_input
from plangate.spec.variable_schemas import OUTPUT_METHODS

MAX_PLACE_CHARS: Final = 1000
_PLACE: Final = "Keys joined by dots, such as customer.name; quote a key that is not a plain word."

RECALL: Final = BuiltinTool(
    "recall",
    "Reads the memory, which all threads of this system share. Without a path it returns everything.",
    tool_input((), path={**text(f"What to read. {_PLACE}"), "maxLength": MAX_PLACE_CHARS}),
    "memory",
)

REMEMBER: Final = BuiltinTool(
    "remember",
    "Writes a value to the memory, which all threads of this system share and which outlives this conversation. "
    "Remember facts that will be needed again, never secrets.",
    tool_input(
        ("path", "value"),
        path={**text(f"Where to write it. {_PLACE}"), "maxLength": MAX_PLACE_CHARS},
        value={"description": "The value: text, a number, an object, an array, or another JSON value."},
        method={
            "type": "string",
            "enum": list(OUTPUT_METHODS),
            "description": "How to write it: set replaces what is there (default), merge (deep) and assign (shallow) "
            "add to an object, push appends to an array, concat joins arrays or texts.",
        },
    ),
    "memory",
)

MEMORY: Final = (RECALL, REMEMBER)
