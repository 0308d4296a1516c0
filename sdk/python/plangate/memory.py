"""What a program asks about the memory of an open runtime: to read it, write to it, and delete it."""

from __future__ import annotations

from typing import Any

from plangate.client import path
from plangate.context import to_jsonable
from plangate.thread_state import MEMORY, document_path
from plangate.threads import ThreadMethods


class MemoryMethods(ThreadMethods):
    """The verbs of memory: one document for all threads of the runtime's name, which variables read as `†memory`."""

    async def memory(self, *, at: int | None = None) -> dict[str, Any]:
        """Return the memory: `{"runtime", "resource", "write", "document"}`. `write` is the number of its last write.

        All versions of the runtime's name share it. It belongs to no thread.

        Args:
            at: As it was after this write, from an event `state-write` or from `memory_log`; 0 is before any.

        Raises:
            NotFound: if there is no such write yet, or it was deleted.
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def known(runtime, customer):
            ...     return (await runtime.memory())["document"].get("customers", {}).get(customer)
        """
        params = None if at is None else {"at": at}
        answer: dict[str, Any] = await self._client.request(
            "GET", await self._memory_address(), params=params
        )
        return answer

    async def memory_log(self, *, limit: int = 50) -> list[dict[str, Any]]:
        """List the writes to the memory, newest first.

        Each has the fields of a write to the state (`thread_state_log`). A write of `remember` has the
        `principal` that made it in place of `workId`, `queryId` and `agent`.

        Args:
            limit: How many at most.

        Raises:
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def who_wrote(runtime, path):
            ...     log = await runtime.memory_log()
            ...     return [write["agent"] or write["principal"] for write in log if write["path"] == path]
        """
        return await self._list(f"{await self._memory_address()}/log", {}, limit)

    async def remember(self, place: str, value: Any, *, method: str = "set") -> dict[str, Any]:
        """Write to the memory from outside of any call, and return the entry in its log.

        It needs a key with `data:write`. A handler writes with `ctx.memory`.

        Args:
            place: As after `†memory.`, such as `customers.c17.name`. Objects on the way to it are made.
            value: A model, a dataclass or plain data, at most 1 MiB of JSON.
            method: `set`, `merge` (deep), `assign` (shallow), `push` (append to an array) or `concat`.

        Raises:
            ValueError: at once, for what is no place.
            InvalidRequest: if it does not fit what is there.
            TooLarge: if the value is: keep it as a reference, and write its handle.
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def import_names(runtime, names):
            ...     await runtime.remember("customers", names, method="merge")
        """
        body = {"path": str(document_path(MEMORY, place)), "method": method, "value": to_jsonable(value)}
        written: dict[str, Any] = await self._client.request("POST", await self._memory_address(), body)
        return written

    async def delete_memory(self) -> None:
        """Delete the memory with its log, permanently. Nobody reads it from then on.

        Values that queries took from it stay in the records of their threads: delete those with
        `delete_thread`. It needs a key with `data:write`.

        Raises:
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def start_over(runtime):
            ...     await runtime.delete_memory()
            ...     assert (await runtime.memory())["document"] == {}
        """
        await self._client.request("DELETE", await self._memory_address())

    async def _memory_address(self) -> str:
        await self._opened()
        return path("memory", self._registration["name"], self.spec["tenant"]["resourceId"])
