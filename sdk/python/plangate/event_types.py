"""The types of events, in the order of the catalog."""

from __future__ import annotations

from typing import Final, get_args, get_type_hints

from plangate.api.models import Event

EVENT_TYPES: Final[tuple[str, ...]] = tuple(
    get_args(get_type_hints(kind)["type"])[0] for kind in get_args(Event)
)
TERMINAL_TYPES: Final = frozenset({"finish", "error"})
"""A journal ends with an event of one of these types."""
