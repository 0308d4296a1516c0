"""`ctx.state` and `ctx.memory`: the documents that the handler of a call reads and writes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Final, Literal

from plangate.api.calls import Api
from plangate.api.models import WriteView
from plangate.context import Bridge, to_jsonable
from plangate.spec.variables import DAGGER, MISSING, InvalidVariable, VariablePath, parse_place, resolve_path

STATE: Final = "state"
MEMORY: Final = "memory"
WriteMethod = Literal["set", "merge", "assign", "push", "concat"]


def document_path(kind: str, place: str) -> VariablePath:
    """Return the variable of a place in the document of a kind.

    Raises:
        ValueError: for what is no place.

    Example:
        >>> str(document_path("state", 'totals."net.eur"'))
        '†state.totals."net.eur"'
    """
    if not isinstance(place, str) or place.startswith(DAGGER):
        raise ValueError(f"{place!r} is not a path: write it as after {DAGGER}{kind}., such as totals.net")
    try:
        return parse_place(kind, place)
    except InvalidVariable as error:
        raise ValueError(f"{place!r} is not a path: {error}") from None


class DocumentCalls(ABC):
    """Reading and writing a document. `work_id` is the call that does it."""

    kind: str

    def __init__(self, api: Api, work_id: str) -> None:
        self._api = api
        self._work_id = work_id

    @abstractmethod
    async def _read(self) -> dict[str, Any]:
        """Return the document."""

    @abstractmethod
    async def _write(self, path: str, method: WriteMethod, value: Any) -> WriteView:
        """Write to the document."""

    async def get(self, place: str | None, default: Any) -> Any:
        inside = () if place is None else document_path(self.kind, place).path
        value = resolve_path(await self._read(), inside)
        return default if value is MISSING else value

    async def write(self, method: WriteMethod, place: str, value: Any) -> WriteView:
        return await self._write(str(document_path(self.kind, place)), method, to_jsonable(value))


class StateCalls(DocumentCalls):
    """The state of a thread."""

    kind = STATE

    def __init__(self, api: Api, thread_id: str, work_id: str) -> None:
        super().__init__(api, work_id)
        self._thread_id = thread_id

    async def _read(self) -> dict[str, Any]:
        return (await self._api.read_thread_state(self._thread_id)).document

    async def _write(self, path: str, method: WriteMethod, value: Any) -> WriteView:
        return await self._api.write_thread_state(
            self._thread_id, path=path, value=value, work_id=self._work_id, method=method
        )


class MemoryAddresses:
    """Where the memories of runtimes are, by the ids of their versions."""

    def __init__(self, api: Api, resource: str, names: dict[str, str]) -> None:
        """`names` are the names of versions that are known already."""
        self._api = api
        self._resource = resource
        self._names = dict(names)

    async def of(self, runtime_id: str) -> tuple[str, str]:
        """Return the name of the runtime, and the tenant."""
        name = self._names.get(runtime_id)
        if name is None:
            name = self._names[runtime_id] = (await self._api.read_runtime(runtime_id)).name
        return name, self._resource


class MemoryCalls(DocumentCalls):
    """The memory of a runtime."""

    kind = MEMORY

    def __init__(self, api: Api, addresses: MemoryAddresses, runtime_id: str, work_id: str) -> None:
        super().__init__(api, work_id)
        self._addresses = addresses
        self._runtime_id = runtime_id

    async def _read(self) -> dict[str, Any]:
        return (await self._api.read_memory(*await self._addresses.of(self._runtime_id))).document

    async def _write(self, path: str, method: WriteMethod, value: Any) -> WriteView:
        return await self._api.write_memory_of_call(
            *await self._addresses.of(self._runtime_id),
            path=path,
            value=value,
            work_id=self._work_id,
            method=method,
        )


class Document:
    """The common base of `ctx.state` and `ctx.memory`. In an async handler each call is awaited; in a sync one it
    returns.

    A place is written as after `†state.` or `†memory.`: `totals.net`, `rows.0`, `totals."net.eur"`. A write gives its entry in
    the log. A call that is made again after a crash writes nothing twice, and one that is over writes nothing.

    Example:
        >>> async def remember(args, ctx):
        ...     await ctx.state.push("seen", args["order"])
        ...     return len(await ctx.state.get("seen"))
    """

    def __init__(self, calls: DocumentCalls, bridge: Bridge) -> None:
        self._calls = calls
        self._bridge = bridge

    def get(self, place: str | None = None, default: Any = None) -> Any:
        """Return the current value at a place.

        Args:
            place: None is the whole document.
            default: What is given where nothing was written.

        Raises:
            ValueError: for what is no place.
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> def seen(args, ctx):
            ...     return ctx.state.get("seen", [])
        """
        return self._bridge.run(self._calls.get(place, default))

    def set(self, place: str, value: Any) -> Any:
        """Replace the value at a place.

        Args:
            place: Objects on the way to it are made.
            value: A model, a dataclass or plain data, at most 1 MiB of JSON.

        Raises:
            ValueError: for what is no place.
            InvalidRequest: if it does not fit what is there, or the runtime's `stateSchema`.
            Conflict: if the call is over.
            TooLarge: if the value is: keep it as a reference, and write its handle.
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> def keep(args, ctx):
            ...     ctx.state.set("customer.name", args["name"])
        """
        return self._write("set", place, value)

    def merge(self, place: str, value: Any) -> Any:
        """Merge an object into the object at a place, including nested objects.

        Args:
            place, value: As for `set`; the value is an object.

        Raises:
            ValueError, InvalidRequest, Conflict, TooLarge, ServiceUnavailable: as `set`.

        Example:
            >>> def note(args, ctx):
            ...     ctx.state.merge("customer", {"address": {"city": args["city"]}})
        """
        return self._write("merge", place, value)

    def assign(self, place: str, value: Any) -> Any:
        """Assign the keys of an object to the object at a place; nested values are replaced.

        Args:
            place, value: As for `set`; the value is an object.

        Raises:
            ValueError, InvalidRequest, Conflict, TooLarge, ServiceUnavailable: as `set`.

        Example:
            >>> def move(args, ctx):
            ...     ctx.state.assign("customer", {"address": args["address"]})
        """
        return self._write("assign", place, value)

    def push(self, place: str, value: Any) -> Any:
        """Append a value to the array at a place, or start one.

        Args:
            place, value: As for `set`.

        Raises:
            ValueError, InvalidRequest, Conflict, TooLarge, ServiceUnavailable: as `set`.

        Example:
            >>> def saw(args, ctx):
            ...     ctx.state.push("seen", args["order"])
        """
        return self._write("push", place, value)

    def concat(self, place: str, value: Any) -> Any:
        """Append an array or a text to the array or text at a place.

        Args:
            place, value: As for `set`; the value is an array or a text.

        Raises:
            ValueError, InvalidRequest, Conflict, TooLarge, ServiceUnavailable: as `set`.

        Example:
            >>> def saw_all(args, ctx):
            ...     ctx.state.concat("seen", args["orders"])
        """
        return self._write("concat", place, value)

    def _write(self, method: WriteMethod, place: str, value: Any) -> Any:
        return self._bridge.run(self._calls.write(method, place, value))


class State(Document):
    """`ctx.state`: the state of the thread that a call is made in.

    Example:
        >>> async def note(args, ctx):
        ...     await ctx.state.push("seen", args["order"])
        ...     return len(await ctx.state.get("seen"))
    """


class Memory(Document):
    """`ctx.memory`: the document that all threads of the runtime's name share.

    Example:
        >>> async def greet(args, ctx):
        ...     await ctx.memory.set("customer.name", args["name"])
        ...     return await ctx.memory.get("customer")
    """
