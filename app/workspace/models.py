"""Files, and who writes them."""

from __future__ import annotations

import mimetypes
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from app.base.blobs.store import ByteRange
from app.base.clock import rfc3339
from app.base.errors import Malformed, RangeNotSatisfiable

DEFAULT_TYPE: Final = "application/octet-stream"
MEDIA_TYPE: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+/[!#$%&'*+.^_`|~0-9A-Za-z-]+( *;[ -~]*)?")
_ETAG: Final = re.compile(r'(W/)?"[!#-~]*"')
_RANGE: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.IGNORECASE | re.ASCII)

# What the machine's own tables say differs between machines.
_TYPES: Final = mimetypes.MimeTypes(filenames=())
_OWN_TYPES: Final = {
    ".md": "text/markdown",
    ".jsonl": "application/jsonl",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}


def guess_media_type(path: str) -> str:
    """What the name of a file says it is."""
    ending = path[path.rfind(".") :].lower() if "." in path.rsplit("/", 1)[-1] else ""
    return _OWN_TYPES.get(ending) or _TYPES.guess_type(path)[0] or DEFAULT_TYPE


@dataclass(frozen=True, slots=True)
class WorkspaceLimits:
    """Of one workspace, as it is at present. Sizes in bytes."""

    file_bytes: int = 2 * 1024**3
    files: int = 10_000
    bytes: int = 10 * 1024**3


@dataclass(frozen=True, slots=True)
class FileAuthor:
    """Who writes: an agent by a call, or the principal of a key."""

    name: str
    work_id: str | None = None
    query_id: str | None = None


@dataclass(frozen=True, slots=True)
class StoredBody:
    """A body that is in the blob store."""

    digest: bytes
    size: int


@dataclass(frozen=True, slots=True)
class Condition:
    """What must hold of the file that is there: that it has one of these ETags, or none of them."""

    tags: frozenset[str]  # "*" is whatever is there
    must_match: bool

    @classmethod
    def parse(cls, header: str, *, must_match: bool) -> Condition:
        """`If-Match` if it is wanted, else `If-None-Match`. Raises Malformed."""
        tags = {tag.strip().removeprefix("" if must_match else "W/") for tag in header.split(",")}
        if not all(tag == "*" or _ETAG.fullmatch(tag) for tag in tags):
            raise Malformed(
                'If-Match and If-None-Match take ETags as they were given, such as "1f2e...", or *.'
            )
        return cls(frozenset(tag.strip('"') for tag in tags), must_match)

    def holds(self, digest: bytes | None) -> bool:
        """`digest` is that of the file, None where there is none."""
        found = digest is not None and not self.tags.isdisjoint(("*", digest.hex()))
        return found == self.must_match


def parse_range(header: str, size: int) -> ByteRange | None:
    """The part of a body of this size that `Range` asks for. None is the whole body: also where several parts are asked for,
    or what cannot be read. Raises RangeNotSatisfiable."""
    asked = _RANGE.fullmatch(header.strip())
    if asked is None or asked[1] == asked[2] == "" or size == 0:
        return None
    if asked[1] == "":  # so many, the last ones
        begin, end = max(0, size - int(asked[2])), size
    else:
        begin, end = int(asked[1]), min(size, int(asked[2]) + 1 if asked[2] else size)
        if asked[2] and int(asked[2]) < begin:
            return None
    if begin >= size:
        raise RangeNotSatisfiable(size)
    return begin, end


@dataclass(frozen=True, slots=True)
class FileRow:
    """A version of a file. `digest` is None where the file was deleted."""

    thread_id: str
    path: str
    version: int
    digest: bytes | None
    size_bytes: int
    media_type: str
    work_id: str | None
    query_id: str | None
    written_by: str
    forked_from: str | None
    at: datetime

    @property
    def body(self) -> StoredBody:
        assert self.digest is not None
        return StoredBody(self.digest, self.size_bytes)

    def wire(self) -> dict[str, Any]:
        return {
            "threadId": self.thread_id,
            "path": self.path,
            "version": self.version,
            "sizeBytes": self.size_bytes,
            "digest": None if self.digest is None else {"algorithm": "sha256", "value": self.digest.hex()},
            "mediaType": self.media_type,
            "workId": self.work_id,
            "queryId": self.query_id,
            "writtenBy": self.written_by,
            "forkedFrom": self.forked_from,
            "at": rfc3339(self.at),
        }
