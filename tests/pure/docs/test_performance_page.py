"""docs/performance.md has the tables of `make bench`."""

from __future__ import annotations

import pytest

from bench.__main__ import PAGE, SUITES


@pytest.mark.parametrize("suite", ["", *SUITES])
def test_each_suite_has_its_table(suite: str) -> None:
    name = f" {suite}" if suite else ""
    _, begin, rest = PAGE.read_text("utf-8").partition(f"<!-- bench{name}: begin -->")
    table, end, _ = rest.partition(f"<!-- bench{name}: end -->")
    assert begin
    assert end
    assert "| --- |" in table
    assert not suite or f'--suite {suite}"' in PAGE.read_text("utf-8")
