"""The function of the author that carries approved actions out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from plangate.authoring.arguments import Handler, check_callable


@dataclass(frozen=True, slots=True)
class ActionDispatcher:
    """The function that carries approved actions out: the write boundary, never callable by a model.

    Args:
        handler: `(actions, ctx)`, sync or async. It returns None or `{"entitiesAffected", "summary"?,
            "details"?}`; `ctx["resolved_refs"]` has the values of the references that the actions name.
        replay: Whether an action whose outcome a crash left open may be dispatched again with the same key
            (`"safe"`), or waits for a person to settle it (`"never"`).

    Raises:
        TypeError: for a handler that does not take `(actions, ctx)`.
        ValueError: for another `replay`.

    Example:
        >>> ActionDispatcher(lambda actions, ctx: {"entitiesAffected": len(actions)}).replay
        'never'
    """

    handler: Handler
    replay: Literal["safe", "never"] = "never"

    def __post_init__(self) -> None:
        check_callable(self.handler, "the handler of an ActionDispatcher", "actions, ctx")
        if self.replay not in ("safe", "never"):
            raise ValueError(f"the replay of an ActionDispatcher is 'safe' or 'never', not {self.replay!r}")


def dispatcher_to_wire(value: Any) -> Any:
    """Return the wire form of a dispatcher."""
    own = as_dispatcher(value)
    return value if own is None else {"kind": "client", "replay": own.replay}


def as_dispatcher(value: Any) -> ActionDispatcher | None:
    """Return the ActionDispatcher of a function, or None if the dispatcher is data."""
    if isinstance(value, ActionDispatcher):
        return value
    return ActionDispatcher(value) if callable(value) else None
