"""Files, and their authors."""

from __future__ import annotations

import mimetypes
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

from app.base.blobs.store import ByteRange
from app.base.errors import Malformed, RangeNotSatisfiable
from app.base.responses import to_wire
from app.workspace.views import FileView

DEFAULT_TYPE: Final = "application/octet-stream"
MEDIA_TYPE: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+/[!#$%&'*+.^_`|~0-9A-Za-z-]+( *;[ -~]*)?")
_ETAG: Final = re.compile(r'(W/)?"[!#-~]*"')
_RANGE: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.IGNORECASE | re.ASCII)

# Do not use the machine's own tables, which differ between machines.
_TYPES: Final = mimetypes.MimeTypes(filenames=())
_OWN_TYPES: Final = {
    ".md": "text/markdown",
    ".jsonl": "application/jsonl",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}


def guess_media_type(path: str) -> str:
    """Return the media type for the name of a file."""
    ending = path[path.rfind(".") :].lower() if "." in path.rsplit("/", 1)[-1] else ""
    return _OWN_TYPES.get(ending) or _TYPES.guess_type(path)[0] or DEFAULT_TYPE


@dataclass(frozen=True, slots=True)
class WorkspaceLimits:
    """Limits of one workspace's current content, and of the uploads of a tenant in progress (`bytes`). Sizes in bytes."""

    file_bytes: int = 2 * 1024**3
    files: int = 10_000
    bytes: int = 10 * 1024**3


@dataclass(frozen=True, slots=True)
class FileAuthor:
    """The author of a file: an agent in a call, or the principal of a key."""

    name: str
    work_id: str | None = None
    query_id: str | None = None


@dataclass(frozen=True, slots=True)
class StoredBody:
    """A body in the blob store."""

    digest: bytes
    size: int


@dataclass(frozen=True, slots=True)
class ReservedBody:
    """A body that is about to be stored. `doubtful`: its deletion may be in progress. `too_much`: with it the tenant would
    have `blob_bytes`, above its limit `most`; both are None if the body was there."""

    doubtful: bool
    too_much: bool
    blob_bytes: int | None
    most: int | None


@dataclass(frozen=True, slots=True)
class WorkspaceCounts:
    """The current files of a workspace, or a change of their number."""

    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on the current file: that it has one of these ETags, or none of them."""

    tags: frozenset[str]  # "*" matches any file
    must_match: bool

    @classmethod
    def parse(cls, header: str, *, must_match: bool) -> Condition:
        """Parse `If-Match` if `must_match`, else `If-None-Match`. Raise Malformed."""
        tags = {tag.strip().removeprefix("" if must_match else "W/") for tag in header.split(",")}
        if not all(tag == "*" or _ETAG.fullmatch(tag) for tag in tags):
            raise Malformed(
                'If-Match and If-None-Match take ETags as the service returned them, such as "1f2e...", or *.'
            )
        return cls(frozenset(tag.strip('"') for tag in tags), must_match)

    def holds(self, digest: bytes | None) -> bool:
        """Return whether the condition holds for the file with this digest, None if there is no file."""
        matches = digest is not None and not self.tags.isdisjoint(("*", digest.hex()))
        return matches == self.must_match


def parse_range(header: str, size: int) -> ByteRange | None:
    """Return the part of a body of this size that `Range` asks for. Raise RangeNotSatisfiable.

    None is the whole body, also for several ranges or an invalid header.
    """
    match = _RANGE.fullmatch(header.strip())
    if match is None or match[1] == match[2] == "" or size == 0:
        return None
    first, last = match[1], match[2]
    if first == "":  # the last bytes
        begin, end = max(0, size - int(last)), size
    else:
        begin, end = int(first), min(size, int(last) + 1 if last else size)
        if last and int(last) < begin:
            return None
    if begin >= size:
        raise RangeNotSatisfiable(size)
    return begin, end


@dataclass(frozen=True, slots=True)
class FileRow:
    """A version of a file. `digest` is None if the file was deleted."""

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

    @property
    def location(self) -> str:
        """Its path in the API."""
        return f"/threads/{self.thread_id}/files/{quote(self.path)}"

    def wire(self) -> dict[str, Any]:
        digest = None if self.digest is None else {"algorithm": "sha256", "value": self.digest.hex()}
        return to_wire(FileView, self, digest=digest)
