"""Names in the code follow the glossary: no participles or private metaphors, and one name for one class."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# fmt: off
BANNED = frozenset(
    [
        "told", "tell", "made", "asked", "ask", "given", "gave", "shown", "found", "taken", "took",
        "said", "say", "sent", "seen", "heard", "hear", "hears", "held", "kept", "gone", "refused",
        "reached", "looked", "wanted", "wished", "served", "opened", "stored", "built", "begun",
        "written", "named", "cut", "seldom", "way", "who", "door", "Told", "Made", "Asked", "Given",
        "Shown", "Found", "Taken", "Tried", "Sent", "Seen", "Heard", "Held", "Kept", "Served", "Way",
        "Seldom", "Who", "Holder", "Door", "Flaw", "Flaws", "Surroundings", "Site", "Shipment",
        "Shipments", "Standing", "Verdict", "Boundary", "Ground", "Misfits", "InTheWay",
    ]
)
# fmt: on

CLEAN = (
    "app/agents",
    "app/api",
    "app/approvals",
    "app/artifacts",
    "app/backup",
    "app/base",
    "app/calls",
    "app/catalog",
    "app/commands",
    "app/documents",
    "app/engine",
    "app/journal",
    "app/llm",
    "app/plans",
    "app/queries",
    "app/references",
    "app/runtimes",
    "app/telemetry",
    "app/tenancy",
    "app/tools",
    "app/usage",
    "app/variables",
    "app/workspace",
    "bench",
    "sdk/python/plangate",
)

PENDING: tuple[str, ...] = ()
"""Parts of clean packages that still have banned names. This list only shrinks."""

DUPLICATES = frozenset(
    [
        "Body",
        "Child",
        "Flow",
        "Forbidden",
        "Limits",
        "Part",
        "References",
        "Result",
        "Target",
        "ToolCall",
        "ToolUse",
        "Usage",
        "View",
        "Worker",
    ]
)
"""Class names that are defined more than once. This list only shrinks."""


def modules(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    """Yield the modules below these folders, by their path in the repository."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            yield name, ast.parse(path.read_text(encoding="utf-8"))


def definitions(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and name of each class, function and method."""
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name


@pytest.mark.parametrize("package", CLEAN)
def test_clean_packages_define_no_banned_names(package: str) -> None:
    banned = [
        f"{path}:{line} {name}"
        for path, module in modules(package)
        if not path.startswith(PENDING)
        for line, name in definitions(module)
        if name.strip("_") in BANNED
    ]
    assert not banned, "rename to a noun (class), a verb or what it returns (function)"


def test_no_class_name_is_defined_twice_in_the_service() -> None:
    places = defaultdict(list)
    for path, module in modules("app"):
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path}:{node.lineno}")
    duplicates = {name: where for name, where in places.items() if len(where) > 1}
    assert not {name: where for name, where in duplicates.items() if name not in DUPLICATES}
