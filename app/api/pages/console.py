"""The console at /console: one document for all of its addresses, and the bundle that is built from `console/`.

The bundle is in this package, so an installed service needs no Node. All routes have a Content-Security-Policy without
inline code and other origins; scripts can be created only through Trusted Types.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from html import escape
from pathlib import Path
from typing import Final

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.routing import Route

from app.api.pages.responses import HTML, compressible_response, relative_link, static_response

CONSOLE: Final = "console"
BUNDLE: Final = Path(__file__).parent / "static" / CONSOLE
MEDIA_TYPE_BY_SUFFIX: Final = {".js": "text/javascript", ".css": "text/css", ".txt": "text/plain"}
CONSOLE_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types plangate"
)
HEADERS: Final = {
    "content-security-policy": CONSOLE_POLICY,
    "vary": "accept-encoding",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


@cache
def bundle() -> Mapping[str, Path]:
    """Return the files of the bundle by name. Only these are ever read."""
    return {file.name: file for file in sorted(BUNDLE.iterdir()) if file.suffix in MEDIA_TYPE_BY_SUFFIX}


def console_document(address: str) -> bytes:
    """Return the document for an address such as `console/inbox/apr_1`. Its links are relative, so that they hold below
    any path prefix."""

    def link(target: str) -> str:
        return escape(relative_link(address, target), quote=True)

    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<title>Plangate</title>\n"
        f'<link rel="icon" href="{link("assets/favicon.svg")}">\n'
        f'<link rel="stylesheet" href="{link(f"{CONSOLE}/assets/app.css")}">\n'
        f'<script type="module" src="{link(f"{CONSOLE}/assets/theme.js")}"></script>\n'
        f'<script type="module" src="{link(f"{CONSOLE}/assets/app.js")}"></script>\n'
        '</head>\n<body>\n<div id="console"></div>\n'
        "<noscript>The console needs JavaScript. The API does not: "
        f'<a href="{link("guides")}">guides</a>.</noscript>\n</body>\n</html>\n'
    ).encode()


def install(api: FastAPI) -> None:
    """Add the routes of the console, and the redirect from / to it. They are no operations of the API."""

    def asset(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in bundle():
            raise HTTPException(404)
        return compressible_response(
            request, bundle()[name], MEDIA_TYPE_BY_SUFFIX[Path(name).suffix], HEADERS
        )

    def page(request: Request) -> Response:
        path = request.path_params.get("path")
        address = CONSOLE if path is None else f"{CONSOLE}/{path}"
        return static_response(request, console_document(address), HTML, HEADERS)

    async def home(_request: Request) -> Response:
        return Response(status_code=307, headers={"location": f"/{CONSOLE}"})

    api.router.routes += [
        Route("/", home, include_in_schema=False),
        Route(f"/{CONSOLE}", page, include_in_schema=False),
        Route(f"/{CONSOLE}/assets/{{name}}", asset, include_in_schema=False),
        Route(f"/{CONSOLE}/{{path:path}}", page, include_in_schema=False),
    ]
