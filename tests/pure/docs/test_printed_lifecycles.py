"""docs/lifecycles.md and the triggers match the transition tables."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from app.base.lifecycle import Lifecycle
from tests.pure.docs.lifecycles_page import NOTES, PAGE, TABLES, TRIGGERS, page, triggers

ROOT = Path(__file__).parents[3]


def test_the_diagrams_match_the_tables() -> None:
    assert PAGE.read_text("utf-8") == page(), "run: python -m tests.pure.docs.lifecycles_page"


def test_every_lifecycle_is_on_the_page() -> None:
    modules = [import_module(f"app.{path.parent.name}.states") for path in ROOT.glob("app/*/states.py")]
    found = [value for module in modules for value in vars(module).values() if isinstance(value, Lifecycle)]
    assert {life.name for life in found} == {life.name for life, _ in NOTES}


def test_the_triggers_match_the_tables() -> None:
    assert TRIGGERS.read_text("utf-8") == triggers(), "run: python -m tests.pure.docs.lifecycles_page"
    assert [life for life, _ in TABLES] == [life for life, _ in NOTES]
