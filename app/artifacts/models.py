"""Records of artifacts: what is asked for, what is stored, what is shown."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import orjson
from plangate.printable import BLANK_LETTERS

from app.base.clock import rfc3339
from app.base.errors import FieldError
from app.base.json import strict_json
from app.workspace.models import DEFAULT_TYPE, MEDIA_TYPE

MAX_TITLE_CHARS: Final = 200
MAX_SUMMARY_CHARS: Final = 2000
MAX_METADATA_BYTES: Final = 8 * 1024
MAX_TYPE_CHARS: Final = 200
MAX_KIND_CHARS: Final = 50
MAX_CHANNEL_CHARS: Final = 60
MAX_TAGS: Final = 20
MAX_TAG_CHARS: Final = 60
MAX_PARENTS: Final = 100

_CHANNEL: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_BINARY: Final = re.compile(
    r"(image|audio|video|font)/.+|application/(octet-stream|pdf|zip|gzip|x-tar|vnd\..+)"
)


SHAPES: Final = ("file", "directory")
"""Kinds that say which of the two the target is."""

ONE_LINE: Final = "must be one line of characters that can be seen"


def _is_name(text: str) -> bool:
    """Return whether a text is a name that people and programs can compare by eye, as tags and kinds are."""
    return text.isprintable() and BLANK_LETTERS.isdisjoint(text) and not text.isspace()


@dataclass(frozen=True, slots=True)
class Publication:
    """What somebody wants to be published."""

    channel: str
    path: str
    kind: str | None = None
    title: str | None = None
    summary: str | None = None
    media_type: str | None = None
    replaces: str | None = None
    parents: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] | None = None

    def flaws(self, *, is_directory: bool) -> list[FieldError]:
        """Return what is out of bounds, or does not apply to what is at the path."""
        found = []
        if not _CHANNEL.fullmatch(self.channel) or len(self.channel) > MAX_CHANNEL_CHARS:
            found.append(
                FieldError(
                    "/channel",
                    f"must be lower-case words joined by dashes, at most {MAX_CHANNEL_CHARS} characters, such as design",
                )
            )
        for name, value, most in (
            ("title", self.title, MAX_TITLE_CHARS),
            ("summary", self.summary, MAX_SUMMARY_CHARS),
            ("mediaType", self.media_type, MAX_TYPE_CHARS),
            ("kind", self.kind, MAX_KIND_CHARS),
        ):
            if value is not None and not 0 < len(value) <= most:
                found.append(FieldError(f"/{name}", f"must have 1 to {most} characters"))
        if self.kind is not None and not _is_name(self.kind):
            found.append(FieldError("/kind", ONE_LINE))
        if self.kind in SHAPES and self.kind != SHAPES[is_directory]:
            message = f"must not be {self.kind!r}: {self.path!r} is a {SHAPES[is_directory]}"
            found.append(FieldError("/kind", message))
        if self.media_type and not MEDIA_TYPE.fullmatch(self.media_type):
            found.append(FieldError("/mediaType", "must be a media type, such as text/markdown"))
        if len(self.parents) > MAX_PARENTS:
            found.append(FieldError("/parentArtifactIds", f"must have at most {MAX_PARENTS} ids"))
        if len(self.tags) > MAX_TAGS:
            found.append(FieldError("/tags", f"must have at most {MAX_TAGS} tags"))
        for n, tag in enumerate(self.tags):
            if not 0 < len(tag) <= MAX_TAG_CHARS:
                found.append(FieldError(f"/tags/{n}", f"must have 1 to {MAX_TAG_CHARS} characters"))
            elif not _is_name(tag):
                found.append(FieldError(f"/tags/{n}", ONE_LINE))
        if self.metadata is not None and len(strict_json.dumps(self.metadata)) > MAX_METADATA_BYTES:
            found.append(FieldError("/metadata", f"must have at most {MAX_METADATA_BYTES} bytes of JSON"))
        return found


@dataclass(frozen=True, slots=True)
class ArtifactTarget:
    """What is at a path at the moment of publishing."""

    digest: bytes
    size_bytes: int  # of a directory: of all files in it
    body_bytes: int  # of a directory: of their list
    media_type: str | None
    is_directory: bool = False

    def kind(self, path: str) -> str:
        """Return the default kind for what is at the path."""
        if self.is_directory:
            return "directory"
        if path.endswith((".patch", ".diff")):
            return "patch"
        if path.endswith(".log"):
            return "log"
        if self.media_type == "application/json":
            return "json"
        return "binary" if _BINARY.fullmatch(self.media_type or DEFAULT_TYPE) else "file"


@dataclass(frozen=True, slots=True)
class Producer:
    """The unit of work that publishes, the call by which it does, and the plan action that the call carries out. A call that
    carries out several actions has a `plan_id`, and an `action_index` only if the publisher named one."""

    work_id: str
    parent_work_id: str | None
    kind: str
    thread_id: str
    query_id: str | None = None
    agent: str | None = None
    model: str | None = None
    call_id: str | None = None
    plan_id: str | None = None
    action_index: int | None = None

    def wire(self) -> dict[str, Any]:
        named = {
            "workId": self.work_id,
            "parentWorkId": self.parent_work_id,
            "kind": self.kind,
            "queryId": self.query_id,
            "threadId": self.thread_id,
            "agent": self.agent,
            "model": self.model,
            "callId": self.call_id,
            "planId": self.plan_id,
            "actionIndex": self.action_index,
        }
        return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Revision:
    """The place of a record that replaces another: where that chain begins, and which revision it is, from 2."""

    first_id: str
    number: int


def artifact_record(
    id: str,
    asked: Publication,
    path: str,
    target: ArtifactTarget,
    producer: Producer,
    created_at: datetime,
    revision: Revision | None,
) -> dict[str, Any]:
    """Return the stored record of a publication: the part that never changes."""
    optional = {
        "isDirectory": target.is_directory or None,
        "title": asked.title,
        "summary": asked.summary,
        "mediaType": asked.media_type or target.media_type,
        "sizeBytes": target.size_bytes,
        "digest": {"algorithm": "sha256", "value": target.digest.hex()},
        "replaces": asked.replaces,
        "firstArtifactId": revision and revision.first_id,
        "revision": revision and revision.number,
        "parentArtifactIds": list(dict.fromkeys(asked.parents)) or None,
        "tags": list(dict.fromkeys(asked.tags)) or None,
        "metadata": asked.metadata,
    }
    return {
        "id": id,
        "version": 1,
        "channel": asked.channel,
        "kind": asked.kind or target.kind(path),
        "path": path,
        **{name: value for name, value in optional.items() if value is not None},
        "createdAt": rfc3339(created_at),
        "producer": producer.wire(),
    }


@dataclass(frozen=True, slots=True)
class Artifact:
    """A record, and what is derived when it is read."""

    record: dict[str, Any]
    body_bytes: int
    status: str = "active"
    passed_over: bool = False  # another revision was chosen over it
    decisions: tuple[dict[str, Any], ...] = ()  # the records that withdraw it, choose it, or pass over it
    competes_with: tuple[str, ...] = ()
    present: bytes | None = field(default=None, repr=False)
    """The digest of what is at its path now; empty for a directory whose files were not read."""

    @property
    def id(self) -> str:
        id: str = self.record["id"]
        return id

    @property
    def withdrawn(self) -> bool:
        return self.status == "withdrawn"

    @property
    def digest(self) -> bytes:
        return bytes.fromhex(self.record["digest"]["value"])

    def wire(self) -> dict[str, Any]:
        """Return the record. For a directory whose files were not read, it does not say `targetChanged`."""
        shown = dict(self.record)
        available = self.present is not None
        if self.present != b"":
            shown["targetChanged"] = available and self.present != self.digest
        return {
            **shown,
            "targetAvailable": available,
            "status": self.status,
            "competesWith": list(self.competes_with),
            **({"decisions": list(self.decisions)} if self.decisions else {}),
        }

    def brief(self) -> dict[str, Any]:
        """Return what a prompt carries: id, summary, and where the body is."""
        shown = ("id", "channel", "kind", "path", "title", "summary", "sizeBytes")
        return {name: self.record[name] for name in shown if name in self.record}


def load_record(record: bytes) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(record)
    return found
