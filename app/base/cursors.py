"""Opaque, signed cursors: the position where a page of a list ended.

The signature rejects positions that the service did not issue, so the content of a cursor can change between
releases without being API. Cursors are not encrypted; put nothing secret in them.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import Final, NoReturn

import orjson

from app.base.errors import Malformed
from app.base.json.strict_json import canonical

_MAC_BYTES: Final = 16  # 128 bits of HMAC-SHA256
_MIN_KEY_BYTES: Final = 16
_MAX_CURSOR_CHARS: Final = 4096


class CursorSigner:
    """Encode and decode cursors under one key. All processes of a deployment need the same key."""

    def __init__(self, key: bytes) -> None:
        """Take a key of 16 to 64 bytes, from `sealing.derive_key`. Raise ValueError for a shorter one."""
        if len(key) < _MIN_KEY_BYTES:
            raise ValueError(f"a cursor key needs at least {_MIN_KEY_BYTES} bytes")
        self._key = key

    def encode(self, kind: str, position: Sequence[str | int]) -> str:
        """Return the cursor for `position` in the list `kind`; it is valid for that kind only.

        Include in `kind` everything that must not change between pages, such as the filter. The text uses the
        alphabet of base64url, without padding. Raise TypeError if the position holds anything but strings and
        integers, and NotJson if one of them cannot be encoded as JSON.
        """
        if not all(type(item) in (str, int) for item in position):
            raise TypeError("a position holds strings and integers")
        payload = canonical(list(position))
        return urlsafe_b64encode(self._mac(kind, payload) + payload).rstrip(b"=").decode("ascii")

    def decode(self, kind: str, text: str) -> list[str | int]:
        """Return the position in a cursor that `encode` issued for `kind` under this key. Raise Malformed."""
        if len(text) > _MAX_CURSOR_CHARS or not text.isascii():
            _reject()
        try:
            blob = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        except binascii.Error:
            _reject()
        mac, payload = blob[:_MAC_BYTES], blob[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(kind, payload)):
            _reject()
        # Several base64 texts decode to the same bytes; accept only the one that `encode` writes.
        if urlsafe_b64encode(blob).rstrip(b"=").decode("ascii") != text:
            _reject()
        position: list[str | int] = orjson.loads(payload)
        return position

    def digest(self, content: bytes) -> str:
        """Return 12 hexadecimal digits that stand for `content` in a cursor. Without the key, they do not show whether a
        guess of the content is right."""
        return hashlib.blake2b(content, digest_size=6, key=self._key, person=b"content").hexdigest()

    def _mac(self, kind: str, payload: bytes) -> bytes:
        name = kind.encode()
        message = len(name).to_bytes(4) + name + payload
        return hmac.digest(self._key, message, hashlib.sha256)[:_MAC_BYTES]


def _reject() -> NoReturn:
    raise Malformed(
        "The cursor was not issued for this list. Send nextCursor of the previous page with the same filters, "
        "or start without a cursor."
    )
