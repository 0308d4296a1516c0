"""Opening and closing a runtime: its spec is registered, and its author's functions are served, while it is open."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from collections.abc import Callable, Generator, Mapping
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from plangate.authoring.dispatchers import ActionDispatcher
from plangate.authoring.predicates import PredicateFunction
from plangate.authoring.tools import DefinedTool
from plangate.client import OpeningClient, ServiceClient, path
from plangate.context import ReferenceCalls
from plangate.data_environment import DataEnvironment
from plangate.errors import NotFound, PlangateError
from plangate.handlers import local_handlers
from plangate.local_calls import LocalCalls
from plangate.local_service import LocalService
from plangate.spec.base import did_you_mean
from plangate.spec.models import ReferenceSpec
from plangate.thread_state import MemoryAddresses
from plangate.workspace.directory import DirectoryWorkspace
from plangate.workspace.serving import ServedWorkspace

log = logging.getLogger("plangate")

EventHook = Callable[[dict[str, Any]], Any]

MAX_VERSIONS_READ: Final = 50


@dataclass(frozen=True, slots=True)
class RegisteredName:
    """A runtime that is registered already: the newest version of a name. `tenant` None is the key's own."""

    name: str
    tenant: str | None


@dataclass(frozen=True, slots=True)
class PreparedRuntime:
    """A spec with everything that was only known when it was opened, and the functions that run here."""

    wire: dict[str, Any]
    tools: Mapping[str, DefinedTool]
    references: Mapping[str, ReferenceSpec]
    predicates: Mapping[str, PredicateFunction]
    dispatcher: ActionDispatcher | None
    dispatchers: Mapping[str, ActionDispatcher]
    workspace: DirectoryWorkspace | None = None
    data: DataEnvironment | None = None


