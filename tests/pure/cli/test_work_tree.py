"""Output of `plangate work`: actions, products and cost on one screen."""

from __future__ import annotations

from typing import Any

import pytest
from plangate.cli.work_tree import Line, Tree, fold, render_work, wasted_usage

from tests.pure.cli.test_terminal_text import HOSTILE, harmless
from tests.pure.cli.test_watch import hostile

NOTHING = {"uses": 0, "sizeBytes": 0, "promptBytes": 0, "keptOutBytes": 0}


def rollup(calls: int = 0, tokens: int = 0, cost: float | None = None, unpriced: int = 0) -> dict[str, Any]:
    usage = dict.fromkeys(("outputTokens", "cacheReadTokens", "cacheWriteTokens", "reasoningTokens"), 0)
    spent = {"modelCalls": calls, "usage": {"inputTokens": tokens, **usage}}
    return {**spent, "costUsd": cost, "unpricedCalls": unpriced, "references": NOTHING}


def record(
    id: str, parent: str | None, kind: str, name: str, status: str = "succeeded", **parts: Any
) -> dict[str, Any]:
    return {
        "id": id,
        "parentId": parent,
        "kind": kind,
        "name": name,
        "status": status,
        "durationMs": parts.pop("ms", 100),
        "rollup": rollup(),
        **parts,
    }


def tree(*below: dict[str, Any], **parts: Any) -> dict[str, Any]:
    return record("root", None, "query", "agent", below=list(below), **{"ms": 12_300, **parts})


QUERY = {
    "id": "qry_1",
    "status": "succeeded",
    "reason": None,
    "agent": "chief",
    "prompt": "Recover the day.",
    "error": None,
    "output": "All is well.\n\nTwo notices went out.",
}
DAY = tree(
    record("a", "root", "agent", "chief", rollup=rollup(4, 4000, 0.5)),
    record("m", "a", "model_call", "m"),
    record("n", "a", "model_call", "m"),
    record("t", "a", "tool_call", "call_agent", rollup=rollup(1, 1000, 0.125)),
    record("b", "t", "agent", "planner", rollup=rollup(1, 1000, 0.125)),
    record("o", "b", "model_call", "m"),
    record("s", "b", "tool_call", "storePlan"),
    record("u", "a", "tool_call", "call_agent", "failed", rollup=rollup(1, 1000)),
    record("c", "u", "agent", "sender", "failed", rollup=rollup(1, 1000)),
    record("v", "c", "tool_call", "executePlan", "failed", ms=None),
    record("p", "v", "plan_execution", "Notices", "failed"),
    record("x", "p", "action", "book", "unknown"),
    rollup={**rollup(4, 4000, 0.625, 1), "references": {**NOTHING, "keptOutBytes": 20_000}},
)
ART = {
    "id": "art_1",
    "path": "tasks/1/plan.md",
    "channel": "design",
    "producer": {"agent": "planner"},
    "title": "Plan",
}


def shown(query: dict[str, Any], top: dict[str, Any], *artifacts: Any, height: int | None = 40) -> str:
    return "\n".join(render_work(query, top, artifacts, None, height=height, width=100))


def test_the_screen_shows_actions_products_and_cost() -> None:
    assert (
        shown(QUERY, DAY, ART)
        == """\
qry_1  succeeded after 12.3 s, by chief
asked: Recover the day.

chief (2 model calls)     succeeded  100 ms  4,000 tokens  $0.5000
  planner (1 model call)  succeeded  100 ms  1,000 tokens  $0.1250
    storePlan             succeeded  100 ms
  sender                  failed     100 ms  1,000 tokens
    executePlan           failed
      plan Notices        failed     100 ms
        action book       unknown    100 ms

produced:
  tasks/1/plan.md (design, planner, art_1): Plan
  All is well.
  Two notices went out.
cost:
  $0.6250 and 1 call without a known price; 4 model calls, 4,000 tokens in, 0 out
  in vain: 1,000 tokens
  kept out of prompts: 20.0 kB
  3 agent runs, 4 tool calls, 1 dispatched action"""
    )


