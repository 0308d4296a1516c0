"""The limits of streams."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Intervals at which the streams of a process check the database and their readers.

    Attributes:
        poll_interval_s: between two looks for events whose notification was lost.
        drain_grace_s: how long streams may take to end when the process stops, before they are cut.
        heartbeat_interval_s: proxies close connections that are silent for about a minute.
        key_check_interval_s: keys are cached for two seconds, so revoked ones stop within five.
    """

    poll_interval_s: float = 1.0
    drain_grace_s: float = 3.0
    heartbeat_interval_s: float = 15.0
    key_check_interval_s: float = 2.0
