"""docs/events.md holds the catalogue of `plangate.events`, whole and as it is."""

from __future__ import annotations

import ast

from plangate.events import EVENT_TYPES, Envelope

from tests.pure.docs.events_page import MARK, PAGE, catalogue

TEXT = PAGE.read_text("utf-8")
APP = PAGE.parents[1] / "app"


def test_the_catalogue_is_up_to_date() -> None:
    assert TEXT.partition(MARK)[2] == catalogue(), "run: python -m tests.pure.docs.events_page"


def test_every_type_has_its_section() -> None:
    assert all(f"\n### {name}\n" in TEXT for name in EVENT_TYPES)


def test_the_envelope_is_described() -> None:
    described = TEXT.partition("## The envelope")[2].partition("## Reading")[0]
    assert all(f"`{field.alias or name}`" in described for name, field in Envelope.model_fields.items())


def test_what_is_not_sent_is_said() -> None:
    """A type is sent where the service names it in a call of `event`, or as that of a delta."""
    named = set[object]()
    for file in APP.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and not {"api", "commands"} & set(file.parts):
                named |= {part.value for part in node.args if isinstance(part, ast.Constant)}
    unsent = ", ".join(f"`{name}`" for name in EVENT_TYPES if name not in named)
    assert f"is in the catalogue and is not sent in this version: {unsent}.\n" in TEXT
