"""The built-in toolkit `workspace` as data: the files of a thread, as agents see them."""

from __future__ import annotations

from typing import Any, Final

from plangate.spec.builtin import BuiltinTool, text, tool_input

WORKSPACE_CALL: Final = "workspace"
"""The name under which the calls of a workspace on a machine of the user are claimed."""


def _path(description: str) -> dict[str, Any]:
    return {**text(description), "maxLength": 1000}


def _count(description: str, least: int = 1) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "maximum": 2**31 - 1, "description": description}


_FILE: Final = _path(
    "The file's path in the workspace, such as tasks/wrk_1/report.md; never absolute, never '..'."
)
_FOLDER: Final = _path("A directory; leave it out for the whole workspace.")

READ: Final = BuiltinTool(
    "read",
    "Reads a file. It must be a text file of the workspace, which all agents of this thread share. Long lines and long files are "
    "cut with a marker that says how to go on.",
    tool_input(
        ("path",),
        path=_FILE,
        offset=_count("The first line to read, from 1."),
        limit=_count("How many lines to read; 2000 unless given."),
    ),
    "workspace",
)

WRITE: Final = BuiltinTool(
    "write",
    "Writes a file. It is a file of the workspace, and the content replaces what it held. Give its text as "
    "content, or name an artifact or a reference whose bytes it gets: that is how binary files are written. Write "
    "under tasks/<your task's id>/, so that agents that work at the same time do not collide. Writing a file tells "
    "nobody: publish it as an artifact when it matters to others.",
    tool_input(
        ("path",),
        path=_FILE,
        content={"type": "string", "description": "All of the file's text."},
        artifact={
            **text("In place of content: the id of an artifact. The file gets its bytes."),
            "maxLength": 100,
        },
        reference={
            "type": "object",
            "description": "In place of content: the handle of a reference. The file gets its value: a text as it "
            'is, {"base64": ...} as the bytes, anything else as JSON.',
            "properties": {"kind": text("Its kind."), "id": text("Its id.")},
            "required": ["kind", "id"],
        },
    ),
    "workspace",
)

EDIT: Final = BuiltinTool(
    "edit",
    "Edits a file. Replaces a text in a file of the workspace. The old text must occur exactly once, spaces and line breaks "
    "included: give enough of what stands around it.",
    tool_input(
        ("path", "old", "new"),
        path=_FILE,
        old=text("The text to replace, exactly as it is in the file."),
        new={"type": "string", "description": "What comes in its place."},
    ),
    "workspace",
)

LS: Final = BuiltinTool(
    "ls",
    "Lists a directory of the workspace: its files with their sizes, and its directories, which end with /.",
    tool_input((), path=_FOLDER),
    "workspace",
)

GLOB: Final = BuiltinTool(
    "glob",
    "Finds files of the workspace by their paths: * and ? match within a name, ** any number of directories, "
    "[abc] one of these characters. For example tasks/**/*.md",
    tool_input(("pattern",), pattern=_path("The pattern, for whole paths.")),
    "workspace",
)

GREP: Final = BuiltinTool(
    "grep",
    "Finds lines of text files of the workspace that match a regular expression (without lookaround and "
    "back-references). Each is given as path:line: text.",
    tool_input(
        ("pattern",),
        pattern=_path("The regular expression."),
        path=_path("A file, or a directory; leave it out for the whole workspace."),
        glob=_path("Only files whose paths match, such as **/*.py"),
        ignoreCase={"type": "boolean", "description": "Whether case makes no difference."},
    ),
    "workspace",
)

WORKSPACE: Final = (READ, WRITE, EDIT, LS, GLOB, GREP)
