"""docs/reference.md and a page for each of its groups in docs/reference, printed from the library's docstrings:
`python -m tests.pure.docs.reference_page` writes them."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import plangate

from tests.pure.sdk.docstrings import docs_of
from tests.pure.sdk.surface import (
    ALIASES,
    field_lines,
    fields,
    heading,
    meaning_of_alias,
    member,
    members,
    shown,
)

DOCS = Path(__file__).parents[3] / "docs"
GROUPS = DOCS / "reference"
WIDTH = 106
INTRODUCTION = """# The Python library

Every public name of `plangate`, printed from its docstring and signature, by group. What comes first is in the
[README of the library](../sdk/python/README.md); the events that a query gives are in [events.md](events.md).
The examples run in a test, after `from plangate import *`.
"""
AREAS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "Describing a system",
        "Plain functions that check what they are given and return frozen data.",
        (
            "define_tenant",
            "define_coordinator",
            "define_planner",
            "define_executor",
            "define_specialist",
            "AgentOptions",
            "define_tool",
            "define_plan",
            "TaggedUnion",
            "define_reference",
            "define_runtime",
            "ActionDispatcher",
        ),
    ),
    (
        "Running it",
        "A runtime is registered and open; queries are started on it, and functions run here for it.",
        (
            "create_runtime",
            "connect",
            "Runtime",
            "SyncRuntime",
            "SyncEvents",
            "ApprovalSubject",
            "QueryEvents",
            "Record",
            "Api",
        ),
    ),
    (
        "Context, state, files and artifacts",
        "What functions of tools receive, and what a runtime gives access to.",
        (
            "CallContext",
            "State",
            "Memory",
            "Artifacts",
            "Files",
            "serve_directory",
            "DirectoryWorkspace",
        ),
    ),
    (
        "Prompts",
        "The same layers give the same bytes, and a fingerprint.",
        ("layered_prompt", "LayeredPrompt", "augment_prompt_tools"),
    ),
    ("Schemas and glimpses", "What the define functions use themselves.", ("normalize_schema", "glimpse")),
    (
        "What the define functions return",
        "Models of the spec with what stays in Python.",
        ("DefinedAgent", "DefinedTool", "DefinedReference", "PackedReference", "DefinedRuntime"),
    ),
    (
        "The spec as models",
        "What crosses the wire. All are frozen, take camelCase and snake_case, refuse unknown fields, and give "
        "their JSON object with `to_wire()`.",
        (
            "RuntimeSpec",
            "TenantSpec",
            "WorkspaceSpec",
            "AgentSpec",
            "ModelSpec",
            "ProviderSpec",
            "PlanSpec",
            "DisplayAlias",
            "FactSpec",
            "ReferenceSpec",
            "ToolSpec",
            "ToolAnnotations",
            "ToolkitSpec",
            "ToolkitConfig",
            "ApprovalPolicies",
            "ApprovalRule",
            "ApprovalOverrides",
            "LimitsSpec",
            "Quorum",
            "FreeArguments",
            "ClientPredicate",
            "SecretRef",
            "ClientTransport",
            "HttpTransport",
            "McpTransport",
            "PythonTransport",
            "ClientDispatcher",
            "HttpDispatcher",
            "McpDispatcher",
            "PythonDispatcher",
            "ToolDispatcher",
        ),
    ),
    (
        "Errors",
        "What is wrong with an argument is a ValueError or a TypeError, before anything is sent. All others are "
        "a `PlangateError`.",
        (
            "SpecInvalid",
            "Problem",
            "PlangateError",
            "ServiceNotInstalled",
            "ServiceNotStarted",
            "ServiceUnavailable",
            "ApiError",
            "Malformed",
            "Unauthenticated",
            "Forbidden",
            "NotFound",
            "Conflict",
            "Gone",
            "TooLarge",
            "WorkspaceError",
            "WrongCell",
            "InvalidRequest",
            "TooManyRequests",
        ),
    ),
)


def pages() -> dict[Path, str]:
    """Return the text of each page by its file: the overview, and one for each group."""
    overview = [INTRODUCTION]
    groups = {}
    for title, meaning, names in AREAS:
        file = f"{title.lower().replace(',', '').replace(' ', '-')}.md"
        contents = _contents(names, f"reference/{file}")
        overview.append(f"## [{title}](reference/{file})\n\n{_wrapped(meaning)}\n\n{contents}\n")
        parts = [f"# {title}\n\n{_wrapped(meaning)}\n\n{_contents(names)}\n"]
        for name in names:
            parts += _of_name(name)
        groups[GROUPS / file] = "\n".join(parts)
    return {DOCS / "reference.md": "\n".join([*overview, _aliases()]), **groups}


def _aliases() -> str:
    rows = [f"| `{name}` | `{_cell(meaning_of_alias(name))}` |" for name in sorted(ALIASES)]
    meaning = "Some types have a name, for signatures and annotations:"
    return "\n".join(["## Names of types", "", meaning, "", *_head("name", "stands for"), *rows]) + "\n"


def _contents(names: tuple[str, ...], page: str = "") -> str:
    links = (f"[{name}]({page}#{name.lower()})" for name in names)
    return "\n".join(f"- {link}" for link in links) if page else _wrapped(" · ".join(links))


def _of_name(name: str) -> Iterator[str]:
    value = getattr(plangate, name)
    yield f"## {name}\n"
    if not inspect.isclass(value):
        yield _code(shown(name))
        yield from _docs(value)
        return
    own = docs_of(value).names("Args") != ["fields"]
    shape = [heading(value), *(field_lines(value) if own else [])]
    yield _code("\n".join(shape).replace("\n", "\n    "))
    yield from _docs(value)
    public = [base for base in value.__bases__ if base.__name__ in plangate.__all__]
    inherited = {held for base in public for held, _ in members(base)}
    for held, what in members(value):
        if held in inherited or held == "to_wire":
            continue
        yield f"### {name}.{held}\n"
        yield _code(member(held, what))
        yield from _docs(what)


def _docs(value: Any) -> Iterator[str]:
    docs = docs_of(value)
    yield docs.meaning + "\n"
    for section in ("Args", "Attributes"):
        entries = docs.entries.get(section, [])
        if entries and docs.names(section) != ["fields"]:
            rows = [f"| {_named(names)} | {_cell(text)} |" for names, text in entries]
            yield "\n".join([*_head(_column(value, section), "meaning"), *rows]) + "\n"
    if "Raises" in docs.entries:
        lines = [_wrapped(f"- {_named(names)}: {text}") for names, text in docs.entries["Raises"]]
        yield "Raises:\n\n" + "\n".join(lines) + "\n"
    if docs.example:
        yield _code(docs.example)


def _column(value: Any, section: str) -> str:
    if section == "Attributes":
        return "attribute"
    return "field" if inspect.isclass(value) and fields(value) else "argument"


def _head(*columns: str) -> tuple[str, str]:
    return f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _named(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _code(text: str) -> str:
    return f"```python\n{text}\n```\n"


def _wrapped(text: str) -> str:
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(
        text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


if __name__ == "__main__":
    GROUPS.mkdir(exist_ok=True)
    for file in GROUPS.iterdir():
        file.unlink()
    for file, text in pages().items():
        file.write_text(text, "utf-8")
