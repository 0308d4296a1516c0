"""Responses that a browser shows: their headers, and which representation a client prefers."""

from __future__ import annotations

import gzip
import hashlib
import posixpath
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from fastapi import Request, Response

MARKDOWN: Final = "text/markdown"
HTML: Final = "text/html"

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
    all_headers = {"etag": tag, "cache-control": "no-cache", **SAFE_HEADERS, **(headers or {})}
    known = [part.strip().removeprefix("W/") for part in request.headers.get("if-none-match", "").split(",")]
    if tag in known or "*" in known:
        return Response(status_code=304, headers=all_headers)
    return Response(body, headers=all_headers, media_type=media_type)


def compressible_response(
    request: Request, file: Path, media_type: str, headers: Mapping[str, str]
) -> Response:
    """Return a file of the package, compressed if the client can read that. Both forms are kept."""
    body, compressed = _read(file)
    if _accepts_gzip(request):
        return static_response(request, compressed, media_type, {**headers, "content-encoding": "gzip"})
    return static_response(request, body, media_type, headers)


def relative_link(origin: str, target: str) -> str:
    """Return the link from one address to another, which holds below any path prefix."""
    folder = posixpath.relpath(posixpath.dirname(target) or ".", posixpath.dirname(origin) or ".")
    return posixpath.normpath(posixpath.join(folder, posixpath.basename(target)))


@cache
def _read(file: Path) -> tuple[bytes, bytes]:
    body = file.read_bytes()
    return body, gzip.compress(body, 9, mtime=0)


def _accepts_gzip(request: Request) -> bool:
    parts = (part.strip().lower() for part in request.headers.get("accept-encoding", "").split(","))
    return any(part == "gzip" or (part.startswith("gzip;") and not part.endswith("q=0")) for part in parts)


def prefers_markdown(accept: str) -> bool:
    """Return whether an Accept header names Markdown, and names HTML with no higher quality."""
    markdown, html = _quality(accept, MARKDOWN), _quality(accept, HTML)
    return markdown > 0 and markdown >= html


def _quality(accept: str, media_type: str) -> float:
    """Return the quality that the header gives to exactly this media type, 0 if it does not name it."""
    for part in accept.split(","):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        if name == media_type:
            quality = next((p[2:] for p in parameters if p.startswith("q=")), "1")
            try:
                return float(quality)
            except ValueError:
                return 0.0
    return 0.0
