"""The builtin toolkit `artifacts` as data: what agents publish for each other."""

from __future__ import annotations

from typing import Any, Final

from plangate.spec.builtin import BuiltinTool, text, tool_input


def _text(description: str, most: int) -> dict[str, Any]:
    return {**text(description), "maxLength": most}


def _texts(description: str, most: int) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "maxItems": most, "description": description}


_ID: Final = _text("The artifact's id, such as art_...", 100)
_CHANNEL: Final = _text(
    "What it is for: analysis, design, patch, verification, handoff, or any other lower-case words joined by dashes.",
    60,
)

ARTIFACT_PUBLISH: Final = BuiltinTool(
    "artifact_publish",
    "Publishes a file or a directory of the workspace: says that this output matters to others. What is "
    "published stays readable as it is now, also after the file changes. Returns the record with its id; pass "
    "the id on, not the content.",
    tool_input(
        ("channel", "path"),
        channel=_CHANNEL,
        path=_text("What to publish: a path in the workspace, written before.", 1000),
        kind=_text("file, directory, report, patch, json, log, binary or another; usually left out.", 50),
        title=_text("What it is, in a line.", 200),
        summary=_text("What others must know of it without reading it.", 2000),
        mediaType=_text("Its media type; usually left out.", 200),
        replaces=_text(
            "The id of an earlier artifact of the same channel that this one takes the place of.", 100
        ),
        parentArtifactIds=_texts("The ids of the artifacts that this one was made from.", 100),
        tags=_texts("Words to find it by.", 20),
        metadata={"type": "object", "description": "More about it, at most 8 KiB of JSON."},
    ),
    "artifacts",
)

ARTIFACT_GET: Final = BuiltinTool(
    "artifact_get",
    "Returns the record of an artifact, or null if there is none. Its content is read with `read` and the "
    "record's path; targetChanged says that the file is another one by now.",
    tool_input(("id",), id=_ID),
    "artifacts",
)

ARTIFACT_LIST: Final = BuiltinTool(
    "artifact_list",
    "Lists the artifacts of this thread, newest first; those that were replaced are left out unless status asks "
    "for them.",
    tool_input(
        (),
        channel=_CHANNEL,
        workId=_text("Only what this unit of work published.", 100),
        agent=_text("Only what this agent published.", 100),
        status={"type": "string", "enum": ["active", "superseded"], "description": "active unless given."},
        limit={"type": "integer", "minimum": 1, "maximum": 100, "description": "How many; 20 unless given."},
    ),
    "artifacts",
)

ARTIFACTS: Final = (ARTIFACT_PUBLISH, ARTIFACT_GET, ARTIFACT_LIST)
