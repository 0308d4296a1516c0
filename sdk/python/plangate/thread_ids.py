"""Names of threads: the program's own keys, or the service's ids."""

from __future__ import annotations

from typing import Any, Final

from plangate.api.calls import Api

MAX_THREAD_ID_CHARS: Final = 200
SERVICE_ID_PREFIX: Final = "thr_"


def thread_fields(thread_id: Any) -> dict[str, str]:
    """Return the body fields that name a thread: the service's id, or your key.

    Raises:
        ValueError: for anything else.

    Example:
        >>> thread_fields("customer-17"), thread_fields(None)
        ({'threadKey': 'customer-17'}, {})
    """
    if thread_id is None:
        return {}
    if not (isinstance(thread_id, str) and 0 < len(thread_id) <= MAX_THREAD_ID_CHARS):
        raise ValueError(f"thread_id is a string of 1 to {MAX_THREAD_ID_CHARS} characters")
    return {"threadId" if thread_id.startswith(SERVICE_ID_PREFIX) else "threadKey": thread_id}


def check_thread_id(thread_id: Any) -> dict[str, str]:
    """Return the body fields that name a thread. Raise ValueError for anything else, also if it is None."""
    fields = thread_fields(thread_id)
    if not fields:
        raise ValueError("thread_id is missing: it is a string of yours, or an id such as 'thr_...'")
    return fields


async def resolve_thread_id(api: Api, thread_id: str) -> str:
    """Return the service's id of a thread, which is created if your key is new."""
    fields = check_thread_id(thread_id)
    if "threadId" in fields:
        return fields["threadId"]
    return (await api.create_thread(thread_key=fields["threadKey"])).id
