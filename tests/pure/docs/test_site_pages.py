"""The pages of the site: which there are, how their links change, and that the generator shows what they say."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from docsite.build import build_if_stale
from docsite.freshness import SITE
from docsite.pages import BrokenPage, Documentation, Page
from tests.support.documentation import DOCUMENTATION, PAGES
from tests.support.guides import ROOT

COMMONMARK = MarkdownIt("commonmark").enable(["table", "strikethrough"])
ARTICLE = re.compile(r"<article.*?</article>", re.DOTALL)
ADDED = re.compile(r'<a class="headerlink".*?</a>|<div class="tabbed-labels">.*?</div>', re.DOTALL)
"""What the site adds to a page: links to headings, and the names of languages above programs in several."""
BLOCKS = ("h1", "h2", "h3", "h4", "li", "ul", "ol", "table", "tr", "td", "th", "pre", "img", "em", "strong")


class Content(HTMLParser):
    """The text of a document without space, and how many blocks of each kind it has."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text = ""
        self.blocks: Counter[str] = Counter()
        self.feed(html)
        self.text = "".join(self.text.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.blocks[tag] += tag in BLOCKS

    def handle_data(self, data: str) -> None:
        self.text += data


def project(at: Path, **pages: str) -> Path:
    """Write pages of a small documentation. Underscores in names stand for slashes."""
    (at / "docs/guides").mkdir(parents=True)
    for name, text in {"README": "# Top\n", "docs_guides_README": "# Guides\n", **pages}.items():
        (at / f"{name.replace('_', '/')}.md").write_text(text)
    return at


def test_every_file_of_the_documentation_is_a_page() -> None:
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")} | {"README.md"}
    assert {str(page.file) for page in PAGES} >= files
    assert {"index.md", "operations.md", "tools.md", "event-catalog.md"} <= set(DOCUMENTATION.pages)
    assert any(path.startswith("decisions/0001-") for path in DOCUMENTATION.pages)


def test_links_lead_to_files_that_exist() -> None:
    assert DOCUMENTATION.missing_targets() == []


def test_a_link_to_a_missing_file_is_reported(tmp_path: Path) -> None:
    root = project(tmp_path, docs_page="# Page\n\n[a](../missing.py) [b](../README.md)\n")
    assert Documentation(root).missing_targets() == ["docs/page.md: ../missing.py"]


def test_a_link_to_a_file_that_is_no_page_is_text() -> None:
    page = DOCUMENTATION.pages["artifacts.md"]
    (link,) = re.findall(r"\[([^\]]*)\]\(\.\./\.\./examples/handover\)", page.source)
    text = DOCUMENTATION.markdown(page)
    assert link in text
    assert "../examples/handover" not in text


def test_a_new_link_is_not_replaced_again(tmp_path: Path) -> None:
    root = project(
        tmp_path,
        docs_guides_events="# Follow\n",
        docs_events="# Events\n",
        docs_page="# Page\n\n[a](guides/events.md) [b](events.md#x) [c](missing.md)\n",
    )
    documentation = Documentation(root)
    text = documentation.markdown(documentation.pages["page.md"])
    assert "[a](events.md) [b](event-catalog.md#x) c" in text


def test_a_page_with_html_is_rejected(tmp_path: Path) -> None:
    comment = "# X\n\n<!-- begin -->\n\n`<b>`\n"
    assert Documentation(project(tmp_path / "a", docs_x=comment)).pages["x.md"].source == comment
    with pytest.raises(BrokenPage, match=r"docs/x\.md has HTML"):
        Documentation(project(tmp_path / "b", docs_x="# X\n\nA <script>alert(1)</script>\n"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)
def test_the_site_shows_what_the_markdown_says(page: Page) -> None:
    """The generator reads another dialect than GitHub, where the same files are read."""
    build_if_stale()
    html = (SITE / page.path).with_suffix(".html").read_text("utf-8")
    article = ARTICLE.search(html)
    assert article is not None
    shown = Content(ADDED.sub("", article[0]))
    written = Content(COMMONMARK.render(re.sub("<!--.*?-->", "", page.source, flags=re.DOTALL)))
    assert shown.blocks == written.blocks
    assert shown.text == written.text
