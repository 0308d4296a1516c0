"""The examples of the API document, sent to a service."""

from __future__ import annotations

import pytest

from app.api.examples import load_examples
from tests.support.api_examples import record


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_service_answers_the_examples_as_documented() -> None:
    """Ids, moments, digests, tokens and durations aside: the placeholders of tests/support/api_examples.py."""
    expected, recorded = load_examples(), record()
    assert recorded.keys() == expected.keys(), "run `make examples`"
    for name, example in recorded.items():
        assert example == expected[name], f"{name}: if the change is wanted, run `make examples`"
