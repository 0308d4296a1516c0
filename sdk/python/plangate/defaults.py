"""Default address and data directory of the service on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

DEFAULT_PORT: Final = 8700


def default_data_dir() -> Path:
    """Return `$XDG_DATA_HOME/plangate`, else `~/.local/share/plangate`."""
    home = os.environ.get("XDG_DATA_HOME")
    return (Path(home) if home else Path.home() / ".local" / "share") / "plangate"
