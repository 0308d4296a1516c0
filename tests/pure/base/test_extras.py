"""A feature that needs an extra names the extra if its package is missing."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from plangate.spec.vendors import VENDORS

from app.base.extras import MissingExtra, import_with_extra
from app.deployment import open_blobs
from app.llm.provider import ProviderNotBuilt
from app.llm.registry import build_provider


def forget(monkeypatch: pytest.MonkeyPatch, package: str, *modules: str) -> None:
    """Make `package` look as if it were not installed, and unload the modules that import it."""
    for name in [n for n in sys.modules if n == package or n.startswith(f"{package}.") or n in modules]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)


@pytest.mark.parametrize("kind", sorted(VENDORS))
def test_a_provider_without_its_package_names_the_extra(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package = "openai" if kind == "openai" else "anthropic"
    forget(monkeypatch, package, *(f"app.llm.{name}" for name in (*VENDORS, "wire", "faults")))
    with pytest.raises(ProviderNotBuilt, match=rf"pip install 'plangate-server\[{kind}\]'"):
        build_provider(kind, api_key="key", options={"region": "eu"} if kind in ("bedrock", "vertex") else {})


def test_a_bucket_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    forget(monkeypatch, "obstore", "app.base.blobs.bucket")
    with pytest.raises(SystemExit, match=r"pip install 'plangate-server\[buckets\]'"):
        open_blobs("s3://bucket")


def test_mcp_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "app.tools.transports.mcp.session"
    forget(monkeypatch, "mcp", module)
    with pytest.raises(MissingExtra, match=r"pip install 'plangate-server\[mcp\]'"):
        import_with_extra(module, "mcp")


def test_an_import_error_in_our_code_is_not_a_missing_extra() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"app\.base\.absent"):
        import_with_extra("app.base.absent", "mcp")


EXTRAS = (
    "anthropic",
    "openai",
    "botocore",
    "mcp",
    "obstore",
    "duckdb",
    "pytz",
    "sqlglot",
    "opentelemetry.sdk",
)
# What takes long to import, and is imported when it is needed. The API of OpenTelemetry is imported by libraries.
LATER = ("genai_prices", "google.protobuf", "opentelemetry.exporter", "opentelemetry.proto", "requests")
PROGRAM = f"""
import sys
tried = []
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in {EXTRAS}:
            tried.append(name)
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
import app.api.serving, app.commands.main, app.telemetry.service
from app.assembly import exporter_of
from app.base.metrics import Metrics
from app.settings import Settings
assert exporter_of(Settings(), Metrics()) is None
early = [name for name in sys.modules if name.startswith({LATER})]
assert not tried + early, (tried, early)
"""


def test_the_service_starts_without_any_extra() -> None:
    """It tries to import none, nor what only some of its work needs."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OTEL_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
