"""What other features use of the engine: functions that join the caller's transaction."""

from app.engine.lease_store import (
    lock_lease,
    lock_query,
    mark_for_ending,
    mark_loaded,
    postpone_query,
    try_lock_query,
    wake_query,
)
from app.engine.store import (
    agents_of_thread,
    last_call,
    load_query,
    load_work,
    lock_for_end,
    past_runs,
    records_of_runs,
    save_request,
)
from app.engine.work_store import add_host_work, close_action, open_action

__all__ = [
    "add_host_work",
    "agents_of_thread",
    "close_action",
    "last_call",
    "load_query",
    "load_work",
    "lock_for_end",
    "lock_lease",
    "lock_query",
    "mark_for_ending",
    "mark_loaded",
    "open_action",
    "past_runs",
    "postpone_query",
    "records_of_runs",
    "save_request",
    "try_lock_query",
    "wake_query",
]
