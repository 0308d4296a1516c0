"""What changed between two revisions: which actions belong together, and that no match hides a difference."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.base.json.strict_json import canonical
from app.plans import changes
from app.plans.changes import compare_bodies, plan_changes

KEYS = {"refund": ["order"]}


def act(kind: str, **payload: Any) -> dict[str, Any]:
    return {"kind": kind, "payload": payload, "references": []}


def refund(order: str, amount: int = 1) -> dict[str, Any]:
    return act("refund", order=order, amount=amount)


def body(*actions: dict[str, Any], **context: Any) -> dict[str, Any]:
    return {**context, "actions": list(actions)}


def changed(before: Any, after: Any, keys: Any = KEYS) -> list[tuple[Any, ...]]:
    _, actions = plan_changes(before, after, keys)
    return [(a.change, a.before, a.after, a.matched_by, [f.pointer for f in a.fields]) for a in actions]


def test_actions_with_one_key_are_compared_wherever_they_are() -> None:
    before = body(refund("a"), refund("b", 2), refund("c"))
    after = body(refund("c"), refund("a", 5), refund("d"))
    _, actions = plan_changes(before, after, KEYS)
    assert [(a.change, a.before, a.after, a.matched_by, a.moved) for a in actions] == [
        ("same", 2, 0, "key", False),
        ("changed", 0, 1, "key", True),
        ("removed", 1, None, None, False),
        ("added", None, 2, None, False),
    ]
    assert [f.wire() for f in actions[1].fields] == [{"pointer": "/payload/amount", "before": 1, "after": 5}]


def test_a_key_that_two_actions_share_matches_nothing() -> None:
    """Which of the two it was, nobody knows: equality and order decide, and every difference is listed."""
    before, after = body(refund("a", 1), refund("a", 2)), body(refund("a", 2), refund("a", 3))
    assert changed(before, after) == [
        ("removed", 0, None, None, []),
        ("same", 1, 0, "equality", []),
        ("added", None, 1, None, []),
    ]


def test_without_keys_the_longest_common_sequence_matches() -> None:
    before = body(act("book", n=1), act("book", n=2), act("note", n=3))
    after = body(act("note", n=0), act("book", n=1), act("book", n=9), act("note", n=3))
    assert changed(before, after) == [
        ("added", None, 0, None, []),
        ("same", 0, 1, "equality", []),
        ("changed", 1, 2, "position", ["/payload/n"]),
        ("same", 2, 3, "equality", []),
    ]


def test_an_action_with_another_key_is_another_action() -> None:
    assert changed(body(refund("a")), body(refund("b"))) == [
        ("removed", 0, None, None, []),
        ("added", None, 0, None, []),
    ]


@pytest.mark.parametrize(
    ("before", "after", "pointers"),
    [
        ({"x": 1}, {"x": True}, ["/x"]),
        ({"x": 1}, {"x": 1.0}, ["/x"]),
        ({"x": None}, {}, ["/x"]),
        ({"x": [1, 2]}, {"x": [1, 3]}, ["/x/1"]),
        ({"x": [1, 2]}, {"x": [1]}, ["/x"]),
        ({"a/b": {"~": 1}}, {"a/b": {"~": 2}}, ["/a~1b/~0"]),
    ],
)
def test_every_difference_outside_of_the_actions_has_its_place(
    before: Any, after: Any, pointers: list[str]
) -> None:
    context, _ = plan_changes(body(**before), body(**after), {})
    assert [change.pointer for change in context] == pointers


ACTIONS = st.lists(st.builds(refund, st.sampled_from("abc"), st.integers(0, 2)), max_size=7)


@given(ACTIONS, ACTIONS, st.sampled_from([{}, KEYS]))
def test_no_match_hides_a_difference(before: list[Any], after: list[Any], keys: Any) -> None:
    _, actions = plan_changes(body(*before), body(*after), keys)
    assert sorted(a.before for a in actions if a.before is not None) == list(range(len(before)))
    assert [a.after for a in actions if a.after is not None] == list(range(len(after)))
    for match in actions:
        if match.before is not None and match.after is not None:
            equal = before[match.before] == after[match.after]
            assert equal == (not match.fields)
            assert (match.change == "same") == (equal and not match.moved)
    if before == after:
        assert {a.change for a in actions} <= {"same"}
    kept = [a.before for a in actions if a.matched_by and not a.moved]
    assert kept == sorted(b for b in kept if b is not None)


def test_zero_and_negative_zero_differ() -> None:
    _, (match,) = plan_changes(body(act("x", a=0.0)), body(act("x", a=-0.0)), {})
    assert [field.pointer for field in match.fields] == ["/payload/a"]


def test_a_comparison_is_not_much_larger_than_its_bodies() -> None:
    """Every difference in detail repeats the keys above it: 5,000 of them below a long key would be 250 MB."""
    key = "k" * 50_000
    before, after = body(act("x", **{key: [0] * 5000})), body(act("x", **{key: [1] * 5000}))
    result = compare_bodies(orjson.dumps(before), orjson.dumps(after), {})
    assert len(orjson.dumps(result)) < 4 * len(orjson.dumps([before, after]))
    (action,) = result["actions"]
    assert action["fields"] == [{"pointer": "", "before": before["actions"][0], "after": after["actions"][0]}]


def test_keys_are_computed_once_per_action(monkeypatch: pytest.MonkeyPatch) -> None:
    """All keys are new: comparing each old action with each new one would write 20,000 keys."""
    calls = 0

    def counted(value: Any) -> bytes:
        nonlocal calls
        calls += 1
        return canonical(value)

    monkeypatch.setattr(changes, "canonical", counted)
    before, after = (body(*(refund(f"{side}{n}") for n in range(100))) for side in "ab")
    assert [change for change, *_ in changed(before, after)].count("added") == 100
    assert calls <= 5 * 200
