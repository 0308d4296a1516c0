"""Drawings of plans, in which model-written text stays text."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plangate.statuses import ActionStatus, PlanStatus

from app.plans.drawing import MAX_EDGES, PlanDrawing, draw_plan, label
from app.plans.models import ActionState, Plan
from app.plans.states import ACTION_LIFE

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LABEL = r"(?:[^\W_]|[ .†_·,-]|#\d+;)*"
STATUS = rf"(?:{'|'.join(ACTION_LIFE.transitions)})"
LINES = re.compile(
    "flowchart TD\n"
    rf'(?:    n\d+\["{LABEL}"\](?::::{STATUS})?\n)*'
    rf'(?:    n\d+ -->\|"{LABEL}"\| n\d+\n)*'
    rf"(?:    classDef {STATUS} [a-z:#0-9,-]+\n)*"
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.text(
    '"#;:<>&|[](){}`%$\\/*_-=~^@\n\r\u2028\u202eﬂ°¶ß†aend0 ', max_size=20
)


def act(kind: str, path: str | None = None, method: str | None = None, **payload: Any) -> dict[str, Any]:
    """An action as it is stored."""
    where = {"_outputPath": path, "_outputMethod": method}
    meta = {name: held for name, held in where.items() if held is not None}
    return {"kind": kind, "payload": payload, "references": [], **meta}


def drawing(
    *actions: dict[str, Any], variables: bool = True, states: Sequence[ActionState] = ()
) -> PlanDrawing:
    body = orjson.dumps({"actions": list(actions)})
    status: PlanStatus = "executing" if states else "draft"
    plan = Plan(
        id="pln_1",
        key=None,
        thread_id="thr_1",
        runtime_id="rt_1",
        spec_name="Flow",
        status=status,
        label=status,
        revision=2,
        copied_from=None,
        query_id=None,
        result=None,
        created_at=NOW,
        updated_at=NOW,
        body=body,
        digest=b"",
        decision=None,
        feedback=None,
        partial=None,
        facts=None,
        variables=variables,
    )
    return draw_plan(plan, states)


def edges(found: PlanDrawing) -> list[tuple[int, int, str]]:
    return [(edge.writer, edge.reader, edge.path) for edge in found.edges]


FLOW = (
    act("find_delays", "†state.delays", since="†input.since"),
    act("by_carrier", "†state.carriers", flights="†state.delays", names="†ref.Carriers.abc"),
    act("price", "†state.prices.a", group="†state.carriers.0", of="†state.delays"),
    act("note", text="plain"),
)


def test_a_draft_has_no_statuses() -> None:
    found = drawing(*FLOW)
    assert found.wire() == {
        "planId": "pln_1",
        "revision": 2,
        "status": "draft",
        "nodes": [
            {
                "index": 0,
                "kind": "find_delays",
                "reads": ("†input.since",),
                "writes": ("†state.delays",),
                "status": None,
                "attempts": 0,
            },
            {
                "index": 1,
                "kind": "by_carrier",
                "reads": ("†state.delays", "†ref.Carriers.abc"),
                "writes": ("†state.carriers",),
                "status": None,
                "attempts": 0,
            },
            {
                "index": 2,
                "kind": "price",
                "reads": ("†state.carriers.0", "†state.delays"),
                "writes": ("†state.prices.a",),
                "status": None,
                "attempts": 0,
            },
            {"index": 3, "kind": "note", "reads": (), "writes": (), "status": None, "attempts": 0},
        ],
        "edges": [
            {"from": 0, "to": 1, "path": "†state.delays"},
            {"from": 1, "to": 2, "path": "†state.carriers.0"},
            {"from": 0, "to": 2, "path": "†state.delays"},
        ],
        "edgesLeftOut": 0,
    }
    assert found.mermaid() == (
        "flowchart TD\n"
        '    n0["0 · find_delays"]\n'
        '    n1["1 · by_carrier"]\n'
        '    n2["2 · price"]\n'
        '    n3["3 · note"]\n'
        '    n0 -->|"†state.delays"| n1\n'
        '    n1 -->|"†state.carriers.0"| n2\n'
        '    n0 -->|"†state.delays"| n2\n'
    )


def test_statuses_are_words_and_classes() -> None:
    states = [
        ActionState(0, "succeeded", 3),
        ActionState(1, "failed", 1),
        ActionState(2, "skipped", 0),
        ActionState(3, "unknown", 1),
    ]
    found = drawing(*FLOW, states=states)
    assert [(node.status, node.attempts) for node in found.nodes] == [
        ("succeeded", 3),
        ("failed", 1),
        ("skipped", 0),
        ("unknown", 1),
    ]
    lines = found.mermaid().splitlines()
    assert lines[1:5] == [
        '    n0["0 · find_delays · succeeded · 3 attempts"]:::succeeded',
        '    n1["1 · by_carrier · failed"]:::failed',
        '    n2["2 · price · skipped"]:::skipped',
        '    n3["3 · note · unknown"]:::unknown',
    ]
    assert [line.split()[:2] for line in lines[8:]] == [
        ["classDef", status] for status in ("succeeded", "failed", "skipped", "unknown")
    ]


@pytest.mark.parametrize("status", ACTION_LIFE.transitions)
def test_every_status_has_a_style(status: ActionStatus) -> None:
    drawn_ = drawing(act("note"), states=[ActionState(0, status, 1)]).mermaid()
    assert f":::{status}\n    classDef {status} fill:#" in drawn_
    assert LINES.fullmatch(drawn_)


def test_without_variables_no_action_waits() -> None:
    found = drawing(act("make", value="†state.a"), act("note", text="† is a dagger"), variables=False)
    assert [(node.kind, node.reads, node.writes) for node in found.nodes] == [
        ("make", (), ()),
        ("note", (), ()),
    ]
    assert found.edges == ()
    assert found.mermaid() == 'flowchart TD\n    n0["0 · make"]\n    n1["1 · note"]\n'


@pytest.mark.parametrize("variables", [True, False])
def test_an_empty_plan_is_drawn(variables: bool) -> None:
    found = drawing(variables=variables)
    assert (found.nodes, found.edges, found.mermaid()) == ((), (), "flowchart TD\n")


def test_an_edge_connects_overlapping_writes_and_reads() -> None:
    found = drawing(
        act("whole", "†state.a"),
        act("part", "†state.a.b.c", "merge", after="†state.a.x"),
        act("other", "†state.ab"),
        act("reader", one="†state.a.b || †results.b", two="†state.a.b && †state.a.b"),
    )
    assert edges(found) == [(0, 1, "†state.a.x"), (0, 3, "†state.a.b"), (1, 3, "†state.a.b")]
    assert found.nodes[3].reads == ("†state.a.b", "†results.b")


def test_every_path_of_an_output_is_written() -> None:
    found = drawing(
        act("make", "†state.a && †kept.a || †state.b"), act("x", v="†kept.a"), act("y", v="†state.b")
    )
    assert found.nodes[0].writes == ("†state.a", "†kept.a", "†state.b")
    assert edges(found) == [(0, 1, "†kept.a"), (0, 2, "†state.b")]


def test_one_arrow_lists_the_first_paths() -> None:
    payload = {f"p{n}": f"†state.a.{n}" for n in range(5)}
    assert '    n0 -->|"†state.a.0, †state.a.1, †state.a.2, 2 more"| n1\n' in (
        drawing(act("make", "†state.a"), act("read", **payload)).mermaid()
    )
    del payload["p3"], payload["p4"]
    assert '    n0 -->|"†state.a.0, †state.a.1, †state.a.2"| n1\n' in (
        drawing(act("make", "†state.a"), act("read", **payload)).mermaid()
    )


def test_omitted_parts_of_a_drawing_are_counted() -> None:
    writers = [act("w", "†state.all", "push", value=n) for n in range(110)]
    readers = [act("r", v="†state.all") for _ in range(100)]
    found = drawing(*writers, *readers)
    assert (len(found.edges), found.edges_left_out) == (MAX_EDGES, 1_000)
    assert found.wire()["edgesLeftOut"] == 1_000
    assert found.mermaid().endswith('    more["1000 more are not drawn"]\n')


# -- texts of a model's


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("send_voucher_email", "send_voucher_email"),
        ("Gutschein-für 2.0", "Gutschein-für 2.0"),
        ('†state."net.eur"', "†state.#34;net.eur#34;"),
        ('"]; click n0 href "x"', "#34;#93;#59; click n0 href #34;x#34;"),
        ("a\nclick n0 call b()", "a#65533;click n0 call b#40;#41;"),
        ("a\r\nb\u2028c\x85d\te", "a#65533;#65533;b#65533;c#65533;d#65533;e"),
        ("%%{init: {}}%%", "#37;#37;#123;init#58; #123;#125;#125;#37;#37;"),
        ("<b>&amp;", "#60;b#62;#38;amp#59;"),
        ("#quot;", "#35;quot#59;"),
        ("`**md**`", "#96;#42;#42;md#42;#42;#96;"),
        ("_em_ a__b", "#95;em#95; a#95;#95;b"),
        ("$$x$$", "#36;#36;x#36;#36;"),
        ("fa:fa-car", "fa#58;fa-car"),
        ("style a:#fff;", "style a#58;#35;fff#59;"),
        ("ﬂ°°60¶ß", "fl#176;#176;60#182;ß"),
        ("a\u202eb\u200bc", "a#65533;b#65533;c"),
        ("x" * 61, "x" * 59 + "#8230;"),
    ],
)
def test_a_text_is_only_a_text(text: str, written: str) -> None:
    assert label(text, 60) == written


@given(TEXTS, TEXTS, TEXTS)
def test_text_cannot_inject_markup(first: str, second: str, key: str) -> None:
    key = key.replace("\0", "")
    quoted = json.dumps(key, ensure_ascii=False)
    found = drawing(
        act(first, f"†state.{quoted}"),
        act(second, v=f"†state.{quoted}"),
        states=[ActionState(0, "succeeded", 1), ActionState(1, "pending", 0)],
    ).mermaid()
    assert LINES.fullmatch(found)
    assert len(found.splitlines()) == 6
    said = re.findall(r'^    n\d\["(.*)"\]', found, re.MULTILINE)
    assert [shown(one) for one in said] == [
        " · ".join(filter(None, ("0", plain(first), "succeeded"))),
        " · ".join(filter(None, ("1", plain(second), "pending"))),
    ]


def shown(written: str) -> str:
    """What a reader of the drawing sees."""
    return re.sub(r"#(\d+);", lambda found: chr(int(found[1])), written)


def plain(text: str) -> str:
    return "".join(c if c.isprintable() else "\ufffd" for c in text).replace("ﬂ", "fl")