DISPATCHES = (
    record("p", "root", "plan_execution", "Notices"),
    record("z", "p", "action", "actions.notify"),
    record("y", "p", "action", "actions.refund", "unknown"),
    *(record(f"x{n}", "p", "action", "actions.notify", rollup=rollup(1, 5)) for n in range(2)),
)
NOTIFY = {"z": [(3, "notify")], "y": [(2, "refund")], "x0": [(0, "notify")], "x1": [(1, "notify")]}


def test_actions_are_named_by_index_and_kind_in_the_order_of_the_plan() -> None:
    lines = Tree.from_record(tree(*DISPATCHES), NOTIFY).lines()
    assert [line.cells()[0].strip() for line in lines] == [
        "plan Notices",
        "action 0 notify",
        "action 1 notify",
        "action 2 refund",
        "action 3 notify",
    ]
    short = [one.cells() for one in fold(lines, 4)]
    assert short[1] == ["  actions 0-1 notify", "succeeded", "200 ms", "10 tokens", ""]
    assert short[2][:2] == ["  action 2 refund", "unknown"]


def test_batched_actions_are_named_and_counted() -> None:
    batch = [*((n, "notify") for n in range(40)), (41, "notify"), (40, "refund")]
    lines = render_work(QUERY, tree(*DISPATCHES[:2]), [], None, actions={"z": batch}, height=40, width=100)
    assert "  actions 0-39 notify, 40 refund, 41 notify  succeeded  100 ms" in lines
    assert lines[-1] == "  42 dispatched actions"


PLAN = {"id": "pln_1", "specName": "Notices", "status": "executed", "result": {"summary": "Two were sent."}}


def produced(*artifacts: dict[str, Any], plans: tuple[dict[str, Any], ...] = ()) -> list[str]:
    lines = render_work({**QUERY, "output": None}, DAY, artifacts, None, plans=plans, height=40, width=100)
    return lines[lines.index("produced:") + 1 : lines.index("cost:")]


def test_outcomes_of_plans_are_shown() -> None:
    revised = {**PLAN, "id": "pln_2", "status": "draft", "result": None, "feedback": "Only one."}
    odd = {**PLAN, "result": ["no", "object"]}
    rejected = {**revised, "id": "pln_3", "label": "Proposed", "decision": "reject"}
    assert produced(plans=(rejected, {**rejected, "decision": "revise"})) == [
        "  plan Notices (pln_3): Proposed, rejected: Only one.",
        "  plan Notices (pln_3): Proposed, to be revised: Only one.",
    ]
    assert produced(plans=(PLAN, revised, odd, PLAN)) == [
        "  plan Notices (pln_1): executed: Two were sent.",
        "  plan Notices (pln_2): draft: Only one.",
        "  plan Notices (pln_1): executed",
    ]


def test_a_long_plan_outcome_is_shown_below_it() -> None:
    said = "Split into AA 30, B6 42, DL 41, EV 43, UA 34, other 36. 30 vouchers for AA: 2,875.00 USD. Total 24,950.00."
    plan = {"id": "pln_" + "1" * 26, "specName": "Day", "status": "executed", "result": {"summary": said}}
    lines = render_work(QUERY, DAY, [], None, plans=[plan], height=40, width=60)
    at = lines.index(f"  plan Day (pln_{'1' * 26}): executed")
    assert lines[at + 1 : at + 4] == [
        "    Split into AA 30, B6 42, DL 41, EV 43, UA 34, other 36.",
        "    30 vouchers for AA: 2,875.00 USD. Total 24,950.00.",
        "  All is well.",
    ]
    three = render_work(QUERY, DAY, [], None, plans=[plan] * 3, height=40, width=60)
    assert three.count("    Split into AA 30, B6 42, DL 41, EV 43, UA 34, other 3...") == 3


def test_superseded_artifacts_are_counted() -> None:
    old = {**ART, "status": "superseded"}
    assert produced(ART, old, old) == [
        "  tasks/1/plan.md (design, planner, art_1): Plan",
        "  2 artifacts superseded or withdrawn: plangate artifacts --query qry_1 --superseded",
    ]


