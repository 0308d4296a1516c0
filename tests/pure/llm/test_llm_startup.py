"""Vendor SDKs are imported when needed, never at startup."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from app.llm.registry import build_provider
for kind in ("scripted", "mock", "noop"):
    build_provider(kind)
assert not {"anthropic", "openai"} & set(sys.modules), "an SDK was imported at startup"
build_provider("openai", api_key="k")
assert "openai" in sys.modules and "anthropic" not in sys.modules
build_provider("bedrock", api_key="k", options={"region": "us-east-1"})
build_provider("vertex", api_key="k", options={"region": "us-east5", "project": "p"})
assert "anthropic" in sys.modules
assert not {"boto3", "botocore", "google.auth"} & set(sys.modules), "more was imported than the SDK"
"""


def test_the_registry_imports_no_sdk() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
