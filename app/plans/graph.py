"""A plan as a graph: an action that reads a path runs after the actions that write it, a prefix or an extension of it.

Pure: from actions to who waits for whom, and to what is wrong with that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import chain, islice
from typing import Any, Final

from plangate.spec.plan_schemas import resolve
from plangate.spec.variable_schemas import OUTPUT_METHOD, OUTPUT_PATH
from plangate.spec.variables import VariablePath, VariableUse, replace_variables

from app.base.errors import MAX_COLLECTED_ERRORS, FieldError
from app.plans.body import Action
from app.variables.values import MAX_PARTS, ParsedCall, VariableError, count_path_parts, parse_call, preview

STORED: Final = ("ref", "artifact")
"""Kinds that no action writes: they are no part of the graph."""

REF: Final = "ref"

MAX_FLAWS: Final = MAX_COLLECTED_ERRORS
MAX_LINKS: Final = 50_000
Refusal = Callable[[VariablePath], str | None]
"""Why a reference has no value before the plan runs; None where it has one, or may have."""


@dataclass(frozen=True, slots=True)
class PlanStep:
    """An action as a node of the graph."""

    index: int
    call: ParsedCall

    def names(self) -> Iterator[VariablePath]:
        """Return every path that the action reads, including stored references."""
        for found in self.call.found:
            yield from found.expression.paths()

    def reads(self) -> Iterator[VariablePath]:
        """Return the paths that the action reads, except stored references."""
        return (reference for reference in self.names() if reference.kind != REF)

    def writes(self) -> Iterator[VariablePath]:
        """Return the paths that the action's result may go to."""
        for alternative in self.call.output.alternatives if self.call.output else ():
            yield from alternative


def parse_steps(actions: Sequence[Action]) -> tuple[list[PlanStep], list[FieldError]]:
    """Return the actions with their variables and output paths, and the errors in how those are written."""
    if count_path_parts([[action.payload, action.output_path] for action in actions]) > MAX_PARTS:
        told = f"the paths that they read and write have more than {MAX_PARTS} parts together: make several plans"
        return [], [FieldError("/actions", told)]
    steps, flaws = [], []
    for n, action in enumerate(actions):
        meta = {OUTPUT_PATH: action.output_path, OUTPUT_METHOD: action.output_method}
        try:
            call = parse_call(
                {**action.payload, **{k: v for k, v in meta.items() if v is not None}}, (), prescribed=None
            )
            call.roots()
        except VariableError as error:
            flaws.append(FieldError(f"/actions/{n}", str(error)))
        else:
            steps.append(PlanStep(n, call))
    return steps, flaws


@dataclass(slots=True)
class _PathNode:
    """A place in a tree of paths: who is here, and who is here or below."""

    here: int = 0
    below: int = 0
    children: dict[str, _PathNode] = field(default_factory=dict)


class PathIndex:
    """Which actions write where. Sets of actions are integers, bit n for action n: a plan has a thousand of them, and
    each of its paths may concern all."""

    def __init__(self) -> None:
        self._root = _PathNode()

    def add(self, path: VariablePath, writer: int) -> None:
        node, bit = self._root, 1 << writer
        for key in _keys(path):
            node = node.children.setdefault(key, _PathNode())
            node.below |= bit
        node.here |= bit

    def overlapping(self, path: VariablePath) -> int:
        """Those at the path, a prefix or an extension of it."""
        node, found = self._root, 0
        for key in _keys(path):
            inner = node.children.get(key)
            if inner is None:
                return found
            node = inner
            found |= node.here
        return found | node.below

    def has_writer_below(self, path: VariablePath) -> bool:
        """Return whether an action writes a part of what is at the path."""
        node = self._root
        for key in _keys(path):
            if key not in node.children:
                return False
            node = node.children[key]
        return bool(node.children)


def _has_escaped_string(value: Any) -> bool:
    """Return whether a string in the value begins with a dagger."""
    seen: list[str] = []
    replace_variables(value, seen.append)
    return bool(seen)


def _keys(path: VariablePath) -> Iterator[str]:
    yield path.kind
    yield from (segment.key for segment in path.path)


def _bits(actions: int) -> Iterator[int]:
    while actions:
        lowest = actions & -actions
        yield lowest.bit_length() - 1
        actions ^= lowest