def test_waiting_work_shows_what_to_do() -> None:
    query = {**QUERY, "status": "waiting", "reason": "approval", "openApprovals": ["apr_1"], "output": None}
    said = shown(query, tree(ms=None)).splitlines()
    assert said[0] == "qry_1  waiting (approval), by chief"
    assert said[2] == "waits: plangate approvals approve apr_1"
    query |= {"reason": "limit_reached", "openApprovals": []}
    at_limit = render_work(query, DAY, [], "maxTurns", height=40, width=100)
    assert at_limit[0] == "qry_1  waiting (limit_reached: maxTurns) after 12.3 s, by chief"
    assert at_limit[2] == "waits: plangate queries resume qry_1 --max-turns N, higher than it was"


def test_unknown_outcomes_show_what_to_do() -> None:
    """A line for each dispatch: its actions are settled together."""
    query = {**QUERY, "status": "waiting", "reason": "outcome_unknown", "output": None}
    dispatches = [("pln_1", [(2, "book"), (1, "book")]), *(("pln_2", [(n, "pay")]) for n in range(4))]
    said = render_work(query, tree(ms=None), [], None, unknown=dispatches, height=40, width=100)
    assert said[2:8] == [
        "waits: plangate plans settle pln_1 1 OUTCOME, once somebody has looked at actions 1-2 book",
        "waits: plangate plans settle pln_2 0 OUTCOME, once somebody has looked at action 0 pay",
        "waits: plangate plans settle pln_2 1 OUTCOME, once somebody has looked at action 1 pay",
        "waits: plangate plans settle pln_2 2 OUTCOME, once somebody has looked at action 2 pay",
        "waits: 1 more like that: `plangate watch` names each",
        "",
    ]


def test_work_that_waits_for_a_program_names_it() -> None:
    query = {**QUERY, "status": "waiting", "reason": "client_call", "output": None}
    calls = [
        {"name": "actions", "status": "open", "claimedBy": None},
        {"name": "actions", "status": "open", "claimedBy": None},
        {"name": "measure", "status": "claimed", "claimedBy": "ann"},
        {"name": "measure", "status": "done", "claimedBy": "ann"},
    ]
    said = render_work(query, tree(ms=None), [], None, calls=calls, height=40, width=100)
    assert said[2:5] == [
        "waits: 2 calls of actions open: start the program that serves actions",
        "waits: 1 call of measure taken by ann",
        "",
    ]


def test_failed_work_shows_the_reason() -> None:
    error = {"code": "max_turns", "message": "It did not come to an end."}
    said = shown({**QUERY, "status": "failed", "reason": "max_turns", "error": error, "output": None}, tree())
    assert said.splitlines()[0] == "qry_1  failed (max_turns) after 12.3 s, by chief"
    assert "error: max_turns: It did not come to an end." in said.splitlines()


def test_an_error_is_shown_completely() -> None:
    error = {
        "code": "provider_rejected_request",
        "message": "The model said: " + "no " * 40 + "and that is all.",
    }
    said = shown({**QUERY, "status": "failed", "error": error, "output": None}, tree())
    lines = said[said.index("error: ") : said.index("\n\n")].splitlines()
    assert [len(line) <= 100 for line in lines] == [True, True]
    assert " ".join(line[7:] for line in lines) == f"{error['code']}: {error['message']}"
    assert "produced:\n  nothing\n" in said


@pytest.mark.parametrize(
    ("used", "line"),
    [
        (rollup(2, 10), "$0.00; 2 model calls, 10 tokens in, 0 out"),
        (rollup(2, 10, None, 2), "no price is known; 2 model calls, 10 tokens in, 0 out"),
        (rollup(1, 1_000_000, 1.5), "$1.50; 1 model call, 1,000,000 tokens in, 0 out"),
    ],
)
def test_an_unknown_price_is_not_zero(used: dict[str, Any], line: str) -> None:
    assert f"cost:\n  {line}" in shown(QUERY, tree(rollup=used))


def test_nested_failed_work_counts_once() -> None:
    assert wasted_usage(Tree.from_record(DAY)) == (1000, None)
    inner = record("b", "a", "tool_call", "x", "cancelled", rollup=rollup(1, 400, 0.5))
    top = tree(record("a", "root", "agent", "chief", "failed", rollup=rollup(2, 1000, 0.75)), inner)
    assert wasted_usage(Tree.from_record(top)) == (1000, 0.75)


