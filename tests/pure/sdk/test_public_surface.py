"""The library's public names: pinned, documented, and their examples run."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import difflib
import doctest
import importlib
import inspect
import pkgutil
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import plangate
import pytest
from plangate.api import models
from pydantic import BaseModel

from tests.pure.sdk.docstrings import docs_of
from tests.pure.sdk.surface import ALIASES, COMMAND, CONSTRUCTED, FILE, fields, members, surface

NAMES = sorted({*plangate.__all__} - ALIASES, key=str.casefold)
PUBLIC = {name: getattr(plangate, name) for name in NAMES}
METHODS = {
    f"{name}.{member}": held
    for name, value in PUBLIC.items()
    if inspect.isclass(value)
    for member, held in members(value)
}
FUNCTIONS = {
    **{name: value for name, value in PUBLIC.items() if not inspect.isclass(value)},
    **{name: held for name, held in METHODS.items() if inspect.isfunction(held)},
}
MODULES = [
    found.name
    for found in pkgutil.walk_packages(plangate.__path__, "plangate.")
    if found.name != "plangate.serve_child"  # a script
]
CANNOT_FAIL = {
    *("Runtime.aclose", "QueryEvents.aclose", "SyncRuntime.close", "SyncEvents.close"),
    *("ToolSpec.replay_rule", "DefinedTool.replay_rule"),
}


def takes(value: Any) -> list[str]:
    """The names that a call may give: of parameters, or of the fields of a model."""
    if inspect.isclass(value):
        if dataclasses.is_dataclass(value):
            return [one.name for one in dataclasses.fields(value) if one.init and one.name[0] != "_"]
        own = value.__dict__.get("__init__") if issubclass(value, CONSTRUCTED) else None
        return takes(own) if own else [name for name, _, _ in fields(value)]
    return [name for name in inspect.signature(value).parameters if name != "self"]


def test_the_surface_is_the_committed_one() -> None:
    committed, found = FILE.read_text("utf-8"), surface()
    changes = difflib.unified_diff(
        committed.splitlines(), found.splitlines(), "surface.txt", "the code", lineterm=""
    )
    assert committed == found, (
        "The library's public surface changed. If that is meant, tell of it in CHANGELOG.md and run: "
        f"{COMMAND}\n" + "\n".join(changes)
    )


def test_every_public_name_is_listed() -> None:
    seen = {
        name
        for name, value in vars(plangate).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert seen == set(plangate.__all__)
    assert plangate.__all__ == sorted(plangate.__all__)


def test_a_type_checker_finds_each_name_in_the_module_that_has_it() -> None:
    tree = ast.parse(Path(str(plangate.__file__)).read_text("utf-8"))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    told = {a.asname: (node.module, a.name) for node in found for a in node.names}
    assert told == {name: (home, name) for name, home in vars(plangate)["_HOMES"].items()}


def names_in_annotations() -> Iterator[tuple[str, str]]:
    """(function, name) of the types that annotations of the public functions name, but for those of Python."""
    for where, function in FUNCTIONS.items():
        held = vars(sys.modules[function.__module__])
        written = inspect.signature(function)
        annotations = [one.annotation for one in written.parameters.values()] + [written.return_annotation]
        for annotation in annotations:
            tree = ast.parse(annotation if isinstance(annotation, str) else "None", mode="eval")
            for node in ast.walk(tree):
                if isinstance(node, ast.Name) and not _is_pythons(node.id, held.get(node.id)):
                    yield where, node.id


def _is_pythons(name: str, value: Any) -> bool:
    """Return whether a name is one of Python, of the generated models, or of another package under its own name."""
    if name in vars(builtins) or inspect.ismodule(value) or value is getattr(typing, name, typing):
        return True
    if name in vars(models):  # generated, and public there
        return True
    home = getattr(value, "__module__", "plangate").split(".")[0]
    return home != "plangate" and getattr(value, "__name__", None) == name


def types_of_fields() -> Iterator[tuple[str, str]]:
    """(model, name) of the models that fields of the public models hold."""
    for where, model in PUBLIC.items():
        if inspect.isclass(model) and issubclass(model, BaseModel):
            waiting = [field.annotation for field in model.model_fields.values()]
            while waiting:
                kind = waiting.pop()
                kind = getattr(kind, "__value__", kind)
                waiting += get_args(kind)
                if inspect.isclass(kind) and kind.__module__.split(".")[0] == "plangate":
                    yield where, kind.__name__


def test_names_in_annotations_are_public() -> None:
    found = [*names_in_annotations(), *types_of_fields()]
    assert {"PackedReference", "Handler", "Quorum", "HttpTransport"} <= {name for _, name in found}
    assert [(where, name) for where, name in found if name not in plangate.__all__] == []
    assert typing.get_args(plangate.PlanStatus) == ("draft", "approved", "executing", "executed", "failed")


@pytest.mark.parametrize("name", [*NAMES, *METHODS])
def test_public_names_are_documented(name: str) -> None:
    value = PUBLIC.get(name) or METHODS[name]
    docs = docs_of(value)
    assert docs.meaning.endswith((".", ")"))
    if name in PUBLIC or (name in FUNCTIONS and not name.endswith((".to_wire", ".replay_rule"))):
        assert ">>> " in docs.example


@pytest.mark.parametrize("name", [*NAMES, *(name for name in METHODS if name in FUNCTIONS)])
def test_parameters_are_documented(name: str) -> None:
    value = PUBLIC.get(name) or METHODS[name]
    told = [one.removeprefix("**") for one in docs_of(value).names("Args")]
    if told == ["fields"]:  # those of the class that it extends, which has them
        assert value.__mro__[1].__name__ in (value.__doc__ or "")
        return
    assert sorted(told) == sorted(takes(value))


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if not name.endswith(".to_wire")])
def test_errors_are_documented(name: str) -> None:
    raised = docs_of(FUNCTIONS[name]).names("Raises")
    assert bool(raised) != (name in CANNOT_FAIL)
    for error in raised:
        known = (
            getattr(plangate, error, None) or getattr(__builtins__, error, None) or __builtins__.get(error)
        )  # type: ignore[attr-defined]
        assert known is not None or error == "pydantic.ValidationError", error


@pytest.mark.parametrize("name", NAMES)
def test_examples_in_docstrings_run(name: str) -> None:
    runner = doctest.DocTestRunner()
    for found in doctest.DocTestFinder().find(PUBLIC[name], name, globs=dict(PUBLIC)):
        runner.run(found)
    assert runner.tries
    assert not runner.failures


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_every_module_run(module: str) -> None:
    results = doctest.testmod(importlib.import_module(module), extraglobs=PUBLIC)
    assert not results.failed
