"""A plan as a graph: an action that reads a path runs after the actions that write it, a prefix or an extension of it.

Pure: from actions to who waits for whom, and to what is wrong with that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, Final

from plangate.spec.plan_schemas import resolve
from plangate.spec.variable_schemas import OUTPUT_METHOD, OUTPUT_PATH
from plangate.spec.variables import Found, Reference

from app.agents.variable_values import VariableError, Written, shown, written
from app.base.errors import Flaw
from app.plans.body import Action

STORED: Final = ("ref", "artifact")
"""Kinds that no action writes: they are no part of the graph."""

MAX_FLAWS: Final = 20

Refusal = Callable[[Reference], str | None]
"""Why a reference has no value before the plan runs; None where it has one, or may have."""


@dataclass(frozen=True, slots=True)
class Step:
    """An action as a node of the graph."""

    index: int
    call: Written

    def reads(self) -> Iterator[Reference]:
        """The paths that it reads, but for stored values."""
        for found in self.call.found:
            for reference in found.expression.references():
                if reference.kind not in STORED:
                    yield reference

    def writes(self) -> Iterator[Reference]:
        """The paths that its result may go to."""
        for alternative in self.call.output.alternatives if self.call.output else ():
            yield from alternative


def steps_of(actions: Sequence[Action]) -> tuple[list[Step], list[Flaw]]:
    """The actions with their variables and output paths; and what is wrong with the way in which these are written."""
    steps, flaws = [], []
    for n, action in enumerate(actions):
        meta = {OUTPUT_PATH: action.output_path, OUTPUT_METHOD: action.output_method}
        try:
            call = written(
                {**action.payload, **{k: v for k, v in meta.items() if v is not None}}, (), prescribed=None
            )
            call.roots()
        except VariableError as error:
            flaws.append(Flaw(f"/actions/{n}", str(error)))
        else:
            steps.append(Step(n, call))
    return steps, flaws


def overlap(a: Reference, b: Reference) -> bool:
    """Whether one path is the other, or leads to it."""
    return a.kind == b.kind and all(x.key == y.key for x, y in zip(a.path, b.path, strict=False))


@dataclass(slots=True)
class _Node:
    """A place in the tree of written paths: who writes here, and who writes here or below."""

    here: list[int] = field(default_factory=list)
    below: list[int] = field(default_factory=list)
    children: dict[str, _Node] = field(default_factory=dict)


class Graph:
    """Who waits for whom. `needs[n]` are the actions that action n waits for."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = tuple(steps)
        self._paths = _Node()
        self._producers: dict[Reference, tuple[int, ...]] = {}
        for step in steps:
            for path in step.writes():
                self._insert(path, step.index)
        self.needs = tuple(
            frozenset(p for read in step.reads() for p in self.producers(read)) for step in steps
        )

    @classmethod
    def of(cls, actions: Sequence[Action]) -> Graph:
        """The graph of a stored plan."""
        steps, flaws = steps_of(actions)
        if flaws:
            raise VariableError(flaws[0].message)
        return cls(steps)

    @property
    def is_one(self) -> bool:
        """Whether any action has a variable or an output path: then they are sent one at a time, in their order."""
        return any(step.call.found or step.call.output for step in self.steps)

    def producers(self, reference: Reference) -> tuple[int, ...]:
        """The actions that write the path, a prefix or an extension of it, in their order."""
        if reference.kind in STORED:
            return ()
        found = self._producers.get(reference)
        if found is None:
            found = self._producers[reference] = tuple(sorted(set(self._overlapping(reference))))
        return found

    def depends(self, found: Found) -> bool:
        """Whether a value of the variable can come from an action."""
        return any(self.producers(reference) for reference in found.expression.references())

    def stored(self) -> set[Reference]:
        """The stored values that variables lead to, or into."""
        founds = (found for step in self.steps for found in step.call.found)
        return {ref for one in founds for ref in one.expression.references() if ref.kind in STORED}

    def roots(self) -> set[Reference]:
        """The documents that the plan reads or writes."""
        read = {root for step in self.steps for root in step.call.roots()}
        return read | {Reference(path.kind) for step in self.steps for path in step.writes()}

    def _insert(self, path: Reference, writer: int) -> None:
        node = self._paths
        for key in (path.kind, *(segment.key for segment in path.path)):
            node = node.children.setdefault(key, _Node())
            node.below.append(writer)
        node.here.append(writer)

    def _overlapping(self, path: Reference) -> Iterator[int]:
        node = self._paths
        for key in (path.kind, *(segment.key for segment in path.path)):
            yield from node.here
            inner = node.children.get(key)
            if inner is None:
                return
            node = inner
        yield from node.below

    # -- what is wrong with it -------------------------------------------------------------------------------

    def flaws(self, refusal: Refusal) -> list[Flaw]:
        """Cycles, writers in no order, and readings of what nothing provides; at most 20."""
        found = self._cycle() or [*self._conflicts(), *self._dangling(refusal)]
        return found[:MAX_FLAWS]

    def order(self) -> list[int]:
        """The actions, each after those that it waits for; what stands in a cycle, or waits for one, is left out."""
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

    def _cycle(self) -> list[Flaw]:
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
            path = next(read for read in self.steps[n].reads() if need in self.producers(read))
            writer = "it writes itself" if need == n else f"action {need} writes"
            told.append(f"action {n} reads {shown(str(path))}, which {writer}")
        return [Flaw(f"/actions/{around[0]}", f"the plan has a cycle: {'; '.join(told[:5])}")]

    def _conflicts(self) -> Iterator[Flaw]:
        """Two writers of one path of which neither runs after the other, where one of them sets it."""
        before = [0] * len(self.steps)  # bit by bit, the actions that have run before each
        for n in self.order():
            for need in self.needs[n]:
                before[n] |= before[need] | 1 << need
        for step in self.steps:
            n, told = step.index, set[int]()
            for path in step.writes():
                for other in self.producers(path):
                    if other >= n or other in told or before[n] >> other & 1 or before[other] >> n & 1:
                        continue
                    methods = {self._method(n), self._method(other)}
                    if "set" in methods:
                        told.add(other)
                        yield Flaw(
                            f"/actions/{n}/{OUTPUT_PATH}",
                            f"actions {other} and {n} both write {shown(str(path))}, in no order, and `set` keeps only "
                            f"one of them: write to different paths, or give both the {OUTPUT_METHOD} push or merge",
                        )

    def _method(self, n: int) -> str:
        output = self.steps[n].call.output
        return output.method if output else ""

    def _dangling(self, refusal: Refusal) -> Iterator[Flaw]:
        for step in self.steps:
            for found in step.call.found:
                reasons = [self._missing(refs, refusal) for refs in found.expression.alternatives]
                if None not in reasons:
                    told = "; ".join(reason for reason in reasons if reason)
                    yield Flaw(
                        f"/actions/{step.index}{found.pointer}",
                        f"nothing provides {shown(found.text)}: {told}, and no action writes it",
                    )

    def _missing(self, references: Iterable[Reference], refusal: Refusal) -> str | None:
        for reference in references:
            reason = None if self.producers(reference) else refusal(reference)
            if reason is not None:
                return reason.rstrip(".")
        return None


