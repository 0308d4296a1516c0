"""`plangate` on an event loop that measures its callbacks and writes the longest to a file at exit.

python -m tests.storm.measured_service FILE serve ...
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import uvloop

from app.commands.main import main
from tests.support.callbacks import measured_callbacks

if __name__ == "__main__":
    file = Path(sys.argv.pop(1))
    uvloop.new_event_loop = asyncio.new_event_loop  # type: ignore[assignment]
    with measured_callbacks() as callbacks:
        try:
            main()
        finally:
            file.write_text(json.dumps(callbacks.longest))
