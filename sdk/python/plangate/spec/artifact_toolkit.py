"""The built-in toolkit `artifacts` as data: what agents publish for each other."""

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
    "Publishes a file. Publishing a file or a directory of the workspace says that it matters to others. What is "
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
    "Reads an artifact. Returns its record, or null if there is none. Its content is read with `read` and the "
    "record's path; targetChanged says that the file is another one by now.",
    tool_input(("id",), id=_ID),
    "artifacts",
)

ARTIFACT_LIST: Final = BuiltinTool(
    "artifact_list",
    "Lists artifacts. Returns those of this thread, newest first; those that were replaced or withdrawn are left out unless "
    "status asks for them.",
    tool_input(
        (),
        channel=_CHANNEL,
        workId=_text("Only what this unit of work published.", 100),
        agent=_text("Only what this agent published.", 100),
        status={
            "type": "string",
            "enum": ["active", "superseded", "withdrawn"],
            "description": "active unless given.",
        },
        limit={"type": "integer", "minimum": 1, "maximum": 100, "description": "How many; 20 unless given."},
    ),
    "artifacts",
)

_REASON: Final = _text("Why, for those who read the record later.", 2000)

ARTIFACT_WITHDRAW: Final = BuiltinTool(
    "artifact_withdraw",
    "Withdraws an artifact of this thread: says that it should not be used any more. Its record and its content "
    "stay readable; lists leave it out. This cannot be undone. Returns the record.",
    tool_input(("id", "reason"), id=_ID, reason=_REASON),
    "artifacts",
    approval="always",
)

ARTIFACT_CHOOSE: Final = BuiltinTool(
    "artifact_choose",
    "Chooses an artifact of this thread over revisions that compete with it, as its competesWith lists them; these "
    "become superseded. This cannot be undone. Returns the record.",
    tool_input(
        ("id", "over", "reason"),
        id=_ID,
        over={**_texts("The ids of the revisions that it is chosen over.", 100), "minItems": 1},
        reason=_REASON,
    ),
    "artifacts",
    approval="always",
)

SHARED_ARTIFACT_TOOLS: Final = (ARTIFACT_PUBLISH, ARTIFACT_GET, ARTIFACT_LIST)
"""What every agent of a runtime with a coordinator has without asking."""

ARTIFACTS: Final = (*SHARED_ARTIFACT_TOOLS, ARTIFACT_WITHDRAW, ARTIFACT_CHOOSE)
