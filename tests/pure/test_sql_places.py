"""SQL statements are in stores, and an import contract keeps every store inside its feature."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

STATEMENT = re.compile(
    r"\s*(SELECT\s+[^\s]|INSERT\s+INTO\s|UPDATE\s+\w+(\s+AS\s+\w+)?\s+SET\s|DELETE\s+FROM\s|WITH\s+\w+\s+AS\s|TRUNCATE\s|"
    r"ALTER\s+\w+\s|CREATE\s+(TABLE|ROLE|FUNCTION|DATABASE)\s|GRANT\s|LISTEN\s|NOTIFY\s)"
)
OTHER_PLACES = (
    "app/base/postgres/",  # transactions, sessions, LISTEN and migrations
    "app/base/embedded_postgres/",  # the server before it has a schema
    "app/api/database_startup.py",  # the server, before it is known to have the schema
    "app/catalog/engines/",  # statements for the data sources of tenants
    "app/catalog/source_worker.py",
)


def is_store(path: Path) -> bool:
    return path.stem == "store" or path.stem.endswith("_store")


def literals(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each string of a module; of an f-string, the text before its first value."""
    for node in ast.walk(module):
        if isinstance(node, ast.JoinedStr) and node.values and isinstance(node.values[0], ast.Constant):
            yield node.lineno, str(node.values[0].value)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def test_only_stores_hold_sql_statements() -> None:
    statements = []
    for path in sorted((ROOT / "app").rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if is_store(path) or name.startswith(OTHER_PLACES):
            continue
        for line, text in literals(ast.parse(path.read_text("utf-8"))):
            if STATEMENT.match(text):
                statements.append(f"{name}:{line} {text.strip()[:60]}")
    assert not statements, "move the statement to the store of its feature"


def test_the_import_contract_names_every_store() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (contract,) = [c for c in contracts if c["name"].startswith("A feature's stores")]
    stores = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in (ROOT / "app").rglob("*_store.py")
    }
    assert stores == {name for name in contract["protected_modules"] if "*" not in name}
