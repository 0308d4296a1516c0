"""A lifecycle as a table: which state may follow which. The diagrams in the docs are printed from it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Generic, TypeVar

from app.base.errors import Conflict

S = TypeVar("S", bound=str)


@dataclass(frozen=True)
class Lifecycle(Generic[S]):
    """The states of one kind of thing and the steps between them.

    `name` is the noun that messages use ("query"). `transitions` names every state once, in the order in
    which people should read them; the first is where life begins, one without successors is terminal.
    """

    name: str
    transitions: Mapping[S, Collection[S]]

    def __post_init__(self) -> None:
        """Raise ValueError if the table is empty, or a state is missing from it."""
        if not self.transitions:
            raise ValueError(f"the lifecycle of {self.name} has no states")
        table = {state: tuple(following) for state, following in self.transitions.items()}
        wanted: set[S] = {state for following in table.values() for state in following}
        for kind in {type(state) for state in table}:
            if issubclass(kind, Enum):
                wanted.update(kind)
        if missing := sorted(_text(state) for state in wanted - table.keys()):
            raise ValueError(f"the lifecycle of {self.name} has no row for {', '.join(missing)}")
        object.__setattr__(self, "transitions", MappingProxyType(table))

    @property
    def initial(self) -> S:
        """The state in which life begins."""
        return next(iter(self.transitions))

    @property
    def terminal(self) -> frozenset[S]:
        """The states that nothing follows."""
        return frozenset(state for state, following in self.transitions.items() if not following)

    def allows(self, current: S, to: S) -> bool:
        """Return whether `to` may follow `current`. Staying is a step too and needs its row."""
        return to in self.transitions[current]

    def check(self, current: S, to: S) -> None:
        """Raise Conflict, naming both states and what is allowed, unless `to` may follow `current`."""
        if self.allows(current, to):
            return
        allowed = [_text(state) for state in self.transitions[current]]
        may = f"it can become {' or '.join(allowed)}" if allowed else "it is over and stays as it is"
        raise Conflict(
            f"The {self.name} is {_text(current)} and cannot become {_text(to)}; {may}.",
            extra={"state": _text(current), "allowed": allowed},
        )

    def mermaid(self) -> str:
        """Return the state diagram in Mermaid's language, in the order of the table, without a final
        newline."""
        lines = ["stateDiagram-v2"]
        names = {state: re.sub(r"\W", "_", _text(state)) for state in self.transitions}
        lines += [
            f'    state "{_text(state)}" as {name}' for state, name in names.items() if name != _text(state)
        ]
        lines.append(f"    [*] --> {names[self.initial]}")
        for state, following in self.transitions.items():
            lines += [f"    {names[state]} --> {names[other]}" for other in following]
            if not following:
                lines.append(f"    {names[state]} --> [*]")
        return "\n".join(lines)


def _text(state: str) -> str:
    return str(state.value) if isinstance(state, Enum) else state
