"""The script `plangate`. It says which extra to install where the packages of the command line are missing."""

from __future__ import annotations

import importlib
import importlib.util


def main() -> None:
    """Run the command line. Exit with a message if the extra `cli` is not installed."""
    missing = [name for name in ("rich", "typer") if importlib.util.find_spec(name) is None]
    if missing:
        raise SystemExit(f"plangate: {' and '.join(missing)} not installed. Run: pip install 'plangate[cli]'")
    importlib.import_module("plangate.cli.main").main()
