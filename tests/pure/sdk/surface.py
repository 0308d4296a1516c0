"""The library's public surface as text: every name of `plangate.__all__` with what it takes and has.

`python -m tests.pure.sdk.surface` writes surface.txt, with which a test compares the code.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import textwrap
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, is_typeddict

import plangate
from pydantic import BaseModel
from pydantic_core import PydanticUndefined
from typing_extensions import TypeAliasType

FILE = Path(__file__).with_name("surface.txt")
COMMAND = "python -m tests.pure.sdk.surface"
LINE = 100
CONSTRUCTED = (Exception, plangate.SyncRuntime)
"""Classes that programs make objects of, beside models and dataclasses."""


ALIASES = {
    name
    for name in plangate.__all__
    if not inspect.isclass(value := getattr(plangate, name)) and not inspect.isfunction(value)
}
"""Names of types that are written out elsewhere, for annotations."""


def meaning_of_alias(name: str) -> str:
    """What a name for a type stands for, as its module has it, or without the rules of Pydantic."""
    home = importlib.import_module(vars(plangate)["_HOMES"][name])
    for node in ast.parse(inspect.getsource(home)).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        if isinstance(node, ast.Assign | ast.AnnAssign) and [ast.unparse(one) for one in targets] == [name]:
            text = ast.unparse(node.value) if node.value is not None else ""
            value = getattr(plangate, name)
            if get_origin(value) is Literal:  # it may name another Literal
                return f"Literal[{', '.join(map(repr, get_args(value)))}]"
            with_rules = text.startswith(("Annotated[", "TypeAliasType("))
            return _kind(getattr(value, "__value__", value)) if with_rules else text
    raise LookupError(f"{home.__name__} does not assign {name}")


def surface() -> str:
    return "\n".join(f"{shown(name)}\n" for name in sorted(plangate.__all__, key=str.casefold))


def shown(name: str) -> str:
    """A public name with its signature; a class with its fields, methods and properties."""
    value = getattr(plangate, name)
    if name in ALIASES:
        return f"{name} = {meaning_of_alias(name)}"
    if not inspect.isclass(value):
        return signature(name, value)
    held = [member(one, what) for one, what in members(value)]
    return "\n".join([heading(value), *field_lines(value), *held]).replace("\n", "\n    ")


def field_lines(value: type[Any]) -> list[str]:
    lines = [f"{name}: {kind}{default}" for name, kind, default in fields(value)]
    return [textwrap.fill(line, LINE, subsequent_indent="    ") for line in lines]


def heading(value: type[Any]) -> str:
    named = [
        base for base in value.__bases__ if base.__name__ in plangate.__all__ or issubclass(base, Exception)
    ]
    bases = ", ".join(base.__name__ for base in named)
    told = f"class {value.__name__}({bases})" if bases else f"class {value.__name__}"
    if issubclass(value, CONSTRUCTED) and "__init__" in vars(value):
        told += "\n" + signature("__init__", value.__init__)
    return told


def member(name: str, value: Any) -> str:
    if not isinstance(value, property):
        return signature(name, value)
    return f"property {name}: {_written(inspect.signature(value.fget).return_annotation)}"  # type: ignore[arg-type]


def signature(name: str, function: Callable[..., Any]) -> str:
    """`name(parameters) -> result` as the source has it; one parameter a line where it is long."""
    found = inspect.signature(function)
    written: list[str] = []
    for parameter in found.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not any(one.startswith("*") for one in written):
            written.append("*")
        written.append(_parameter(parameter))
    called = f"async {name}" if inspect.iscoroutinefunction(function) else name
    result = "" if name == "__init__" else f" -> {_written(found.return_annotation)}"
    line = f"{called}({', '.join(written)}){result}"
    if len(line) <= LINE:
        return line
    return "\n".join([f"{called}(", *(f"    {one}," for one in written), f"){result}"])


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    told = f"{stars}{parameter.name}: {_written(parameter.annotation)}"
    return told if parameter.default is parameter.empty else f"{told} = {_default(parameter.default)}"


def _written(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def fields(value: type[Any]) -> list[tuple[str, str, str]]:
    """(name, type, ` = default` or nothing) of what a model, a dataclass or a typed dict is made of."""
    found: list[tuple[str, str, str]] = []
    if issubclass(value, BaseModel):
        for name, field in value.model_fields.items():
            default = field.get_default(call_default_factory=True, validated_data={})
            told = "" if default is PydanticUndefined else f" = {_default(default)}"
            found.append((name.rstrip("_"), _kind(field.annotation), told))
    elif dataclasses.is_dataclass(value):
        written = {one.name: one for one in dataclasses.fields(value) if not one.name.startswith("_")}
        for name, one in written.items():
            told = "" if one.default is dataclasses.MISSING else f" = {_default(one.default)}"
            found.append((name, _written(one.type), told))
    elif is_typeddict(value):
        found = [(name, kind.__forward_arg__, "") for name, kind in value.__annotations__.items()]
    return found


def _default(value: Any) -> str:
    return f"{type(value).__name__}()" if isinstance(value, BaseModel) else repr(value)


def _kind(annotation: Any) -> str:
    """The type of a model's field, without the rules that Pydantic has for it."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, TypeAliasType):
        return _kind(annotation.__value__)
    if origin is Annotated:
        return _kind(parts[0])
    if origin in (Union, types.UnionType):
        return " | ".join(dict.fromkeys(_kind(part) for part in parts))
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, parts))}]"
    if isinstance(parts, tuple) and parts and origin is not None:
        inner = ", ".join(
            "..." if part is ... else _kind(part) for part in parts if not isinstance(part, list)
        )
        return f"{origin.__name__}[{inner}]" if origin in (dict, tuple, list) else "Callable[[Any], Any]"
    return "None" if annotation is type(None) else getattr(annotation, "__name__", str(annotation))


def members(value: type[Any]) -> Iterator[tuple[str, Any]]:
    """Public methods and properties that the library itself wrote, in the order of the source."""
    found: dict[str, Any] = {}
    for base in reversed(value.__mro__):
        if (
            base.__module__.split(".")[0] == "plangate" and base.__module__ != "plangate.api.calls"
        ):  # generated
            found |= {name: held for name, held in vars(base).items() if not name.startswith(("_", "model_"))}
    yield from (
        (n, held) for n, held in found.items() if inspect.isfunction(held) or isinstance(held, property)
    )


if __name__ == "__main__":
    FILE.write_text(surface(), "utf-8")
