"""API keys: recognizable, hard to mistype, stored as hashes."""

from __future__ import annotations

import hashlib
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.base.keys import cell_of_key, has_key_shape, hash_key, new_key

ALPHABET = string.ascii_letters + string.digits


def test_a_new_key() -> None:
    shown, stored = new_key()
    assert shown.startswith("plg_")
    assert len(shown) == 53
    assert set(shown[4:]) <= set(ALPHABET)
    assert has_key_shape(shown)
    assert stored == hash_key(shown) == hashlib.sha256(shown.encode()).digest()
    assert new_key()[0] != shown


def test_the_format_does_not_change() -> None:
    """Keys that were handed out must go on working."""
    assert has_key_shape("plg_pco96ELYHb5yUhnOiGnF2BqOGoP5HwbzOe0B8cgcpSq4VYhUf")


@given(st.integers(0, 52), st.sampled_from(ALPHABET + "-_ é"))
def test_a_typo_is_noticed(at: int, char: str) -> None:
    shown, _ = new_key()
    typo = shown[:at] + char + shown[at + 1 :]
    assert has_key_shape(typo) == (typo == shown)


@given(st.integers(4, 51))
def test_swapped_characters_are_noticed(at: int) -> None:
    shown, _ = new_key()
    swapped = shown[:at] + shown[at + 1] + shown[at] + shown[at + 2 :]
    assert has_key_shape(swapped) == (swapped == shown)


@given(st.text(max_size=70))
def test_invalid_keys_are_rejected(text: str) -> None:
    assert not has_key_shape(text)
    assert len(hash_key(text)) == 32


@pytest.mark.parametrize(
    "change", [lambda k: k[:-1], lambda k: k + "0", lambda k: k + "\n", str.upper, lambda k: " " + k]
)
def test_length_and_case_count(change: object) -> None:
    assert callable(change)
    assert not has_key_shape(change(new_key()[0]))


def test_invalid_unicode_has_a_hash() -> None:
    assert len(hash_key("plg_\ud800")) == 32


@given(st.from_regex("[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?", fullmatch=True))
def test_a_key_has_the_name_of_its_cell(cell: str) -> None:
    shown, stored = new_key(cell=cell)
    assert shown.startswith(f"plg_{cell}_")
    assert has_key_shape(shown)
    assert cell_of_key(shown) == cell
    assert stored == hash_key(shown)
    assert not has_key_shape(shown.replace(f"plg_{cell}_", "plg_")), "the checksum covers the name"
    assert cell_of_key(new_key()[0]) is None
