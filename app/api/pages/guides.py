"""The routes of the documentation: /guides, /llms.txt and /llms-full.txt. They need no key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from html import escape
from pathlib import Path
from typing import Final

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.routing import Route

from app.api.pages.documentation import (
    INDEX,
    SUFFIX,
    TITLE_BY_SECTION,
    Documentation,
    GuidePage,
    relative_link,
    root_folder,
)
from app.api.pages.responses import HTML, MARKDOWN, PAGE_POLICY, prefers_markdown, static_response

PAGE_HEADERS: Final = {"content-security-policy": PAGE_POLICY, "vary": "accept"}
TEXT: Final = "text/plain"


class Guides:
    """The pages as bytes. Each is rendered at its first request, and kept."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._load: Callable[[], Documentation] = cache(lambda: Documentation(self._root))
        self._bytes: dict[tuple[str, str], bytes] = {}  # by address and media type
        self._lists: dict[tuple[str, str], bytes] = {}  # by name and base URL

    async def page(self, address: str, media_type: str) -> bytes | None:
        """Return a page as HTML or Markdown, or None if there is no such page."""
        body = self._bytes.get((address, media_type))
        return body or await asyncio.to_thread(self._render, address, media_type)

    async def list_pages(self, name: str, base: str) -> bytes:
        """Return llms.txt or llms-full.txt."""
        if (name, base) in self._lists:
            return self._lists[name, base]
        return await asyncio.to_thread(self._render_list, name, base)

    def _render(self, address: str, media_type: str) -> bytes | None:
        documentation = self._load()
        page = documentation.pages.get(address)
        if page is None:
            return None
        markdown = media_type == MARKDOWN
        text = documentation.markdown(page) if markdown else html_document(documentation, page)
        return self._bytes.setdefault((address, media_type), text.encode())

    def _render_list(self, name: str, base: str) -> bytes:
        documentation = self._load()
        text = documentation.index(base) if name == "llms.txt" else documentation.full_text(base)
        return self._lists.setdefault((name, base), text.encode())


def html_document(documentation: Documentation, page: GuidePage) -> str:
    """Return a page as a document, with a list of all pages. All its links are relative."""

    def link(target: str) -> str:
        return escape(relative_link(page.address, target), quote=True)

    lists = []
    for name, title in TITLE_BY_SECTION.items():
        entries = "".join(
            f'<li><a href="{link(other.address)}"{current}>{escape(other.title)}</a></li>'
            for other in documentation.section(name)
            for current in (' aria-current="page"' if other is page else "",)
        )
        is_open = " open" if name != "decisions" or page.section == "decisions" else ""
        lists.append(f"<details{is_open}><summary>{title}</summary><ul>{entries}</ul></details>")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(page.title)} · Plangate</title>\n"
        f'<link rel="icon" href="{link("assets/favicon.svg")}">\n'
        f'<link rel="stylesheet" href="{link("assets/guides.css")}">\n'
        f'<link rel="alternate" type="{MARKDOWN}" href="{link(page.address + SUFFIX)}">\n'
        "</head>\n<body>\n"
        f'<nav><p><a href="{link(INDEX)}">Plangate</a> · <a href="{link("docs")}">API</a></p>{"".join(lists)}</nav>\n'
        f"<main>\n{documentation.html(page)}</main>\n</body>\n</html>\n"
    )


def _base(request: Request) -> str:
    """Return the public address with a slash, or nothing if there is none: links are relative then."""
    context = getattr(request.app.state, "door", None)
    return "" if context is None or context.public_url is None else f"{context.public_url}/"


def install(api: FastAPI) -> None:
    """Add the routes. They are not operations of the API, so the API document does not have them."""
    guides = Guides(root_folder())

    async def page(request: Request) -> Response:
        name = request.path_params.get("name", "")
        address = f"{INDEX}/{name}" if name else INDEX
        media_type = MARKDOWN if prefers_markdown(request.headers.get("accept", "")) else HTML
        if address.endswith(SUFFIX):
            address, media_type = address.removesuffix(SUFFIX), MARKDOWN
        body = await guides.page(address, media_type)
        if body is None:
            raise HTTPException(404)
        return static_response(request, body, media_type, PAGE_HEADERS)

    async def index_markdown(request: Request) -> Response:
        body = await guides.page(INDEX, MARKDOWN)
        assert body is not None
        return static_response(request, body, MARKDOWN, PAGE_HEADERS)

    async def index_with_slash(_request: Request) -> Response:
        return Response(status_code=308, headers={"location": f"../{INDEX}"})

    async def list_pages(request: Request) -> Response:
        name = request.scope["path"].rpartition("/")[2]
        return static_response(request, await guides.list_pages(name, _base(request)), TEXT)

    api.router.routes += [
        Route(f"/{INDEX}", page, include_in_schema=False),
        Route(f"/{INDEX}{SUFFIX}", index_markdown, include_in_schema=False),
        Route(f"/{INDEX}/", index_with_slash, include_in_schema=False),
        Route(f"/{INDEX}/{{name:path}}", page, include_in_schema=False),
        Route("/llms.txt", list_pages, include_in_schema=False),
        Route("/llms-full.txt", list_pages, include_in_schema=False),
    ]
