"""The token bucket of a tenant, and scopes of keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.base.errors import Forbidden
from app.tenancy.models import SCOPES, Caller
from app.tenancy.service import TokenBucket


@given(st.integers(1, 50), st.lists(st.floats(0, 2), max_size=200))
def test_requests_per_second_are_bounded_by_rate_and_burst(rate: int, pauses: list[float]) -> None:
    bucket, now, passed = TokenBucket(rate, rate, 0.0), 0.0, 0
    for pause in pauses:
        now += pause
        wait = bucket.try_take(now)
        assert wait >= 0
        passed += wait == 0
    assert passed <= rate + now * rate + 1e-6


def test_a_caller_that_waits_as_told_is_admitted() -> None:
    bucket = TokenBucket(2, 2, 0.0)
    assert [bucket.try_take(0.0) for _ in range(2)] == [0, 0]
    wait = bucket.try_take(0.0)
    assert 0 < wait <= 0.5
    assert bucket.try_take(wait) == 0


@pytest.mark.parametrize("scope", SCOPES)
def test_admin_implies_every_scope(scope: str) -> None:
    assert Caller("t", "p", frozenset({"admin"}), "k").has_scope(scope)
    other = Caller("t", "p", frozenset({"read"}), "k")
    assert other.has_scope(scope) == (scope == "read")
    if scope != "read":
        with pytest.raises(Forbidden, match=f"'{scope}'; this key has: read"):
            other.require_scope(scope)
