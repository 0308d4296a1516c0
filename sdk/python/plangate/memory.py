"""Methods for the memory of an open runtime: read, write, delete."""

from __future__ import annotations

from typing import Any

from plangate.api.models import MemoryView, WriteView
from plangate.api.requests import read_items
from plangate.context import to_jsonable
from plangate.thread_state import MEMORY, WriteMethod, document_path
from plangate.threads import ThreadMethods


class MemoryMethods(ThreadMethods):
    """The verbs of memory: one document for all threads of the runtime's name, which variables read as `†memory`."""

    async def memory(self, *, at: int | None = None) -> MemoryView:
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
        return await self.api.read_memory(*await self._memory_address(), at=at)

    async def memory_log(self, *, limit: int = 50) -> list[WriteView]:
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
        return await read_items(self.api.list_memory_writes, *await self._memory_address(), limit=limit)

    async def remember(self, place: str, value: Any, *, method: WriteMethod = "set") -> WriteView:
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
        path_text = str(document_path(MEMORY, place))
        return await self.api.write_memory(
            *await self._memory_address(), path=path_text, method=method, value=to_jsonable(value)
        )

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
        await self.api.delete_memory(*await self._memory_address())

    async def _memory_address(self) -> tuple[str, str]:
        """Return the name of the runtime, and the tenant."""
        await self._ensure_open()
        return self._registration.name, self.spec["tenant"]["resourceId"]
