"""Methods for the threads of an open runtime: current and earlier state, forks, and deletion."""

from __future__ import annotations

from plangate.api.models import StateView, ThreadView, WriteView
from plangate.api.requests import read_items
from plangate.approvals import ApprovalMethods
from plangate.thread_ids import resolve_thread_id


class ThreadMethods(ApprovalMethods):
    """The verbs of threads."""

    async def thread_state(self, thread_id: str, *, at: int | None = None) -> StateView:
        """Return the state of a thread: `{"threadId", "write", "document"}`. `write` is the number of its last write.

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
        return await self.api.read_thread_state(await self._thread(thread_id), at=at)

    async def thread_state_log(self, thread_id: str, *, limit: int = 50) -> list[WriteView]:
        """List the writes to the state of a thread, newest first.

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
        return await read_items(self.api.list_state_writes, await self._thread(thread_id), limit=limit)

    async def fork_thread(self, thread_id: str, *, at: int | None = None) -> ThreadView:
        """Create a thread whose state begins as a copy of another's, and return it: `{"id", "runtimeId", ...}`.

        It takes the state, the files and the version of the runtime, but no conversation: its agents begin anew.
        Its `id` is what `query` takes as `thread_id`.

        Args:
            thread_id: As for `query`. A string of yours that no query had yet makes its thread.
            at: State and files as they were after this write; None is as they are.

        Raises:
            ValueError: at once, for a thread_id that cannot be one.
            NotFound: if there is no such thread, or no such write yet.
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def try_again_from(runtime, write):
            ...     copy = await runtime.fork_thread("customer-17", at=write)
            ...     return [event["type"] async for event in runtime.query("Try again.", copy["id"])]
        """
        return await self.api.fork_thread(await self._thread(thread_id), at=at)

    async def delete_thread(self, thread_id: str) -> None:
        """Delete a thread permanently, with its queries, events, plans, state, files and artifacts.

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
        await self.api.delete_thread(await self._thread(thread_id))

    async def _thread(self, thread_id: str) -> str:
        return await resolve_thread_id(self.api, thread_id)
