"""The pages of the site: which there are, where they are, and where their links lead.

Every Markdown file below `docs/` is a page, and the README is one. The pages of the API reference are generated. A link
to a file that is no page, such as an example, becomes plain text.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path, PurePosixPath
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

INDEX: Final = "index.md"
SUMMARY_CHARS: Final = 200
IMAGES: Final = "images"
SITE_PATH_BY_FILE: Final = {
    "docs/guides/README.md": INDEX,
    "docs/api/README.md": "api/index.md",
    "docs/events.md": "event-catalog.md",  # docs/guides/events.md is events.md
}
"""Pages whose place in the site does not follow from their file."""

SHORT_TITLES: Final = {
    INDEX: "Overview",
    "api/index.md": "Overview",
    "reference.md": "Overview",
    "tutorial.md": "Tutorial",
    "readme.md": "From nothing with curl",
}
"""Titles in the navigation that are not the first heading."""

GUIDES, API, PYTHON, OPERATION, BACKGROUND, DECISIONS = (
    "Guides",
    "HTTP API",
    "Python library",
    "Operation",
    "Background",
    "Decisions",
)
PAGES_BY_SECTION: Final = {
    PYTHON: (
        "reference.md",
        "reference/describing-a-system.md",
        "reference/running-it.md",
        "reference/context-state-files-and-artifacts.md",
    ),
    OPERATION: ("operations.md", "settings.md", "security.md", "telemetry.md", "performance.md"),
    BACKGROUND: ("readme.md", "architecture.md", "event-catalog.md", "lifecycles.md", "problems.md"),
}
"""The order of the pages of these sections. New pages of `docs/` are in the last of them."""
SECTION_BY_FOLDER: Final = {"api": API, "reference": PYTHON, "decisions": DECISIONS}
SECTIONS: Final = (GUIDES, API, PYTHON, OPERATION, BACKGROUND, DECISIONS)


class BrokenPage(ValueError):
    """A page that the site cannot show as it is. The message says which, and what to do."""


@cache
def parser() -> MarkdownIt:
    """Return the parser that finds titles and links."""
    return MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


@dataclass(frozen=True)
class Page:
    """A page. `file` is its source, relative to the root folder; `path` its Markdown, relative to the site."""

    file: PurePosixPath
    path: str
    source: str

    @cached_property
    def _tokens(self) -> list[Token]:
        return parser().parse(self.source)

    @property
    def section(self) -> str:
        """Return the section of the navigation that has the page."""
        folder = self.path.partition("/")[0] if "/" in self.path else ""
        if folder in SECTION_BY_FOLDER:
            return SECTION_BY_FOLDER[folder]
        if self.file.parent == PurePosixPath("docs/guides"):
            return GUIDES
        return next((name for name, paths in PAGES_BY_SECTION.items() if self.path in paths), BACKGROUND)

    @cached_property
    def title(self) -> str:
        """Return the text of the first heading, or the path if there is none."""
        return next(self._texts("heading_open"), self.path)

    @property
    def short_title(self) -> str:
        """Return the title in the navigation."""
        return SHORT_TITLES.get(self.path, self.title)

    @cached_property
    def summary(self) -> str:
        """Return the first sentences of the page, as plain text on one line."""
        text = next(self._texts("paragraph_open"), "")
        if len(text) <= SUMMARY_CHARS:
            return text
        short = text[:SUMMARY_CHARS]
        end = short.rfind(". ")
        return short[: end + 1] if end > 0 else short.rsplit(" ", 1)[0] + " …"

    def links(self) -> list[str]:
        """Return the targets of the page's links and pictures, as they are written."""
        children = [child for token in self._tokens for child in token.children or ()]
        targets = [child.attrs.get("href") or child.attrs.get("src") for child in children]
        return [str(target) for target in targets if target is not None]

    def html(self) -> list[str]:
        """Return the pieces of HTML in the page that are not comments."""
        tokens = [part for token in self._tokens for part in (token, *(token.children or ()))]
        pieces = [part.content.strip() for part in tokens if part.type in ("html_block", "html_inline")]
        return [piece for piece in pieces if not piece.startswith("<!--")]

    def _texts(self, opening: str) -> Iterator[str]:
        for token, content in zip(self._tokens, self._tokens[1:], strict=False):
            if token.type == opening and token.level == 0:
                parts = content.children or ()
                yield " ".join("".join(_plain(part) for part in parts).split())


def _plain(token: Token) -> str:
    if token.type in ("softbreak", "hardbreak"):
        return " "
    return token.content if token.type in ("text", "code_inline") else ""


