"""Lines of something that goes on."""

from __future__ import annotations

import pytest

from app.base.logs import processors
from app.base.logs.processors import Seldom


def test_the_first_is_due_and_then_one_in_so_many_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(processors.time, "monotonic", lambda: now)
    lines = Seldom(30)
    assert not lines.over(), "there was none"
    assert [lines.due(), lines.due()] == [True, False]
    now += 29
    assert not lines.due()
    now += 1
    assert [lines.due(), lines.due()] == [True, False]
    assert [lines.over(), lines.over()] == [True, False]
    assert lines.due(), "a new one begins"
