"""docs/settings.md matches app/settings.py: every setting, its default and its meaning."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic.fields import FieldInfo

from app.settings import Settings

PAGE = (Path(__file__).parents[3] / "docs" / "settings.md").read_text("utf-8")


def row(name: str, field: FieldInfo) -> str:
    variable = str(field.validation_alias or f"PLANGATE_{name.upper()}")
    return f"| `{variable}` | {default(field)} | {field.description} |"


def default(field: FieldInfo) -> str:
    if field.default_factory is not None:
        return "`~/.local/share/plangate`"
    return "none" if field.default in (None, [], {}) else f"`{field.default}`"


def test_the_table_matches_the_settings() -> None:
    table = PAGE.partition("| --- | --- | --- |\n")[2].partition("\n\n")[0]
    assert table.splitlines() == [row(name, field) for name, field in Settings.model_fields.items()]


def test_pages_name_only_existing_settings() -> None:
    root = Path(__file__).parents[3]
    known = {str(f.validation_alias or f"PLANGATE_{n.upper()}") for n, f in Settings.model_fields.items()}
    known |= {"PLANGATE_URL", "PLANGATE_API_KEY", "PLANGATE_CELL_URLS"}  # the library's
    pages = [root / "README.md", root / "PROMISES.md", root / "docker-compose.yml", *root.glob("docs/*.md")]
    named = {name for page in pages for name in re.findall(r"\bPLANGATE_[A-Z_]+\b", page.read_text("utf-8"))}
    assert named <= known
