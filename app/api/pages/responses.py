"""Responses that a browser shows: their headers, and which representation a client prefers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

from fastapi import Request, Response

MARKDOWN: Final = "text/markdown"
HTML: Final = "text/html"

PAGE_POLICY: Final = (
    "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""The Content-Security-Policy of a page without scripts: it loads its style and icon from the service, nothing else."""

SAFE_HEADERS: Final = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


def static_response(
    request: Request, body: bytes, media_type: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Return bytes that change only with the version of the service, or a 304 if the client has them."""
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    sent = {"etag": tag, "cache-control": "no-cache", **SAFE_HEADERS, **(headers or {})}
    known = [part.strip().removeprefix("W/") for part in request.headers.get("if-none-match", "").split(",")]
    if tag in known or "*" in known:
        return Response(status_code=304, headers=sent)
    return Response(body, headers=sent, media_type=media_type)


def prefers_markdown(accept: str) -> bool:
    """Return whether an Accept header names Markdown, and names HTML with no higher quality."""
    markdown, html = _quality(accept, MARKDOWN), _quality(accept, HTML)
    return markdown > 0 and markdown >= html


def _quality(accept: str, media_type: str) -> float:
    """Return the quality that the header gives to exactly this media type, 0 if it does not name it."""
    for part in accept.split(","):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        if name == media_type:
            given = next((p[2:] for p in parameters if p.startswith("q=")), "1")
            try:
                return float(given)
            except ValueError:
                return 0.0
    return 0.0
