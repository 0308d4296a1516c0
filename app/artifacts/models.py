"""Records of artifacts: as requested, as stored, as sent to clients."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

import orjson
from plangate.printable import BLANK_LETTERS

from app.base.clock import rfc3339
from app.base.errors import FieldError
from app.base.ids import min_id
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


ArtifactStatus = Literal["active", "superseded", "withdrawn"]

SHAPES: Final = ("file", "directory")
"""Kinds that say which of the two the target is."""

ONE_LINE: Final = "must be one line of characters that can be seen"


def _is_name(text: str) -> bool:
    """Return whether a text is a name that people and programs can compare by eye, as tags and kinds are."""
    return text.isprintable() and BLANK_LETTERS.isdisjoint(text) and not text.isspace()


MAX_CLOCK_SKEW_MS: Final = 600_000
"""Ids have the clock of the process that created them, records that of the database."""


@dataclass(frozen=True, slots=True)
class ArtifactFilter:
    """Which artifacts a list has: those that pass all filters that are not None. `since` is the earliest time of publication,
    `before` the id at which the page ends."""

    call_id: str | None = None
    plan_id: str | None = None
    work_id: str | None = None
    query_id: str | None = None
    parent_work_id: str | None = None
    thread_id: str | None = None
    tag: str | None = None
    agent: str | None = None
    channel: str | None = None
    action_index: int | None = None
    status: ArtifactStatus | None = None
    since: datetime | None = None
    before: str | None = None

    @property
    def first_id(self) -> str | None:
        """Return a lower bound of the ids of artifacts that were published at `since` or later."""
        if self.since is None:
            return None
        return min_id("art_", int(self.since.timestamp() * 1000) - MAX_CLOCK_SKEW_MS)


@dataclass(frozen=True, slots=True)
class Publication:
    """A request to publish the file or directory at a path."""

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

    def errors(self, *, is_directory: bool) -> list[FieldError]:
        """Return the fields that are out of bounds, or do not apply to the file or directory at the path."""
        errors = []
        if not _CHANNEL.fullmatch(self.channel) or len(self.channel) > MAX_CHANNEL_CHARS:
            errors.append(
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
                errors.append(FieldError(f"/{name}", f"must have 1 to {most} characters"))
        if self.kind is not None and not _is_name(self.kind):
            errors.append(FieldError("/kind", ONE_LINE))
        if self.kind in SHAPES and self.kind != SHAPES[is_directory]:
            message = f"must not be {self.kind!r}: {self.path!r} is a {SHAPES[is_directory]}"
            errors.append(FieldError("/kind", message))
        if self.media_type and not MEDIA_TYPE.fullmatch(self.media_type):
            errors.append(FieldError("/mediaType", "must be a media type, such as text/markdown"))
        if len(self.parents) > MAX_PARENTS:
            errors.append(FieldError("/parentArtifactIds", f"must have at most {MAX_PARENTS} ids"))
        if len(self.tags) > MAX_TAGS:
            errors.append(FieldError("/tags", f"must have at most {MAX_TAGS} tags"))
        for n, tag in enumerate(self.tags):
            if not 0 < len(tag) <= MAX_TAG_CHARS:
                errors.append(FieldError(f"/tags/{n}", f"must have 1 to {MAX_TAG_CHARS} characters"))
            elif not _is_name(tag):
                errors.append(FieldError(f"/tags/{n}", ONE_LINE))
        if self.metadata is not None and len(strict_json.dumps(self.metadata)) > MAX_METADATA_BYTES:
            errors.append(FieldError("/metadata", f"must have at most {MAX_METADATA_BYTES} bytes of JSON"))
        return errors


@dataclass(frozen=True, slots=True)
class ArtifactTarget:
    """The file or directory at a path when it is published."""

    digest: bytes
    size_bytes: int  # of a directory: of all files in it
    body_bytes: int  # of a directory: of their list
    media_type: str | None
    is_directory: bool = False

    def kind(self, path: str) -> str:
        """Return the default kind of an artifact at this path."""
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
        fields = {
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
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Revision:
    """The place of a record in a chain of replacements: the first artifact of the chain, and the number, from 2."""

    first_id: str
    number: int


def artifact_record(
    id: str,
    publication: Publication,
    path: str,
    target: ArtifactTarget,
    producer: Producer,
    created_at: datetime,
    revision: Revision | None,
) -> dict[str, Any]:
    """Return the stored record of a publication: the part that never changes."""
    optional = {
        "isDirectory": target.is_directory or None,
        "title": publication.title,
        "summary": publication.summary,
        "mediaType": publication.media_type or target.media_type,
        "sizeBytes": target.size_bytes,
        "digest": {"algorithm": "sha256", "value": target.digest.hex()},
        "replaces": publication.replaces,
        "firstArtifactId": revision and revision.first_id,
        "revision": revision and revision.number,
        "parentArtifactIds": list(dict.fromkeys(publication.parents)) or None,
        "tags": list(dict.fromkeys(publication.tags)) or None,
        "metadata": publication.metadata,
    }
    return {
        "id": id,
        "version": 1,
        "channel": publication.channel,
        "kind": publication.kind or target.kind(path),
        "path": path,
        **{name: value for name, value in optional.items() if value is not None},
        "createdAt": rfc3339(created_at),
        "producer": producer.wire(),
    }


@dataclass(frozen=True, slots=True)
class NamedArtifact:
    """The part of an artifact that a publication which names it needs."""

    id: str
    thread_id: str
    channel: str
    first_id: str | None
    revision: int


@dataclass(frozen=True, slots=True)
class PlanArtifact:
    """An artifact that a call of a plan published, without its record."""

    id: str
    channel: str
    path: str
    status: ArtifactStatus
    call_id: str | None
    action_index: int | None


@dataclass(frozen=True, slots=True)
class CallAction:
    """A plan action that a call carries out."""

    plan_id: str
    index: int


@dataclass(frozen=True, slots=True)
class ArtifactUse:
    """An artifact whose record a call was given: the bytes of the published body, and of the record in the prompt."""

    id: str
    size_bytes: int
    prompt_bytes: int


@dataclass(frozen=True, slots=True)
class Artifact:
    """A record, and the parts that are derived on read. `decisions` are the records that withdraw it, choose it, or choose
    another revision over it (`passed_over`). `present` is the digest of the file or directory that is now at its path, empty
    for a directory whose files were not read."""

    record: dict[str, Any]
    body_bytes: int
    status: ArtifactStatus = "active"
    passed_over: bool = False
    decisions: tuple[dict[str, Any], ...] = ()
    competes_with: tuple[str, ...] = ()
    present: bytes | None = field(default=None, repr=False)

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
        available = self.present is not None
        changed = {} if self.present == b"" else {"targetChanged": available and self.present != self.digest}
        return {
            **self.record,
            **changed,
            "targetAvailable": available,
            "status": self.status,
            "competesWith": list(self.competes_with),
            **({"decisions": list(self.decisions)} if self.decisions else {}),
        }

    def brief(self) -> dict[str, Any]:
        """Return the part for prompts: id, summary, and the path of the body."""
        fields = ("id", "channel", "kind", "path", "title", "summary", "sizeBytes")
        return {name: self.record[name] for name in fields if name in self.record}


def load_record(record: bytes) -> dict[str, Any]:
    fields: dict[str, Any] = orjson.loads(record)
    return fields
