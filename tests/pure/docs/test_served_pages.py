"""The pages that the service serves: every file of docs/, links between them that lead somewhere, and their headers."""

from __future__ import annotations

import posixpath
import re
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath

import httpx
import pytest
import pytest_asyncio

from app.api.http import create_app
from app.api.pages.documentation import Documentation, GuidePage, relative_link
from app.api.pages.responses import prefers_markdown

ROOT = Path(__file__).parents[3]
DOCUMENTATION = Documentation(ROOT)
PAGES = list(DOCUMENTATION.pages.values())
OUTSIDE = ("https://", "http://")

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.address)


class Parts(HTMLParser):
    """The links, anchors and visible text of a document."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.links += [values[name] or "" for name in ("href", "src") if name in values]
        self.ids |= {values["id"] or ""} if "id" in values else set()

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def http() -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(create_app())
    async with httpx.AsyncClient(transport=transport, base_url="http://plangate") as client:
        yield client


def test_every_file_of_the_documentation_is_a_page() -> None:
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")} | {"README.md"}
    assert {str(page.path) for page in PAGES} == files
    assert {"guides", "guides/operations", "guides/tools", "guides/event-catalog"} <= set(DOCUMENTATION.pages)
    assert any(address.startswith("guides/decisions/0001-") for address in DOCUMENTATION.pages)


@each_page
async def test_links_of_a_page_lead_to_pages_and_anchors(page: GuidePage, http: httpx.AsyncClient) -> None:
    response = await http.get(f"/{page.address}")
    assert response.status_code == 200
    assert " style=" not in response.text  # the policy forbids it
    for link in Parts(response.text).links:
        if link.startswith(OUTSIDE):
            continue
        name, _, anchor = link.partition("#")
        address = (
            posixpath.normpath(posixpath.join(posixpath.dirname(page.address), name))
            if name
            else page.address
        )
        if address == "docs":
            continue
        target = await http.get(f"/{address}")
        assert target.status_code == 200, link
        assert not anchor or anchor in Parts(target.text).ids, link


@each_page
async def test_links_of_markdown_lead_to_markdown(page: GuidePage, http: httpx.AsyncClient) -> None:
    response = await http.get(f"/{page.address}.md")
    assert response.headers["content-type"].startswith("text/markdown")
    folder = posixpath.dirname(page.address)
    served = GuidePage(PurePosixPath("x"), page.address, page.section, response.text)
    for link in served.links():
        if not link.startswith((*OUTSIDE, "#")):
            address = posixpath.normpath(posixpath.join(folder, link.partition("#")[0]))
            assert address.endswith(".md"), link
            assert address.removesuffix(".md") in DOCUMENTATION.pages, link


def test_a_link_to_a_file_that_is_not_served_is_text() -> None:
    page = DOCUMENTATION.pages["guides/artifacts"]
    (link,) = re.findall(r"\[([^\]]*)\]\(\.\./\.\./examples/handover\)", page.source)
    for text in (DOCUMENTATION.markdown(page), Parts(DOCUMENTATION.html(page)).text):
        assert link.strip("`") in text
        assert "../examples/handover" not in text


def test_a_new_link_is_not_replaced_again(tmp_path: Path) -> None:
    (tmp_path / "docs/guides").mkdir(parents=True)
    (tmp_path / "README.md").write_text("# Top\n")
    (tmp_path / "docs/guides/README.md").write_text("# Guides\n")
    (tmp_path / "docs/guides/events.md").write_text("# Follow\n")
    (tmp_path / "docs/events.md").write_text("# Events\n")
    (tmp_path / "docs/page.md").write_text(
        "# GuidePage\n\n[a](guides/events.md) [b](events.md#x) [c](missing.md)\n"
    )
    documentation = Documentation(tmp_path)
    text = documentation.markdown(documentation.pages["guides/page"])
    assert "[a](events.md) [b](event-catalog.md#x) c" in text


def test_pages_show_no_comments_and_run_no_html(tmp_path: Path) -> None:
    page = GuidePage(
        PurePosixPath("docs/x.md"),
        "guides/x",
        "pages",
        "# X\n\n<!-- begin -->\n\nA <script>alert(1)</script> `<b>`\n",
    )
    html = DOCUMENTATION.html(page)
    assert "<script" not in html
    assert "begin" not in html
    assert "<code>&lt;b&gt;</code>" in html


def test_cells_of_tables_are_aligned_by_their_class() -> None:
    page = GuidePage(
        PurePosixPath("docs/x.md"), "guides/x", "pages", "| a | b |\n| ---: | --- |\n| 1 | 2 |\n"
    )
    assert '<td class="align-right">1</td>\n<td>2</td>' in DOCUMENTATION.html(page)


@pytest.mark.parametrize(
    ("origin", "target", "link"),
    [
        ("guides", "guides/tools", "guides/tools"),
        ("guides/tools", "guides", "../guides"),
        ("guides/tools", "guides/plans", "plans"),
        ("guides/decisions/0001", "guides/tools", "../tools"),
        ("guides/decisions/0001", "assets/guides.css", "../../assets/guides.css"),
        ("docs", "guides", "guides"),
    ],
)
def test_links_are_relative(origin: str, target: str, link: str) -> None:
    assert relative_link(origin, target) == link


@pytest.mark.parametrize(
    ("accept", "markdown"),
    [
        ("text/markdown", True),
        ("text/markdown, text/html;q=0.9, */*;q=0.1", True),
        ("text/html, text/markdown", True),
        ("text/html,application/xhtml+xml,*/*;q=0.8", False),
        ("*/*", False),
        ("", False),
        ("text/markdown;q=0", False),
        ("text/html, text/markdown;q=0.5", False),
        ("text/markdown;q=x", False),
    ],
)
def test_markdown_is_for_clients_that_name_it(accept: str, markdown: bool) -> None:
    assert prefers_markdown(accept) is markdown


async def test_one_address_is_html_for_people_and_markdown_for_agents(http: httpx.AsyncClient) -> None:
    source = (ROOT / "docs/operations.md").read_text("utf-8")
    html = await http.get("/guides/operations", headers={"accept": "text/html"})
    assert html.headers["content-type"].startswith("text/html")
    assert "<h1" in html.text
    markdown = await http.get("/guides/operations", headers={"accept": "text/markdown"})
    assert markdown.headers["content-type"].startswith("text/markdown")
    assert markdown.text.splitlines()[0] == source.splitlines()[0]
    assert markdown.content == (await http.get("/guides/operations.md")).content
    assert html.headers["vary"] == markdown.headers["vary"] == "accept"


async def test_pages_allow_no_script_and_nothing_from_elsewhere(http: httpx.AsyncClient) -> None:
    response = await http.get("/guides/security")
    policy = dict(
        part.strip().split(" ", 1) for part in response.headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert policy["frame-ancestors"] == "'none'"
    assert "script-src" not in policy
    assert response.headers["x-content-type-options"] == "nosniff"
    parts = Parts(response.text)
    assert "<script" not in response.text
    assert not [link for link in parts.links if link.startswith("//")]


async def test_a_page_that_the_client_has_is_not_sent_again(http: httpx.AsyncClient) -> None:
    first = await http.get("/guides/tools")
    again = await http.get("/guides/tools", headers={"if-none-match": f'"x", W/{first.headers["etag"]}'})
    assert (again.status_code, again.content) == (304, b"")
    assert (await http.get("/guides/tools", headers={"if-none-match": '"x"'})).status_code == 200


@pytest.mark.parametrize(
    "path", ["/guides/none", "/guides/../README", "/guides/%2e%2e/settings", "/assets/none.css"]
)
async def test_unknown_pages_are_not_found(path: str, http: httpx.AsyncClient) -> None:
    response = await http.get(path)
    assert response.status_code == 404
    assert response.json()["type"] == "not_found"


async def test_the_index_of_guides_has_one_address(http: httpx.AsyncClient) -> None:
    response = await http.get("/guides/")
    assert (response.status_code, response.headers["location"]) == (308, "../guides")


async def test_llms_txt_lists_every_page_and_the_full_text_has_the_guides(http: httpx.AsyncClient) -> None:
    listed = await http.get("/llms.txt")
    assert listed.headers["content-type"].startswith("text/plain")
    links = re.findall(r"^- \[[^\]]+\]\(([^)]+)\): \S", listed.text, re.MULTILINE)
    assert sorted(link.removesuffix(".md") for link in links) == sorted(DOCUMENTATION.pages)
    for link in links:
        assert (await http.get(f"/{link}")).status_code == 200
    full = (await http.get("/llms-full.txt")).text
    assert full.startswith(listed.text)
    for page in PAGES:
        assert (f"\nPage: {page.address}.md\n" in full) is (page.section != "decisions")
