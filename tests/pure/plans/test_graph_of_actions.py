"""Plans as graphs: dependencies, errors, and properties of every graph."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plangate.spec.variables import Expression, VariablePath, parse

from app.base.errors import MAX_COLLECTED_ERRORS
from app.plans.body import Action
from app.plans.graph import MAX_ERRORS, ExecutionOrder, PathIndex, PlanGraph, input_exclusion, parse_steps
from app.variables.values import VariableError


def ref(text: str) -> VariablePath:
    parsed = parse(text)
    assert isinstance(parsed, Expression)
    (found,) = parsed.paths()
    return found


def action(reads: Sequence[str] = (), path: str | None = None, method: str | None = None) -> Action:
    return Action("do", {"reads": list(reads)}, (), path, method)


def graph(*actions: Action) -> PlanGraph:
    steps, flaws = parse_steps(actions)
    assert flaws == []
    return PlanGraph(steps)


def told(*actions: Action, refusal: Callable[[VariablePath], str | None] = lambda _: None) -> list[str]:
    return [f"{flaw.pointer}: {flaw.message}" for flaw in graph(*actions).errors(refusal)]


# -- what holds for every graph

SEGMENTS = st.sampled_from(["a", "b", "0", '"0"', '"x y"', '"."'])
PATHS = st.builds(
    lambda kind, keys: ".".join([f"†{kind}", *keys]),
    st.sampled_from(["state", "shop"]),
    st.lists(SEGMENTS, max_size=3),
)
ANDS = st.lists(PATHS, min_size=1, max_size=2).map(" && ".join)
EXPRESSIONS = st.lists(ANDS, min_size=1, max_size=2).map(" || ".join)
METHODS = st.sampled_from([None, "set", "push", "merge"])
ACTIONS = st.builds(
    lambda reads, path, method: action(reads, path, method if path else None),
    st.lists(EXPRESSIONS, max_size=2),
    st.none() | EXPRESSIONS,
    METHODS,
)
PLANS = st.lists(ACTIONS, max_size=9)


def is_near(a: VariablePath, b: VariablePath) -> bool:
    """Whether one path is the other, or leads to it: segment by segment, one begins with the other."""
    keys = [[x.kind, *(segment.key for segment in x.path)] for x in (a, b)]
    shorter = min(map(len, keys))
    return keys[0][:shorter] == keys[1][:shorter]


def ancestors(needs: Sequence[frozenset[int]]) -> list[set[int]]:
    found: list[set[int]] = []
    for n in range(len(needs)):
        seen: set[int] = set()
        left = [n]
        while left:
            more = needs[left.pop()] - seen
            seen |= more
            left += more
        found.append(seen)
    return found


@given(PATHS.map(ref), PATHS.map(ref))
def test_overlap_is_symmetric(a: VariablePath, b: VariablePath) -> None:
    for at, asked in [(a, b), (b, a)]:
        tree = PathIndex()
        tree.add(at, 0)
        assert tree.overlapping(at) == 1
        assert tree.overlapping(asked) == is_near(a, b)


@given(st.lists(PATHS.map(ref), max_size=9), PATHS.map(ref))
def test_exactly_the_overlapping_paths_are_found(paths: list[VariablePath], asked: VariablePath) -> None:
    tree = PathIndex()
    for n, path in enumerate(paths):
        tree.add(path, n)
    assert tree.overlapping(asked) == sum(1 << n for n, path in enumerate(paths) if is_near(asked, path))


@given(PLANS)
def test_an_action_depends_on_the_writers_of_its_reads(actions: list[Action]) -> None:
    made = graph(*actions)
    for step in made.steps:
        wanted = {
            other.index
            for other in made.steps
            if any(is_near(read, written) for read in step.reads() for written in other.writes())
        }
        assert made.needs[step.index] == wanted
        assert {n for read in step.reads() for n in made.producers(read)} == wanted


@given(PLANS)
def test_every_order_respects_needs_and_a_cycle_is_always_found(actions: list[Action]) -> None:
    made = graph(*actions)
    order = made.order()
    assert len(set(order)) == len(order)
    for at, n in enumerate(order):
        assert made.needs[n] <= set(order[:at])
    flaws = made.errors(lambda _: None)
    cyclic = [flaw for flaw in flaws if "the plan has a cycle" in flaw.message]
    try:
        list(TopologicalSorter(dict(enumerate(made.needs))).static_order())
    except CycleError:
        assert flaws == cyclic
        assert len(cyclic) == 1
        assert len(order) < len(actions)
        index = int(cyclic[0].pointer.removeprefix("/actions/"))
        assert index in ancestors(made.needs)[index]
    else:
        assert not cyclic
        assert sorted(order) == list(range(len(actions)))


@given(PLANS)
def test_writers_in_no_order_are_always_found(actions: list[Action]) -> None:
    made = graph(*actions)
    found = [flaw for flaw in made.errors(lambda _: None) if "both write" in flaw.message]
    if len(made.order()) < len(actions):
        assert not found
        return
    before, wanted = ancestors(made.needs), set[tuple[int, int]]()
    for b in made.steps:
        for a in made.steps[: b.index]:
            near = any(is_near(x, y) for x in a.writes() for y in b.writes())
            ordered = a.index in before[b.index] or b.index in before[a.index]
            sets = any(step.call.output and step.call.output.method == "set" for step in (a, b))
            if near and sets and not ordered:
                wanted.add((a.index, b.index))
    assert len(found) == min(len(wanted), MAX_ERRORS)
    assert {tuple(map(int, flaw.message.split(" ")[1:4:2])) for flaw in found} <= wanted


@given(PLANS, st.randoms(use_true_random=False), st.sets(st.integers(0, 8)))
def test_every_action_runs_once_after_its_dependencies(
    actions: list[Action], random: Any, under_way: set[int]
) -> None:
    made = graph(*actions)
    order, running, over = ExecutionOrder(made.needs, under_way), list[int](), set[int]()
    while not order.finished:
        while (n := order.take()) is not None:
            assert made.needs[n] <= over
            assert n not in over and n not in running
            running.append(n)
        if not running:
            break
        ended = running.pop(random.randrange(len(running)))
        following = order.reserve_after(ended) if random.random() < 0.5 else None
        if following is not None and random.random() < 0.3:
            order.put_back(following)
            following = None
        over.add(ended)
        order.done(ended)
        if following is not None:
            assert made.needs[following] <= over
            assert following not in over and following not in running
            running.append(following)
    assert over == set(made.order())
    assert order.finished == (len(over) == len(actions))


def test_actions_sent_before_a_crash_come_first() -> None:
    order = ExecutionOrder([frozenset(), frozenset({5}), frozenset({5}), *[frozenset()] * 4], {4, 6})
    order.done(5)
    assert [order.take() for _ in range(7)] == [4, 6, 0, 1, 2, 3, None]


def test_a_reserved_action_is_taken_by_nobody_else() -> None:
    order = ExecutionOrder([frozenset(), frozenset({0}), frozenset({0}), frozenset()])
    assert (order.take(), order.reserve_after(0)) == (0, 1)
    order.put_back(1)
    assert order.reserve_after(0) == 1
    order.done(0)
    assert [order.take(), order.take(), order.take()] == [2, 3, None]
    assert order.reserve_after(2) is None


def test_ended_actions_are_not_selected_again() -> None:
    order = ExecutionOrder([frozenset(), frozenset(), frozenset({0})])
    order.done(0)
    assert [order.take(), order.take(), order.take()] == [1, 2, None]
    assert not order.finished


# -- the words


def test_a_cycle_names_its_actions_and_paths() -> None:
    assert told(
        action(["†state.a.x"], "†state.b"), action(["†shop"], "†state.c"), action(["†state.b"], "†state.a")
    ) == [
        '/actions/0: the plan has a cycle: action 0 reads "†state.a.x", which action 2 writes; action 2 reads '
        '"†state.b", which action 0 writes'
    ]
    assert told(action(["†state.n"], "†state.n.x")) == [
        '/actions/0: the plan has a cycle: action 0 reads "†state.n", which it writes itself'
    ]


def test_the_error_about_a_long_cycle_is_truncated() -> None:
    ring = [action([f"†state.n{n}"], f"†state.n{(n + 1) % 9}") for n in range(9)]
    (flaw,) = told(*ring)
    assert flaw.endswith('action 5 reads "†state.n5", which action 4 writes; and so on')
    assert flaw.count("reads") == 5


def test_actions_behind_a_cycle_are_not_reported_as_part_of_it() -> None:
    (flaw,) = told(action(["†state.b"]), action(["†state.b"], "†state.a"), action(["†state.a"], "†state.b"))
    assert flaw.startswith("/actions/1: the plan has a cycle: action 1 reads")


@pytest.mark.parametrize(
    ("first", "second", "path"),
    [
        (("†state.a", None), ("†state.a", None), "†state.a"),
        (("†state.a", "set"), ("†state.a.b", "set"), "†state.a.b"),
        (("†state.a.b.0", None), ("†state.a", None), "†state.a"),
        (("†state.a", "push"), ("†state.a", None), "†state.a"),
        (("†shop.a", None), ("†shop", "merge"), "†shop"),
        (("†state.x && †state.a", None), ("†state.a || †state.b", None), "†state.a"),
        (("†state.x || †state.b", None), ("†state.a || †state.b", None), "†state.b"),
    ],
)
def test_unordered_writers_are_rejected_if_one_sets(first: Any, second: Any, path: str) -> None:
    assert told(action((), *first), action((), *second)) == [
        f'/actions/1/_outputPath: actions 0 and 1 both write "{path}", in no order, and `set` keeps only one of them: '
        "write to different paths, or give both the _outputMethod push or merge"
    ]


@pytest.mark.parametrize(
    "actions",
    [
        [action((), "†state.a", "push"), action((), "†state.a", "push")],
        [action((), "†state.a", "merge"), action((), "†state.a.b", "assign")],
        [action((), "†state.a"), action((), "†state.ab"), action((), "†shop.a"), action((), "†state.b.a")],
        [action((), "†state.a"), action(["†state.a.b"], "†shop"), action(["†shop.x"], "†state.a")],
        [action(["†state.a"], "†state.b"), action((), "†state.a")],
    ],
)
def test_ordered_or_merging_writers_are_accepted(actions: list[Action]) -> None:
    made = graph(*actions)
    assert not [flaw for flaw in made.errors(lambda _: None) if "both write" in flaw.message]


def test_a_variable_without_a_value_is_reported_per_alternative() -> None:
    def refusal(reference: VariablePath) -> str | None:
        return None if reference.kind == "input" else f"no {reference.kind} here."

    found = told(
        action(["†input.x", "†state.a || †input.x"]),
        action(["††state", "†state.made"], "†shop"),
        action(["†state.a && †input.x || †other.b && †state.c"]),
        action(["†input.a && †state.a", "†state.made.it && †input.b"], "†state.made"),
        refusal=refusal,
    )
    assert found == [
        '/actions/3: the plan has a cycle: action 3 reads "†state.made.it", which it writes itself',
    ]
    assert told(
        action(["†state.a || †input.x", "†state.a && †input.x || †other.b && †state.c"]),
        action(["†state.made"], "†shop"),
        action(["†input.a && †state.a", "†input.b"], "†state.made"),
        refusal=refusal,
    ) == [
        '/actions/0/reads/1: nothing provides "†state.a && †input.x || †other.b && †state.c", and no action writes it: '
        "no state here; no other here",
        '/actions/2/reads/0: nothing provides "†input.a && †state.a", and no action writes it: no state here',
    ]


def test_stored_values_are_not_part_of_the_graph() -> None:
    made = graph(action([f"†ref.Seats.{'f' * 64}.rows.0", "†state.a"]), action((), "†state.a"))
    assert made.needs == (frozenset({1}), frozenset())
    assert list(map(str, made.stored_references())) == [f"†ref.Seats.{'f' * 64}.rows.0"]
    assert set(map(str, made.roots())) == {f"†ref.Seats.{'f' * 64}", "†state"}


def test_the_flaws_are_bounded() -> None:
    many = [action([f"†state.n{n}"], "†state.x") for n in range(30)]
    assert len(told(*many, refusal=lambda _: "no")) == MAX_ERRORS == MAX_COLLECTED_ERRORS


# -- how actions are written


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (
            action(["ok", "†state..a"]),
            '/reads/1 is "†state..a": at character 7: a segment is missing here; quote one that is empty or has . " | & '
            "or a space. A text that starts with † but is not a variable is written with two of them.",
        ),
        (
            action(["†"]),
            '/reads/0 is "†": at character 1: the kind of a reference has letters, digits, _ and -, at least one. A text '
            "that starts with † but is not a variable is written with two of them.",
        ),
        (
            action(["†state.a || 5"]),
            '/reads/0 is "†state.a || 5": at character 12: a reference begins with †; there are no literals and no '
            "parentheses. A text that starts with † but is not a variable is written with two of them.",
        ),
        (
            action((), "†state.a|†state.b"),
            "_outputPath is \"†state.a|†state.b\": at character 8: '|' cannot stand here; quote a segment that has it.",
        ),
        (action((), "state.a"), '_outputPath is "state.a": a variable begins with †.'),
        (action((), "††state.a"), '_outputPath is "††state.a": a variable begins with †.'),
        (action((), "†state.a", "append"), "_outputMethod is one of set, merge, assign, push, concat."),
        (
            action((), None, "push"),
            "_outputMethod says how a result is written, and _outputPath is missing.",
        ),
        (action((), "†s." + "a" * 2000), "_outputPath is a variable of at most 2000 characters."),
        (
            action(["†ref.Seats"]),
            '"†ref.Seats": a stored reference is †ref.<Kind>.<id>, as its handle says.',
        ),
        (
            action(["†artifact"]),
            '"†artifact": an artifact is †artifact.<id>, its text †artifact.<id>.content.',
        ),
        *(
            (
                action((), f"†state.ok && †{kind}.a"),
                f'_outputPath: "†{kind}.a" cannot be written, †{kind} is read-only. Write to †state, to †memory or to a '
                "data object of the query, such as †results.",
            )
            for kind in ("input", "ref", "artifact")
        ),
    ],
)
def test_errors_in_variables_name_their_action(one: Action, message: str) -> None:
    steps, flaws = parse_steps([action(), one])
    assert [step.index for step in steps] == [0]
    assert [(flaw.pointer, flaw.message) for flaw in flaws] == [("/actions/1", message)]
    with pytest.raises(VariableError):
        PlanGraph.of([one])


@pytest.mark.parametrize(
    ("actions", "is_one"),
    [
        ([action(["plain", "a † b"])], False),
        ([action(), action(["†state.a"])], True),
        ([action(), action((), "†state.a")], True),
        ([action(["††two are a literal that dispatch sees with one"])], True),
    ],
)
def test_a_plan_with_variables_or_paths_is_a_graph(actions: list[Action], is_one: bool) -> None:
    assert graph(*actions).has_variables is is_one


# -- inputs

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "who": {"$ref": "#/$defs/Who"},
        "rows": {"type": "array", "items": {"type": "object", "additionalProperties": False}},
        "free": {},
        "never": False,
        "either": {"type": ["array", "object"], "additionalProperties": False},
    },
    "additionalProperties": False,
    "$defs": {
        "Who": {
            "properties": {"name": {"type": ["string", "null"]}},
            "patternProperties": {"^x-": {}},
            "additionalProperties": False,
        }
    },
}


@pytest.mark.parametrize(
    ("path", "lacking"),
    [
        ("†input", None),
        ("†input.n", None),
        ("†input.n.x", "x"),
        ("†input.who.name", None),
        ("†input.who.x-more", None),
        ("†input.who.name.first", "first"),
        ("†input.rows.0.a", None),
        ("†input.rows.first", "first"),
        ("†input.free.any.thing", None),
        ("†input.never", "never"),
        ("†input.either.0", None),
        ("†input.either.a", "a"),
        ('†input."n.x"', "n.x"),
        ("†input.more.of.it", "more"),
    ],
)
def test_an_input_outside_the_schema_is_rejected(path: str, lacking: str | None) -> None:
    wanted = None if lacking is None else f'the runtime\'s inputSchema has no "{lacking}"'
    assert input_exclusion(SCHEMA, ref(path)) == wanted
    assert input_exclusion(None, ref(path)) is None


# -- cost

CHAIN = "a chain"


def large(shape: str, n: int) -> list[Action]:
    if shape == CHAIN:
        return [action([f"†state.p{i}"], f"†state.p{i + 1}") for i in range(n)]
    if shape == "a fan in":
        return [action((), "†state.all", "push") for _ in range(n - 1)] + [
            action(["†state.all"], "†state.end")
        ]
    if shape == "a fan out":
        return [action((), "†state.one")] + [action([f"†state.one.{i}"], f"†shop.{i}") for i in range(n - 1)]
    if shape == "a ring":
        return [action([f"†state.p{i}"], f"†state.p{(i + 1) % n}") for i in range(n)]
    if shape == "conflicts":
        return [action((), "†state.a") for _ in range(n)]
    return [action([f"†state.p{i}.{m}" for m in range(5)], f"†shop.p{i}") for i in range(n)]


def calls_of(work: Callable[[], Any]) -> int:
    """How many calls a piece of work makes, of Python's and of C's functions: what a clock would show, without noise."""
    count = 0

    def seen(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("shape", [CHAIN, "a fan in", "a fan out", "a ring", "conflicts", "dangling"])
def test_the_cost_is_linear_in_the_actions(shape: str) -> None:
    def work(n: int) -> Callable[[], Any]:
        actions = large(shape, n)

        def check() -> None:
            made = graph(*actions)
            made.errors(lambda _: "no")
            order = ExecutionOrder(made.needs)
            while (taken := order.take()) is not None:
                order.done(taken)

        return check

    work(10)()
    small, big = calls_of(work(100)), calls_of(work(1_000))
    assert big < 12 * small


@settings(max_examples=20)
@given(st.lists(st.integers(0, 999), min_size=1, max_size=5, unique=True))
def test_a_cycle_among_a_thousand_is_found(ring: list[int]) -> None:
    actions = [action((), f"†shop.p{i}") for i in range(1_000)]
    for at, n in enumerate(ring):
        actions[n] = action([f"†state.p{ring[at - 1]}"], f"†state.p{n}")
    (flaw,) = told(*actions)
    assert flaw.startswith(f"/actions/{min(ring)}: the plan has a cycle: action {min(ring)} reads")
    assert flaw.count("reads") == len(ring)
