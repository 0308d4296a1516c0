"""What the actions of a plan read: the documents as they were approved, and over them what they wrote themselves."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plangate.spec.variables import Expression, parse

from app.documents.models import WriteRow
from app.documents.writing import DocumentWrite, Method, WriteRejected, fold_writes
from app.plans.variables import FOLDS_KEPT, ExecutionView, StoredDocuments
from app.variables.values import VariableError

KEPT = {"a": {"x": 0}, "list": [0]}
WRITES: list[tuple[str, Method, Any]] = [
    ("†state.a", "set", {"y": 1}),
    ("†state.a.x", "set", 2),
    ("†state.a.x.deep", "set", 3),
    ("†state.a", "merge", {"x": {"m": 4}}),
    ("†state.a", "assign", {"z": 5}),
    ("†state.b", "set", 6),
    ("†state.list", "push", 7),
    ("†state.list", "concat", [8, 9]),
]


def row(n: int, path: str, method: Method, value: Any) -> WriteRow:
    at = datetime.now(UTC)
    return WriteRow(
        "state", n, path, method, 1, None, False, "wrk_1", "qry_1", "a", None, None, at, orjson.dumps(value)
    )


def write(path: str, method: Method, value: Any) -> DocumentWrite:
    expression = parse(path)
    assert isinstance(expression, Expression)
    (reference,) = expression.paths()
    return DocumentWrite(reference.path, method, value)


def fits(writes: list[tuple[str, Method, Any]]) -> bool:
    try:
        fold_writes(KEPT, (write(*one) for one in writes))
    except WriteRejected:
        return False
    return True


@given(st.data())
def test_the_order_is_that_of_the_log_however_actions_are_taken_up(data: st.DataObject) -> None:
    """Read after each of them, as those that depend on it do."""
    log = data.draw(st.lists(st.sampled_from(WRITES), min_size=1, max_size=2 * FOLDS_KEPT).filter(fits))
    order = data.draw(st.permutations(range(len(log))))
    view, known = ExecutionView(StoredDocuments({"state": orjson.dumps(KEPT)})), set[int]()
    for n in order:
        view.add(row(n + 1, *log[n]), log[n][2])
        known.add(n)
        so_far = [log[k] for k in sorted(known)]
        if fits(so_far):
            assert view.document("state") == fold_writes(KEPT, (write(*one) for one in so_far))
        else:
            with pytest.raises(VariableError, match="does not fit what was approved"):
                view.document("state")
    assert view.document("state") == fold_writes(KEPT, (write(*one) for one in log))
