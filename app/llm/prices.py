"""Prices of model calls, from a maintained offline table. An unknown model has no price, never zero."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache, lru_cache
from importlib.metadata import version
from types import ModuleType
from typing import Any, Final

from plangate.spec.vendors import VENDORS

from app.llm.messages import Usage

EXACT_DIGITS: Final = 15  # of a float; Postgres takes as many when it makes a numeric of one


@dataclass(frozen=True, slots=True)
class Cost:
    """US dollars, and whose price it is: that of this day, by this edition of the price table."""

    usd: float
    date: str  # '2026-11-21 genai-prices 0.2.3'


def together(costs: Iterable[float]) -> float | None:
    """Return the sum of these costs, or None if there are none. They are added as decimals, as the database
    does, so that the sum does not depend on the order, and 0.15 and 0.3 are 0.45."""
    exact = [Decimal(f"{usd:.{EXACT_DIGITS}g}") for usd in costs]
    return float(sum(exact)) if exact else None


@cache
def _table() -> tuple[ModuleType, str]:
    import genai_prices  # noqa: PLC0415 - 60 ms of import that a runtime without a paid model never needs

    return genai_prices, version("genai-prices")


def preload(provider: str) -> None:
    """Load the prices of a vendor, a quarter of a second of work, so that no event loop has to at the first call."""
    _price(provider, "", Usage())


def price(provider: str, model: str, usage: Usage) -> Cost | None:
    """Return the price of one call, or None if the table does not know the model. `provider` is a kind."""
    now = datetime.now(UTC)
    price = _price(provider, model, usage, now)
    if price is None:
        return None
    total: Decimal = price.total_price
    return Cost(float(total), f"{now:%Y-%m-%d} genai-prices {_table()[1]}")


def window(provider: str, model: str) -> int | None:
    """Return the size of a model's context window in tokens, or None if the table does not have it."""
    price = _price(provider, model, Usage())
    return None if price is None else price.model.context_window


def known_as(provider: str, model: str) -> str | None:
    """Return the table's own name of a model, or None. Many names mean one model: the table knows most
    models by a prefix."""
    price = _price(provider, model, Usage())
    return None if price is None else price.model.id


@lru_cache(maxsize=1024)
def _is_listed(price_table: str, model: str) -> bool:
    """Return whether the table has a price for a model. Cached here, because the table itself
    remembers only the names that it finds and searches all models for any other name."""
    table, _ = _table()
    try:
        table.calc_price(table.Usage(), model_ref=model, provider_id=price_table)
    except LookupError:
        return False
    return True


def _price(provider: str, model: str, usage: Usage, at: datetime | None = None) -> Any:
    vendor = VENDORS.get(provider)
    if vendor is None:
        return None
    if not _is_listed(vendor.price_table, model):
        return None
    table, _ = _table()
    tokens = table.Usage(
        input_tokens=usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    try:
        return table.calc_price(
            tokens, model_ref=model, provider_id=vendor.price_table, genai_request_timestamp=at
        )
    except LookupError:
        return None
