"""A plan as a graph: an action that reads a path runs after the actions that write it, a prefix or an extension of it.

Pure: compute the dependencies of actions, and what is wrong with them.
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
from app.variables.values import (
    MAX_PARTS,
    ParsedCall,
    VariableError,
    count_path_parts,
    parse_call,
    preview,
)

STORED: Final = ("ref", "artifact")
"""Kinds that no action writes, so that they are not part of the graph."""

REF: Final = "ref"

MAX_ERRORS: Final = MAX_COLLECTED_ERRORS
MAX_LINKS: Final = 50_000
MissingReason = Callable[[VariablePath], str | None]
"""From a path to the reason why it has no value before the plan runs; None if it has one, or may have one."""


@dataclass(frozen=True, slots=True)
class PlanStep:
    """An action as a node of the graph."""

    index: int
    call: ParsedCall

    def paths(self) -> Iterator[VariablePath]:
        """Return every path that the action reads, including stored references."""
        for use in self.call.uses:
            yield from use.expression.paths()

    def reads(self) -> Iterator[VariablePath]:
        """Return the paths that the action reads, except stored references."""
        return (path for path in self.paths() if path.kind != REF)

    def writes(self) -> Iterator[VariablePath]:
        """Return the paths that the action's result may go to."""
        for alternative in self.call.output.alternatives if self.call.output else ():
            yield from alternative


def parse_steps(actions: Sequence[Action]) -> tuple[list[PlanStep], list[FieldError]]:
    """Return the actions with their variables and output paths, and the errors in how those are written."""
    if count_path_parts([[action.payload, action.output_path] for action in actions]) > MAX_PARTS:
        message = f"the paths that they read and write have more than {MAX_PARTS} parts together: make several plans"
        return [], [FieldError("/actions", message)]
    steps, errors = [], []
    for n, action in enumerate(actions):
        meta = {OUTPUT_PATH: action.output_path, OUTPUT_METHOD: action.output_method}
        try:
            call = parse_call(
                {**action.payload, **{k: v for k, v in meta.items() if v is not None}}, (), prescribed=None
            )
            call.roots()
        except VariableError as error:
            errors.append(FieldError(f"/actions/{n}", str(error)))
        else:
            steps.append(PlanStep(n, call))
    return steps, errors


@dataclass(slots=True)
class _PathNode:
    """A place in a tree of paths: the actions that write exactly here, and those that write here or below."""

    here: int = 0
    below: int = 0
    children: dict[str, _PathNode] = field(default_factory=dict)


class PathIndex:
    """The actions that write each path. A set of actions is an integer with bit n for action n: a plan may have a thousand
    actions, and each path may concern all of them."""

    def __init__(self) -> None:
        self._root = _PathNode()

    def add(self, path: VariablePath, writer: int) -> None:
        node, bit = self._root, 1 << writer
        for key in _keys(path):
            node = node.children.setdefault(key, _PathNode())
            node.below |= bit
        node.here |= bit

    def discard(self, paths: Iterable[VariablePath], writer: int) -> None:
        """Remove an action from all paths that it was added for."""
        for path in paths:
            node = self._root
            for key in _keys(path):
                node = node.children[key]
                node.below &= ~(1 << writer)
            node.here &= ~(1 << writer)

    def overlapping(self, path: VariablePath) -> int:
        """Return the actions that write the path, a prefix or an extension of it."""
        node, writers = self._root, 0
        for key in _keys(path):
            inner = node.children.get(key)
            if inner is None:
                return writers
            node = inner
            writers |= node.here
        return writers | node.below

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
    texts: list[str] = []
    replace_variables(value, texts.append)
    return bool(texts)


def _keys(path: VariablePath) -> Iterator[str]:
    yield path.kind
    yield from (segment.key for segment in path.path)


def _bits(actions: int) -> Iterator[int]:
    while actions:
        lowest = actions & -actions
        yield lowest.bit_length() - 1
        actions ^= lowest


