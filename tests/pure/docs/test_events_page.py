"""docs/events.md matches the catalog of `app.events`."""

from __future__ import annotations

import ast

from app.events import EVENT_MODELS, EVENT_TYPES, Envelope
from tests.pure.docs.events_page import MARK, PAGE, all_events

TEXT = PAGE.read_text("utf-8")
APP = PAGE.parents[1] / "app"


def test_the_page_is_up_to_date() -> None:
    assert TEXT.partition(MARK)[2] == all_events(), "run: python -m tests.pure.docs.events_page"


def test_every_type_has_its_section() -> None:
    assert all(f"\n### {name}\n" in TEXT for name in EVENT_TYPES)


def test_the_envelope_is_described() -> None:
    described = TEXT.partition("## The envelope")[2].partition("## Reading")[0]
    assert all(f"`{field.alias or name}`" in described for name, field in Envelope.model_fields.items())


def test_the_service_sends_every_type_of_event() -> None:
    """The service sends a type if it appends an event of its class, or a delta of its name."""
    sent = set[object]()
    for file in APP.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and not {"api", "commands"} & set(file.parts):
                sent |= {arg.id for arg in node.args if isinstance(arg, ast.Name)}
                sent |= {arg.value for arg in node.args if isinstance(arg, ast.Constant)}
    assert [name for name, model in EVENT_MODELS.items() if not {name, model.__name__} & sent] == []
