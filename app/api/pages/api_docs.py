"""The page of the API document at /docs: Swagger UI with assets of the service, and a form to start a session.

The assets are those of Swagger UI's own release, which the package `fastapi-swagger` contains. Its code is not used:
the page that it makes has inline scripts, which the Content-Security-Policy forbids.
"""

from __future__ import annotations

from typing import Final

from fastapi import FastAPI, Request, Response
from starlette.routing import Route

from app.api.pages.responses import HTML, static_response

SCRIPT_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Styles may be inline because Swagger UI sets them on its elements; scripts come from this service only."""

DOCUMENT: Final = b"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>API \xc2\xb7 Plangate</title>
<link rel="icon" href="assets/favicon.svg">
<link rel="stylesheet" href="assets/swagger-ui.css">
<link rel="stylesheet" href="assets/docs.css">
<script defer src="assets/swagger-ui-bundle.js"></script>
<script defer src="assets/docs.js"></script>
</head>
<body>
<header>
<p><a href="guides">Guides</a> \xc2\xb7 <a href="openapi.json">openapi.json</a> \xc2\xb7 <a href="llms.txt">llms.txt</a></p>
<form id="sign-in" hidden>
<label>API key <input name="key" type="password" autocomplete="off" required></label>
<label>Tenant <input name="tenant" autocomplete="off" placeholder="the key's"></label>
<label>Principal <input name="principal" autocomplete="off" placeholder="the key's"></label>
<button>Sign in</button>
</form>
<p id="session" role="status"></p>
<button id="sign-out" type="button" hidden>Sign out</button>
</header>
<main id="swagger-ui"><noscript>This page needs JavaScript. <a href="openapi.json">openapi.json</a> does not.</noscript></main>
</body>
</html>
"""


def install(api: FastAPI) -> None:
    """Add the page."""

    async def docs(request: Request) -> Response:
        return static_response(request, DOCUMENT, HTML, {"content-security-policy": SCRIPT_POLICY})

    api.router.routes.append(Route("/docs", docs, include_in_schema=False))
