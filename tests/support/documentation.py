"""The documentation, loaded once for all tests of its pages: every process that runs tests parametrizes them by page."""

from __future__ import annotations

from docsite.build import load_documentation

DOCUMENTATION = load_documentation()
PAGES = list(DOCUMENTATION.pages.values())
