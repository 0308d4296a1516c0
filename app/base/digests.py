"""Digests of stored bytes."""

from __future__ import annotations

import hashlib


def sha256(data: bytes) -> bytes:
    """Return the SHA-256. Hashing releases the interpreter's lock, so a thread takes it off the event loop."""
    return hashlib.sha256(data).digest()
