"""The rules for paths in a workspace (plangate.workspace.paths), with the errors of the service. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from plangate.workspace import paths
from plangate.workspace.paths import ancestors, skeleton

from app.base.errors import Invalid

__all__ = [
    "PathNotAllowed",
    "ancestors",
    "folder_prefix",
    "normalize",
    "normalize_prefix",
    "path_error",
    "skeleton",
]


class PathNotAllowed(Invalid):
    """The path is not valid in a workspace; its detail says why."""

    kind, title = "path_not_allowed", "The path is not allowed"


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except paths.PathRejected as error:
        raise PathNotAllowed(str(error)) from error


def normalize(path: str) -> str:
    """Return the path as it is stored. Raise PathNotAllowed."""
    with _translated():
        return paths.normalize(path)


def normalize_prefix(prefix: str) -> str:
    """Return the prefix of a listing, "" for everything. Raise PathNotAllowed."""
    with _translated():
        return paths.normalize_prefix(prefix)


def folder_prefix(path: str | None) -> str:
    """Return the prefix of a folder's content, "" for the whole workspace. Raise PathNotAllowed."""
    with _translated():
        return paths.folder_prefix(path)


def path_error(path: str, why: str) -> PathNotAllowed:
    """Return the error for a path that cannot be used."""
    return PathNotAllowed(str(paths.path_error(path, why)))
