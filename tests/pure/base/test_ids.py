"""Ids: their form, their order, and uniqueness across processes and threads."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.base import ids

PREFIXES = ("rt_", "qry_", "thr_", "wrk_", "pln_", "apr_", "art_", "key_")


@pytest.mark.parametrize("prefix", PREFIXES)
def test_shape(prefix: str) -> None:
    made = ids.new_id(prefix)
    assert made.startswith(prefix)
    assert len(made) == len(prefix) + 26
    assert ids.is_id(prefix, made)
    assert ids.is_id(prefix.rstrip("_"), made)
    assert not any(ids.is_id(other, made) for other in PREFIXES if other != prefix)


def test_the_underscore_may_be_left_out() -> None:
    assert ids.is_id("qry_", ids.new_id("qry"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "qry_",
        "qry_01m7zm7g717cff4m0vnhswy49",
        "qry_01m7zm7g717cff4m0vnhswy49kk",
        "qry_81m7zm7g717cff4m0vnhswy49k",
        "qry_01M7ZM7G717CFF4M0VNHSWY49K",
        "qry_01m7zm7g717cff4m0vnhswy49i",
        "qry_01m7zm7g717cff4m0vnhswy49k\n",
        " qry_01m7zm7g717cff4m0vnhswy49k",
        "qry_٠1m7zm7g717cff4m0vnhswy49k",
        "01m7zm7g717cff4m0vnhswy49k",
    ],
)
def test_invalid_ids_are_rejected(text: str) -> None:
    assert not ids.is_id("qry_", text)
    with pytest.raises(ValueError, match="not an id"):
        ids.suffix(text)


def test_ids_of_a_process_are_strictly_increasing() -> None:
    made = [ids.new_id("qry_") for _ in range(100_000)]
    assert all(left < right for left, right in pairwise(made))


def test_ids_are_unique_and_increasing_per_thread() -> None:
    with ThreadPoolExecutor(8) as pool:
        batches = list(pool.map(lambda _: [ids.new_id("wrk_") for _ in range(5_000)], range(8)))
    assert all(batch == sorted(batch) for batch in batches)
    assert len({made for batch in batches for made in batch}) == 40_000


def test_ids_increase_when_the_clock_goes_back() -> None:
    ticker = ids._Ticker()
    stamps = [ticker.next(ms) for ms in (1000, 1000, 999, 5, 1000, 1001, 1000)]
    assert stamps == sorted(set(stamps))


def test_a_full_counter_moves_on_to_the_next_millisecond() -> None:
    ticker = ids._Ticker()
    before = ticker.next(1000)
    ticker._counter = ids._END_COUNTER - 2
    last, following = ticker.next(1000), ticker.next(1000)
    assert before < last < following
    assert following[:10] > last[:10]


@given(st.lists(st.integers(0, 2**48 - 1), min_size=2, max_size=20))
def test_text_order_is_time_order(times: list[int]) -> None:
    made = [(ids.min_id("apr_", ms), ms) for ms in times]
    assert all(ids.time_ms(made_id) == ms for made_id, ms in made)
    assert [ms for _, ms in sorted(made)] == sorted(times)


def test_an_id_has_the_time_of_its_creation() -> None:
    before = ids.min_id("qry_", time.time_ns() // 1_000_000)
    made = ids.new_id("qry_")
    assert before <= made
    assert abs(ids.time_ms(made) - time.time() * 1000) < 5_000


@pytest.mark.parametrize("ms", [-1, 2**48])
def test_times_out_of_range_are_rejected(ms: int) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        ids.min_id("qry_", ms)


def test_the_root_record_shares_the_suffix_of_its_query() -> None:
    query = ids.new_id("qry_")
    root = ids.with_prefix("wrk_", query)
    assert ids.is_id("wrk_", root)
    assert ids.suffix(root) == ids.suffix(query)
    assert ids.with_prefix("qry", root) == query
