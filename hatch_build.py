"""The build hook of the service: it builds the site of the documentation, which the wheel and the sdist contain.

A package that is built from the sdist has the site already. Then nothing is built, and no generator is needed.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent))

from docsite.freshness import SITE, is_fresh

GENERATORS = ("zensical", "markdown-it-py")
"""The packages of the dependency group `build` that the site needs."""


class SiteHook(BuildHookInterface[Any]):
    """Builds the site if it is missing or older than its sources."""

    def dependencies(self) -> list[str]:
        """Return what must be installed to build the site."""
        if is_fresh():
            return []
        with (Path(self.root) / "pyproject.toml").open("rb") as file:
            group = tomllib.load(file)["dependency-groups"]["build"]
        return [requirement for requirement in group if requirement.startswith(GENERATORS)]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the site, and name it as a part of the package."""
        if not is_fresh():
            from docsite.build import build_if_stale  # noqa: PLC0415 - needs packages that may not be there

            build_if_stale()
        build_data["artifacts"].append(f"/{SITE.relative_to(self.root).as_posix()}/")
