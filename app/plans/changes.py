"""What changed between two revisions of a plan: which actions belong together, and every difference between them. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from plangate.json_pointer import json_pointer

from app.base.json.offload import loads
from app.base.json.strict_json import canonical

MAX_DIFFERENCES: Final = 10_000
MAX_POINTER_BYTES: Final = 1024 * 1024
"""Of one comparison. Pointers repeat the keys above them, so differences in detail can be much larger than the bodies."""

Change = Literal["same", "changed", "added", "removed"]
MatchRule = Literal["key", "equality", "position"]
_ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A difference at a place. A side that has nothing there is left out."""

    pointer: str
    sides: dict[str, Any]

    def wire(self) -> dict[str, Any]:
        return {"pointer": self.pointer, **self.sides}


@dataclass(frozen=True, slots=True)
class ActionMatch:
    """An action before and after, by their indexes, or one that only one revision has. `moved`: its place among the matched
    actions changed."""

    before: int | None
    after: int | None
    kind: str
    matched_by: MatchRule | None
    moved: bool
    fields: list[FieldChange]

    @property
    def change(self) -> Change:
        if self.before is None:
            return "added"
        if self.after is None:
            return "removed"
        return "changed" if self.fields or self.moved else "same"

    def wire(self) -> dict[str, Any]:
        return {
            "change": self.change,
            "before": self.before,
            "after": self.after,
            "kind": self.kind,
            "matchedBy": self.matched_by,
            "moved": self.moved,
            "fields": [field.wire() for field in self.fields],
        }


