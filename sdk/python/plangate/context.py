"""The context that a handler receives beside its arguments."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import hashlib
import logging
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from plangate.authoring.arguments import describe_type
from plangate.authoring.references import DefinedReference
from plangate.errors import PlangateError, ServiceUnavailable
from plangate.json_bytes import to_json
from plangate.spec.glimpses import glimpse
from plangate.spec.models import ReferenceSpec

if TYPE_CHECKING:  # a process that runs Python tools of the service sends no requests
    from plangate.api.calls import Api

log = logging.getLogger("plangate")

RESERVED_NAMES: Final = frozenset(
    {
        *(
            "artifacts",
            "emit",
            "files",
            "memory",
            "progress",
            "references",
            "resolved_refs",
            "services",
            "state",
        ),
        *("tool_use_id", "work_id"),
        *("get", "items", "keys", "values"),
    }
)
"""Names that no service may have, because the context has them itself, as keys or as the methods of a mapping."""

PROGRESS_PATIENCE_S: Final = 5.0
CHECK_INTERVAL_S: Final = 0.5


def check_services(services: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a copy of the services. Raise TypeError if it is not a mapping of names, ValueError for a reserved name."""
    if services is None:
        return {}
    if not isinstance(services, Mapping) or not all(isinstance(name, str) for name in services):
        raise TypeError("services is a mapping of names to objects")
    reserved = sorted(RESERVED_NAMES & services.keys())
    if reserved:
        raise ValueError(
            f"services cannot be called {', '.join(reserved)}: handlers find something else under "
            f"{', '.join(sorted(RESERVED_NAMES))}; rename them"
        )
    return dict(services)


class Services(Mapping[str, Any]):
    """`ctx.services`: what the author gave, each as a key and as an attribute. Read-only."""

    def __init__(self, services: Mapping[str, Any]) -> None:
        self._services = dict(services)

    def __getitem__(self, name: str) -> Any:
        if name not in self._services:
            raise KeyError(
                f"there is no service {name!r}; create_runtime was given {', '.join(self._services) or 'none'}"
            )
        return self._services[name]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(error.args[0]) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._services)

    def __len__(self) -> int:
        return len(self._services)


def to_jsonable(value: Any) -> Any:
    """Return a value of a handler as JSON: Decimals as strings, dates in ISO 8601, models and dataclasses as objects.

    Raises:
        ValueError: if the value contains itself.

    Example:
        >>> from decimal import Decimal
        >>> to_jsonable([Decimal("1.50")])
        ['1.50']
    """
    return glimpse({"value": value})["value"]


class Bridge:
    """Lets a handler call the service from the event loop, from a thread, or from another event loop."""

    def __init__(self, home: asyncio.AbstractEventLoop) -> None:
        self._home = home
        self._open: set[asyncio.Task[Any]] = set()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Start the work at once. Return an awaitable on an event loop, and the result in a thread."""
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            return self._wait_in_thread(work)
        if here is not self._home:
            return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._home))
        task = here.create_task(work)
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        return task

    def _wait_in_thread(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Wait for the work in a thread. Raise ServiceUnavailable if the event loop of the program ends meanwhile."""
        if not self._home.is_closed():
            done = asyncio.run_coroutine_threadsafe(work, self._home)
            while not self._home.is_closed():
                if concurrent.futures.wait([done], CHECK_INTERVAL_S).done:
                    return done.result()
        with contextlib.suppress(RuntimeError):  # of what it had begun and cannot end
            work.close()
        raise ServiceUnavailable("The event loop of the runtime has ended, so it can make no more requests.")

    async def drain(self) -> None:
        """Wait for work that was started and not awaited, for at most `PROGRESS_PATIENCE_S`."""
        if self._open:
            await asyncio.wait(self._open, timeout=PROGRESS_PATIENCE_S)


class IdempotencyKeys:
    """Generates idempotency keys for the requests of one call. A call that is repeated after a crash gets the same
    keys."""

    def __init__(self, work_id: str) -> None:
        self._work_id = work_id
        self._asked: Counter[str] = Counter()

    def next_key(self, where: str, body: Any) -> str:
        """Return the key of the n-th identical request of the call."""
        digest = hashlib.sha256(where.encode() + b"\n" + to_json(body)).hexdigest()[:32]
        self._asked[digest] += 1
        return f"{self._work_id}.{digest}.{self._asked[digest]}"


