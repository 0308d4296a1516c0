"""The examples of the API document: recorded responses of a service (`make examples`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

FILE: Final = Path(__file__).with_name("examples.json")


def add_example(operation: dict[str, Any], example: dict[str, Any]) -> None:
    """Show what was sent and received in the operation of an API document: the parameters, the body and the response."""
    for parameter in operation.get("parameters", ()):
        sent = example.get(parameter.get("in"), {})
        if parameter.get("name") in sent:
            parameter["example"] = sent[parameter["name"]]
    if "body" in example:
        _show(operation["requestBody"]["content"], example["body"])
    _show(operation["responses"][str(example["status"])]["content"], example["response"])


def load_examples() -> dict[str, dict[str, Any]]:
    """Return the example of each operation, by operation id."""
    examples: dict[str, dict[str, Any]] = json.loads(FILE.read_bytes())
    return examples


def _show(content: dict[str, Any], value: Any) -> None:
    (media_type,) = content.values()
    media_type["example"] = value
