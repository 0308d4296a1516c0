"""Count the lines of the service and the library without blank lines, comments and docstrings (`make lines`).

A docstring is any statement that is only a string, so the text below a constant or a field counts as one. SQL files,
tests and generated files are not counted. `python -m tests.support.code_lines [COMMIT]` counts the working tree or a
commit, by package.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tarfile
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
COUNTED: Final = ("app", "sdk/python/plangate")
GENERATED: Final = frozenset({"sdk/python/plangate/api/calls.py", "sdk/python/plangate/api/models.py"})
_NOT_CODE: Final = frozenset(
    {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
        tokenize.ENCODING,
    }
)


def code_lines(source: str) -> int:
    """Return the number of lines of a module that hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def modules(commit: str | None = None) -> Iterator[tuple[str, str]]:
    """Yield the path and the source of each counted module, of the working tree or of a commit."""
    if commit is None:
        for folder in COUNTED:
            for path in sorted((ROOT / folder).rglob("*.py")):
                yield str(path.relative_to(ROOT)), path.read_text("utf-8")
        return
    data = subprocess.run(
        ["git", "-C", str(ROOT), "archive", commit, *COUNTED], check=True, capture_output=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            if member.name.endswith(".py") and (file := archive.extractfile(member)) is not None:
                yield member.name, file.read().decode()


def main(commit: str | None = None) -> None:
    packages: Counter[str] = Counter()
    for path, source in modules(commit):
        if path in GENERATED:
            continue
        folder = "sdk/python/plangate" if path.startswith("sdk/") else "/".join(path.split("/")[:2])
        packages[folder.removesuffix(".py")] += code_lines(source)
    for name, count in sorted(packages.items()):
        print(f"{count:7,}  {name}")
    print(f"{packages.total():7,}  in total")


if __name__ == "__main__":
    main(*sys.argv[1:2])