def compare_bodies(before: bytes, after: bytes, keys: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the changes between two stored bodies, as a response has them."""
    context, actions = plan_changes(loads(before), loads(after), keys)
    return {
        "context": [change.wire() for change in context],
        "actions": [action.wire() for action in actions],
    }


def plan_changes(
    before: Mapping[str, Any], after: Mapping[str, Any], keys: Mapping[str, Sequence[str]]
) -> tuple[list[FieldChange], list[ActionMatch]]:
    """Return the differences outside of the actions, and the actions of both bodies: those of the later revision in its order,
    each removed one after what it followed. `keys` are the fields that identify an action, by kind.

    Actions with a key match if no other action of their revision has it. The rest match if they are equal, by the longest
    common sequence, and between two equal ones by kind and order. Every difference of a match is listed, so no match hides
    one.
    """
    old, new = before["actions"], after["actions"]
    old_keys, new_keys = ([_key(action, keys) for action in actions] for actions in (old, new))
    matches = dict(_match_by_key(old_keys, new_keys))
    rules: dict[int, MatchRule] = dict.fromkeys(matches, "key")
    free_old = [n for n in range(len(old)) if n not in matches]
    taken = set(matches.values())
    free_new = [n for n in range(len(new)) if n not in taken]
    equal = list(_longest_common(old, new, free_old, free_new))
    for n, m in equal:
        matches[n], rules[n] = m, "equality"
    signatures = [(action["kind"], key) for action, key in zip(old, old_keys, strict=True)]
    others = [(action["kind"], key) for action, key in zip(new, new_keys, strict=True)]
    for n, m in _match_between(signatures, others, free_old, free_new, equal):
        matches[n], rules[n] = m, "position"
    moved = _moved(matches)
    details = _Details()
    context = details.of(_without_actions(before), _without_actions(after))
    by_new = {
        m: ActionMatch(n, m, new[m]["kind"], rules[n], n in moved, details.of(old[n], new[m]))
        for n, m in matches.items()
    }
    listed: list[ActionMatch] = []

    def add_removed(n: int) -> None:
        while n < len(old) and n not in matches:
            listed.append(ActionMatch(n, None, old[n]["kind"], None, False, []))
            n += 1

    add_removed(0)
    for m, action in enumerate(new):
        match = by_new.get(m)
        listed.append(match or ActionMatch(None, m, action["kind"], None, False, []))
        if match is not None and match.before is not None:
            add_removed(match.before + 1)
    return context, listed


class _Details:
    """The differences of one comparison, in detail while they fit its bounds, then as one difference for each pair."""

    def __init__(self) -> None:
        self._differences = MAX_DIFFERENCES
        self._pointer_bytes = MAX_POINTER_BYTES

    def of(self, before: Any, after: Any) -> list[FieldChange]:
        """Return every place at which two values differ, or the whole values if there are too many places."""
        changes: list[FieldChange] = []
        for change in _differences(before, after):
            self._differences -= 1
            self._pointer_bytes -= len(change.pointer.encode())
            if self._differences < 0 or self._pointer_bytes < 0:
                return [FieldChange("", {"before": before, "after": after})]
            changes.append(change)
        return changes


def _without_actions(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name != "actions"}


def _key(action: Mapping[str, Any], keys: Mapping[str, Sequence[str]]) -> bytes | None:
    """Return what identifies an action, or None if it has no such fields."""
    fields = keys.get(action["kind"])
    if not fields or any(field not in action["payload"] for field in fields):
        return None
    return canonical([action["kind"], [action["payload"][field] for field in fields]])


def _match_by_key(
    old_keys: Sequence[bytes | None], new_keys: Sequence[bytes | None]
) -> Iterator[tuple[int, int]]:
    old_counts, new_counts = Counter(old_keys), Counter(new_keys)
    places = {key: m for m, key in enumerate(new_keys)}
    for n, key in enumerate(old_keys):
        if key is not None and old_counts[key] == new_counts[key] == 1:
            yield n, places[key]


def _longest_common(
    old: Sequence[Any], new: Sequence[Any], free_old: Sequence[int], free_new: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Yield pairs of equal actions, as many as can be in one order."""
    a, b = ([canonical(actions[n]) for n in free] for actions, free in ((old, free_old), (new, free_new)))
    lengths = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i in range(len(a) - 1, -1, -1):
        row, below, mine = lengths[i], lengths[i + 1], a[i]
        for j in range(len(b) - 1, -1, -1):
            row[j] = below[j + 1] + 1 if mine == b[j] else max(below[j], row[j + 1])
    i = j = 0
    while i < len(a) and j < len(b):
        if a[i] == b[j]:
            yield free_old[i], free_new[j]
            i, j = i + 1, j + 1
        elif lengths[i + 1][j] >= lengths[i][j + 1]:
            i += 1
        else:
            j += 1


def _match_between(
    old: Sequence[tuple[str, bytes | None]],
    new: Sequence[tuple[str, bytes | None]],
    free_old: Sequence[int],
    free_new: Sequence[int],
    equal: Sequence[tuple[int, int]],
) -> Iterator[tuple[int, int]]:
    """Yield pairs in the gaps between equal actions. `old` and `new` are the kind and the key of each action, which must be
    the same: actions with different keys are different things."""
    start_old = start_new = -1
    for end_old, end_new in [*equal, (len(old), len(new))]:
        candidates = defaultdict[tuple[str, bytes | None], deque[int]](deque)
        for m in free_new[bisect_right(free_new, start_new) : bisect_left(free_new, end_new)]:
            candidates[new[m]].append(m)
        last = start_new
        for n in free_old[bisect_right(free_old, start_old) : bisect_left(free_old, end_old)]:
            queue = candidates[old[n]]
            while queue and queue[0] <= last:
                queue.popleft()
            if queue:
                last = queue.popleft()
                yield n, last
        start_old, start_new = end_old, end_new


def _moved(matches: Mapping[int, int]) -> set[int]:
    """Return the matched actions that are not in the longest increasing subsequence: those that moved."""
    ordered = sorted(matches.items())
    tails: list[int] = []  # the smallest end of an increasing sequence of each length, and where it is
    places: list[int] = []
    previous: list[int] = []
    for i, (_, after) in enumerate(ordered):
        at = bisect_left(tails, after)
        previous.append(places[at - 1] if at else -1)
        tails[at : at + 1] = [after]
        places[at : at + 1] = [i]
    kept, i = set[int](), places[-1] if places else -1
    while i >= 0:
        kept.add(ordered[i][0])
        i = previous[i]
    return set(matches) - kept


def _differences(before: Any, after: Any, place: tuple[str | int, ...] = ()) -> Iterator[FieldChange]:
    """Yield every place at which two values differ: fields of objects, and items of arrays of one length."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted(before.keys() | after.keys()):
            yield from _differences(before.get(name, _ABSENT), after.get(name, _ABSENT), (*place, name))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for n, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _differences(one, other, (*place, n))
    elif before is _ABSENT or after is _ABSENT or canonical(before) != canonical(after):
        sides = {"before": before, "after": after}
        yield FieldChange(json_pointer(place), {k: v for k, v in sides.items() if v is not _ABSENT})
