"""docs/guides: every block is checked, links resolve, and messages match the code."""

from __future__ import annotations

import ast
import inspect
import json
import re
import runpy
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import get_args

import pytest
from plangate.spec.assembly import assemble
from plangate.spec.models.agents import STATEFUL_ROLES
from plangate.spec.prompts import layered_prompt
from plangate.spec.toolkits import ROLE_TOOLS
from plangate.spec.transports import Transport
from plangate.spec.vendors import PROVIDER_FIELDS
from pydantic import TypeAdapter
from typer.main import get_command

from app.commands.main import cli
from app.events import Event
from app.settings import Settings
from app.tools.transports.http import ASKS_TO_TRY_AGAIN
from tests.pure.docs.test_pages import LINK, LONGEST, WIDE, headings
from tests.support.guides import (
    A_FRAGMENT,
    ANYTHING,
    FOLDER,
    ROOT,
    Block,
    Page,
    Unknown,
    entry_points,
    matches,
    pages,
    spec_with,
)

PAGES = list(pages())
GUIDES = (
    "runtime",
    "agents",
    "prompts",
    "data",
    "tools",
    "plans",
    "approvals",
    "references",
    "variables",
    "memory",
    "graphs",
    "artifacts",
    "clients",
    "events",
    "work",
)
BLOCKS = [block for page in PAGES for block in page.blocks]
CODE = ("app/**/*.py", "sdk/python/plangate/**/*.py")
MESSAGES = "| what you read |"
NOT_BUILT = re.compile(r"AG-UI")


def of(*roles: str) -> list[Block]:
    return [block for block in BLOCKS if block.role in roles]


