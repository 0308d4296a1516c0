"""Encryption at rest for what tenants entrust to us: provider keys, webhook secrets, headers of tools.

AES-256-GCM with a random nonce. The context (whose secret, which name) is authenticated with it, so that a
sealed value copied to another row does not open there. A random nonce of 96 bits is good for 2**32 seals
under one key.
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
    """A sealed value does not open: another key, another context, or other bytes. It does not say which."""


class Sealer:
    """Seals and opens under one key. A sealed value is version (1 byte), nonce (12), ciphertext, tag (16)."""

    def __init__(self, key: bytes) -> None:
        """`key` is 32 bytes, from `derive`; ValueError else."""
        if len(key) != KEY_BYTES:
            raise ValueError(f"a sealing key is {KEY_BYTES} bytes long")
        self._cipher = AESGCM(key)

    def seal(self, plain: bytes, context: str) -> bytes:
        """`plain` encrypted for `context` (see `context_of`). Two seals of the same value differ."""
        nonce = os.urandom(_NONCE_BYTES)
        return _VERSION + nonce + self._cipher.encrypt(nonce, plain, _associated(context))

    def open(self, sealed: bytes, context: str) -> bytes:
        """What was sealed for `context`. Raises SealBroken on anything wrong."""
        if len(sealed) < len(_VERSION) + _NONCE_BYTES + _TAG_BYTES or sealed[:1] != _VERSION:
            raise UnsealError(
                "the sealed value is cut short, or of a version that this release does not know"
            )
        nonce, ciphertext = sealed[1 : 1 + _NONCE_BYTES], sealed[1 + _NONCE_BYTES :]
        try:
            return self._cipher.decrypt(nonce, ciphertext, _associated(context))
        except (InvalidTag, UnicodeEncodeError):
            raise UnsealError("the sealed value does not open with this key in this place") from None


def secret_context(tenant: str, name: str) -> str:
    """The context of a tenant's secret; the length in front keeps any two pairs apart."""
    return f"{len(tenant)}:{tenant}/{name}"


def derive_key(master: bytes, purpose: str) -> bytes:
    """A key of 32 bytes for one purpose ("secrets", "cursors"): HKDF-SHA256 of the operator's master key.

    The master key is random and at least 32 bytes long (HKDF does not stretch passwords); ValueError else.
    """
    if len(master) < KEY_BYTES:
        raise ValueError(f"the master key needs at least {KEY_BYTES} random bytes")
    if not purpose:
        raise ValueError("a derived key needs a purpose")
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=b"plangate/" + purpose.encode()).derive(master)


def _associated(context: str) -> bytes:
    return _VERSION + context.encode()
