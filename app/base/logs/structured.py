"""Import structlog without rich, pygments (terminal output) and greenlet, which it loads if they are installed. The service
uses none of them.

They take 4 % of the CPU of a start and 5 MiB. Modules of the service import structlog from here.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

UNUSED: Final = ("rich", "greenlet")

if TYPE_CHECKING:
    import structlog  # noqa: TID251
else:
    _modules: dict[str, Any] = sys.modules
    _known = {name: _modules[name] for name in UNUSED if name in _modules}
    _modules.update(dict.fromkeys(UNUSED))  # their imports fail, which structlog is prepared for
    try:
        import structlog  # noqa: TID251
    finally:
        for _name in UNUSED:
            del _modules[_name]
        _modules.update(_known)

__all__ = ["structlog"]