class PlanGraph:
    """The dependencies of the actions of a plan. `needs[n]` are the actions that action n waits for."""

    def __init__(self, steps: Sequence[PlanStep]) -> None:
        self.steps = tuple(steps)
        self._paths = PathIndex()
        self._added = PathIndex()  # paths that are written, but not with `set`
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
        steps, errors = parse_steps(actions)
        if errors:
            raise VariableError(errors[0].message)
        return cls(steps)

    @property
    def has_variables(self) -> bool:
        """Return whether any action has a variable, an escaped literal, or an output path. Then actions are
        sent one at a time, in order."""
        return any(
            step.call.uses or step.call.output or _has_escaped_string(step.call.args) for step in self.steps
        )

    def writers(self, path: VariablePath) -> int:
        """Return the actions that write the path, a prefix or an extension of it, as bits."""
        if path.kind in STORED:
            return 0
        writers = self._writers.get(path)
        if writers is None:
            writers = self._writers[path] = self._paths.overlapping(path)
        return writers

    def producers(self, path: VariablePath) -> list[int]:
        """Return the actions that write the path, a prefix or an extension of it, in order."""
        return list(_bits(self.writers(path)))

    def is_overwritten(self, path: VariablePath) -> bool:
        """Return whether the value at the path before the plan runs is never read, because an action
        replaces all of it first."""
        parts = self._paths.has_writer_below(path) or self._added.overlapping(path)
        return bool(self.writers(path)) and not parts

    def _writers_of_all(self, paths: Iterable[VariablePath]) -> int:
        writers = 0
        for path in paths:
            writers |= self.writers(path)
        return writers

    def depends_on_action(self, use: VariableUse) -> bool:
        """Return whether the value of the variable can come from an action."""
        return any(self.writers(path) for path in use.expression.paths())

    def stored_references(self) -> set[VariablePath]:
        """Return the paths to stored references, or into them."""
        return {path for step in self.steps for path in step.paths() if path.kind == REF}

    def roots(self) -> set[VariablePath]:
        """Return the documents that the plan reads or writes."""
        read = {root for step in self.steps for root in step.call.roots()}
        return read | {VariablePath(path.kind) for step in self.steps for path in step.writes()}

    # -- errors ----------------------------------------------------------------------------------------------

    def errors(self, reason_of: MissingReason) -> list[FieldError]:
        """Return the errors of the graph: cycles, writers without an order, and variables that nothing provides."""
        return (
            self._excess_links()
            or self._cycle()
            or list(islice(chain(self._conflicts(), self._dangling_errors(reason_of)), MAX_ERRORS))
        )

    def _excess_links(self) -> list[FieldError]:
        """Return an error if the plan has too many dependencies: an approval names the writers of each path
        that is read, and a person must be able to read that."""
        paths = {read for step in self.steps for read in step.reads()}
        links = sum(self.writers(path).bit_count() for path in paths)
        if links <= MAX_LINKS:
            return []
        message = f"between the paths that are read and their writers there are {links} links, more than {MAX_LINKS}"
        return [FieldError("/actions", f"{message}: read whole documents, or make several plans")]

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
        at, visited = min(stuck), list[int]()
        while at not in visited:
            visited.append(at)
            at = min(self.needs[at] & stuck)
        around = visited[visited.index(at) :]
        first = around.index(min(around))
        around = [*around[first:], *around[:first]]
        reasons = []
        for n, need in zip(around, [*around[1:], around[0]], strict=True):
            path = next(read for read in self.steps[n].reads() if self.writers(read) >> need & 1)
            writer = "it writes itself" if need == n else f"action {need} writes"
            reasons.append(f"action {n} reads {preview(str(path))}, which {writer}")
        listed = "; ".join([*reasons[:5], *(["and so on"] if reasons[5:] else [])])
        return [FieldError(f"/actions/{around[0]}", f"the plan has a cycle: {listed}")]

    def _conflicts(self) -> Iterator[FieldError]:
        """Yield an error for two actions that write one path in no order, if one of them uses `set`."""
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
            left = (
                ((1 << n) - 1) & ~before[n] & ~after[n]
            )  # earlier ones in no order with it, not reported yet
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

    def unprovided(self, reason_of: MissingReason) -> Iterator[tuple[str, VariableUse, str]]:
        """Yield each variable that has no value and that no action writes: its pointer into the plan, and why."""
        for step in self.steps:
            for use in step.call.uses:
                reasons = [self._missing_reason(paths, reason_of) for paths in use.expression.alternatives]
                if None not in reasons:
                    why = "; ".join(reason for reason in reasons if reason)
                    yield f"/actions/{step.index}{use.pointer}", use, why

    def _dangling_errors(self, reason_of: MissingReason) -> Iterator[FieldError]:
        for pointer, use, why in self.unprovided(reason_of):
            message = f"nothing provides {preview(use.text)}, and no action writes it: {why}"
            yield FieldError(pointer, message)

    def _missing_reason(self, paths: Iterable[VariablePath], reason_of: MissingReason) -> str | None:
        for path in paths:
            reason = None if self.writers(path) else reason_of(path)
            if reason is not None:
                return reason.rstrip(".")
        return None