class Documentation:
    """All pages of a root folder, by path. `generated` has the text of further pages, by their file below `docs/`.

    Raises:
        BrokenPage: if two files have the same place in the site, or a page has HTML.
    """

    def __init__(self, root: Path, generated: Mapping[str, str] | None = None) -> None:
        self.root = root
        files = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
        texts = {file.relative_to(root).as_posix(): file.read_text("utf-8") for file in files}
        texts |= generated or {}
        self.pages: dict[str, Page] = {}
        for name, text in texts.items():
            page = Page(PurePosixPath(name), _site_path(PurePosixPath(name)), text)
            if page.path in self.pages:
                raise BrokenPage(f"{name} and {self.pages[page.path].file} have the same place: {page.path}.")
            if pieces := page.html():
                raise BrokenPage(f"{name} has HTML, which the site does not pass on: {pieces[0]}")
            self.pages[page.path] = page
        self._path_by_file = {str(page.file): page.path for page in self.pages.values()}

    def section(self, name: str) -> list[Page]:
        """Return the pages of a section: guides in the order of their index, API pages as they are generated, others by
        path."""
        pages = [page for page in self.pages.values() if page.section == name]
        order = list(PAGES_BY_SECTION.get(name, ()))
        if name == API:
            return pages
        if name == GUIDES:
            index = self.pages[INDEX]
            order = [INDEX, *(self._target(index, link)[0] or "" for link in index.links())]
        return sorted(pages, key=lambda page: (_position(order, page.path), page.path))

    def markdown(self, page: Page) -> str:
        """Return the source of a page, with links that lead to the Markdown of other pages of the site."""
        return self._with_links(page, posixpath.dirname(page.path))

    def index(self) -> str:
        """Return llms.txt: the title and summary of each page, with a link to its Markdown."""
        lines = [
            "# Plangate",
            "",
            "> An agent runtime as an HTTP service: typed plans, bound approvals, durable runs.",
            "",
            "Every page below is Markdown. Without `.md`, the same address is HTML.",
            "The API document is at /openapi.json of the service.",
        ]
        for name in SECTIONS:
            lines += ["", f"## {'Optional' if name == DECISIONS else name}", ""]
            lines += [f"- [{page.title}]({page.path}): {page.summary}" for page in self.section(name)]
        return "\n".join(lines) + "\n"

    def full_text(self) -> str:
        """Return llms-full.txt: the index, and then the pages whole. Decisions and the HTTP API are listed only."""
        parts = [self.index()]
        for page in (
            page for name in SECTIONS if name not in (API, DECISIONS) for page in self.section(name)
        ):
            parts.append(f"\n---\n\nPage: [{page.path}]({page.path})\n\n{self._with_links(page, '')}")
        return "".join(parts)

    def missing_targets(self) -> list[str]:
        """Return the links that lead to no file, as `page: link`. Those between pages are checked by the generator."""
        return [
            f"{page.file}: {link}"
            for page in self.pages.values()
            for link in page.links()
            if self._target(page, link)[0] == "" and not (self.root / _file(page, link)).exists()
        ]

    def _with_links(self, page: Page, folder: str) -> str:
        """Return the source with the links of this page replaced, relative to a folder of the site."""
        links = {link: self._target(page, link) for link in page.links()}

        def unlink(match: re.Match[str]) -> str:
            path, _ = links.get(match[2], (None, ""))
            return match[1] if path == "" else match[0]

        def relink(match: re.Match[str]) -> str:
            path, anchor = links.get(match[1], (None, ""))
            return f"]({posixpath.relpath(path, folder or '.')}{anchor})" if path else match[0]

        return re.sub(r"\]\(([^)\s]+)\)", relink, re.sub(r"\[([^\]]*)\]\(([^)\s]+)\)", unlink, page.source))

    def _target(self, page: Page, link: str) -> tuple[str | None, str]:
        """Return the path in the site that a link leads to, and its anchor. The path is None for a link that stays as it
        is, and empty for a file that is no page."""
        name, hash, anchor = link.partition("#")
        if not name or "://" in name or name.startswith(("/", "mailto:")):
            return None, ""
        file = _file(page, link)
        if PurePosixPath(file).parent == PurePosixPath("docs", IMAGES):
            return f"{IMAGES}/{PurePosixPath(file).name}", ""
        return self._path_by_file.get(file, ""), hash + anchor


def _file(page: Page, link: str) -> str:
    return posixpath.normpath(posixpath.join(page.file.parent, link.partition("#")[0]))


def _site_path(file: PurePosixPath) -> str:
    parts = file.parts[1:] if file.parts[0] == "docs" else file.parts
    below = PurePosixPath(*parts[1:] if parts[0] == "guides" else parts)
    return SITE_PATH_BY_FILE.get(str(file), below.as_posix().lower())


def _position(order: list[str], path: str) -> int:
    return order.index(path) if path in order else len(order)
