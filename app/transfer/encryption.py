"""Encrypt a file under a passphrase, chunk by chunk: memory is bounded, and a changed or missing chunk is detected.

The key is scrypt of the passphrase and a random salt. The chunks are encrypted with AES-256-GCM in the STREAM
construction (Hoang, Reyhanitabar, Rogaway, Vizár, 2015), as in age and Tink: the nonce of a chunk is a random prefix, the
number of the chunk, and whether it is the last one. So chunks cannot be reordered, left out, added or cut off.
"""

from __future__ import annotations

import os
from typing import BinaryIO, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from app.transfer.errors import TransferError

MAGIC: Final = b"plangate tenant 1\n"
"""The first bytes of a file. The number stands for this construction and its parameters."""
CHUNK_BYTES: Final = 64 * 1024

_SALT_BYTES: Final = 16
_PREFIX_BYTES: Final = 7
_TAG_BYTES: Final = 16
_HEADER_BYTES: Final = len(MAGIC) + _SALT_BYTES + _PREFIX_BYTES
_SCRYPT_N: Final = 2**17  # with r = 8: 128 MiB of memory for each guess
_SCRYPT_R: Final = 8


class _Chunks:
    """The cipher of a file, and the number of the next chunk. The header is authenticated with every chunk."""

    def __init__(self, passphrase: str, header: bytes) -> None:
        salt = header[len(MAGIC) : len(MAGIC) + _SALT_BYTES]
        key = Scrypt(salt=salt, length=32, n=_SCRYPT_N, r=_SCRYPT_R, p=1).derive(passphrase.encode())
        self.cipher = AESGCM(key)
        self.header = header
        self.number = 0

    def next_nonce(self, *, last: bool) -> bytes:
        nonce = self.header[-_PREFIX_BYTES:] + self.number.to_bytes(4) + bytes([last])
        self.number += 1
        return nonce


class EncryptedWriter:
    """Writes an encrypted file. Without `close` the file is not whole, and no reader accepts it."""

    def __init__(self, file: BinaryIO, passphrase: str) -> None:
        header = MAGIC + os.urandom(_SALT_BYTES + _PREFIX_BYTES)
        self._file = file
        self._chunks = _Chunks(passphrase, header)
        self._buffer = bytearray()
        file.write(header)

    def write(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) > CHUNK_BYTES:  # the last chunk stays here until `close`
            self._write_chunk(bytes(self._buffer[:CHUNK_BYTES]), last=False)
            del self._buffer[:CHUNK_BYTES]

    def close(self) -> None:
        """Write the last chunk."""
        self._write_chunk(bytes(self._buffer), last=True)

    def _write_chunk(self, data: bytes, *, last: bool) -> None:
        chunks = self._chunks
        self._file.write(chunks.cipher.encrypt(chunks.next_nonce(last=last), data, chunks.header))


class EncryptedReader:
    """Reads an encrypted file. Every byte that it returns was authenticated."""

    def __init__(self, file: BinaryIO, passphrase: str) -> None:
        """Raise TransferError if the file is not one that EncryptedWriter wrote with this passphrase."""
        header = file.read(_HEADER_BYTES)
        if not header.startswith(MAGIC):
            other = header.startswith(MAGIC[:16])
            raise TransferError(
                "This file has a format of another version of Plangate. Import it with the version that wrote it."
                if other
                else "This is not a file that `plangate tenants export` wrote."
            )
        if len(header) < _HEADER_BYTES:
            raise TransferError("The file is truncated: export the tenant again.")
        self._file = file
        self._chunks = _Chunks(passphrase, header)
        self._next = file.read(CHUNK_BYTES + _TAG_BYTES)
        self._buffer = bytearray()
        self._at_end = False
        try:
            self._read_chunk()
        except InvalidTag:
            raise TransferError("The passphrase is wrong, or the beginning of the file is damaged.") from None

    def read(self, count: int) -> bytes:
        """Return the next `count` bytes. Raise TransferError if the file was changed or cut off before them."""
        while len(self._buffer) < count:
            if self._at_end:
                raise TransferError("The file ends too early: it was not written completely.")
            try:
                self._read_chunk()
            except InvalidTag:
                raise TransferError(
                    "The file is damaged: it was changed or truncated after it was written. Use another copy."
                ) from None
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data

    def is_at_end(self) -> bool:
        """Return whether the last chunk was read, and nothing of it is left."""
        return self._at_end and not self._buffer

    def _read_chunk(self) -> None:
        data, self._next = self._next, self._file.read(CHUNK_BYTES + _TAG_BYTES)
        last, chunks = not self._next, self._chunks
        self._buffer += chunks.cipher.decrypt(chunks.next_nonce(last=last), data, chunks.header)
        self._at_end = last
