"""The files that a source may read: those that the operator declared. Pure except for file system lookups."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from app.base.errors import FieldError, Invalid

FileFormat = Literal["csv", "parquet", "json", "duckdb", "sqlite"]

MAX_FILES: Final = 200
_FORMATS: Final[dict[str, FileFormat]] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".csv.gz": "csv",
    ".tsv.gz": "csv",
    ".parquet": "parquet",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json.gz": "json",
    ".jsonl.gz": "json",
    ".ndjson.gz": "json",
    ".duckdb": "duckdb",
    ".ddb": "duckdb",
    ".sqlite": "sqlite",
    ".sqlite3": "sqlite",
    ".db": "sqlite",
}
_NAME: Final = re.compile(r"\W+")


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of a source. `name` is the table, or the database, that statements name."""

    path: str
    name: str
    format: FileFormat


class SourcePathNotAllowed(Invalid):
    """A path is outside the paths that the operator declared."""

    kind, title = "source_path_not_allowed", "The operator did not declare this path"


def file_format(path: str) -> FileFormat | None:
    """Return the format that the name of a file says, or None."""
    name = os.path.basename(path).lower()
    return next((kind for suffix, kind in _FORMATS.items() if name.endswith(suffix)), None)


def source_kind(paths: Sequence[str]) -> Literal["duckdb", "sqlite"]:
    """Return the kind of source that reads these paths: `sqlite` for one SQLite file."""
    formats = [file_format(path) for path in paths]
    return "sqlite" if formats == ["sqlite"] else "duckdb"


def table_name(path: str) -> str:
    """Return the name of a file without its suffixes, as an identifier."""
    stem = os.path.basename(path)
    for suffix in sorted(_FORMATS, key=len, reverse=True):
        if stem.lower().endswith(suffix):
            stem = stem[: -len(suffix)]
            break
    name = _NAME.sub("_", stem).strip("_").lower() or "data"
    return f"t_{name}" if name[0].isdigit() else name


def resolve_files(kind: str, paths: Sequence[str], declared: Iterable[str]) -> list[DataFile]:
    """Return the files of a source, with every symbolic link resolved. A directory stands for the files in it.

    Raise SourcePathNotAllowed for a path outside `declared` (wherever a link leads), Invalid for a path without
    files that this kind of source reads.
    """
    roots = [os.path.realpath(root) for root in declared]
    files: dict[str, DataFile] = {}
    for index, path in enumerate(paths):
        real = _allowed(path, roots, index)
        if not os.path.exists(real):
            raise Invalid(
                f"The path {path} does not exist.", [FieldError(f"/options/paths/{index}", "does not exist")]
            )
        candidates = sorted(os.scandir(real), key=lambda e: e.name) if os.path.isdir(real) else [Path(real)]
        count = len(files)
        for entry in candidates:
            target = os.path.realpath(entry)
            format_ = file_format(target) or ("sqlite" if kind == "sqlite" else None)
            if (format_ == "sqlite") != (kind == "sqlite") or format_ is None or os.path.isdir(target):
                continue
            _allowed(target, roots, index)
            files.setdefault(target, DataFile(target, "", format_))
        if len(files) == count and not any(os.path.realpath(path) == known for known in files):
            raise Invalid(
                f"{path} has no file that a source of kind {kind!r} reads.",
                [FieldError(f"/options/paths/{index}", f"no file for kind {kind!r}")],
            )
    if len(files) > MAX_FILES:
        raise Invalid(f"A source reads at most {MAX_FILES} files; these paths have {len(files)}.")
    if kind == "sqlite" and len(files) != 1:
        raise Invalid(f"A source of kind 'sqlite' reads one file; these paths have {len(files)}.")
    return _with_names(list(files.values()))


def _allowed(path: str, roots: Sequence[str], index: int) -> str:
    real = os.path.realpath(path)
    if os.path.isabs(path) and any(real == root or real.startswith(root.rstrip("/") + "/") for root in roots):
        return real
    raise SourcePathNotAllowed(
        f"The path {path!r} is outside what the operator declared. The operator declares paths with "
        "`plangate sources add NAME --files PATH` or with PLANGATE_SOURCE_PATHS.",
        [FieldError(f"/options/paths/{index}", "outside the declared paths")],
    )


def _with_names(files: list[DataFile]) -> list[DataFile]:
    counts: dict[str, int] = {}
    named_files = []
    for file in files:
        name = table_name(file.path)
        counts[name] = counts.get(name, 0) + 1
        suffix = "" if counts[name] == 1 else f"_{counts[name]}"
        named_files.append(DataFile(file.path, name + suffix, file.format))
    return named_files
