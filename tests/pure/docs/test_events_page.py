"""docs/events.md holds the catalogue of `plangate.events`, whole and as it is."""

from __future__ import annotations

import ast

from plangate.events import EVENT_MODELS, EVENT_TYPES, Envelope

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


def test_the_page_lists_the_types_that_the_service_does_not_send() -> None:
    """The service sends a type if it appends an event of its class, or a delta of its name."""
    sent = set[object]()
    for file in APP.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and not {"api", "commands"} & set(file.parts):
                sent |= {arg.id for arg in node.args if isinstance(arg, ast.Name)}
                sent |= {arg.value for arg in node.args if isinstance(arg, ast.Constant)}
    unsent = (name for name, model in EVENT_MODELS.items() if not {name, model.__name__} & sent)
    listed = ", ".join(f"`{name}`" for name in unsent)
    assert f"is in the catalogue and is not sent in this version: {listed}.\n" in TEXT
