"""The pages of docs/guides and their fenced blocks: each block declares its role, and so its check."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "guides"
FENCE = re.compile(r"^(`{3,})([^`\n]*)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"(?:#|//) ([a-z_]+\.(?:py|ts))\n")
A_FRAGMENT = "# A fragment"
ANYTHING = "..."

Role = Literal[
    "program", "typescript", "installed", "commands", "fragment", "output", "part", "tool", "event", "project"
]


class Unknown(ValueError):
    """A block that does not say what it is, so that nothing would check it."""


@dataclass(frozen=True)
class Block:
    """One fenced block. `info` is what stands behind the opening fence."""

    page: str
    line: int
    info: str
    text: str
    role: Role
    file: str | None = None

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Example:
    """A program or commands, and what the page says that they print."""

    block: Block
    output: str


class Page:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.stem
        self.text = path.read_text("utf-8")

    @cached_property
    def blocks(self) -> list[Block]:
        found = [
            (self.text.count("\n", 0, m.start()) + 1, m[2].strip(), m[3]) for m in FENCE.finditer(self.text)
        ]
        if re.search("^```", self.prose, re.MULTILINE):
            raise Unknown(f"{self.path.name}: a fence is opened and not closed")
        modules = {
            target.partition(":")[0]
            for _, info, text in found
            if info == "toml"
            for target in entry_points(text).values()
        }
        return [
            Block(self.path.name, line, info, text, *_role(self.path.name, line, info, text, modules))
            for line, info, text in found
        ]

    @cached_property
    def examples(self) -> list[Example]:
        """What is run, in order, each with the output block that follows it; without one it prints nothing."""
        out = []
        for n, block in enumerate(self.blocks):
            if block.role in ("program", "typescript", "commands"):
                after = self.blocks[n + 1] if n + 1 < len(self.blocks) else None
                said = after.text if after is not None and after.role == "output" else ""
                out.append(Example(block, said))
        return out

    def of(self, role: Role) -> list[Block]:
        return [block for block in self.blocks if block.role == role]

    @property
    def prose(self) -> str:
        return FENCE.sub("", self.text)


def pages() -> Iterator[Page]:
    for path in sorted(FOLDER.glob("*.md")):
        yield Page(path)


def entry_points(text: str) -> dict[str, str]:
    """Those of the group `plangate.tools` in a `pyproject.toml`."""
    document: dict[str, Any] = tomllib.loads(text)
    points: dict[str, str] = document["project"]["entry-points"]["plangate.tools"]
    return points


def _role(page: str, line: int, info: str, text: str, modules: set[str]) -> tuple[Role, str | None]:
    plain: dict[str, Role] = {
        "text": "output",
        "json part": "part",
        "json tool": "tool",
        "json event": "event",
        "toml": "project",
    }
    if info in plain:
        return plain[info], None
    if info in ("python", "bash") and text.startswith(A_FRAGMENT):
        return "fragment", None
    if info == "bash":
        return "commands", None
    named = FILE_NAME.match(text)
    if info == "ts" and named is not None:
        return "typescript", named[1]
    if info == "python" and named is not None:
        return ("installed" if named[1].removesuffix(".py") in modules else "program"), named[1]
    raise Unknown(
        f"{page}:{line}: a block {info!r} that nothing checks. A program begins with '# name.py' or '// name.ts', what is "
        f"not run with '{A_FRAGMENT}'; JSON is a 'json part' of a RuntimeSpec, a 'json tool' or a 'json event'"
    )


def matches(said: str, expected: str) -> bool:
    """Whether a program said what its page says; `...` stands for anything in a line, alone for lines."""
    lines = expected.strip("\n").split("\n") if expected.strip() else []
    pattern = "".join(
        r"(?:[^\n]*\n)*?"
        if line == ANYTHING
        else re.escape(line).replace(re.escape(ANYTHING), r"[^\n]*") + r"\n"
        for line in lines
    )
    return re.fullmatch(pattern, said.strip("\n") + "\n" if said.strip() else "") is not None


def spec_with(part: dict[str, Any]) -> dict[str, Any]:
    """The smallest spec, with this part."""
    helper = {"name": "helper", "role": "specialist", "model": "none", "systemPrompt": "You help."}
    return {"name": "part", "tenant": {"resourceId": "local"}, "agents": [helper], **part}
