"""The MCP SDK is imported when the first session begins, never at startup."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import app.api.http
assert "mcp" not in sys.modules, "the SDK was imported at startup"
import app.tools.transports.mcp.sender, importlib
importlib.import_module(app.tools.transports.mcp.sender.SDK_MODULE)
assert "mcp" in sys.modules
"""


def test_assembly_imports_no_sdk() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
