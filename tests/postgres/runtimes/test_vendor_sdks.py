"""A vendor's SDK is loaded before the first turn that needs it."""

from __future__ import annotations

import pytest

from app.agents import providers
from tests.support.client import Caller, good
from tests.support.world import World, world

SPEC = {
    "tenant": {"resourceId": "acme", "version": "1"},
    "agents": [{"name": "helper", "role": "specialist", "model": {"id": "m", "provider": "openai"}}],
    "providers": {"openai": {"apiKey": "sk-secret"}},
}


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the vendors whose SDKs were loaded, in order."""
    kinds: list[str] = []
    monkeypatch.setattr(providers, "load_vendor", kinds.append)
    return kinds


async def test_registration_loads_an_sdk_once(api: Caller, loaded: list[str]) -> None:
    good(await api.post("/runtimes", {**SPEC, "interpreter": "mock"}))
    assert loaded == []
    for version in ("1", "2"):
        good(await api.post("/runtimes", {**SPEC, "tenant": {"resourceId": "acme", "version": version}}))
    assert loaded == ["openai"]


async def test_a_started_process_has_the_sdks_of_runtimes(
    plangate: World, api: Caller, loaded: list[str]
) -> None:
    runtime = good(await api.post("/runtimes", SPEC))
    loaded.clear()
    async with world(plangate.site, plangate.operator_key):
        assert loaded == ["openai"]
    loaded.clear()
    async with world(plangate.site, plangate.operator_key, with_worker=False):
        assert loaded == []  # it calls no models
    good(await api.delete(f"/runtimes/{runtime['id']}"))
    async with world(plangate.site, plangate.operator_key):
        assert loaded == []
