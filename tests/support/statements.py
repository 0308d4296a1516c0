"""The SQL of the service as text: named statements of the stores, and functions of the database."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SQL = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH|\(\s*SELECT)\b")
NAMED = re.compile(r"^[A-Z_]+(: \w+)? = f?\"+\s*\(?(SELECT|INSERT|UPDATE|DELETE|WITH)\b", re.M)
TABLE = re.compile(r"^CREATE TABLE (\w+) \((.*?)^\)", re.M | re.S)


@dataclass(frozen=True, slots=True)
class Statement:
    """A named statement: `app/plans/store.py:JOIN`, or `claim_queries` for a function, and its text without comments."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class TableUse:
    """A table in a statement, and the name by which the statement calls it. `verb` is FROM, JOIN, USING, UPDATE, INTO
    or DELETE FROM."""

    verb: str
    table: str
    alias: str


def tenant_tables() -> set[str]:
    """Return the tables that have a tenant_id."""
    texts = [file.read_text("utf-8") for file in sorted((ROOT / "migrations/tables").glob("*.sql"))]
    return {name for text in texts for name, columns in TABLE.findall(text) if "tenant_id" in columns}


def named_statements() -> Iterator[Statement]:
    """Yield every statement that a module of the service names."""
    for file in sorted((ROOT / "app").rglob("*.py")):
        if NAMED.search(file.read_text("utf-8")):
            path = file.relative_to(ROOT)
            module = importlib.import_module(".".join(path.with_suffix("").parts))
            for name, value in vars(module).items():
                if name.isupper() and isinstance(value, str) and SQL.match(value):
                    yield Statement(f"{path}:{name}", value)


def functions() -> Iterator[Statement]:
    """Yield the functions of the database."""
    for file in sorted((ROOT / "migrations/functions").glob("*.sql")):
        text = "\n".join(line.split("--")[0] for line in file.read_text("utf-8").splitlines())
        yield Statement(file.stem, text.split("$$")[1])


def table_uses(text: str, tables: set[str]) -> Iterator[TableUse]:
    """Yield each use of one of these tables."""
    words = "|".join(sorted(tables))
    found = re.finditer(
        rf"\b(DELETE\s+FROM|FROM|JOIN|USING|UPDATE|INTO|,)\s+({words})\b(?!\s+FROM)(?:\s+(?:AS\s+)?(?!(?:WHERE|SET|ON|JOIN|LEFT|ORDER|LIMIT|FOR|GROUP"
        rf"|USING|RETURNING|CROSS|FROM|UNION|DEFAULT|VALUES|SELECT|AND|IN)\b)(\w+))?",
        text,
    )
    for use in found:
        yield TableUse(re.sub(r"\s+", " ", use[1]), use[2], use[3] or use[2])
