"""Descriptions of the fields of models in JSON Schemas, from the docstrings in the source.

A field is described by the string below it, in the section `Args:` of its class, or, if its name means the same
everywhere, in the glossary. The source is read when a schema is
made, not at import as with Pydantic's `use_attribute_docstrings`: parsing it takes 0.2 s for all models.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from functools import cache
from typing import Any

from pydantic import BaseModel

from plangate import glossary

_ARGS = re.compile(r"\n\nArgs:\n(.*?)(?=\n\n\S|\Z)", re.DOTALL)
_ARG = re.compile(r"^    (\w[\w, ]*): (.*?)(?=^    \w|\Z)", re.DOTALL | re.MULTILINE)


def describe_fields(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Add to a model's JSON Schema the descriptions of the fields that have none."""
    fields = schema.get("properties", {})
    for name, info in model.model_fields.items():
        field = fields.get(info.alias or name, fields.get(name))
        if (
            isinstance(field, dict)
            and "description" not in field
            and (text := field_description(model, name))
        ):
            field["description"] = text


def field_description(model: type[BaseModel], name: str) -> str | None:
    """Return what the nearest class that describes the field says of it."""
    for owner in model.__mro__:
        if issubclass(owner, BaseModel) and owner is not BaseModel:
            docs = _attributes(owner.__module__).get(owner.__qualname__, {}).get(name)
            if docs or (docs := _arguments(owner).get(name)):
                return docs
    return glossary.FIELDS.get(name)


@cache
def _arguments(owner: type[BaseModel]) -> dict[str, str]:
    section = _ARGS.search(inspect.cleandoc(owner.__doc__ or ""))
    docs: dict[str, str] = {}
    for names, text in _ARG.findall(section[1] + "\n" if section else ""):
        docs |= {name.strip(): " ".join(text.split()) for name in names.split(",")}
    return docs


@cache
def _attributes(module: str) -> dict[str, dict[str, str]]:
    """Return the strings below the fields of every class of a module."""
    docs: dict[str, dict[str, str]] = {}
    for node in ast.parse(inspect.getsource(sys.modules[module])).body:
        if isinstance(node, ast.ClassDef):
            docs[node.name] = fields = {}
            for field, below in zip(node.body, node.body[1:], strict=False):
                if (
                    isinstance(field, ast.AnnAssign)
                    and isinstance(field.target, ast.Name)
                    and _is_text(below)
                ):
                    fields[field.target.id] = " ".join(ast.literal_eval(below.value).split())  # type: ignore[attr-defined]
    return docs


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
