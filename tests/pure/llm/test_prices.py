"""Costs of calls: each kind of tokens has its price, and sums do not depend on order."""

from __future__ import annotations

import random

import pytest

from app.llm.messages import Usage
from app.llm.prices import price, together

SONNET = ("anthropic", "claude-sonnet-4-5")  # 3 dollars for a million tokens in, 15 out


@pytest.mark.parametrize(
    ("usage", "usd"),
    [
        (Usage(input_tokens=100_000), 0.3),
        (Usage(output_tokens=100_000), 1.5),
        (Usage(cache_read_tokens=100_000), 0.03),
        (Usage(cache_write_tokens=100_000), 0.375),
        (Usage(output_tokens=100_000, reasoning_tokens=60_000), 1.5),  # they are among those that came out
        (Usage(10_000, 10_000, 100_000, 10_000), 0.03 + 0.15 + 0.03 + 0.0375),
        (Usage(), 0.0),
    ],
)
def test_each_kind_of_tokens_has_its_price(usage: Usage, usd: float) -> None:
    cost = price(*SONNET, usage)
    assert cost is not None
    assert cost.usd == pytest.approx(usd)


@pytest.mark.parametrize("provider", ["mock", "scripted", "noop", "a provider of one's own"])
def test_a_provider_outside_the_table_has_no_price(provider: str) -> None:
    assert price(provider, SONNET[1], Usage(1)) is None


def test_sums_do_not_depend_on_order() -> None:
    costs = [random.randrange(1, 10**7) * 1.5e-7 for _ in range(1000)]
    whole = together(costs)
    random.shuffle(costs)
    assert together(costs) == whole
    assert (together([0.15, 0.3]), together([0.1] * 3)) == (0.45, 0.3)
    assert together([]) is None
    assert together([0.0]) == 0.0