class PlanGraph:
    """Who waits for whom. `needs[n]` are the actions that action n waits for."""

    def __init__(self, steps: Sequence[PlanStep]) -> None:
        self.steps = tuple(steps)
        self._paths = PathIndex()
        self._added = PathIndex()  # what is written to, and not set
        self._writers: dict[VariablePath, int] = {}
        for step in steps:
            adds = self._method(step.index) != "set"
            for path in step.writes():
                self._paths.add(path, step.index)
                if adds:
                    self._added.add(path, step.index)
        self.needs = tuple(frozenset(_bits(self._writers_of_all(step.reads()))) for step in steps)

    @classmethod
    def of(cls, actions: Sequence[Action]) -> PlanGraph:
        """Return the graph of a stored plan."""
        steps, flaws = parse_steps(actions)
        if flaws:
            raise VariableError(flaws[0].message)
        return cls(steps)

    @property
    def has_variables(self) -> bool:
        """Return whether any action has a variable, an escaped literal, or an output path. Then actions are
        sent one at a time, in order."""
        return any(
            step.call.found or step.call.output or _has_escaped_string(step.call.args) for step in self.steps
        )

    def writers(self, reference: VariablePath) -> int:
        """Return the actions that write the path, a prefix or an extension of it, as bits."""
        if reference.kind in STORED:
            return 0
        found = self._writers.get(reference)
        if found is None:
            found = self._writers[reference] = self._paths.overlapping(reference)
        return found

    def producers(self, reference: VariablePath) -> list[int]:
        """Return the actions that write the path, a prefix or an extension of it, in order."""
        return list(_bits(self.writers(reference)))

    def is_overwritten(self, reference: VariablePath) -> bool:
        """Return whether the value at the path before the plan runs is never read, because an action
        replaces all of it first."""
        parts = self._paths.has_writer_below(reference) or self._added.overlapping(reference)
        return bool(self.writers(reference)) and not parts

    def _writers_of_all(self, references: Iterable[VariablePath]) -> int:
        found = 0
        for reference in references:
            found |= self.writers(reference)
        return found

    def depends_on_action(self, found: VariableUse) -> bool:
        """Return whether the value of the variable can come from an action."""
        return any(self.writers(reference) for reference in found.expression.paths())

    def stored(self) -> set[VariablePath]:
        """Return the stored references that variables lead to, or into."""
        return {reference for step in self.steps for reference in step.names() if reference.kind == REF}

    def roots(self) -> set[VariablePath]:
        """Return the documents that the plan reads or writes."""
        read = {root for step in self.steps for root in step.call.roots()}
        return read | {VariablePath(path.kind) for step in self.steps for path in step.writes()}

    # -- what is wrong with it -------------------------------------------------------------------------------

    def flaws(self, refusal: Refusal) -> list[FieldError]:
        """Cycles, writers in no order, and readings of what nothing provides; at most 20."""
        return (
            self._tangle()
            or self._cycle()
            or list(islice(chain(self._conflicts(), self._dangling_errors(refusal)), MAX_FLAWS))
        )

    def _tangle(self) -> list[FieldError]:
        """Return an error if the plan has too many dependencies: an approval names the writers of each path
        that is read, and a person must be able to read that."""
        paths = {read for step in self.steps for read in step.reads()}
        links = sum(self.writers(path).bit_count() for path in paths)
        if links <= MAX_LINKS:
            return []
        told = f"between the paths that are read and their writers there are {links} links, more than {MAX_LINKS}"
        return [FieldError("/actions", f"{told}: read whole documents, or make several plans")]

    def order(self) -> list[int]:
        """Return the actions in topological order. Actions in a cycle, or behind one, are left out."""
        left = [len(needs) for needs in self.needs]
        waiting: list[list[int]] = [[] for _ in self.steps]
        for n, needs in enumerate(self.needs):
            for need in needs:
                waiting[need].append(n)
        ready = [n for n, count in enumerate(left) if not count]
        for done in ready:  # grows as it is walked
            for n in waiting[done]:
                left[n] -= 1
                if not left[n]:
                    ready.append(n)
        return ready

    def _cycle(self) -> list[FieldError]:
        stuck = set(range(len(self.steps))) - set(self.order())
        if not stuck:
            return []
        at, seen = min(stuck), list[int]()
        while at not in seen:
            seen.append(at)
            at = min(self.needs[at] & stuck)
        around = seen[seen.index(at) :]
        first = around.index(min(around))
        around = [*around[first:], *around[:first]]
        told = []
        for n, need in zip(around, [*around[1:], around[0]], strict=True):
            path = next(read for read in self.steps[n].reads() if self.writers(read) >> need & 1)
            writer = "it writes itself" if need == n else f"action {need} writes"
            told.append(f"action {n} reads {preview(str(path))}, which {writer}")
        listed = "; ".join([*told[:5], *(["and so on"] if told[5:] else [])])
        return [FieldError(f"/actions/{around[0]}", f"the plan has a cycle: {listed}")]

    def _conflicts(self) -> Iterator[FieldError]:
        """Two writers of one path of which neither runs after the other, where one of them sets it."""
        before = [0] * len(self.steps)
        order = self.order()
        for n in order:
            for need in self.needs[n]:
                before[n] |= before[need] | 1 << need
        after = [0] * len(self.steps)
        for n in reversed(order):
            for need in self.needs[n]:
                after[need] |= after[n] | 1 << n
        setting = sum(1 << step.index for step in self.steps if self._method(step.index) == "set")
        for step in self.steps:
            n = step.index
            left = ((1 << n) - 1) & ~before[n] & ~after[n]  # earlier ones in no order with it, not told yet
            if not setting >> n & 1:
                left &= setting
            for path in step.writes():
                for other in _bits(self.writers(path) & left):
                    left ^= 1 << other
                    yield FieldError(
                        f"/actions/{n}/{OUTPUT_PATH}",
                        f"actions {other} and {n} both write {preview(str(path))}, in no order, and `set` keeps only "
                        f"one of them: write to different paths, or give both the {OUTPUT_METHOD} push or merge",
                    )

    def _method(self, n: int) -> str:
        output = self.steps[n].call.output
        return output.method if output else ""

    def _dangling_errors(self, refusal: Refusal) -> Iterator[FieldError]:
        for step in self.steps:
            for found in step.call.found:
                reasons = [self._missing_reason(refs, refusal) for refs in found.expression.alternatives]
                if None not in reasons:
                    told = "; ".join(reason for reason in reasons if reason)
                    yield FieldError(
                        f"/actions/{step.index}{found.pointer}",
                        f"nothing provides {preview(found.text)}, and no action writes it: {told}",
                    )

    def _missing_reason(self, references: Iterable[VariablePath], refusal: Refusal) -> str | None:
        for reference in references:
            reason = None if self.writers(reference) else refusal(reference)
            if reason is not None:
                return reason.rstrip(".")
        return None


