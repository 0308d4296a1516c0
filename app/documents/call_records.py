"""Records of what calls read and wrote, for other features: functions that join the caller's transaction."""

from app.documents.store import (
    first_own_write,
    load_filled_call,
    load_object,
    objects_of_query,
    save_filled_call,
    time_of_write,
    writes_of_call,
    writes_of_calls,
)

__all__ = [
    "first_own_write",
    "load_filled_call",
    "load_object",
    "objects_of_query",
    "save_filled_call",
    "time_of_write",
    "writes_of_call",
    "writes_of_calls",
]
