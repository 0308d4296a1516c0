"""Forwarded headers count only from proxies that the operator names."""

from __future__ import annotations

import httpx
import pytest

from tests.support.service import folder, serving

FORWARDED = {
    "host": "plangate.example",
    "x-forwarded-proto": "https",
    "x-forwarded-host": "evil.example",
    "x-forwarded-prefix": "/evil",
}


@pytest.mark.parametrize(
    ("trusted", "address"),
    [("127.0.0.1", "https://plangate.example"), ("192.0.2.0/24", "http://plangate.example")],
)
def test_forwarded_proto_counts_only_from_trusted_proxies(trusted: str, address: str) -> None:
    with folder() as at, serving(at, {"PLANGATE_TRUSTED_PROXIES": trusted}) as service:
        headers = {"authorization": f"Bearer {service.key}", **FORWARDED}
        made = httpx.post(f"{service.url}/session/tickets", headers=headers, timeout=30).json()
        assert made["url"].startswith(f"{address}/console#ticket=plt_")
