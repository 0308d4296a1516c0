"""Values that plan actions read: the approved snapshot, overlaid with the plan's own writes."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import reduce
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plangate.spec.variables import Expression, parse

from app.documents.models import WriteRow
from app.documents.writing import DocumentWrite, Method, WriteRejected, apply_write
from app.plans.progress import MAX_VERSIONS, ExecutionView
from app.plans.snapshot import StoredDocuments
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
        reduce(apply_write, (write(*one) for one in writes), KEPT)
    except WriteRejected:
        return False
    return True


@given(st.data())
def test_writes_are_applied_in_log_order(data: st.DataObject) -> None:
    """Read after each of them, as those that depend on it do."""
    log = data.draw(st.lists(st.sampled_from(WRITES), min_size=1, max_size=2 * MAX_VERSIONS).filter(fits))
    order = data.draw(st.permutations(range(len(log))))
    view, known = ExecutionView(StoredDocuments({"state": orjson.dumps(KEPT)})), set[int]()
    for n in order:
        view.add(row(n + 1, *log[n]), log[n][2])
        known.add(n)
        so_far = [log[k] for k in sorted(known)]
        if fits(so_far):
            assert view.document("state") == reduce(apply_write, (write(*one) for one in so_far), KEPT)
        else:
            with pytest.raises(VariableError, match="does not fit what was approved"):
                view.document("state")
    assert view.document("state") == reduce(apply_write, (write(*one) for one in log), KEPT)
