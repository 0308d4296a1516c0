"""docs/events.md holds the catalogue of `plangate.events`, whole and as it is."""

from __future__ import annotations

from plangate.events import EVENT_TYPES, Envelope

from tests.pure.docs.events_page import MARK, PAGE, catalogue

TEXT = PAGE.read_text("utf-8")


def test_the_catalogue_is_up_to_date() -> None:
    assert TEXT.partition(MARK)[2] == catalogue(), "run: python -m tests.pure.docs.events_page"


def test_every_type_has_its_section() -> None:
    assert all(f"\n### {name}\n" in TEXT for name in EVENT_TYPES)


def test_the_envelope_is_described() -> None:
    described = TEXT.partition("## The envelope")[2].partition("## Reading")[0]
    assert all(f"`{field.alias or name}`" in described for name, field in Envelope.model_fields.items())