def split_handle(ref: Any, id: Any) -> tuple[str, str]:
    """Return the kind and the id of a reference. Raise TypeError if it has none, or two ids."""
    if isinstance(ref, Mapping) and id is None:
        kind, id = ref.get("kind"), ref.get("id")
    else:
        kind = ref
    if isinstance(kind, str) and isinstance(id, str):
        return kind, id
    raise TypeError(
        "a reference is a handle such as {'kind': 'Orders', 'id': '...'}, or a kind and an id, "
        f"not {describe_type(ref)} and {describe_type(id)}"
    )


class ReferenceCalls:
    """Creating and reading references, with a client. `work_id` is the call that does it."""

    def __init__(
        self,
        api: Api,
        runtime_id: str,
        kinds: Mapping[str, ReferenceSpec],
        work_id: str | None = None,
    ) -> None:
        self._api = api
        self._runtime_id = runtime_id
        self._kinds = kinds
        self._work_id = work_id

    def for_call(self, work_id: str) -> ReferenceCalls:
        return ReferenceCalls(self._api, self._runtime_id, self._kinds, work_id)

    async def create(self, spec: ReferenceSpec | str, payload: Any) -> dict[str, Any]:
        kind, value, summary = self._pack(spec, payload)
        reference = await self._api.create_reference(
            kind=kind, value=value, glimpse=summary, runtime_id=self._runtime_id, work_id=self._work_id
        )
        return {"kind": reference.kind, "id": reference.id, "glimpse": reference.glimpse}

    def _pack(self, spec: ReferenceSpec | str, payload: Any) -> tuple[str, Any, Any]:
        if not isinstance(spec, str | ReferenceSpec):
            raise TypeError(
                f"a reference is of what define_reference returns, or of its name, not {describe_type(spec)}"
            )
        known = self._kinds.get(spec, spec) if isinstance(spec, str) else spec
        if isinstance(known, DefinedReference):
            packed = known.pack(payload)
            return known.name, packed.value, packed.glimpse
        return (known if isinstance(known, str) else known.name), to_jsonable(payload), None

    async def resolve(self, ref: Mapping[str, Any] | str, id: str | None = None) -> Any:
        kind, id = split_handle(ref, id)
        return await self._api.read_reference(kind, id, work_id=self._work_id)

    async def glimpse(self, ref: Mapping[str, Any] | str, id: str | None = None) -> Any:
        kind, id = split_handle(ref, id)
        return (await self._api.read_reference_glimpse(kind, id)).glimpse


class References:
    """`ctx.references`. In an async handler each call is awaited; in a sync one it returns its result."""

    def __init__(self, calls: ReferenceCalls, bridge: Bridge) -> None:
        self._calls = calls
        self._bridge = bridge

    def create(self, spec: ReferenceSpec | str, payload: Any) -> Any:
        """Store a value and return `{"kind", "id", "glimpse"}`. Raises as `Runtime.create_reference`."""
        return self._bridge.run(self._calls.create(spec, payload))

    def resolve(self, ref: Mapping[str, Any] | str, id: str | None = None) -> Any:
        """Return the value of a handle, or of a kind and an id. Raises as `Runtime.resolve_reference`."""
        split_handle(ref, id)
        return self._bridge.run(self._calls.resolve(ref, id))

    def glimpse(self, ref: Mapping[str, Any] | str, id: str | None = None) -> Any:
        """Return the glimpse of a handle, or of a kind and an id. Raises as `Runtime.reference_glimpse`."""
        split_handle(ref, id)
        return self._bridge.run(self._calls.glimpse(ref, id))


