"""PROMISES.md: each promise once, with existing tests or an explicit statement that there is none."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "PROMISES.md").read_text("utf-8")
PROOFS = (ROOT / "docs/decisions/0058-one-proof-for-each-original-line.md").read_text("utf-8")
HOW_MANY = 38
PROMISE = re.compile(r"^\*\*(P\d+)\*\* (.*?)(?=^\*\*P|^## |\Z)", re.MULTILINE | re.DOTALL)
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@cache
def functions(path: str) -> frozenset[str]:
    """The tests of a file, read without running it."""
    file = ROOT / path
    tree = ast.parse(file.read_text("utf-8")) if file.exists() else ast.Module([], [])
    found = (n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(name for name in found if name.startswith("test_"))


def test_every_promise_is_there_once_in_order() -> None:
    assert [name for name, _ in PROMISE.findall(TEXT)] == [f"P{n}" for n in range(1, HOW_MANY + 1)]


@pytest.mark.parametrize(("name", "text"), PROMISE.findall(TEXT), ids=lambda part: str(part)[:3])
def test_a_promise_names_its_proof_or_its_absence(name: str, text: str) -> None:
    assert TEST.search(text) or "- Not proven yet" in text or "- Not built yet" in text, name


@pytest.mark.parametrize(("path", "test"), sorted({*TEST.findall(TEXT), *TEST.findall(PROOFS)}))
def test_named_tests_exist(path: str, test: str) -> None:
    assert test in functions(path)


def test_every_test_reference_is_recognized() -> None:
    assert TEXT.count("tests/") == len(TEST.findall(TEXT))
