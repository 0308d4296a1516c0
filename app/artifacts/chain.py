"""The chain of a thread's records, which detects records that were changed, inserted or removed in the database. Pure."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

START: Final = bytes(32)
"""The MAC before the first record."""


@dataclass(frozen=True, slots=True)
class ChainLink:
    """A record in its chain. `changed` are the names of columns that differ from the record."""

    id: str
    n: int
    record: bytes
    previous: bytes
    mac: bytes
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredLink:
    """A record as it was read, with the columns beside it."""

    id: str
    n: int
    record: bytes
    previous: bytes
    mac: bytes
    columns: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ChainHead:
    """The end of a chain: the number and MAC of its last record."""

    n: int = 0
    mac: bytes = START


@dataclass(frozen=True, slots=True)
class MovedHead:
    """The end that a chain had in another deployment, before its tenant was moved."""

    thread_id: str
    head: ChainHead
    seal: bytes


@dataclass(frozen=True, slots=True)
class Tombstone:
    """The end of the chain of a deleted thread. `is_back`: the thread has a chain again."""

    thread_id: str
    head: ChainHead
    seal: bytes
    is_back: bool


class Chainer:
    """Computes MACs under one key."""

    def __init__(self, key: bytes) -> None:
        """`key` comes from `sealing.derive_key`; it is not in the database."""
        self._key = key

    def mac(self, tenant: str, thread_id: str, n: int, previous: bytes, record: bytes) -> bytes:
        return self._mac(b"record", tenant, thread_id, n, previous, record)

    def seal(self, tenant: str, thread_id: str, head: ChainHead) -> bytes:
        """Return the MAC of a tombstone: the service itself removed the whole chain."""
        return self._mac(b"tombstone", tenant, thread_id, head.n, head.mac, b"")

    def seal_link(self, tenant: str, thread_id: str, head: ChainHead) -> bytes:
        """Return the MAC of the end that a chain had in another deployment."""
        return self._mac(b"link", tenant, thread_id, head.n, head.mac, b"")

    def _mac(self, what: bytes, tenant: str, thread_id: str, n: int, before: bytes, record: bytes) -> bytes:
        parts = (what, tenant.encode(), thread_id.encode(), n.to_bytes(8), before, record)
        mac = hmac.new(self._key, digestmod=hashlib.sha256)
        for part in parts:
            mac.update(len(part).to_bytes(8) + part)
        return mac.digest()


class ChainCheck:
    """Checks a chain, link by link, and reports its problems."""

    def __init__(self, chainer: Chainer, tenant: str, thread_id: str) -> None:
        self._chainer = chainer
        self._tenant = tenant
        self._thread_id = thread_id
        self._last = ChainHead()
        self._odd: ChainLink | None = None  # the last link, if its MAC is not ours

    def take(self, link: ChainLink) -> Iterator[str]:
        """Check the next link, and return the problems that it shows."""
        if self._odd is not None:
            yield self._problem_text(self._odd, linked=link.previous == self._odd.mac)
            self._odd = None
        missing = link.n - self._last.n - 1
        if missing > 0:
            yield f"{self._numbers(self._last.n + 1, link.n - 1)} removed from thread {self._thread_id}"
        ours = self._chainer.mac(self._tenant, self._thread_id, link.n, link.previous, link.record)
        if not hmac.compare_digest(ours, link.mac):
            self._odd = link
        elif missing == 0 and link.previous != self._last.mac:
            yield f"what stood before record {link.n} of thread {self._thread_id} was replaced"
        if link.changed:
            yield f"{link.id} (record {link.n} of thread {self._thread_id}) was changed: {', '.join(link.changed)}"
        self._last = ChainHead(link.n, link.mac)

    def end(self, head: ChainHead, exported: ChainHead | None = None) -> Iterator[str]:
        """Check the end of the chain, against the exported head if there is one, and return the problems."""
        if self._odd is not None:
            yield self._problem_text(self._odd, linked=head.mac == self._odd.mac)
        if head.n > self._last.n:
            yield f"{self._numbers(self._last.n + 1, head.n)} removed from the end of thread {self._thread_id}"
        elif head.n < self._last.n and self._odd is None:
            yield f"the head of thread {self._thread_id} was changed: it says {head.n} records, and there are {self._last.n}"
        elif head.mac != self._last.mac and self._odd is None:
            yield f"the head of thread {self._thread_id} was changed"
        if exported is not None and exported.n > max(self._last.n, head.n):
            yield (
                f"{self._numbers(self._last.n + 1, exported.n)} removed from the end of thread {self._thread_id}: "
                f"the exported head has {exported.n}"
            )

    def _problem_text(self, link: ChainLink, *, linked: bool) -> str:
        what = "changed" if linked else "inserted"
        return f"{link.id} (record {link.n} of thread {self._thread_id}) was {what}"

    @staticmethod
    def _numbers(first: int, last: int) -> str:
        return f"record {first} was" if first == last else f"records {first} to {last} were"
