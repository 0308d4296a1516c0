"""Pages of the values that were stored for the approval of a plan. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final

import orjson
from plangate.spec.variables import (
    DAGGER,
    MISSING,
    Expression,
    InvalidVariable,
    VariablePath,
    parse,
    resolve_path,
)

from app.base.errors import FieldError, Invalid, NotFound
from app.base.json.offload import loads
from app.documents.writing import json_type
from app.plans.graph import REF
from app.plans.snapshot import StoredDocuments
from app.variables.values import VariableError, document_root, is_text, preview

MAX_PAGE_CHARS: Final = 65_536


@dataclass(frozen=True, slots=True)
class ValuePage:
    """A part of a value as canonical JSON. `digest` is that of the whole; `end` is where the next part begins, or None."""

    variable: str
    type: str
    size_bytes: int
    digest: str
    text: str
    end: int | None


def value_page(
    subject: bytes, documents: StoredDocuments, variable: str, start: int, chars: int
) -> ValuePage:
    """Return up to `chars` characters, from `start` on, of the value at a path that the subject names, or below one. Call it
    through `offload`. Raise Invalid or NotFound."""
    path = _parse_path(variable)
    named = [parse(read["variable"]) for read in loads(subject).get("variables", []) if "digest" in read]
    if not any(_leads_into(path, name) for name in named):
        raise NotFound(
            f"The approval has no stored value at {preview(str(path))}: name a variable of its subject that has a digest, or a "
            "path below one."
        )
    value = resolve_path(documents.documents().get(path.kind, MISSING), path.path)
    if value is MISSING:
        raise NotFound(f"The stored value has nothing at {preview(str(path))}.")
    data = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)  # canonical, as for the digest in the subject
    text = data.decode()
    end = start + chars
    return ValuePage(
        variable=str(path),
        type=json_type(value),
        size_bytes=len(data),
        digest=hashlib.sha256(data).hexdigest(),
        text=text[start:end],
        end=end if end < len(text) else None,
    )


def _parse_path(variable: str) -> VariablePath:
    try:
        parsed = parse(variable)
    except InvalidVariable as error:
        raise _invalid(f"is {preview(variable)}: {error}") from error
    paths = list(parsed.paths()) if isinstance(parsed, Expression) else []
    if len(paths) != 1:
        raise _invalid(f"must be one variable such as {DAGGER}state.total")
    (path,) = paths
    if path.kind == REF:
        raise _invalid("leads into a reference, which stays pinned: read it with GET /references/{kind}/{id}")
    try:
        root = document_root(path)
    except VariableError as error:
        raise _invalid(f"is no variable of a document: {error}".rstrip(".")) from error
    if is_text(root):
        raise _invalid(
            "leads to the text of an artifact, which never changes: read GET /artifacts/{id}/content"
        )
    return path


def _invalid(message: str) -> Invalid:
    return Invalid(f"path {message}.", [FieldError("query:path", message)])


def _leads_into(path: VariablePath, name: Any) -> bool:
    """Return whether a path is the named one, or below it."""
    (named,) = name.paths()
    return bool(path.kind == named.kind and path.path[: len(named.path)] == named.path)