class ExecutionOrder:
    """Which actions may run now: those whose needs are met, the first of them first, and before these `under_way`, which
    were sent before a crash."""

    def __init__(self, needs: Sequence[Set[int]], under_way: Set[int] = frozenset()) -> None:
        self._left = [len(own) for own in needs]
        self._waiting: list[list[int]] = [[] for _ in needs]
        for n, own in enumerate(needs):
            for need in own:
                self._waiting[need].append(n)
        self._under_way = under_way
        self._ready = [self._insert(n) for n, count in enumerate(self._left) if not count]
        heapify(self._ready)
        self._over: set[int] = set()

    def _insert(self, n: int) -> tuple[bool, int]:
        return n not in self._under_way, n

    @property
    def finished(self) -> bool:
        return len(self._over) == len(self._left)

    @property
    def ready(self) -> int:
        return len(self._ready)

    def take(self) -> int | None:
        """Return the next action that may run, or None while all remaining actions wait for others."""
        while self._ready:
            _, n = heappop(self._ready)
            if n not in self._over:
                return n
        return None

    def done(self, n: int) -> None:
        """Mark an action as over: the actions that waited only for it may run."""
        self._over.add(n)
        for other in self._waiting[n]:
            self._left[other] -= 1
            if not self._left[other]:
                heappush(self._ready, self._insert(other))


def input_exclusion(schema: Mapping[str, Any] | None, reference: VariablePath) -> str | None:
    """Why an `inputSchema` has no room for an input, if so."""
    here: Any = schema or {}
    for segment in reference.path:
        here = resolve(schema or {}, here)
        said, properties = here.get("type", ["object", "array"]), here.get("properties")
        types = said if isinstance(said, list) else [said]
        closed = here.get("additionalProperties") is False and not here.get("patternProperties")
        if isinstance(properties, Mapping) and segment.key in properties and "object" in types:
            here = properties[segment.key]
            if here is not False:
                continue
        elif ("object" in types and not closed) or ("array" in types and segment.index is not None):
            return None
        return f"the runtime's inputSchema has no {preview(segment.key)}"
    return None
