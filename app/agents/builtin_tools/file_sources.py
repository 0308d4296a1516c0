"""The sources of the tool `write`: a text of the model, the bytes of an artifact, or the value of a reference."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any, Final

import orjson

from app.artifacts.models import Artifact
from app.artifacts.service import ArtifactService
from app.base.json.offload import offload
from app.base.postgres.database import Tx
from app.calls.toolkit import ToolCall
from app.references.service import ReferenceService
from app.tools.results import ToolError
from app.workspace.models import StoredBody

SOURCES: Final = ("content", "artifact", "reference")
BASE64: Final = "base64"


@dataclass(frozen=True, slots=True)
class FileSource:
    """The bytes of a file that is to be written: `data`, or the body of an artifact, which is in the blob store."""

    data: bytes = b""
    artifact: Artifact | None = None

    @property
    def body(self) -> StoredBody | None:
        return None if self.artifact is None else StoredBody(self.artifact.digest, self.artifact.body_bytes)

    @property
    def media_type(self) -> str | None:
        return None if self.artifact is None else self.artifact.record.get("mediaType")


class FileSources:
    """Reads the source that a call of `write` names."""

    def __init__(self, artifacts: ArtifactService, references: ReferenceService) -> None:
        self._artifacts = artifacts
        self._references = references

    async def read(self, call: ToolCall) -> FileSource | ToolError:
        """Return what the call writes, or the error for the model. Raise PlangateError if an artifact or a
        reference does not exist."""
        sources = [name for name in SOURCES if name in call.args]
        if len(sources) != 1:
            problem = f"it has {' and '.join(sources)}" if sources else "it has none of them"
            return ToolError(
                f"The call must have exactly one of {', '.join(SOURCES)}; {problem}.", "bad_arguments"
            )
        if "artifact" in call.args:
            return await self._of_artifact(call, call.args["artifact"])
        if "reference" in call.args:
            return await self._of_reference(call, call.args["reference"])
        return FileSource(call.args["content"].encode())

    async def _of_artifact(self, call: ToolCall, id: str) -> FileSource | ToolError:
        artifact = await call.run.read(lambda tx: self._artifacts.read(tx, id))
        if artifact.record.get("isDirectory"):
            return ToolError(
                f"The artifact {id} is a directory: a file can be written from a published file only.",
                "not_a_file",
            )
        return FileSource(artifact=artifact)

    async def _of_reference(self, call: ToolCall, handle: Any) -> FileSource | ToolError:
        kind, id = handle["kind"], handle["id"]
        work_id = call.scope.work_id
        values = await call.run.in_fenced_transaction(
            lambda tx: self._references.hydrate(tx, [(kind, id)], work_id)
        )
        try:
            return FileSource(await offload(file_bytes, values[kind][id]))
        except binascii.Error as error:
            return ToolError(f"The value of {kind}/{id} has no valid base64: {error}.", "bad_base64")

    async def note(self, tx: Tx, call: ToolCall, source: FileSource) -> None:
        """Record that the call used an artifact. Raise ArtifactNotFound if it was deleted meanwhile."""
        if source.artifact is not None:
            artifact = await self._artifacts.read(tx, source.artifact.id)
            await self._artifacts.note(tx, call.scope.work_id, [(artifact, 0)])


def file_bytes(value: bytes) -> bytes:
    """Return the file for a stored value: a text as it is, `{"base64": text}` as the bytes, anything else as JSON.
    Raise binascii.Error."""
    parsed = orjson.loads(value)
    if isinstance(parsed, str):
        return parsed.encode()
    if isinstance(parsed, dict) and set(parsed) == {BASE64} and isinstance(parsed[BASE64], str):
        return base64.b64decode(parsed[BASE64], validate=True)
    return value
