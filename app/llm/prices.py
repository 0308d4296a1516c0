"""What a model call costs, from a maintained offline price table. An unknown model has no price, never zero."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib.metadata import version
from types import ModuleType

from app.llm.messages import Usage

VENDORS = frozenset({"anthropic", "openai", "bedrock", "vertex"})


@dataclass(frozen=True, slots=True)
class Cost:
    """US dollars, and which edition of the price table says so."""

    usd: float
    date: str


@cache
def _table() -> tuple[ModuleType, str]:
    import genai_prices  # noqa: PLC0415 - 60 ms of import that a runtime without a paid model never needs

    return genai_prices, version("genai-prices")


def price(provider: str, model: str, usage: Usage) -> Cost | None:
    """The price of one call, or None where the table does not know the model."""
    if provider not in VENDORS:
        return None
    table, edition = _table()
    tokens = table.Usage(
        input_tokens=usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    try:
        found = table.calc_price(tokens, model_ref=model, provider_id=provider)
    except LookupError:
        return None
    total: Decimal = found.total_price
    return Cost(float(total), f"genai-prices {edition}")
