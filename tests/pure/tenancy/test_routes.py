"""Routes are built when they are first used."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from fastapi import Response

from app.tenancy.http import GatedRoute


async def read_thing(name: str) -> Response:
    """A thing."""
    return Response(name)


def test_threads_that_use_a_route_at_once_build_it_once() -> None:
    route = GatedRoute("/things/{name}", read_thing)
    assert "dependant" not in vars(route)
    with ThreadPoolExecutor(8) as threads:
        built = list(threads.map(lambda _: route.dependant, range(8)))
    assert all(dependant is built[0] for dependant in built)
    assert [parameter.name for parameter in built[0].path_params] == ["name"]


def test_an_attribute_that_no_route_has_is_an_error() -> None:
    route = GatedRoute("/things/{name}", read_thing)
    with pytest.raises(AttributeError, match="'GatedRoute' object has no attribute 'color'"):
        _ = route.color
