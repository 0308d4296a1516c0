"""The assets of pages: styles, scripts and the icon. They come from this package, so pages load nothing from elsewhere."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.routing import Route

from app.api.pages.responses import static_response

STATIC: Final = Path(__file__).parent / "static"
MEDIA_TYPE_BY_SUFFIX: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@cache
def read_asset(name: str) -> bytes | None:
    """Return the bytes of an asset, or None if there is none of this name. Only a fixed set of names is ever read."""
    return ASSETS[name].read_bytes() if name in ASSETS else None


def _own_assets() -> dict[str, Path]:
    return {file.name: file for file in STATIC.iterdir() if file.suffix in MEDIA_TYPE_BY_SUFFIX}


ASSETS: Final = _own_assets()


def install(api: FastAPI) -> None:
    """Add the route of the assets."""

    def asset(request: Request) -> Response:
        name = request.path_params["name"]
        body = read_asset(name) if name in ASSETS else None
        if body is None:
            raise HTTPException(404)
        return static_response(request, body, MEDIA_TYPE_BY_SUFFIX[ASSETS[name].suffix])

    api.router.routes.append(Route("/assets/{name}", asset, include_in_schema=False))
