"""Files, and who writes them."""

from __future__ import annotations

import mimetypes
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from app.base.clock import rfc3339

DEFAULT_TYPE: Final = "application/octet-stream"

# What the machine's own tables say differs between machines.
_TYPES: Final = mimetypes.MimeTypes(filenames=())
_OWN_TYPES: Final = {
    ".md": "text/markdown",
    ".jsonl": "application/jsonl",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}


def media_type_of(path: str) -> str:
    """What the name of a file says it is."""
    ending = path[path.rfind(".") :].lower() if "." in path.rsplit("/", 1)[-1] else ""
    return _OWN_TYPES.get(ending) or _TYPES.guess_type(path)[0] or DEFAULT_TYPE


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one workspace, as it is at present. Sizes in bytes."""

    file_bytes: int = 2 * 1024**3
    files: int = 10_000
    bytes: int = 10 * 1024**3


@dataclass(frozen=True, slots=True)
class Author:
    """Who writes: an agent by a call, or the principal of a key."""

    name: str
    work_id: str | None = None
    query_id: str | None = None


@dataclass(frozen=True, slots=True)
class Body:
    """A body that is in the blob store."""

    digest: bytes
    size: int


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
    def body(self) -> Body:
        assert self.digest is not None
        return Body(self.digest, self.size_bytes)

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
