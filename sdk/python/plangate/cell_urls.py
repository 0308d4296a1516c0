"""The addresses of cells: the only ones to which a client sends its key when the service names another cell."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

VARIABLE: Final = "PLANGATE_CELL_URLS"


def parse_cell_urls(value: Mapping[str, str] | None) -> dict[str, str]:
    """Return the addresses of cells by name; without a value those of PLANGATE_CELL_URLS, such as
    `eu1=https://eu1.example.com,eu2=https://eu2.example.com`. Raise TypeError or ValueError."""
    if value is None:
        pairs = [
            pair.strip().partition("=") for pair in os.environ.get(VARIABLE, "").split(",") if pair.strip()
        ]
        value = {name.strip(): url.strip() for name, _, url in pairs}
    if not isinstance(value, Mapping):
        raise TypeError(f"cell_urls maps the names of cells to addresses, not {type(value).__name__}")
    for name, url in value.items():
        if not isinstance(name, str) or not name or not _is_address(url):
            raise ValueError(
                f"cell_urls, or {VARIABLE}, has names of cells and addresses such as eu1=https://eu1.example.com, not "
                f"{name!r}={url!r}"
            )
    return dict(value)


def _is_address(url: Any) -> bool:
    try:
        parts = urlsplit(url)
        return (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and parts.port != 0
            and "@" not in parts.netloc
        )
    except (ValueError, AttributeError, TypeError):
        return False
