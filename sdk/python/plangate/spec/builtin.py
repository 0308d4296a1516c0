"""Built-in tools: a name, a definition for the model, and the id of a toolkit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class BuiltinTool:
    """A tool that the service brings: the description that a model reads, and the id of its toolkit. `unchecked_parameters` is the
    schema of arguments of which the tool itself checks a part. `approval` says when a call needs one: where a rule of
    `approvalOverrides.tools` names the tool (`named`), where the policies say so (`policies`), or always, as for a declared
    tool with `approval: "always"`."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    toolkit: str
    unchecked_parameters: Mapping[str, Any] | None = None
    approval: Literal["named", "policies", "always"] = "named"

    @property
    def validation_schema(self) -> Mapping[str, Any]:
        """Return the schema that arguments must match before the tool is called."""
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
