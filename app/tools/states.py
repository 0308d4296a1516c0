"""The lifecycle of a call that leaves the service."""

from __future__ import annotations

from plangate.statuses import CallStatus

from app.base.lifecycle import Lifecycle

CALL_LIFE = Lifecycle[CallStatus](
    "tool call",
    {
        # A call that nobody claimed in time is withdrawn, or unknown if an earlier attempt may have arrived.
        "open": ("claimed", "withdrawn", "unknown"),
        "claimed": ("done", "open", "unknown"),
        # A person may have the action of an unknown call sent again.
        "unknown": ("open",),
        "done": (),
        "withdrawn": (),
    },
)