def each(*roles: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("block", of(*roles), ids=lambda block: block.place)


each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


# -- the pages


def test_each_concept_has_a_page_in_the_index() -> None:
    assert {page.name for page in PAGES} == {*GUIDES, "README", "console", "tutorial"}
    index = (FOLDER / "README.md").read_text("utf-8")
    assert re.findall(r"^\| \[[^\]]+\]\((\w+)\.md\) \|", index, re.MULTILINE) == list(GUIDES)


@pytest.mark.parametrize("name", GUIDES)
def test_each_concept_has_a_program_and_its_output(name: str) -> None:
    page = Page(FOLDER / f"{name}.md")
    assert page.of("program")
    assert all(example.output.strip() for example in page.examples)


@each_page
def test_an_output_follows_its_program(page: Page) -> None:
    before = [None, *page.blocks]
    for earlier, block in zip(before, page.blocks, strict=False):
        if block.role == "output":
            assert earlier is not None, block.place
            assert earlier.role in ("program", "typescript", "commands"), block.place


@each_page
def test_links_lead_somewhere(page: Page) -> None:
    for target in LINK.findall(page.prose):
        if target.startswith(("https://", "http://")):
            continue
        name, _, anchor = target.partition("#")
        found = (FOLDER / name) if name else page.path
        assert found.exists(), target
        assert not anchor or anchor in headings(found), target


@each_page
def test_lines_are_short(page: Page) -> None:
    outputs = {line for block in page.of("output") for line in block.text.splitlines()}
    long = [line for line in page.text.splitlines() if len(line) > LONGEST and not line.startswith(WIDE)]
    assert not [line for line in long if line not in outputs]


@each_page
def test_no_machine_path_is_named(page: Page) -> None:
    assert not re.search(r"(?<![\w.])/(work|home|root|Users|tmp)/", page.text)


@each_page
def test_named_settings_exist(page: Page) -> None:
    known = {str(f.validation_alias or f"PLANGATE_{n.upper()}") for n, f in Settings.model_fields.items()}
    assert set(re.findall(r"\bPLANGATE_[A-Z_]+\b", page.text)) <= known | {"PLANGATE_URL", "PLANGATE_API_KEY"}


@each_page
def test_named_commands_exist(page: Page) -> None:
    named = set(
        re.findall(
            r"(?<!from )(?<![\w./-])plangate ([a-z]+(?: (?:create|set|list|approve|reject|revise)\b)?)(?=[ `\n])",
            page.text,
        )
    )
    there: set[str] = set()
    for name, command in getattr(get_command(cli), "commands", {}).items():
        there |= {f"{name} {verb}" for verb in getattr(command, "commands", {})} | {name}
    assert named <= there


@each_page
def test_missing_features_are_not_described(page: Page) -> None:
    assert not NOT_BUILT.findall(page.text)


# -- tables


def first_cells(name: str, heading: str) -> list[str]:
    """What stands in backticks in the first column of the table with this heading."""
    rows = (
        Page(FOLDER / f"{name}.md").prose.partition(f"| {heading} |")[2].partition("\n\n")[0].splitlines()[2:]
    )
    return [found for row in rows for found in re.findall("`([^`]+)`", row.split("|")[1])]


def test_the_roles_match_the_code() -> None:
    assert first_cells("agents", "role | needs") == list(ROLE_TOOLS)
    text = Page(FOLDER / "agents.md").prose
    for role, tools in ROLE_TOOLS.items():
        (row,) = re.findall(rf"^\| `{role}` \|.*", text, re.MULTILINE)
        *_, has, remembers, _ = (cell.strip() for cell in row.split("|"))
        assert re.findall("`([^`]+)`", has) == list(tools)
        assert remembers == ("yes" if role in STATEFUL_ROLES else "no")


def test_the_kinds_of_provider_match_the_code() -> None:
    assert set(first_cells("agents", "kind | talks to")) == set(PROVIDER_FIELDS)


def test_the_prompt_layers_match_the_code() -> None:
    assert first_cells("prompts", "in Python") == list(inspect.signature(layered_prompt).parameters)


def test_the_transports_match_the_code() -> None:
    kinds = {
        get_args(model)[0].model_fields["kind"].default
        for model in get_args(get_args(Transport.__value__)[0])
    }
    assert set(first_cells("tools", "transport")) == kinds


def test_the_retryable_responses_match_the_code() -> None:
    asking = ", ".join(map(str, sorted(ASKS_TO_TRY_AGAIN)))
    assert f"\n| {asking}, or 503 with `Retry-After` |" in Page(FOLDER / "tools.md").prose


# -- messages


@cache
def texts() -> str:
    """Every text of the code, what is filled in left out, one after the other."""
    found = []
    for pattern in CODE:
        for file in sorted(ROOT.glob(pattern)):
            tree = ast.parse(file.read_text("utf-8"))
            found += [
                _said(node) for node in ast.walk(tree) if isinstance(node, ast.Constant | ast.JoinedStr)
            ]
    return "\n".join(found)


def _said(node: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "".join(_said(part) if isinstance(part, ast.Constant) else "\0" for part in node.values)


def messages(page: Page) -> list[str]:
    """The first column of a table of messages; `...` stands for what varies."""
    rows = page.prose.partition(MESSAGES)[2].partition("\n\n")[0].splitlines()[2:]
    return [re.fullmatch(r"\| `(.+?)` \|.*", row)[1] for row in rows]  # type: ignore[index]


@pytest.mark.parametrize("name", GUIDES)
def test_the_messages_match_the_code(name: str) -> None:
    quoted = messages(Page(FOLDER / f"{name}.md"))
    assert quoted
    for message in quoted:
        for piece in message.split(ANYTHING):
            assert piece.strip() in texts(), message


@pytest.mark.parametrize("name", GUIDES)
def test_a_page_with_requests_leads_to_them_in_typescript(name: str) -> None:
    page = Page(FOLDER / f"{name}.md")
    if any("curl" in block.text for block in page.blocks):
        assert page.of("typescript") or "(clients.md)" in page.prose


# -- blocks


@each("program", "installed")
def test_a_program_compiles(block: Block) -> None:
    compile(block.text, block.place, "exec", dont_inherit=True)


@each("fragment")
def test_a_fragment_has_the_form_of_its_language(block: Block) -> None:
    assert re.match(A_FRAGMENT + r": \S", block.text), "say what it is a fragment of"
    if block.info == "python":
        compile(block.text, block.place, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    else:
        _is_bash(block)


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash to ask")
@each("commands")
def test_commands_have_the_form_of_commands(block: Block) -> None:
    _is_bash(block)


def _is_bash(block: Block) -> None:
    asked = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False)
    assert asked.returncode == 0, asked.stderr


@each("part")
def test_a_part_of_a_spec_fits_into_one(block: Block) -> None:
    assemble(spec_with(json.loads(block.text)))


@each("tool")
def test_a_tool_fits_into_a_spec(block: Block) -> None:
    assemble(spec_with({"tools": [json.loads(block.text)]}))


@each("event")
def test_events_are_in_the_catalog(block: Block) -> None:
    TypeAdapter(Event).validate_json(block.text)


@each("project")
def test_entry_points_lead_to_functions_on_the_page(block: Block) -> None:
    page = Page(FOLDER / block.page)
    defined = {
        f"{found.file.removesuffix('.py')}:{node.name}"
        for found in page.of("installed")
        if found.file
        for node in ast.parse(found.text).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert set(entry_points(block.text).values()) == defined


def test_the_tutorial_with_a_model_is_a_valid_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Apply the changes of the last step to the files of the page. The test in a browser follows the page without them."""
    tutorial = Page(FOLDER / "tutorial.md")
    for block in tutorial.of("program"):
        assert block.file is not None
        (tmp_path / block.file).write_text(block.text, "utf-8")
    changes = next(block.text for block in tutorial.of("fragment") if "agents.py" in block.text)
    (model,) = re.findall(r"^MODEL = .*$", changes, re.MULTILINE)
    agents = (tmp_path / "agents.py").read_text("utf-8").replace('MODEL = "none"', model)
    assert model in agents
    (tmp_path / "agents.py").write_text(f"{agents}\n{changes}", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    names = runpy.run_path(str(tmp_path / "agents.py"))
    assert names["system"].interpreter is None
    assert {agent.model.provider for agent in names["system"].agents} == {"anthropic"}
    for module in ("tools", "shop"):
        sys.modules.pop(module)


# -- the reader of the pages itself


@pytest.mark.parametrize("block", ["python\nx = 1\n", "json\n{}\n", "\nplain\n", "yaml\na: 1\n"])
def test_an_unchecked_block_is_rejected(block: str, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(f"Text.\n\n```{block}```\n")
    with pytest.raises(Unknown, match=r"page\.md:3"):
        _ = Page(tmp_path / "page.md").blocks


def test_an_unclosed_fence_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("```text\nhello\n")
    with pytest.raises(Unknown, match="not closed"):
        _ = Page(tmp_path / "page.md").blocks


@pytest.mark.parametrize(
    ("said", "expected", "same"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\n", "a\nb\n", False),
        ("rt_1 made\n", "rt_... made\n", True),
        ("rt_1\nmade\n", "rt_... made\n", False),
        ("a\nb\nc\n", "a\n...\nc\n", True),
        ("a\nc\n", "a\n...\nc\n", True),
        ("a\nb\n", "a\n...\nc\n", False),
        ("a.b\n", "a+b\n", False),
        ("", "", True),
        ("a\n", "", False),
    ],
)
def test_printed_output_is_compared(said: str, expected: str, same: bool) -> None:
    assert matches(said, expected) is same
