"""Where the site is, and whether it matches its sources. This module needs no packages."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
SITE: Final = ROOT / "app" / "api" / "pages" / "static" / "guides"
INPUTS: Final = SITE / "inputs.sha256"
"""The digest of the sources from which the site was built."""
SOURCES: Final = ("README.md", "docs/**/*.md", "docs/images/*", "docsite/**/*", "openapi/openapi.json")


def is_fresh() -> bool:
    """Return whether the site is there and was built from the sources as they are."""
    return INPUTS.exists() and INPUTS.read_text() == sources_digest()


def sources_digest() -> str:
    """Return the digest of everything that the site is built from."""
    hashed = hashlib.sha256()
    for pattern in SOURCES:
        for file in sorted(ROOT.glob(pattern)):
            if file.is_file() and file.suffix != ".pyc":
                name = file.relative_to(ROOT).as_posix().encode()
                hashed.update(name + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return hashed.hexdigest()
