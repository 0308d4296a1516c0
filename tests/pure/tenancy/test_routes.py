"""Routes are built when they are first used."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi import Response

from app.tenancy.http import GatedRoute


async def read_thing(name: str) -> Response:
    """A thing."""
    return Response(name)


class SlowRoute(GatedRoute):
    """A route whose build lets other threads run."""

    def get_route_handler(self) -> Callable[..., Any]:
        time.sleep(0.05)
        return super().get_route_handler()


def test_threads_that_use_a_route_at_once_build_it_once() -> None:
    route = SlowRoute("/things/{name}", read_thing)
    assert "app" not in vars(route)
    with ThreadPoolExecutor(8) as threads:
        built = list(threads.map(lambda _: route.app, range(8)))
    assert all(app is built[0] for app in built)
    assert [parameter.name for parameter in route.dependant.path_params] == ["name"]


def test_an_attribute_that_no_route_has_is_an_error() -> None:
    route = GatedRoute("/things/{name}", read_thing)
    with pytest.raises(AttributeError, match="'GatedRoute' object has no attribute 'color'"):
        _ = route.color
