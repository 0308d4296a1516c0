"""Encryption at rest of tenants' secrets: provider keys, webhook secrets, tool headers.

AES-256-GCM with a random nonce. The context (the tenant and the secret's name) is authenticated too, so a
sealed value that is copied to another row cannot be opened there. Random nonces of 96 bits are safe for 2**32
seals under one key.
"""

from __future__ import annotations

import os
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY_BYTES: Final = 32

_VERSION: Final = b"\x01"
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16


class UnsealError(Exception):
    """A sealed value cannot be opened: wrong key, wrong context or damaged bytes. The error does not say
    which."""


class Sealer:
    """Seal and open values under one key. A sealed value is version (1 byte), nonce (12), ciphertext, tag
    (16)."""

    def __init__(self, key: bytes) -> None:
        """Take a key of 32 bytes, from `derive_key`. Raise ValueError for another length."""
        if len(key) != KEY_BYTES:
            raise ValueError(f"a sealing key must have {KEY_BYTES} bytes")
        self._cipher = AESGCM(key)

    def seal(self, plain: bytes, context: str) -> bytes:
        """Encrypt `plain` for `context` (see `secret_context`). Sealing the same value twice gives different
        bytes."""
        nonce = os.urandom(_NONCE_BYTES)
        return _VERSION + nonce + self._cipher.encrypt(nonce, plain, _associated(context))

    def open(self, sealed: bytes, context: str) -> bytes:
        """Return the value that was sealed for `context`. Raise UnsealError."""
        if len(sealed) < len(_VERSION) + _NONCE_BYTES + _TAG_BYTES or sealed[:1] != _VERSION:
            raise UnsealError(
                "the sealed value is truncated, or of a version that this release does not support"
            )
        nonce, ciphertext = sealed[1 : 1 + _NONCE_BYTES], sealed[1 + _NONCE_BYTES :]
        try:
            return self._cipher.decrypt(nonce, ciphertext, _associated(context))
        except (InvalidTag, UnicodeEncodeError):
            raise UnsealError(
                "the sealed value cannot be opened: it was sealed with another PLANGATE_SECRET_KEY, or for another purpose"
            ) from None


def secret_context(tenant: str, name: str) -> str:
    """Return the context of a tenant's secret. The length prefix makes contexts unambiguous."""
    return f"{len(tenant)}:{tenant}/{name}"


def derive_key(master: bytes, purpose: str) -> bytes:
    """Return a 32-byte key for one purpose ("secrets", "cursors"): HKDF-SHA256 of the operator's master key.

    The master key must be random and have at least 32 bytes (HKDF does not stretch passwords). Raise
    ValueError otherwise.
    """
    if len(master) < KEY_BYTES:
        raise ValueError(f"the master key needs at least {KEY_BYTES} random bytes")
    if not purpose:
        raise ValueError("the purpose of a derived key must not be empty")
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=b"plangate/" + purpose.encode()).derive(master)


def _associated(context: str) -> bytes:
    return _VERSION + context.encode()