class RuntimeSession:
    """A spec that is registered while it is open. Verbs are in `ApprovalMethods` and `Runtime`."""

    def __init__(
        self,
        prepared: PreparedRuntime | RegisteredName,
        url: str | None,
        api_key: str | None,
        services: Mapping[str, Any],
        hooks: Mapping[str, EventHook],
        *,
        serve: bool = True,
    ) -> None:
        self._prepared = prepared
        self._serve = serve
        self._url = url
        self._api_key = api_key
        self._services = services
        self._hooks = hooks
        self._resources: AsyncExitStack | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connection: ServiceClient | None = None
        self._record: dict[str, Any] = {}
        self._signing_secret: str | None = None
        self._opening = asyncio.Lock()
        self._was_closed = False
        self._finalizer: weakref.finalize[..., Any] | None = None

    def __await__(self) -> Generator[Any, None, Self]:
        return self._open().__await__()

    async def __aenter__(self) -> Self:
        return await self._open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the runtime. Queries keep running in the service. Idempotent.

        No more calls are taken, and those that were taken and have not begun are given back. Handlers that run
        have ten seconds to end. What then still runs is cancelled and gives no result: the call is made again,
        by whichever process serves it, where the tool's `replay` says that this is safe, else its outcome is
        unknown. A sync handler cannot be cancelled; the program ends when it returns.

        `async with` closes it however the block is left: at its end, by an exception, by a cancellation, and by
        Ctrl-C under `asyncio.run`. A SIGTERM ends a Python program at once, unless it says otherwise, such as
        with `loop.add_signal_handler(signal.SIGTERM, stop.set)` and `await stop.wait()` in the block. Calls of
        a program that ended without closing count as cut off after half a minute.

        Example:
            >>> async def main(spec):
            ...     runtime = await create_runtime(spec)
            ...     try:
            ...         print(runtime.id)
            ...     finally:
            ...         await runtime.aclose()
        """
        held, self._resources = self._resources, None
        self._connection = None
        self._was_closed = True
        self._opening = asyncio.Lock()
        if self._finalizer is not None:
            self._finalizer.detach()
        if held is not None:
            await held.aclose()

    def _finalize_dropped(self) -> None:
        """Do what is done when nobody refers to the runtime any more, unless it was closed."""
        if self._finalizer is not None:
            self._finalizer()

    async def _open(self) -> Self:
        async with self._opening:
            if self._resources is None:
                await self._open_once()
        return self

    async def _open_once(self) -> None:
        use, calls = ExitStack(), None
        async with AsyncExitStack() as held:
            client = await self._connect(held, use)
            record = await self._find_record(client)
            self._signing_secret = record.pop("signingSecret", None) or self._signing_secret
            if isinstance(self._prepared, PreparedRuntime) and self._prepared.data is not None:
                await self._prepared.data.declare(client)
            if self._serve and isinstance(self._prepared, PreparedRuntime):
                calls = await self._serve_calls(held, client, record, self._prepared)
            self._connection, self._record = client, record
            self._loop = asyncio.get_running_loop()
            self._resources = held.pop_all()
            self._was_closed = False
        name = record["name"]
        self._finalizer = weakref.finalize(self, _release_dropped, name, calls, use, self._loop)

    async def _find_record(self, client: ServiceClient) -> dict[str, Any]:
        """Register the spec, or find the newest version of the name, and return it."""
        if isinstance(self._prepared, PreparedRuntime):
            registered: dict[str, Any] = await client.request("POST", "/runtimes", self._prepared.wire)
            return registered
        name = self._prepared.name
        page = await client.request("GET", "/runtimes", params={"name": name, "limit": MAX_VERSIONS_READ})
        current = next((version for version in page["items"] if version["retiredAt"] is None), None)
        if current is None:
            others = await client.request("GET", "/runtimes", params={"limit": MAX_VERSIONS_READ})
            hint = did_you_mean(name, {version["name"] for version in others["items"]})
            detail = f"No runtime {name!r} is registered, or all its versions are retired{hint}."
            raise NotFound(404, {"type": "not_found", "detail": detail})
        found: dict[str, Any] = await client.request("GET", path("runtimes", current["id"]))
        return found

    async def _serve_calls(
        self,
        held: AsyncExitStack,
        client: ServiceClient,
        record: Mapping[str, Any],
        prepared: PreparedRuntime,
    ) -> LocalCalls | None:
        """Serve calls for the author's functions until `held` is closed."""
        served = local_handlers(
            record["spec"],
            prepared.tools,
            prepared.predicates,
            prepared.dispatcher,
            prepared.dispatchers,
            None if prepared.workspace is None else ServedWorkspace(prepared.workspace, client),
        )
        if not served:
            return None
        references = ReferenceCalls(client, record["id"], prepared.references)
        tenant = prepared.wire["tenant"]["resourceId"]
        memories = MemoryAddresses(client, tenant, {record["id"]: record["name"]})
        calls = LocalCalls(client, served, self._services, references, memories=memories)
        held.push_async_callback(calls.aclose)
        await calls.start()
        return calls

    async def _connect(self, held: AsyncExitStack, use: ExitStack) -> ServiceClient:
        """Return a client until `held` is closed; `use` releases the service that was started for it."""
        tenant = self._tenant
        if self._url is not None and self._api_key is not None:
            client = ServiceClient(self._url, self._api_key, tenant)
        else:
            service = await asyncio.to_thread(LocalService.acquire)
            use.callback(service.release)
            held.push_async_callback(asyncio.to_thread, use.close)
            client = ServiceClient(
                service.url, self._api_key or service.api_key, tenant, ended=service.exit_reason
            )
        held.push_async_callback(client.aclose)
        return client

    @property
    def _tenant(self) -> str | None:
        prepared = self._prepared
        if isinstance(prepared, RegisteredName):
            return prepared.tenant
        tenant: str = prepared.wire["tenant"]["resourceId"]
        return tenant

    def _names(self, part: str) -> list[str] | None:
        """Return the names of the agents or plans of the spec, or None if it is not known before it is open."""
        if isinstance(self._prepared, PreparedRuntime):
            spec = self._prepared.wire
        elif self._connection is not None:
            spec = self._record["spec"]
        else:
            return None
        return [declared["name"] for declared in spec.get(part) or ()]

    @property
    def _client(self) -> ServiceClient:
        return OpeningClient(self._opened)

    async def _opened(self) -> ServiceClient:
        """Return the connection. The first call opens the runtime; one that was closed stays closed."""
        if self._connection is None and not self._was_closed:
            await self._open()
        return self._open_client

    @property
    def _open_client(self) -> ServiceClient:
        if self._connection is None:
            state = "was closed" if self._was_closed else "is registered by the first call that is awaited"
            raise PlangateError(
                f"the runtime is not open: it {state}. Open it with `async with runtime`, or `await runtime`"
            )
        if _running_loop() not in (None, self._loop):
            raise PlangateError(
                "the runtime was opened in another event loop: open and use it within one `asyncio.run`"
            )
        return self._connection

    @property
    def id(self) -> str:
        """The id of the registered version."""
        return str(self._registration["id"])

    @property
    def version(self) -> int:
        """Return its number among the versions of its name."""
        return int(self._registration["version"])

    @property
    def spec(self) -> dict[str, Any]:
        """The registered spec, in its wire form."""
        registered: dict[str, Any] = self._registration["spec"]
        return registered

    @property
    def signing_secret(self) -> str | None:
        """With what the service signs its requests to http tools and dispatchers: `"whsec_..."`, or None.

        The service shows it once, to who registers the first spec of this name that has such a tool: keep it
        where those tools run. It is None at every later opening, and where nothing of the spec is http. It
        serves all versions of the runtime's name, and stays here when the runtime is closed. Where it was
        lost, `rotate_signing_secret` makes another.

        The signature is that of Standard Webhooks: each tool checks it, and that the timestamp is a few
        minutes old at most, before it does anything.

        Example:
            >>> import base64, hashlib, hmac
            >>> def is_signed(secret, headers, body):
            ...     key = base64.b64decode(secret.removeprefix("whsec_"))
            ...     said = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
            ...     right = "v1," + base64.b64encode(hmac.digest(key, said, hashlib.sha256)).decode()
            ...     given = headers["webhook-signature"].split()
            ...     return any(hmac.compare_digest(right, one) for one in given)
        """
        return self._signing_secret

    async def rotate_signing_secret(self) -> str:
        """Create a new secret for every version of the runtime's name, and return it: `"whsec_..."`.

        Requests are signed with the one before too, for a day: give the new one to the tools until then. It is
        shown this once, and is `signing_secret` from here on.

        Raises:
            NotFound: if there is none: nothing of the spec has the transport http.
            Conflict: if it was made and the answer that shows it was lost. Calling this again makes another, and
                then the one that the tools have signs no more.
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def replace_leaked_secret(runtime, file):
            ...     file.write_text(await runtime.rotate_signing_secret())
        """
        client = await self._opened()
        answer = await client.request("POST", path("runtimes", self.id, "signing-secret"))
        secret: str = answer["signingSecret"]
        self._signing_secret = secret
        return secret

    @property
    def url(self) -> str:
        """Return the address of the service."""
        return self._open_client.url

    @property
    def _registration(self) -> dict[str, Any]:
        _ = self._open_client  # raises if nothing is registered yet
        return self._record


def _release_dropped(
    name: str, calls: LocalCalls | None, use: ExitStack, loop: asyncio.AbstractEventLoop
) -> None:
    """Say that a runtime was dropped without being closed, and end what it did.

    No task is created: the usual moment is the end of the program's event loop, where one could not finish.
    """
    log.warning(
        "the runtime %r was dropped without being closed: open it in an `async with` block (a SyncRuntime in a "
        "`with` block), or close it at the end",
        name,
    )
    use.close()
    if calls is not None and not loop.is_closed():
        with contextlib.suppress(RuntimeError):  # it ends right now, and its tasks with it
            loop.call_soon_threadsafe(calls.stop)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
