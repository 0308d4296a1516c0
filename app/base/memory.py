"""Memory of this process that the C library holds although nothing uses it."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable


@functools.cache
def _malloc_trim() -> Callable[[int], int] | None:
    """Return the function of glibc; other C libraries have none."""
    found: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return found


def trim_memory() -> None:
    """Give free memory back to the operating system, where the C library can do that. It takes a few
    milliseconds."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)
