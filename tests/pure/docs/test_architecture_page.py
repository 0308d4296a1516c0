"""docs/architecture.md: its layers match the enforced ones, and its import paths are the longest."""

from __future__ import annotations

import ast
import functools
import itertools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/architecture.md").read_text("utf-8")
DATABASE = "app.base.postgres.database"


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


FILES = {module_name(path): path for path in (ROOT / "app").rglob("*.py")}


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run when a module is imported."""
    for statement in body:
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.dump(statement.test):
            continue
        yield statement
        for block in ("body", "orelse", "finalbody"):
            yield from statements(getattr(statement, block, None) or [])


@functools.cache
def imports(module: str) -> frozenset[str]:
    names = set[str]()
    for statement in statements(ast.parse(FILES[module].read_text("utf-8")).body):
        if isinstance(statement, ast.Import):
            names |= {alias.name for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom) and statement.module:
            full = {f"{statement.module}.{alias.name}" for alias in statement.names}
            names |= {name if name in FILES else statement.module for name in full}
    return frozenset(names & FILES.keys() - {module})


@functools.cache
def longest_path(module: str) -> tuple[str, ...]:
    """Return the longest import path from `module` to the database, or nothing if there is none."""
    if module == DATABASE:
        return (module,)
    longest = max((longest_path(name) for name in sorted(imports(module))), key=len, default=())
    return (module, *longest) if longest else ()


def test_the_drawn_paths_are_the_longest() -> None:
    drawn = [
        re.findall(r"\[(app[\w.]+)\]", block) for block in re.findall(r"```mermaid\n(.*?)```", PAGE, re.S)
    ]
    assert [path[0] for path in drawn] == ["app.queries.routes", "app.api.http"]
    for path in drawn:
        assert all(b in imports(a) for a, b in itertools.pairwise(path)), path
        assert len(path) == len(longest_path(path[0])), longest_path(path[0])


def test_the_layers_match_the_enforced_ones() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contract = next(c for c in project["tool"]["importlinter"]["contracts"] if c["type"] == "layers")
    rows = re.findall(r"^\| [^|]+ \| ((?:`\w+`(?:, )?)+) \|", PAGE, re.MULTILINE)
    listed = [set(re.findall(r"`(\w+)`", row)) for row in rows]
    enforced = [set(layer.split(" | ")) for layer in contract["layers"] if layer != "__main__"]
    assert [name for row in listed for name in sorted(row)] == [
        n for layer in _joined(enforced) for n in sorted(layer)
    ]


def _joined(layers: list[set[str]]) -> list[set[str]]:
    """Join the two layers that the page shows in one row."""
    at = layers.index({"assembly"})
    return [*layers[:at], layers[at] | layers[at + 1], *layers[at + 2 :]]


def test_the_named_files_exist() -> None:
    for path in re.findall(r"`((?:app|migrations)/[\w/.]+)`", PAGE):
        assert (ROOT / path).exists(), path
