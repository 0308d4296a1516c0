"""Rules for every page: links resolve, lines are short, and no machine path is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "PROMISES.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
LONGEST = 110
WIDE = ("|", "<!--")  # rows of tables cannot be broken
PRINTED = ("performance.md", "reference.md")  # by the benchmark, from docstrings


def headings(page: Path) -> set[str]:
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    titles = re.findall(r"^#+ +(.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text("utf-8")):
        if target.startswith(("https://", "http://")):
            continue
        name, _, anchor = target.partition("#")
        found = (page.parent / name) if name else page
        assert found.exists(), target
        assert not anchor or anchor in headings(found), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_are_short(page: Path) -> None:
    lines = [] if page.name in PRINTED else page.read_text("utf-8").splitlines()
    long = [line for line in lines if len(line) > LONGEST and not line.startswith(WIDE)]
    assert not [
        line for line in long if len(line.removeprefix("- ").split()) > 1
    ]  # a single word cannot be broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_machine_path_is_named(page: Path) -> None:
    assert not re.search(r"(?<![\w.])/(work|home|root|Users)/", page.read_text("utf-8"))
