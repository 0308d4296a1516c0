"""A lifecycle as a table: which state may follow which. The diagrams in the docs are printed from it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, TypeVar

from app.base.errors import Conflict

S = TypeVar("S", bound=str)


@dataclass(frozen=True)
class Lifecycle(Generic[S]):
    """The states of one kind of thing and the transitions between them.

    `name` is the noun that messages use ("query"). `transitions` names every state once, in the order in
    which people should read them. The first state is the initial one; a state without successors is terminal.
    """

    name: str
    transitions: Mapping[S, tuple[S, ...]]

    def __post_init__(self) -> None:
        """Raise ValueError if the table is empty, or a state is missing from it."""
        if not self.transitions:
            raise ValueError(f"the lifecycle of {self.name} has no states")
        table = {state: tuple(following) for state, following in self.transitions.items()}
        reachable = {state for following in table.values() for state in following}
        if missing := sorted(reachable - table.keys()):
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
        allowed = list(self.transitions[current])
        may = f"it can become {' or '.join(allowed)}" if allowed else "it is over and stays as it is"
        raise Conflict(
            f"The {self.name} is {current} and cannot become {to}; {may}.",
            extra={"state": current, "allowed": allowed},
        )

    def trigger(self, table: str) -> str:
        """Return the SQL of a trigger that rejects every other change of `status` in this table of the database.

        The condition is the whole check, so an allowed transition calls no function.
        """
        steps = [(state, to) for state, following in self.transitions.items() for to in following]
        allowed = ",\n    ".join(f"'{state} {to}'" for state, to in steps)
        return (
            f"CREATE OR REPLACE TRIGGER lifecycle BEFORE UPDATE OF status ON {table} FOR EACH ROW\n"
            f"WHEN (OLD.status <> NEW.status AND OLD.status || ' ' || NEW.status <> ALL (ARRAY[\n    {allowed}]))\n"
            f"EXECUTE FUNCTION reject_transition('{self.name}');\n"
        )

    def mermaid(self) -> str:
        """Return the state diagram in Mermaid's language, in the order of the table, without a final
        newline."""
        lines = ["stateDiagram-v2"]
        names = {state: re.sub(r"\W", "_", state) for state in self.transitions}
        lines += [f'    state "{state}" as {name}' for state, name in names.items() if name != state]
        lines.append(f"    [*] --> {names[self.initial]}")
        for state, following in self.transitions.items():
            lines += [f"    {names[state]} --> {names[other]}" for other in following]
            if not following:
                lines.append(f"    {names[state]} --> [*]")
        return "\n".join(lines)
