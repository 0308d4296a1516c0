"""The models of events by their types."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final, get_args

from app.events.base import Envelope
from app.events.kinds import Event


def _by_type() -> dict[str, type[Envelope]]:
    union, _ = get_args(Event.__value__)
    return {get_args(model.model_fields["type"].annotation)[0]: model for model in get_args(union)}


EVENT_MODELS: Final = MappingProxyType(_by_type())
"""The model of each type, in the order of the documentation."""

EVENT_TYPES: Final[tuple[str, ...]] = tuple(EVENT_MODELS)
TERMINAL_TYPES: Final[frozenset[str]] = frozenset({"finish", "error"})
