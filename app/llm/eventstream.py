"""Decode frames of `application/vnd.amazon.eventstream`, which Bedrock streams. Pure: bytes in, frames out.

The SDK would decode them with botocore, which is large, reads the operator's AWS files, and is needed for
nothing else.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from app.llm.provider import TooMuchSent

_PRELUDE: Final = struct.Struct(">III")  # length of the frame, length of its headers, CRC of these two
_CRC: Final = struct.Struct(">I")
_LENGTH: Final = struct.Struct(">H")
_STRING: Final = 7
_SIZES: Final = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 6: None, _STRING: None, 8: 8, 9: 16}
"""Bytes of a header's value by its type; None: the length precedes the value."""


class InvalidFrame(ValueError):
    """The bytes are not frames, or are damaged; the rest of the stream cannot be read."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One message. `headers` has only headers with string values: Bedrock sends no others."""

    headers: dict[str, str]
    payload: bytes


class FrameReader:
    """Takes the bytes of a stream in chunks and yields complete frames. `limit` is the maximum bytes of a
    frame."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that this chunk completes; keep the rest for the next chunk. Raise InvalidFrame
        and TooMuchSent."""
        self._buffer += data
        while len(self._buffer) >= _PRELUDE.size:
            length, headers_length, crc = _PRELUDE.unpack_from(self._buffer)
            if zlib.crc32(self._buffer[:8]) != crc:
                raise InvalidFrame("the checksum of its prelude is wrong")
            if length > self._limit:
                raise TooMuchSent(
                    "line", f"a frame of more than {self._limit} bytes", "PLANGATE_MODEL_LINE_BYTES"
                )
            if _PRELUDE.size + headers_length + _CRC.size > length:
                raise InvalidFrame("its lengths are inconsistent")
            if len(self._buffer) < length:
                return
            frame = bytes(self._buffer[:length])
            del self._buffer[:length]
            body = frame[: -_CRC.size]
            if zlib.crc32(body) != _CRC.unpack(frame[-_CRC.size :])[0]:
                raise InvalidFrame("its checksum is wrong")
            payload_at = _PRELUDE.size + headers_length
            yield Frame(_headers(body[_PRELUDE.size : payload_at]), body[payload_at:])


def _headers(data: bytes) -> dict[str, str]:
    headers: dict[str, str] = {}
    at = 0
    try:
        while at < len(data):
            name_end = at + 1 + data[at]
            name, kind = data[at + 1 : name_end].decode(), data[name_end]
            at = name_end + 1
            size = _SIZES[kind]
            if size is None:
                size = _LENGTH.unpack_from(data, at)[0]
                at += _LENGTH.size
            value = data[at : at + size]
            if len(value) < size:
                raise InvalidFrame("a header is longer than the headers")
            at += size
            if kind == _STRING:
                headers[name] = value.decode()
    except (IndexError, KeyError, struct.error, UnicodeDecodeError) as error:
        raise InvalidFrame("its headers cannot be read") from error
    return headers
