"""Frames of Amazon's event stream, against the test vectors of Amazon's libraries."""

from __future__ import annotations

import random
import zlib

import pytest

from app.llm.eventstream import Frame, FrameReader, InvalidFrame
from app.llm.provider import TooMuchSent
from tests.processes.aimock.vendor_server import frame

MAX_FRAME_BYTES = 1024
EMPTY = bytes.fromhex("0000001000000000 05c248eb 7d98c8ff")
PAYLOAD_ALONE = bytes.fromhex("0000001d00000000 fd528c5a 7b27666f6f273a27626172277d c3653936")
ONE_STRING = bytes.fromhex(
    "0000003d00000020 07fd8396"
    "0c636f6e74656e742d74797065 07 0010 6170706c69636174696f6e2f6a736f6e"
    "7b27666f6f273a27626172277d 8d9c08b1"
)
EVERY_TYPE = bytes.fromhex(
    "01" "61" "00"  # true
    "01" "62" "01"  # false
    "01" "63" "02" "ff"  # a byte
    "01" "64" "03" "0001"  # a short
    "01" "65" "04" "00000001"  # an integer
    "01" "66" "05" "0000000000000001"  # a long
    "01" "67" "06" "0003" "616263"  # bytes
    "01" "68" "07" "0002" "6869"  # a string
    "01" "69" "08" "0000000000000001"  # a time
    "01" "6a" "09" "00112233445566778899aabbccddeeff"  # a UUID
)  # fmt: skip


def read(data: bytes) -> list[Frame]:
    return list(FrameReader(MAX_FRAME_BYTES).feed(data))


def with_headers(headers: bytes, payload: bytes = b"") -> bytes:
    lengths = (16 + len(headers) + len(payload)).to_bytes(4, "big") + len(headers).to_bytes(4, "big")
    body = lengths + zlib.crc32(lengths).to_bytes(4, "big") + headers + payload
    return body + zlib.crc32(body).to_bytes(4, "big")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (EMPTY, Frame({}, b"")),
        (PAYLOAD_ALONE, Frame({}, b"{'foo':'bar'}")),
        (ONE_STRING, Frame({"content-type": "application/json"}, b"{'foo':'bar'}")),
        (with_headers(EVERY_TYPE, b"x"), Frame({"h": "hi"}, b"x")),
    ],
)
def test_a_frame(data: bytes, expected: Frame) -> None:
    assert read(data) == [expected]


def test_the_frames_of_the_test_server_are_the_same_bytes() -> None:
    assert frame({"content-type": "application/json"}, b"{'foo':'bar'}") == ONE_STRING


def test_frames_are_the_same_wherever_the_bytes_are_cut() -> None:
    data = ONE_STRING + EMPTY + PAYLOAD_ALONE + ONE_STRING
    whole, chance = read(data), random.Random(1)
    for _ in range(200):
        reader, at, found = FrameReader(MAX_FRAME_BYTES), 0, []
        while at < len(data):
            step = chance.randint(1, 70)
            found += reader.feed(data[at : at + step])
            at += step
        assert found == whole


def test_a_partial_frame_waits_for_its_end() -> None:
    for cut in range(len(ONE_STRING)):
        assert read(ONE_STRING[:cut]) == []


def test_every_damaged_bit_is_detected() -> None:
    for at in range(len(ONE_STRING)):
        for bit in range(8):
            damaged = bytearray(ONE_STRING)
            damaged[at] ^= 1 << bit
            with pytest.raises(InvalidFrame, match="checksum"):
                read(bytes(damaged))


def test_frames_before_the_damage_are_read() -> None:
    frames = FrameReader(MAX_FRAME_BYTES).feed(EMPTY + b"\0" * 20)
    assert next(frames) == Frame({}, b"")
    with pytest.raises(InvalidFrame, match="its prelude"):
        next(frames)


def test_a_frame_is_bounded_before_it_arrives() -> None:
    payload = b"x" * (MAX_FRAME_BYTES - 16)
    assert read(with_headers(b"", payload)) == [Frame({}, payload)]
    with pytest.raises(TooMuchSent, match="a frame of more than 1024 bytes"):
        read(with_headers(b"", payload + b"x")[:12])


@pytest.mark.parametrize(("length", "headers"), [(15, 0), (20, 5), (0, 0)])
def test_inconsistent_lengths_are_rejected(length: int, headers: int) -> None:
    lengths = length.to_bytes(4, "big") + headers.to_bytes(4, "big")
    with pytest.raises(InvalidFrame, match="lengths are inconsistent"):
        read(lengths + zlib.crc32(lengths).to_bytes(4, "big"))


@pytest.mark.parametrize(
    "headers",
    [
        b"\x05ab",  # a name that ends too late
        b"\x01a",  # no type
        b"\x01a\x0a",  # a type there is not
        b"\x01a\x04\x00\x00",  # a value that ends too late
        b"\x01a\x07\x00",  # a length that ends too late
        b"\x01a\x07\x00\x09abc",
        b"\x01\xff\x07\x00\x01a",  # a name that is no text
        b"\x01a\x07\x00\x01\xff",
    ],
)
def test_invalid_frame_headers_are_rejected(headers: bytes) -> None:
    with pytest.raises(InvalidFrame, match="header"):
        read(with_headers(headers))