class Order:
    """Which actions may run now: those whose needs are met, the first of them first."""

    def __init__(self, needs: Sequence[Set[int]]) -> None:
        self._left = [len(own) for own in needs]
        self._waiting: list[list[int]] = [[] for _ in needs]
        for n, own in enumerate(needs):
            for need in own:
                self._waiting[need].append(n)
        self._ready = [n for n, count in enumerate(self._left) if not count]  # a heap: it is sorted
        self._over: set[int] = set()

    @property
    def finished(self) -> bool:
        return len(self._over) == len(self._left)

    @property
    def ready(self) -> int:
        return len(self._ready)

    def take(self) -> int | None:
        """The next action that may run; None while all that are left wait for others."""
        while self._ready:
            n = heappop(self._ready)
            if n not in self._over:
                return n
        return None

    def done(self, n: int) -> None:
        """An action is over: those that waited for it alone may run."""
        self._over.add(n)
        for other in self._waiting[n]:
            self._left[other] -= 1
            if not self._left[other]:
                heappush(self._ready, other)


def excluded(schema: Mapping[str, Any] | None, reference: Reference) -> str | None:
    """Why an `inputSchema` has no room for an input, if so."""
    here: Mapping[str, Any] = schema or {}
    for segment in reference.path:
        here = resolve(schema or {}, here)
        properties = here.get("properties")
        if isinstance(properties, Mapping) and segment.key in properties:
            here = properties[segment.key]
            continue
        if here.get("additionalProperties") is False and not here.get("patternProperties"):
            return f"the runtime's inputSchema has no {shown(segment.key)}"
        return None
    return None
