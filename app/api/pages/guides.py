"""The routes of the documentation: /guides, /llms.txt and /llms-full.txt. They need no key.

The site is built from `docs/` by `docsite/` when the package is built. Every page is there as HTML and as Markdown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.routing import Route

from app.api.pages.responses import HTML, MARKDOWN, compressible_response, prefers_markdown, static_response
from app.base.errors import NotFound

GUIDES: Final = "guides"
SITE: Final = Path(__file__).parent / "static" / GUIDES
POLICY: Final = "policy.json"
"""The file of the site with the hashes that its Content-Security-Policy allows."""
MEDIA_TYPE_BY_SUFFIX: Final = {
    ".html": HTML,
    ".md": MARKDOWN,
    ".txt": "text/plain",
    ".css": "text/css",
    ".js": "text/javascript",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}
LINK: Final = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")


@cache
def site() -> Mapping[str, Path]:
    """Return the files of the site by their path. Only these are ever read."""
    files = (file for file in sorted(SITE.rglob("*")) if file.suffix in MEDIA_TYPE_BY_SUFFIX)
    found = {file.relative_to(SITE).as_posix(): file for file in files if file.name != POLICY}
    if not found:
        raise NotFound("The site of the documentation is not built. In a checkout, run: make docs")
    return found


@cache
def site_policy() -> str:
    """Return the Content-Security-Policy of the site. Of inline code, it allows only that of the theme, by hash; the pages
    themselves have none."""
    hashes = json.loads((SITE / POLICY).read_bytes())
    scripts, styles = (
        " ".join(["'self'", *(f"'{hash}'" for hash in hashes[kind])]) for kind in ("scripts", "styles")
    )
    return (
        f"default-src 'none'; script-src {scripts}; style-src {styles}; img-src 'self' data:; connect-src 'self'; "
        "worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def with_absolute_links(markdown: str, base: str) -> str:
    """Return Markdown whose links to files of the site begin with `base`."""

    def relink(match: re.Match[str]) -> str:
        return f"]({base}{match[1]}{match[2] or ''})" if match[1] in site() else match[0]

    return LINK.sub(relink, markdown)


@cache
def read_text(path: str, base: str) -> bytes:
    """Return a Markdown file of the top of the site as it is read from elsewhere, with links that begin with `base`."""
    return with_absolute_links(site()[path].read_text("utf-8"), base).encode()


def _public_base(request: Request) -> str:
    """Return the public address with a slash, or nothing if there is none: links are relative then."""
    context = getattr(request.app.state, "context", None)
    return "" if context is None or context.public_url is None else f"{context.public_url}/"


def install(api: FastAPI) -> None:
    """Add the routes. They are not operations of the API, so the API document does not have them."""

    def page(request: Request) -> Response:
        name = request.path_params["name"] or "index"
        path = name if name in site() else f"{name}.html"
        if path not in site():
            raise HTTPException(404)
        if path.endswith(".html") and prefers_markdown(request.headers.get("accept", "")):
            path = path.removesuffix(".html") + ".md"
        media_type = MEDIA_TYPE_BY_SUFFIX[site()[path].suffix]
        headers = {"content-security-policy": site_policy(), "vary": "accept, accept-encoding"}
        if path.endswith(".png"):
            return static_response(request, site()[path].read_bytes(), media_type, headers)
        return compressible_response(request, site()[path], media_type, headers)

    def index(request: Request) -> Response:
        """Return the index as Markdown, or lead to its HTML, whose links are relative to /guides/."""
        wants_markdown = request.url.path.endswith(".md") or prefers_markdown(
            request.headers.get("accept", "")
        )
        if not wants_markdown:
            return Response(status_code=307, headers={"location": f"{GUIDES}/", "vary": "accept"})
        return static_response(request, read_text("index.md", f"{GUIDES}/"), MARKDOWN, {"vary": "accept"})

    def list_pages(request: Request) -> Response:
        name = request.scope["path"].rpartition("/")[2]
        return static_response(request, read_text(name, f"{_public_base(request)}{GUIDES}/"), "text/plain")

    api.router.routes += [
        Route(f"/{GUIDES}", index, include_in_schema=False),
        Route(f"/{GUIDES}.md", index, include_in_schema=False),
        Route(f"/{GUIDES}/{{name:path}}", page, include_in_schema=False),
        Route("/llms.txt", list_pages, include_in_schema=False),
        Route("/llms-full.txt", list_pages, include_in_schema=False),
    ]
