"""Columns that statements of several features select."""

from __future__ import annotations

from typing import Final

USAGE_SUMS: Final = """coalesce(sum(input_tokens), 0)::bigint AS input_tokens,
 coalesce(sum(output_tokens), 0)::bigint AS output_tokens,
 coalesce(sum(cache_read_tokens), 0)::bigint AS cache_read_tokens,
 coalesce(sum(cache_write_tokens), 0)::bigint AS cache_write_tokens,
 coalesce(sum(reasoning_tokens), 0)::bigint AS reasoning_tokens, sum(cost_usd::numeric)::float8 AS cost_usd"""
"""The usage and the cost in US dollars of work records. The cost is NULL if no price is known."""
