"""Opaque, signed cursors: where a page of a list ended.

A cursor is signed so that a position comes from us or not at all: nobody pages by a place of their own
making, and its content may change between releases without becoming API. It is not encrypted; put nothing
secret in it.
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
    """Makes and reads cursors under one key. Every process of a deployment needs the same key."""

    def __init__(self, key: bytes) -> None:
        """`key` is at least 16 bytes, from `sealing.derive`; ValueError else."""
        if len(key) < _MIN_KEY_BYTES:
            raise ValueError(f"a cursor key needs at least {_MIN_KEY_BYTES} bytes")
        self._key = key

    def encode(self, kind: str, position: Sequence[str | int]) -> str:
        """The cursor of `position` in the list `kind`; it opens for that kind only.

        Put into `kind` whatever else must not change between pages, such as the filter. The text is of the
        alphabet of base64url, without padding. Raises TypeError when the position holds anything else than
        strings and integers, NotJson when one of them has no JSON.
        """
        if not all(type(item) in (str, int) for item in position):
            raise TypeError("a position holds strings and integers")
        payload = canonical(list(position))
        return urlsafe_b64encode(self._mac(kind, payload) + payload).rstrip(b"=").decode("ascii")

    def decode(self, kind: str, text: str) -> list[str | int]:
        """The position in a cursor that `encode` made for `kind` under this key. Raises Malformed."""
        if len(text) > _MAX_CURSOR_CHARS or not text.isascii():
            _reject()
        try:
            blob = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        except binascii.Error:
            _reject()
        mac, payload = blob[:_MAC_BYTES], blob[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(kind, payload)):
            _reject()
        # base64 has several texts for the same bytes; only the one that we wrote is ours.
        if urlsafe_b64encode(blob).rstrip(b"=").decode("ascii") != text:
            _reject()
        position: list[str | int] = orjson.loads(payload)
        return position

    def _mac(self, kind: str, payload: bytes) -> bytes:
        name = kind.encode()
        message = len(name).to_bytes(4) + name + payload
        return hmac.digest(self._key, message, hashlib.sha256)[:_MAC_BYTES]


def _reject() -> NoReturn:
    raise Malformed(
        "The cursor is not one that this service issued for this list; "
        "take nextCursor from the last page, with the same filters, or start without a cursor."
    )
