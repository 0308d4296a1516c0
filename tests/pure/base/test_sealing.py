"""Sealed values open only with the same key and context."""

from __future__ import annotations

import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.base.sealing import Sealer, UnsealError, derive_key, secret_context

KEY = bytes(range(32))
sealer = Sealer(KEY)
contexts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.binary(max_size=200), contexts)
def test_sealed_values_open(plain: bytes, context: str) -> None:
    sealed = sealer.seal(plain, context)
    assert Sealer(KEY).open(sealed, context) == plain
    assert len(sealed) == len(plain) + 29
    assert sealer.seal(plain, context) != sealed


@given(st.binary(min_size=1, max_size=40), st.integers(0), st.integers(1, 255))
def test_any_changed_byte_breaks_it(plain: bytes, at: int, flip: int) -> None:
    sealed = bytearray(sealer.seal(plain, "c"))
    sealed[at % len(sealed)] ^= flip
    with pytest.raises(UnsealError):
        sealer.open(bytes(sealed), "c")


@given(st.binary(max_size=60))
def test_random_bytes_raise_only_the_documented_error(sealed: bytes) -> None:
    with pytest.raises(UnsealError):
        sealer.open(sealed, "c")


def test_a_different_context_or_key_does_not_open_it() -> None:
    sealed = sealer.seal(b"secret", secret_context("acme", "openai"))
    for context in (secret_context("acme", "anthropic"), secret_context("other", "openai"), "", "\ud800"):
        with pytest.raises(UnsealError):
            sealer.open(sealed, context)
    with pytest.raises(UnsealError):
        Sealer(bytes(32)).open(sealed, secret_context("acme", "openai"))
    assert b"secret" not in sealed


def test_an_opening_error_does_not_quote_the_value() -> None:
    with pytest.raises(UnsealError) as caught:
        sealer.open(sealer.seal(b"secret", "a"), "b")
    assert caught.value.__cause__ is None
    assert "secret" not in str(caught.value)


@given(contexts, contexts, contexts, contexts)
def test_contexts_of_different_secrets_differ(tenant: str, name: str, tenant2: str, name2: str) -> None:
    assert (secret_context(tenant, name) == secret_context(tenant2, name2)) == (
        (tenant, name) == (tenant2, name2)
    )


def test_similar_contexts_differ() -> None:
    assert secret_context("a", "b/c") != secret_context("a/b", "c")


def test_derived_keys_are_stable_and_differ_by_purpose() -> None:
    extracted = hmac.digest(bytes(32), KEY, "sha256")  # RFC 5869 with an empty salt
    assert derive_key(KEY, "secrets") == hmac.digest(extracted, b"plangate/secrets\x01", "sha256")
    assert derive_key(KEY, "secrets") != derive_key(KEY, "cursors")
    assert len(derive_key(KEY, "secrets")) == 32


def test_keys_of_the_wrong_size_are_rejected() -> None:
    for wrong in (b"", b"x" * 16, b"x" * 33):
        with pytest.raises(ValueError, match="32 bytes"):
            Sealer(wrong)
    with pytest.raises(ValueError, match="at least 32"):
        derive_key(b"password", "secrets")
    with pytest.raises(ValueError, match="purpose"):
        derive_key(KEY, "")
