"""API keys: `plg_`, 43 characters of randomness, 6 of checksum.

The prefix lets people and secret scanners recognise a key; the checksum lets the service refuse a typo, or a
scanner drop a false alarm, without a look-up. Only the SHA-256 is stored: 256 random bits cannot be guessed,
so a slow hash would add cost and no safety.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import zlib
from typing import Final

KEY_PREFIX: Final = "plg_"

_BASE62: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_RANDOM_BYTES: Final = 32
_RANDOM_CHARS: Final = 43  # 62**43 > 2**256
_CHECK_CHARS: Final = 6  # 62**6 > 2**32
_SHAPE: Final = re.compile(rf"{KEY_PREFIX}[0-9A-Za-z]{{{_RANDOM_CHARS + _CHECK_CHARS}}}")


def new_key() -> tuple[str, bytes]:
    """(the key as it is shown once, its hash as it is stored: 32 bytes)."""
    body = KEY_PREFIX + _base62(int.from_bytes(secrets.token_bytes(_RANDOM_BYTES)), _RANDOM_CHARS)
    key = body + _checksum(body)
    return key, hash_key(key)


def has_key_shape(text: str) -> bool:
    """Whether `text` could be a key: prefix, length, alphabet and checksum. It says nothing about validity.

    A typo of up to 32 bits in a row is always noticed, any other with a chance of 1 in 4 billion missed.
    """
    return _SHAPE.fullmatch(text) is not None and _checksum(text[:-_CHECK_CHARS]) == text[-_CHECK_CHARS:]


def hash_key(text: str) -> bytes:
    """SHA-256 of the key, 32 bytes: what is stored and looked up."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _checksum(body: str) -> str:
    return _base62(zlib.crc32(body.encode("ascii")), _CHECK_CHARS)


def _base62(number: int, width: int) -> str:
    digits = []
    for _ in range(width):
        number, digit = divmod(number, 62)
        digits.append(_BASE62[digit])
    return "".join(reversed(digits))
