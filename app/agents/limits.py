"""The limits of agents that no setting changes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AgentLimits:
    """Attempts and pauses of the runner and its model calls."""

    max_loads: int = 3
    """A query that could not be loaded this many times in a row fails."""
    reload_after_s: float = 2.0
    """The pause after the first failed load; it doubles with each further one."""
    max_attempts: int = 6
    """Of a model call whose vendor fails."""
    first_backoff_s: float = 0.5
    """Before the second attempt; it doubles with each further one."""
    max_backoff_s: float = 30.0
    max_retry_after_s: float = 300.0
    """A vendor that wants a longer pause gets this one."""
