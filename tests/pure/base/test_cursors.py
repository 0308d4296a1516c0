"""Cursors round-trip, and everything else is rejected."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.base.cursors import CursorSigner
from app.base.errors import Malformed

signer = CursorSigner(b"k" * 32)
positions = st.lists(
    st.one_of(st.integers(-(2**63), 2**63 - 1), st.text(st.characters(exclude_categories=["Cs"]))), max_size=5
)


def refused(kind: str, text: str, by: CursorSigner = signer) -> None:
    with pytest.raises(Malformed, match="was not issued for this list"):
        by.decode(kind, text)


@given(st.text(st.characters(exclude_categories=["Cs"])), positions)
def test_a_cursor_opens_for_its_kind(kind: str, position: list[Any]) -> None:
    text = signer.encode(kind, position)
    assert signer.decode(kind, text) == position
    assert text.replace("-", "a").replace("_", "a").isalnum()
    refused(kind + "x", text)


@given(st.text(max_size=80))
def test_invalid_cursors_are_rejected(text: str) -> None:
    refused("queries", text)


@given(positions, st.integers(0), st.sampled_from("Aa0-_="))
def test_a_changed_cursor_is_rejected(position: list[Any], at: int, char: str) -> None:
    text = signer.encode("queries", position)
    at %= len(text)
    changed = text[:at] + char + text[at + 1 :]
    if changed != text:
        refused("queries", changed)
    refused("queries", text[:-1])
    refused("queries", text + char)


def test_the_kind_cannot_bleed_into_the_position() -> None:
    refused("querie", signer.encode("queries", []))
    refused("", signer.encode("queries", []))


def test_a_different_key_does_not_open_it() -> None:
    refused("queries", signer.encode("queries", ["a", 1]), CursorSigner(b"j" * 32))


def test_a_huge_cursor_is_rejected() -> None:
    refused("queries", "A" * 1_000_000)


def test_padding_and_spare_bits_are_not_ours() -> None:
    texts = [signer.encode("q", [1, *range(n)]) for n in range(6)]
    for text in texts:
        refused("q", text + "=" * (-len(text) % 4 or 4))
    text = next(text for text in texts if len(text) % 4 == 2)
    twin = text[:-1] + chr(ord(text[-1]) + 1)
    refused("q", twin)


@pytest.mark.parametrize("position", [[True], [1.0], [None], [[]]])
def test_a_position_holds_strings_and_integers(position: Any) -> None:
    with pytest.raises(TypeError):
        signer.encode("queries", position)


def test_a_short_key_is_rejected() -> None:
    with pytest.raises(ValueError, match="at least 16 bytes"):
        CursorSigner(b"short")
