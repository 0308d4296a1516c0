"""JMESPath with the service's additions: exact sums and values that are not known yet."""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jmespath.exceptions import JMESPathError

from app.base.jmespath import UNKNOWN, UnknownValueRead, search

_EXACT = Context(prec=200)
ACTIONS: Any = {
    "actions": [
        {"kind": "a", "amount": "1.10", "rows": [1]},
        {"kind": "b", "amount": UNKNOWN, "rows": [UNKNOWN]},
    ]
}


@given(st.lists(st.integers(-(10**40), 10**40), min_size=1))
def test_a_sum_of_decimals_is_exact(units: list[int]) -> None:
    numbers = [format(Decimal(n).scaleb(-7, _EXACT), "f") for n in units]
    assert search("decimal_sum(@)", numbers) == format(Decimal(sum(units)).scaleb(-7, _EXACT), "f")


@pytest.mark.parametrize(
    ("values", "total"),
    [([], "0"), (["1.50", "-0.5", 2], "3.00"), (["24949.90", "0.10"], "24950.00"), (["0.1"] * 10, "1.0")],
)
def test_a_sum_has_the_places_of_its_most_exact_number(values: list[Any], total: str) -> None:
    assert search("decimal_sum(@)", values) == total


@pytest.mark.parametrize("value", [1.5, True, None, "", "1e5", "NaN", "1 000", "٣", "9" * 101, [], "--1"])
def test_values_that_are_not_decimals_are_rejected(value: Any) -> None:
    with pytest.raises(JMESPathError, match=r"decimal_sum\(\) adds"):
        search("decimal_sum(@)", [value])


def test_a_sum_without_arguments_is_an_error_of_the_expression() -> None:
    with pytest.raises(JMESPathError, match=r"decimal_sum\(\)"):
        search("decimal_sum()", {})


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("length(actions)", 2),
        ("actions[0].amount", "1.10"),
        ("decimal_sum(actions[?kind=='a'].amount)", "1.10"),
        ("length(actions[1].rows)", 1),
        ("actions[1].kind", "b"),
        ("actions[0].amount || actions[1].amount", "1.10"),
    ],
)
def test_an_expression_that_reads_only_known_values_has_one(expression: str, value: Any) -> None:
    assert search(expression, ACTIONS) == value


@pytest.mark.parametrize(
    "expression",
    [
        "actions[1].amount",
        "actions[1]",
        "actions[].amount",
        "actions[].amount.cents",
        "actions[].rows[].cents",
        "actions[].rows[]",
        "actions[1].rows[?@ == `1`]",
        "length(actions[].rows[])",
        "actions[?amount == '1.10']",
        "sort_by(actions, &amount)",
        "to_string(actions)",
        "actions[1].amount || 'none'",
        "!(actions[1].amount)",
        "values(actions[1])[1]",
        "actions[1].*",
        "type(actions[1].amount)",
        "{a: actions[1].amount}",
        "actions[0] == actions[1]",
    ],
)
def test_an_expression_that_depends_on_an_unknown_value_says_so(expression: str) -> None:
    with pytest.raises(UnknownValueRead):
        search(expression, ACTIONS)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("10", 10),
        ("-1.5e2", -150.0),
        (7, 7),
        ("1_000", None),
        ("\uff11\uff12", None),
        ("nan", None),
        (True, None),
        (" 1", None),
    ],
)
def test_a_string_is_a_number_only_as_json_writes_it(value: Any, number: Any) -> None:
    assert search("to_number(@)", value) == number
