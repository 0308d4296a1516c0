"""docs/reference.md matches the library's docstrings and lists every public name once."""

from __future__ import annotations

import plangate

from tests.pure.docs.reference_page import AREAS, PAGE, page
from tests.pure.library.surface import ALIASES


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text("utf-8") == page(), "run: python -m tests.pure.docs.reference_page"


def test_every_public_name_is_listed_once() -> None:
    listed = [*ALIASES, *(name for _, _, names in AREAS for name in names)]
    assert sorted(listed) == plangate.__all__
