"""The catalog in docs/events.md, printed from `app.events`: `python -m tests.pure.docs.events_page` rewrites
it."""

from __future__ import annotations

import textwrap
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from app.events import EVENT_MODELS, Envelope, Timestamp

PAGE = Path(__file__).parents[3] / "docs" / "events.md"
MARK = "<!-- The rest is printed from app.events: python -m tests.pure.docs.events_page -->\n"
HEAD = "| field | type | always |\n| --- | --- | --- |"
LONGEST = 108
PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def all_events() -> str:
    """Every event with its own fields, then everything that events carry."""
    parts = ["\n## Every event\n"]
    carried: list[type[BaseModel]] = []
    own = {field.alias or name for name, field in Envelope.model_fields.items()} | {"type"}
    for name, model in EVENT_MODELS.items():
        parts.append(_section(name, model, own))
        _collect(model, carried)
    parts.append("## What events carry\n")
    parts += [_section(model.__name__, model, set()) for model in carried]
    return "\n".join(parts).rstrip() + "\n"


def _section(title: str, model: type[BaseModel], left_out: set[str]) -> str:
    text, _, _ = (model.__doc__ or "").partition("Args:")
    meaning = textwrap.fill(" ".join(text.replace("None", "null").split()), LONGEST, break_on_hyphens=False)
    rows = "\n".join(_rows(model, left_out))
    return "\n\n".join(part for part in (f"### {title}", meaning, f"{HEAD}\n{rows}") if part) + "\n"


def _rows(model: type[BaseModel], left_out: set[str]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        wire = field.alias or name
        if wire not in left_out:
            annotation = field.annotation
            if annotation is str and (field.json_schema_extra or {}) == {"format": "date-time"}:
                annotation = Timestamp
            yield f"| `{wire}` | {_kind(annotation)} | {'yes' if field.is_required() else 'no'} |"


def _kind(annotation: Any) -> str:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in parts)
    if origin in (types.UnionType, Union):
        return " or ".join(_kind(part) for part in parts)
    if origin is tuple:
        return f"list of {_kind(parts[0])}"
    if origin is dict:
        return "object"
    if annotation == Timestamp:
        return "timestamp"
    if origin is Annotated:
        return _kind(parts[0])
    if _is_model(annotation):
        return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    return PLAIN.get(annotation, "any JSON")


def _collect(annotation: Any, into: list[type[BaseModel]]) -> None:
    """The models that the fields of this one are made of, each once, in the order in which they are met."""
    if not _is_model(annotation):
        for part in get_args(annotation):
            _collect(part, into)
        return
    if annotation in into:
        return
    if not issubclass(annotation, Envelope):
        into.append(annotation)
    for field in annotation.model_fields.values():
        _collect(field.annotation, into)


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


if __name__ == "__main__":
    PAGE.write_text(PAGE.read_text("utf-8").partition(MARK)[0] + MARK + all_events(), "utf-8")
