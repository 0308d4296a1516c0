"""Bounds on remembered unknown keys and on attempts of a client."""

from __future__ import annotations

import pytest

from app.base.metrics import Metrics
from app.base.peers import peer_for_host
from app.tenancy.unknown_keys import TooManyUnknownKeys, UnknownKeyBounds, UnknownKeys


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def made(**bounds: float) -> tuple[UnknownKeys, Clock, Metrics]:
    clock, metrics = Clock(), Metrics()
    return UnknownKeys(UnknownKeyBounds(**bounds), metrics, clock), clock, metrics  # type: ignore[arg-type]


def test_an_unknown_key_is_remembered_for_a_while() -> None:
    keys, clock, _ = made()
    keys.remember(b"a")
    assert keys.is_remembered(b"a")
    assert not keys.is_remembered(b"b")
    clock.now += 5
    assert not keys.is_remembered(b"a")


def test_remembered_keys_are_bounded_newest_first() -> None:
    keys, _, _ = made(max_remembered=100)
    for n in range(1000):
        keys.remember(n.to_bytes(4))
    assert len(keys) == 100
    assert not keys.is_remembered((0).to_bytes(4))
    assert keys.is_remembered((999).to_bytes(4))


def test_unknown_keys_are_limited_per_client() -> None:
    keys, clock, metrics = made(per_client_per_s=2)
    for _ in range(10):
        keys.spend("192.0.2.1")
    with pytest.raises(TooManyUnknownKeys) as limited:
        keys.spend("192.0.2.1")
    assert limited.value.retry_after_s == 1
    keys.spend("192.0.2.2")
    clock.now += 1
    keys.spend("192.0.2.1")
    keys.spend("192.0.2.1")
    with pytest.raises(TooManyUnknownKeys):
        keys.spend("192.0.2.1")
    keys.refund("192.0.2.1")
    keys.spend("192.0.2.1")
    assert metrics.registry.get_sample_value("plangate_unknown_keys_total", {"outcome": "limited"}) == 2


def test_a_client_is_an_address_or_a_64_of_ipv6() -> None:
    assert peer_for_host("2001:db8::1") == peer_for_host("2001:db8::2") == "2001:db8::/64"
    assert peer_for_host("::ffff:192.0.2.1") == "192.0.2.1"
    assert peer_for_host("x" * 1000) == "x" * 64