class ExecutionOrder:
    """The order in which actions run: actions that wait for no other, by index, but first those that are `in_flight`,
    which were sent before a crash."""

    def __init__(self, needs: Sequence[Set[int]], in_flight: Set[int] = frozenset()) -> None:
        self._left = [len(own) for own in needs]
        self._waiting: list[list[int]] = [[] for _ in needs]
        for n, own in enumerate(needs):
            for need in own:
                self._waiting[need].append(n)
        self._in_flight = in_flight
        self._ready = [self._insert(n) for n, count in enumerate(self._left) if not count]
        heapify(self._ready)
        self._finished: set[int] = set()
        self._reserved: set[int] = set()

    def _insert(self, n: int) -> tuple[bool, int]:
        return n not in self._in_flight, n

    @property
    def finished(self) -> bool:
        return len(self._finished) == len(self._left)

    @property
    def ready(self) -> int:
        return len(self._ready)

    def take(self) -> int | None:
        """Return the next action that may run, or None while all remaining actions wait for others."""
        while self._ready:
            _, n = heappop(self._ready)
            if n not in self._finished:
                return n
        return None

    def reserve_after(self, n: int) -> int | None:
        """Take the action that is the next to run once `n` is over, or return None if there is none. No other branch can take it.
        It runs after `done(n)`, or the caller puts it back."""
        freed = [
            self._insert(m)
            for m in self._waiting[n]
            if self._left[m] == 1 and m not in self._reserved and m not in self._finished
        ]
        while self._ready and self._ready[0][1] in self._finished:
            heappop(self._ready)
        following = min([*freed, *self._ready[:1]], default=None)
        if following is None:
            return None
        if self._ready[:1] == [following]:
            heappop(self._ready)
        self._reserved.add(following[1])
        return following[1]

    def put_back(self, n: int) -> None:
        """Give up an action that was reserved."""
        self._reserved.discard(n)
        if not self._left[n]:
            heappush(self._ready, self._insert(n))

    def done(self, n: int) -> None:
        """Mark an action as over: the actions that waited only for it may run."""
        self._finished.add(n)
        for other in self._waiting[n]:
            self._left[other] -= 1
            if not self._left[other] and other not in self._reserved:
                heappush(self._ready, self._insert(other))


def input_exclusion(schema: Mapping[str, Any] | None, path: VariablePath) -> str | None:
    """Return why an `inputSchema` excludes an input, or None if it does not."""
    here: Any = schema or {}
    for segment in path.path:
        here = resolve(schema or {}, here)
        declared, properties = here.get("type", ["object", "array"]), here.get("properties")
        types = declared if isinstance(declared, list) else [declared]
        closed = here.get("additionalProperties") is False and not here.get("patternProperties")
        if isinstance(properties, Mapping) and segment.key in properties and "object" in types:
            here = properties[segment.key]
            if here is not False:
                continue
        elif ("object" in types and not closed) or ("array" in types and segment.index is not None):
            return None
        return f"the runtime's inputSchema has no {preview(segment.key)}"
    return None
