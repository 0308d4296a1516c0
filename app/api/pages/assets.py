"""The assets of pages: styles, scripts and the icon. They come from this package, so pages load nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.routing import Route

from app.api.pages.responses import static_response

STATIC: Final = Path(__file__).parent / "static"
MEDIA_TYPE_BY_SUFFIX: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


SWAGGER_UI: Final = ("swagger-ui-bundle.js", "swagger-ui.css")


@cache
def assets() -> Mapping[str, Traversable]:
    """Return the files of this package and of Swagger UI by name. Only these are ever read."""
    own = {file.name: file for file in STATIC.iterdir() if file.suffix in MEDIA_TYPE_BY_SUFFIX}
    vendor = files("fastapi_swagger") / "resources"
    return {**own, **{name: vendor / name for name in SWAGGER_UI}}


@cache
def read_asset(name: str) -> bytes:
    """Return the bytes of an asset, which are kept. Raise KeyError if there is none of this name."""
    return assets()[name].read_bytes()


def install(api: FastAPI) -> None:
    """Add the route of the assets."""

    def asset(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in assets():
            raise HTTPException(404)
        return static_response(request, read_asset(name), MEDIA_TYPE_BY_SUFFIX[Path(name).suffix])

    api.router.routes.append(Route("/assets/{name}", asset, include_in_schema=False))
