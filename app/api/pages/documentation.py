"""The documentation as it is served: which pages there are, what they are called, and where their links lead.

Every Markdown file below `docs/` is a page, and the README is one. A link between two pages becomes a link between
their addresses. A link to a file that is not served, such as an example, becomes plain text.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path, PurePosixPath
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from mdit_py_plugins.anchors import anchors_plugin

INDEX: Final = "guides"
"""The address of the index, below which all pages are."""
SUFFIX: Final = ".md"
TITLE_BY_SECTION: Final = {
    "guides": "Guides",
    "pages": "Reference and operation",
    "decisions": "Decisions",
}
SUMMARY_CHARS: Final = 200
ADDRESS_BY_PATH: Final = {
    "docs/guides/README.md": INDEX,
    "docs/events.md": f"{INDEX}/event-catalog",  # docs/guides/events.md is /guides/events
}
"""Pages whose address does not follow from their path."""


def root_folder() -> Path:
    """Return the folder of README.md and docs/: the checkout, or its copy inside an installed wheel."""
    app = Path(__file__).resolve().parents[2]
    installed = app / "_documentation"
    return installed if installed.is_dir() else app.parent


def heading_slug(title: str) -> str:
    """Return the anchor of a heading, by the rules that GitHub uses for the same files."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


@cache
def parser() -> MarkdownIt:
    """Return the parser of pages. It passes no HTML through."""
    markdown = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    anchors_plugin(markdown, max_level=6, slug_func=heading_slug)
    markdown.core.ruler.push("alignment", _align_by_class)
    markdown.add_render_rule("html_block", _hide_html)
    markdown.add_render_rule("html_inline", _hide_html)
    return markdown


def _align_by_class(state: StateCore) -> None:
    """Give aligned cells of tables a class: the Content-Security-Policy forbids style attributes."""
    for token in state.tokens:
        if token.type in ("th_open", "td_open") and "style" in token.attrs:
            style = str(token.attrs.pop("style"))
            token.attrSet("class", style.replace("text-align:", "align-"))


def _hide_html(*_: object) -> str:
    """Render nothing in place of HTML: the pages have only comments, which mark what is generated."""
    return ""


@dataclass(frozen=True)
class GuidePage:
    """A page. `path` is its file, relative to the root folder; `address` is its URL path without the slash."""

    path: PurePosixPath
    address: str
    section: str
    source: str

    @cached_property
    def _tokens(self) -> list[Token]:
        return parser().parse(self.source)

    @cached_property
    def title(self) -> str:
        """Return the text of the first heading, or the address if there is none."""
        return next(self._texts("heading_open"), self.address)

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
        """Return the targets of the page's links, as they are written."""
        children = [child for token in self._tokens for child in token.children or ()]
        return [str(child.attrs["href"]) for child in children if child.type == "link_open"]

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
    """All pages of a root folder, by address."""

    def __init__(self, root: Path) -> None:
        files = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
        pages = [
            _load_page(PurePosixPath(file.relative_to(root).as_posix()), file.read_text("utf-8"))
            for file in files
        ]
        self.pages = {page.address: page for page in pages}
        if len(self.pages) != len(files):
            raise ValueError("Two files of the documentation have the same address.")
        self._address_by_path = {str(page.path): page.address for page in pages}

    def section(self, name: str) -> list[GuidePage]:
        """Return the pages of a section: guides in the order of their index, others by address."""
        pages = [page for page in self.pages.values() if page.section == name]
        if name != "guides":
            return pages
        order = [self._target(self.pages[INDEX], link)[0] for link in self.pages[INDEX].links()]
        return sorted(pages, key=lambda page: order.index(page.address) if page.address in order else -1)

    def markdown(self, page: GuidePage) -> str:
        """Return the source of a page, with links that lead to the Markdown of other pages."""
        return self._with_links(page, SUFFIX)

    def html(self, page: GuidePage) -> str:
        """Return the body of a page as HTML, with links that lead to other pages."""
        return str(parser().render(self._with_links(page, "")))

    def index(self, base: str) -> str:
        """Return llms.txt: the title and summary of each page, with a link to its Markdown. `base` is the URL of
        the service with a slash, or empty for relative links."""
        lines = [
            "# Plangate",
            "",
            "> An agent runtime as an HTTP service: typed plans, bound approvals, durable runs.",
            "",
            "Every page below is Markdown. Without `.md`, the same address is HTML.",
            f"The API document is at {base}openapi.json.",
        ]
        for name, title in TITLE_BY_SECTION.items():
            lines += ["", f"## {'Optional' if name == 'decisions' else title}", ""]
            lines += [
                f"- [{page.title}]({base}{page.address}{SUFFIX}): {page.summary}"
                for page in self.section(name)
            ]
        return "\n".join(lines) + "\n"

    def full_text(self, base: str) -> str:
        """Return llms-full.txt: the index, and then the guides and reference pages whole. Decisions are listed only."""
        parts = [self.index(base)]
        for name in ("guides", "pages"):
            for page in self.section(name):
                address = f"{base}{page.address}{SUFFIX}"
                parts.append(f"\n---\n\nPage: {address}\n\n{self._with_links(page, SUFFIX, base=base)}")
        return "".join(parts)

    def _with_links(self, page: GuidePage, suffix: str, *, base: str | None = None) -> str:
        """Return the source with the links of this page replaced. With `base`, they do not depend on the address of
        the page."""
        links = {link: self._target(page, link) for link in page.links()}

        def unlink(found: re.Match[str]) -> str:
            address, _ = links.get(found[2], (None, ""))
            return found[1] if address == "" else found[0]

        def relink(found: re.Match[str]) -> str:
            address, anchor = links.get(found[1], (None, ""))
            if not address:
                return found[0]
            target = address + suffix
            new = relative_link(page.address, target) if base is None else base + target
            return f"]({new}{anchor})"

        return re.sub(r"\]\(([^)\s]+)\)", relink, re.sub(r"\[([^\]]*)\]\(([^)\s]+)\)", unlink, page.source))

    def _target(self, page: GuidePage, link: str) -> tuple[str | None, str]:
        """Return the address that a link leads to, and its anchor. The address is None for a link that stays as it
        is, and empty for a file that is not served."""
        name, hash, anchor = link.partition("#")
        if not name or "://" in name or name.startswith(("/", "mailto:")):
            return None, ""
        path = posixpath.normpath(posixpath.join(page.path.parent, name))
        return self._address_by_path.get(path, ""), hash + anchor


def _load_page(path: PurePosixPath, source: str) -> GuidePage:
    parts = path.parts[1:] if path.parts[0] == "docs" else path.parts
    section = parts[0] if len(parts) > 1 and parts[0] in TITLE_BY_SECTION else "pages"
    below = PurePosixPath(*parts[1:] if section == "guides" else parts).with_suffix("")
    address = ADDRESS_BY_PATH.get(str(path), f"{INDEX}/{below.as_posix().lower()}")
    return GuidePage(path, address, section, source)


def relative_link(origin: str, target: str) -> str:
    """Return the link from one address to another, which holds below any path prefix."""
    folder = posixpath.relpath(posixpath.dirname(target) or ".", posixpath.dirname(origin) or ".")
    return posixpath.normpath(posixpath.join(folder, posixpath.basename(target)))