# -- one screen


def line(depth: int, what: str, status: str = "succeeded") -> Line:
    return Line(depth, what, status, 10, rollup(1, 5, 0.25))


def whats(lines: list[Line]) -> list[tuple[int, str, int]]:
    return [(one.depth, one.what, one.count) for one in lines]


def test_a_tree_that_fits_is_unchanged() -> None:
    lines = [line(0, "a"), line(1, "x"), line(1, "x")]
    assert fold(lines, 3) == lines


def test_equal_neighbors_are_merged() -> None:
    lines = [
        line(0, "a"),
        *[line(1, "x")] * 5,
        line(1, "x", "failed"),
        line(1, "x"),
        line(2, "y"),
        line(1, "x"),
    ]
    short = fold(lines, 6)
    assert whats(short) == [(0, "a", 1), (1, "x", 5), (1, "x", 1), (1, "x", 1), (2, "y", 1), (1, "x", 1)]
    together = short[1]
    assert together.ms == 50
    assert together.cells()[0] == "  x x5"
    assert together.cells()[3:] == ["25 tokens", "$1.25"]


def test_the_deepest_lines_are_dropped_first_and_counted() -> None:
    lines = [line(0, "a"), *(part for n in range(20) for part in (line(1, f"b{n}"), line(2, f"c{n}")))]
    short = fold(lines, 30)
    assert len(short) == 30
    assert [one.what for one in short if one.depth == 1] == [f"b{n}" for n in range(20)]
    assert [one.what for one in short if one.depth == 2] == [f"c{n}" for n in range(8)]
    assert short[-1].what == "12 more: --all shows them"
    short = fold(lines, 10)
    assert [one.what for one in short] == ["a", *(f"b{n}" for n in range(8)), "32 more: --all shows them"]
    flat = fold([line(0, f"a{n}") for n in range(100)], 10)
    assert [one.what for one in flat] == [*(f"a{n}" for n in range(9)), "91 more: --all shows them"]


@pytest.mark.long
@pytest.mark.parametrize(("width", "height"), [(40, 60), (80, 24), (200, 40)])
def test_ten_thousand_records_fit_on_a_screen(height: int, width: int) -> None:
    below = [record("a", "root", "agent", "chief")]
    for n in range(2000):
        below += [
            record(f"t{n}", "a", "tool_call", "call_agent"),
            record(f"b{n}", f"t{n}", "agent", f"helper {n % 7}"),
            *(record(f"x{n}.{m}", f"b{n}", "tool_call", f"tool {m} of {n}") for m in range(3)),
        ]
    query = {**QUERY, "output": "line\n" * 500, "prompt": "long " * 1000}
    many = [{**ART, "id": f"art_{n}"} for n in range(50)]
    lines = render_work(query, tree(*below), many, None, height=height, width=width)
    assert len(lines) <= max(height, 30)
    assert max(map(len, lines)) <= max(width, 130)
    if height == 24:  # without a height, once for each width
        assert len(render_work(query, tree(*below), many, None, height=None, width=width)) > 8000


def test_record_strings_are_escaped_for_the_terminal() -> None:
    kept = {"kind", "id", "parentId"}

    def bad(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: v if k in kept and "parentId" in value else bad(v) for k, v in value.items()}
        return [bad(v) for v in value] if isinstance(value, list) else hostile(value)

    query = bad({**QUERY, "reason": "x", "openApprovals": ["x"], "error": {"code": "x", "message": "y"}})
    plans = [bad(PLAN), bad({**PLAN, "result": None, "feedback": "x"})]
    calls = [{"name": HOSTILE, "status": status, "claimedBy": HOSTILE} for status in ("open", "claimed")]
    top, made = bad(DAY), [bad(ART)] * 9
    actions = {"x": [(0, HOSTILE), (1, HOSTILE)]}
    lines = render_work(
        query, top, made, HOSTILE, plans=plans, calls=calls, actions=actions, height=None, width=100
    )
    assert all(harmless(one) and "\n" not in one for one in lines)
