"""Optional packages: modules that work only with an extra of the distribution installed."""

from __future__ import annotations

import importlib
from types import ModuleType

OUR_PACKAGES = ("app", "plangate")


class MissingExtra(Exception):
    """A feature needs a package that is not installed. The message says which, and how to install it."""


def import_with_extra(module: str, extra: str) -> ModuleType:
    """Import `module`, which needs the packages of the extra `extra`. Raise MissingExtra if one of them is missing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in OUR_PACKAGES:
            raise
        raise MissingExtra(
            f"The package {error.name.partition('.')[0]!r} is not installed. "
            f"Install it with: pip install 'plangate-server[{extra}]'"
        ) from error
