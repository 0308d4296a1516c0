"""The service of an example: its own, with its own data, or a running one."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import httpx

REQUEST_TIMEOUT_S = 30.0
ELSEWHERE = ("PLANGATE_URL", "PLANGATE_API_KEY")


@dataclass(frozen=True, slots=True)
class Target:
    """Which service: `url` is None for one of the example's own, which the library starts on `data_dir`."""

    url: str | None
    data_dir: Path
    tenant: str

    def choose(self) -> None:
        """Tells the library where the own service keeps its data, and to look at no other one."""
        if self.url is None:
            for name in ELSEWHERE:
                os.environ.pop(name, None)
            os.environ["PLANGATE_DATA_DIR"] = str(self.data_dir)

    @property
    def key_file(self) -> Path:
        """Return the key file of the example's own service."""
        return self.data_dir / "local-key"

    @property
    def api_key(self) -> str:
        if self.url is not None:
            return os.environ["PLANGATE_API_KEY"]
        return self.key_file.read_text(encoding="utf-8").strip()

    def client(self, url: str) -> httpx.AsyncClient:
        """For what the library has no verb for."""
        headers = {"Authorization": f"Bearer {self.api_key}", "Plangate-Tenant": self.tenant}
        return httpx.AsyncClient(base_url=url, headers=headers, timeout=REQUEST_TIMEOUT_S, trust_env=False)
