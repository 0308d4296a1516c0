"""The progress of an execution: ends of actions that are assumed before they are recorded."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson

from app.documents.models import WriteRow
from app.plans.progress import ExecutionFlow, ExecutionView
from app.plans.snapshot import StoredDocuments
from app.variables.service import ResultWrite
from tests.pure.plans.test_graph_of_actions import action, graph, ref

LIST = "†state.list"


def flow() -> ExecutionFlow:
    """Two actions push to a list, and a third reads it."""
    made = graph(action([], LIST, "push"), action([], LIST, "push"), action([LIST]))
    return ExecutionFlow(made, ExecutionView(StoredDocuments({"state": b'{"list":[0]}'})))


def recorded(n: int, value: Any) -> WriteRow:
    data = orjson.dumps(value)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return WriteRow(
        "state", n, LIST, "push", len(data), None, False, "wrk_1", "qry_1", "a", None, None, at, data
    )


async def test_an_assumed_write_is_the_last_one_and_leaves_no_trace() -> None:
    mine = flow()
    await mine.ended(0, "succeeded", [recorded(7, 1)])
    with mine.assume_ended(1, "succeeded", ResultWrite((ref(LIST),), "push", 2, b"2")):
        assert mine.view.document("state") == {"list": [0, 1, 2]}
    assert mine.view.document("state") == {"list": [0, 1]}
    await mine.ended(1, "succeeded", [recorded(9, 3)])
    assert mine.view.document("state") == {"list": [0, 1, 3]}


async def test_an_assumed_failure_leaves_no_trace() -> None:
    mine = flow()
    await mine.ended(0, "succeeded", [recorded(1, 1)])
    with mine.assume_ended(1, "failed", None):
        assert mine.skip_reason(2) == '"†state.list" has no value: action 1 is failed.'
    assert mine.skip_reason(2) is None
