"""What a builtin tool is: a name, what a model is told of it, and the id of its toolkit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class BuiltinTool:
    """A tool that the service brings: what a model is told of it, and the id of its toolkit. `unchecked_parameters` is the
    schema of arguments of which the tool itself checks a part. A `gated` tool needs approval for each call, as a declared
    tool with `approval: "always"` does."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    toolkit: str
    unchecked_parameters: Mapping[str, Any] | None = None
    gated: bool = False

    @property
    def validation_schema(self) -> Mapping[str, Any]:
        """What arguments have to match before the tool is asked."""
        return self.input_schema if self.unchecked_parameters is None else self.unchecked_parameters


def tool_input(required: tuple[str, ...], **properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a tool's arguments, which allows no others."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def text(description: str) -> dict[str, Any]:
    """Return the schema of a text that is not empty."""
    return {"type": "string", "minLength": 1, "description": description}
