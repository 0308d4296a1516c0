"""structlog without rich: it would load rich and pygments for consoles, which the service does not write to.

They take 4 % of the CPU of a start and 4 MiB. Modules of the service import structlog from here.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import structlog  # noqa: TID251
else:
    _modules: dict[str, Any] = sys.modules
    _is_known = "rich" in _modules
    _rich = _modules.get("rich")
    _modules["rich"] = None  # its import fails, which structlog is prepared for
    try:
        import structlog  # noqa: TID251
    finally:
        if _is_known:
            _modules["rich"] = _rich
        else:
            del _modules["rich"]

__all__ = ["structlog"]
