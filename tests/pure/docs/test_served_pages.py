"""The site of the documentation as the service serves it: addresses, links, Markdown, headers."""

from __future__ import annotations

import posixpath
import re
from collections.abc import AsyncIterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from app.api.http import create_app
from app.api.pages.guides import site, site_policy
from app.api.pages.responses import prefers_markdown, relative_link
from docsite.build import build_if_stale
from docsite.pages import API, DECISIONS, Page
from tests.support.documentation import PAGES
from tests.support.guides import ROOT

ELSEWHERE = ("https://", "http://")

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)


class Parts(HTMLParser):
    """The links, anchors and visible text of a document."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.links += [values[name] or "" for name in ("href", "src") if name in values]
        self.ids |= {values["id"] or ""} if "id" in values else set()


@pytest.fixture(scope="module", autouse=True)
def _built() -> None:
    build_if_stale()
    site.cache_clear()
    site_policy.cache_clear()


@cache
def parts(path: str) -> Parts:
    return Parts(site()[path].read_text("utf-8"))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def http() -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(create_app())
    async with httpx.AsyncClient(transport=transport, base_url="http://plangate") as client:
        yield client


def directives(response: httpx.Response) -> dict[str, set[str]]:
    policy = response.headers["content-security-policy"]
    named = (part.strip().split(" ") for part in policy.split(";"))
    return {name: set(values) for name, *values in named}


@each_page
def test_links_of_a_page_lead_to_pages_and_anchors(page: Page) -> None:
    path = page.path.removesuffix(".md") + ".html"
    for link in parts(path).links:
        if link.startswith(ELSEWHERE):
            continue
        name, _, anchor = link.partition("#")
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), name)) if name else path
        target = "index.html" if target == "." else target
        assert target in site(), link
        assert not anchor or anchor in parts(target).ids, link


@each_page
async def test_links_of_markdown_lead_to_markdown(page: Page, http: httpx.AsyncClient) -> None:
    response = await http.get(f"/guides/{page.path}")
    assert response.headers["content-type"].startswith("text/markdown")
    served = Page(page.file, page.path, response.text)
    for link in served.links():
        if not link.startswith((*ELSEWHERE, "#", "/")):
            target = posixpath.join(posixpath.dirname(page.path), link.partition("#")[0])
            assert posixpath.normpath(target) in site(), link
            assert target.endswith((".md", ".png", ".svg")), link


async def test_one_address_is_html_for_people_and_markdown_for_agents(http: httpx.AsyncClient) -> None:
    source = (ROOT / "docs/operations.md").read_text("utf-8")
    html = await http.get("/guides/operations", headers={"accept": "text/html"})
    assert html.headers["content-type"].startswith("text/html")
    assert "<h1" in html.text
    assert html.content == (await http.get("/guides/operations.html")).content
    markdown = await http.get("/guides/operations", headers={"accept": "text/markdown"})
    assert markdown.headers["content-type"].startswith("text/markdown")
    assert markdown.text.splitlines()[0] == source.splitlines()[0]
    assert markdown.content == (await http.get("/guides/operations.md")).content
    assert "accept" in html.headers["vary"]
    assert "accept" in markdown.headers["vary"]


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


async def test_the_policy_allows_the_code_of_the_theme_by_hash_and_nothing_inline(
    http: httpx.AsyncClient,
) -> None:
    page = await http.get("/guides/security")
    policy = directives(page)
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == {"'none'"}
    assert policy["frame-ancestors"] == {"'none'"}
    assert policy["connect-src"] == policy["worker-src"] == {"'self'"}
    for name in ("script-src", "style-src"):
        assert {value for value in policy[name] if not value.startswith("'sha256-")} == {"'self'"}
    assert page.headers["x-content-type-options"] == "nosniff"
    assert not [link for link in Parts(page.text).links if link.startswith("//")]


@pytest.mark.parametrize("path", ["/docs", "/console", "/console/assets/app.js"])
async def test_no_other_path_allows_inline_code_by_hash(path: str, http: httpx.AsyncClient) -> None:
    policy = directives(await http.get(path))
    assert policy["script-src"] == {"'self'"}
    assert policy["style-src"] == {"'self'"}


async def test_a_cached_page_is_not_sent_again(http: httpx.AsyncClient) -> None:
    first = await http.get("/guides/tools")
    assert first.headers["content-encoding"] == "gzip"
    again = await http.get("/guides/tools", headers={"if-none-match": f'"x", W/{first.headers["etag"]}'})
    assert (again.status_code, again.content) == (304, b"")
    assert (await http.get("/guides/tools", headers={"if-none-match": '"x"'})).status_code == 200
    plain = await http.get("/guides/tools", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.content == first.content


@pytest.mark.parametrize(
    "path",
    [
        "/guides/none",
        "/guides/none.md",
        "/guides/../README",
        "/guides/%2e%2e/favicon.svg",
        "/guides/policy.json",
        "/guides/inputs.sha256",
        "/assets/none.css",
    ],
)
async def test_unknown_pages_are_not_found(path: str, http: httpx.AsyncClient) -> None:
    response = await http.get(path)
    assert response.status_code == 404
    assert response.json()["type"] == "not_found"


async def test_a_checkout_without_the_site_says_how_to_build_it(
    http: httpx.AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.api.pages.guides.SITE", tmp_path)
    site.cache_clear()
    try:
        response = await http.get("/guides/tools")
    finally:
        site.cache_clear()
    assert response.status_code == 404
    assert "make docs" in response.json()["detail"]


async def test_the_index_is_below_a_slash_so_that_its_links_hold(http: httpx.AsyncClient) -> None:
    response = await http.get("/guides")
    assert (response.status_code, response.headers["location"]) == (307, "guides/")
    html = await http.get("/guides/")
    assert "tutorial.html" in Parts(html.text).links
    for markdown in (
        await http.get("/guides", headers={"accept": "text/markdown"}),
        await http.get("/guides.md"),
    ):
        assert "](guides/tutorial.md)" in markdown.text


async def test_llms_txt_lists_every_page_and_the_full_text_has_the_guides(http: httpx.AsyncClient) -> None:
    listed = await http.get("/llms.txt")
    assert listed.headers["content-type"].startswith("text/plain")
    links = re.findall(r"^- \[[^\]]+\]\(([^)]+)\): \S", listed.text, re.MULTILINE)
    assert sorted(links) == sorted(f"guides/{page.path}" for page in PAGES)
    for link in links:
        assert (await http.get(f"/{link}")).status_code == 200
    full = (await http.get("/llms-full.txt")).text
    assert full.startswith(listed.text)
    for page in PAGES:
        assert (f"\nPage: [{page.path}](guides/{page.path})\n" in full) is (
            page.section not in (API, DECISIONS)
        )


@pytest.mark.parametrize(
    ("origin", "target", "link"),
    [
        ("console", "console/assets/app.js", "console/assets/app.js"),
        ("console/inbox/apr_1", "assets/favicon.svg", "../../assets/favicon.svg"),
        ("console/queries", "guides", "../guides"),
    ],
)
def test_links_of_the_console_are_relative(origin: str, target: str, link: str) -> None:
    assert relative_link(origin, target) == link