class CallContext(Mapping[str, Any]):
    """The `ctx` of a handler: a mapping; everything in it is an attribute, too.

    It also says who asks: `query_id`, `thread_id`, `agent` (None where a host executes a plan), `runtime_id`,
    `resource_id` (the tenant's id).

    A dispatcher also has `plan_id`, `spec_name`, `revision`, `digest`, `idempotency_key` (the same for
    every attempt), `attempt` (from 1), `inputs`, and `resolved_refs`: the values of the references of the
    actions by kind and id. The `ctx` of an approval predicate is another one, see `create_runtime`.

    Attributes:
        tool_use_id: The model's own id of the call, such as `toolu_...`. Models may use an id again.
        work_id: The id of the call's work record; the same when it is made again after a crash.
        services: What `create_runtime(services=...)` was given, by name; each is also an attribute and a
            key of `ctx` itself, before anything else of that name.
        references: `create(Spec, payload)`, `resolve(ref)` and `glimpse(ref)`, as on the runtime: to be awaited in
            an async handler, plain calls in a sync one.
        artifacts: `publish(channel, path, ...)`, `upload(channel, name, body, ...)`, `get(id)`, `list(...)`,
            `read(id)`, `lineage(id)`, `withdraw(id, reason)` and `choose(id, over, reason)`, as on
            `Artifacts` but without a `thread_id`: it is that of the call.
            What is published belongs to the agent's run that made the call; a call that is made again
            publishes nothing twice.
        files: `read(path)`, `read_text(path)`, `write(path, content)`, `list(prefix)`, `delete(path)` and
            `publish(channel, path, ...)`, as on `Files`: the workspace of the thread, with bytes or text.
        state: The state of the thread, which is `†state` for a model: `get(place=None, default=None)`,
            `set(place, value)`, `merge`, `assign`, `push` and `concat`. A place is written `totals.net`.
            A call that is made again writes nothing twice; one that is over writes nothing.
        memory: The document that all threads of the runtime's name share, which is `†memory` for a model: the
            methods are those of `state`.
        progress: `progress(label, phase_index=None, total_phases=None, milestone=None)` tells the readers
            of the query how far the call is, as an event `tool-progress`; it need not be awaited.
        emit: `emit(event_type, data=None)` sends them an event `custom` of a type of your own; it need not be awaited.

    Raises:
        AttributeError: (with a key KeyError) for what the call does not have; the message says what it has.

    Example:
        >>> ctx = CallContext({"tool_use_id": "toolu_1"}, {"db": "a connection"})
        >>> ctx.db, ctx["db"], ctx["services"]["db"], ctx["tool_use_id"]
        ('a connection', 'a connection', 'a connection', 'toolu_1')
        >>> ctx.get("resolved_refs", {})
        {}
    """

    def __init__(self, fields: Mapping[str, Any], services: Mapping[str, Any]) -> None:
        self._fields = {**fields, **services, "services": Services(services)}

    def __getitem__(self, name: str) -> Any:
        if name in self._fields:
            return self._fields[name]
        raise KeyError(
            f"this call has no {name!r}; it has {', '.join(sorted(self._fields))}. More is given to "
            "create_runtime(services=...)"
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(error.args[0]) from None

    def __contains__(self, name: object) -> bool:
        return name in self._fields

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        return f"CallContext({', '.join(sorted(self._fields))})"


class Progress:
    """`ctx.progress` and, as `emit`, `ctx.emit`: events for the readers of the query, sent in their order."""

    def __init__(self, api: Api, work_id: str, token: str, bridge: Bridge) -> None:
        self._api = api
        self._work_id = work_id
        self._token = token
        self._bridge = bridge
        self._send_lock = asyncio.Lock()

    def __call__(
        self,
        label: str,
        phase_index: int | None = None,
        total_phases: int | None = None,
        milestone: bool | str | None = None,
    ) -> Any:
        """Report to the readers of the query how far the call is, as an event `tool-progress`.

        It may be awaited in an async handler, and need not be. What cannot be sent is logged and dropped.

        Example:
            >>> def scan(args, ctx):
            ...     ctx.progress("reading", phase_index=1, total_phases=2)
        """
        return self._bridge.run(self._send(label, phase_index, total_phases, milestone))

    async def _send(
        self, label: str, phase_index: int | None, total_phases: int | None, milestone: bool | str | None
    ) -> None:
        async with self._send_lock:
            try:
                await self._api.report_tool_progress(
                    self._work_id,
                    claim_token=self._token,
                    label=label,
                    phase_index=phase_index,
                    total_phases=total_phases,
                    milestone=milestone,
                    once=True,
                    patience_s=PROGRESS_PATIENCE_S,
                )
            except (PlangateError, ValueError) as error:
                log.warning("progress was not sent: %s", error)

    def emit(self, event_type: str, data: Any = None) -> Any:
        """Emit an event `custom` with a type of your own to the readers of the query.

        It may be awaited in an async handler, and need not be. An event that cannot be sent is logged and dropped.
        `data` is any JSON, of at most 64 KiB.

        Example:
            >>> def scan(args, ctx):
            ...     ctx.emit("page-scanned", {"page": 1})
        """
        return self._bridge.run(self._emit(event_type, data))

    async def _emit(self, event_type: str, data: Any) -> None:
        async with self._send_lock:
            try:
                await self._api.emit_tool_event(
                    self._work_id,
                    claim_token=self._token,
                    event_type=event_type,
                    data=to_jsonable(data),
                    once=True,
                    patience_s=PROGRESS_PATIENCE_S,
                )
            except (PlangateError, TypeError, ValueError) as error:
                log.warning("the event %r was not sent: %s", event_type, error)
