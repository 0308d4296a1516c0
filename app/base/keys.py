"""API keys: `plg_`, 43 random characters, and a checksum of 6. Sessions and tickets have prefixes of their own.

An installation that is one of several cells puts its name after the prefix, as in `plg_eu1_...`, so that a load balancer
can route a request by its key alone. The name is part of what the checksum and the hash cover.

The prefix lets people and secret scanners recognize a key. The checksum lets the service reject a typo, and a
scanner drop a false alarm, without a lookup. Only the SHA-256 is stored: 256 random bits cannot be guessed,
so a slow hash would add cost but no safety.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import zlib
from typing import Final

KEY_PREFIX: Final = "plg_"
SESSION_PREFIX: Final = "pls_"
TICKET_PREFIX: Final = "plt_"

_BASE62: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_RANDOM_BYTES: Final = 32
_RANDOM_CHARS: Final = 43  # 62**43 > 2**256
_CHECK_CHARS: Final = 6  # 62**6 > 2**32
_CELL: Final = "[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?"
_SHAPE: Final = re.compile(rf"(pl[gst]_)(?:({_CELL})_)?[0-9A-Za-z]{{{_RANDOM_CHARS + _CHECK_CHARS}}}")
CELL_NAME: Final = re.compile(_CELL)
"""The name of a cell: 1 to 32 lowercase letters, digits and hyphens, with no hyphen at either end."""


def new_key(prefix: str = KEY_PREFIX, cell: str | None = None) -> tuple[str, bytes]:
    """Return a new key, which is shown to its owner once, and its hash to store (32 bytes). `cell` is the name of the cell
    that issues it, if there are several."""
    random = _base62(int.from_bytes(secrets.token_bytes(_RANDOM_BYTES)), _RANDOM_CHARS)
    body = f"{prefix}{random}" if cell is None else f"{prefix}{cell}_{random}"
    key = body + _checksum(body)
    return key, hash_key(key)


def has_key_shape(text: str, prefix: str = KEY_PREFIX) -> bool:
    """Return whether `text` has the prefix, length, alphabet and checksum of a key. The key may still be
    unknown.

    The checksum detects every error of up to 32 consecutive bits, and misses others with a chance of 1 in 4
    billion.
    """
    shape = _SHAPE.fullmatch(text)
    if shape is None or shape[1] != prefix:
        return False
    return _checksum(text[:-_CHECK_CHARS]) == text[-_CHECK_CHARS:]


def cell_of_key(text: str) -> str | None:
    """Return the name of the cell that a text with the shape of a key says it is from, or None. Anyone can write any
    name."""
    shape = _SHAPE.fullmatch(text)
    return None if shape is None else shape[2]


def hash_key(text: str) -> bytes:
    """Return the SHA-256 of the key (32 bytes), which is stored and looked up."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _checksum(body: str) -> str:
    return _base62(zlib.crc32(body.encode("ascii")), _CHECK_CHARS)


def _base62(number: int, width: int) -> str:
    digits = []
    for _ in range(width):
        number, digit = divmod(number, 62)
        digits.append(_BASE62[digit])
    return "".join(reversed(digits))
