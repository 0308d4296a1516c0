"""Throttled log lines."""

from __future__ import annotations

import pytest

from app.base.logs import processors
from app.base.logs.processors import Throttle


def test_the_throttle_passes_the_first_and_one_per_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(processors.time, "monotonic", lambda: now)
    lines = Throttle(30)
    assert not lines.reset(), "there was none"
    assert [lines.allow(), lines.allow()] == [True, False]
    now += 29
    assert not lines.allow()
    now += 1
    assert [lines.allow(), lines.allow()] == [True, False]
    assert [lines.reset(), lines.reset()] == [True, False]
    assert lines.allow(), "a new one begins"
