"""The reference of the library matches its docstrings and lists every public name once."""

from __future__ import annotations

import plangate

from tests.pure.docs.reference_page import AREAS, GROUPS, pages
from tests.pure.sdk.surface import ALIASES


def test_the_pages_are_up_to_date() -> None:
    expected = pages()
    assert {file: file.read_text("utf-8") for file in expected} == expected, (
        "run: python -m tests.pure.docs.reference_page"
    )
    assert set(GROUPS.iterdir()) <= set(expected)


def test_every_public_name_is_listed_once() -> None:
    listed = [*ALIASES, *(name for _, _, names in AREAS for name in names)]
    assert sorted(listed) == plangate.__all__
