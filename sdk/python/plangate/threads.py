"""What a program asks of the threads of a runtime that is open: their state, as it is and as it was, and their end."""

from __future__ import annotations

from typing import Any, Final

from plangate.approvals import Approving
from plangate.client import path

MAX_THREAD_ID_CHARS: Final = 200
OWN_ID: Final = "thr_"


def thread_fields(thread_id: Any) -> dict[str, str]:
    """How a body names a thread: by the service's id, or by a key of the caller's.

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
    return {"threadId" if thread_id.startswith(OWN_ID) else "threadKey": thread_id}


class Threads(Approving):
    """The verbs of threads."""

    async def thread_state(self, thread_id: str, *, at: int | None = None) -> dict[str, Any]:
        """The state of a thread: `{"threadId", "write", "document"}`. `write` is the number of its last write.

        Args:
            thread_id: As for `query`. A string of yours that no query had yet makes its thread.
            at: As it was after this write, from an event `state-write` or from `thread_state_log`; 0 is before any.

        Raises:
            ValueError: at once, for a thread_id that cannot be one.
            NotFound: if there is no such thread, or no such write yet.
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def totals(runtime):
            ...     now = await runtime.thread_state("customer-17")
            ...     before = await runtime.thread_state("customer-17", at=now["write"] - 1)
            ...     return before["document"].get("total"), now["document"].get("total")
        """
        where = path("threads", await self._thread(thread_id), "state")
        params = None if at is None else {"at": at}
        answer: dict[str, Any] = await self._client.request("GET", where, params=params)
        return answer

    async def thread_state_log(self, thread_id: str, *, limit: int = 50) -> list[dict[str, Any]]:
        """The writes to the state of a thread, newest first.

        Each has `write`, its number, `path`, `method`, `value` (without it where that is large), `glimpse`,
        `sizeBytes`, `failed` (the error of a call was written), `workId`, the call that wrote it, `queryId`,
        `agent`, `forkedFrom` and `at`.

        Args:
            thread_id: As for `query`. A string of yours that no query had yet makes its thread.
            limit: How many at most.

        Raises:
            ValueError: at once, for a thread_id that cannot be one.
            NotFound: if there is no such thread.
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def who_wrote(runtime, path):
            ...     log = await runtime.thread_state_log("customer-17")
            ...     return [(write["agent"], write["at"]) for write in log if write["path"] == path]
        """
        where = path("threads", await self._thread(thread_id), "state", "log")
        return await self._listed(where, {}, limit)

    async def fork_thread(self, thread_id: str, *, at: int | None = None) -> dict[str, Any]:
        """Makes a thread whose state begins as that of another is, or was, and gives it: `{"id", "runtimeId", ...}`.

        It takes the state and the version of the runtime, and not the memory: its agents begin anew. Its `id`
        is what `query` takes as `thread_id`.

        Args:
            thread_id: As for `query`. A string of yours that no query had yet makes its thread.
            at: As it was after this write; None is as it is.

        Raises:
            ValueError: at once, for a thread_id that cannot be one.
            NotFound: if there is no such thread, or no such write yet.
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def try_again_from(runtime, write):
            ...     copy = await runtime.fork_thread("customer-17", at=write)
            ...     return [event["type"] async for event in runtime.query("Try again.", copy["id"])]
        """
        body = {} if at is None else {"at": at}
        where = path("threads", await self._thread(thread_id), "fork")
        answer: dict[str, Any] = await self._client.request("POST", where, body)
        return answer

    async def delete_thread(self, thread_id: str) -> None:
        """Deletes a thread for good, with its queries, events, plans, state, files and artifacts.

        What was used and what it cost stays, and who decided on approvals. The same string of yours names a new
        thread afterwards.

        Args:
            thread_id: As for `query`.

        Raises:
            ValueError: at once, for a thread_id that cannot be one.
            NotFound: if there is no thread with this id, perhaps because it was deleted before.
            Conflict: if a query of the thread is not over: wait for it, or cancel it.
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def forget(runtime, customer):
            ...     await runtime.delete_thread(customer)
        """
        await self._client.request("DELETE", path("threads", await self._thread(thread_id)))

    async def _thread(self, thread_id: str) -> str:
        """The service's id of a thread."""
        fields = thread_fields(thread_id)
        if not fields:
            raise ValueError("thread_id is missing: it is a string of yours, or an id such as 'thr_...'")
        if "threadId" in fields:
            return fields["threadId"]
        thread = await self._client.request("POST", "/threads", fields)
        return str(thread["id"])
