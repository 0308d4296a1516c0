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

from plangate.api.calls import Api
from plangate.api.models import Event, RegisteredRuntime, RuntimeView
from plangate.authoring.dispatchers import ActionDispatcher
from plangate.authoring.predicates import PredicateFunction
from plangate.authoring.tools import DefinedTool
from plangate.client import OpeningClient, ServiceClient
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

EventHook = Callable[[Event], Any]

MAX_VERSIONS_READ: Final = 50
KNOWN_VERSIONS: Final = ("0.1.",)


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
    """A spec that is registered while it is open. Its methods are in `ApprovalMethods` and `Runtime`."""

    def __init__(
        self,
        prepared: PreparedRuntime | RegisteredName,
        url: str | None,
        api_key: str | None,
        services: Mapping[str, Any],
        hooks: Mapping[str, EventHook],
        *,
        serve: bool = True,
        cell_urls: Mapping[str, str] | None = None,
    ) -> None:
        self._prepared = prepared
        self._cell_urls = cell_urls
        self._serve = serve
        self._url = url
        self._api_key = api_key
        self._services = services
        self._hooks = hooks
        self._resources: AsyncExitStack | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connection: ServiceClient | None = None
        self._record: RegisteredRuntime | RuntimeView | None = None
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

        No more calls are claimed, and claimed calls that have not begun are released. Handlers that run
        have ten seconds to end. What then still runs is canceled and gives no result: the call is made again,
        by whichever process serves it, where the tool's `replay` says that this is safe, else its outcome is
        unknown. A sync handler cannot be canceled; the program ends when it returns.

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
        stack, self._resources = self._resources, None
        self._connection = None
        self._was_closed = True
        self._opening = asyncio.Lock()
        if self._finalizer is not None:
            self._finalizer.detach()
        if stack is not None:
            await stack.aclose()

    def _finalize_dropped(self) -> None:
        """Warn and clean up when the last reference to an unclosed runtime disappears."""
        if self._finalizer is not None:
            self._finalizer()

    async def _open(self) -> Self:
        async with self._opening:
            if self._resources is None:
                await self._open_once()
        return self

    async def _open_once(self) -> None:
        use, calls = ExitStack(), None
        async with AsyncExitStack() as stack:
            client = await self._connect(stack, use)
            record = await self._find_record(Api(client))
            await _warn_of_unknown_version(Api(client))
            self._signing_secret = record.pop("signingSecret", None) or self._signing_secret
            if isinstance(self._prepared, PreparedRuntime) and self._prepared.data is not None:
                await self._prepared.data.declare(client)
            if self._serve and isinstance(self._prepared, PreparedRuntime):
                calls = await self._serve_calls(stack, client, record, self._prepared)
            self._connection, self._record = client, record
            self._loop = asyncio.get_running_loop()
            self._resources = stack.pop_all()
            self._was_closed = False
        name = record.name
        self._finalizer = weakref.finalize(self, _release_dropped, name, calls, use, self._loop)

    async def _find_record(self, api: Api) -> RegisteredRuntime | RuntimeView:
        """Register the spec, or find the newest version of the name, and return it."""
        if isinstance(self._prepared, PreparedRuntime):
            return await api.register_runtime(self._prepared.wire)
        name = self._prepared.name
        page = await api.list_runtimes(name=name, limit=MAX_VERSIONS_READ)
        current = next((version for version in page.items_ if version.retired_at is None), None)
        if current is None:
            others = await api.list_runtimes(limit=MAX_VERSIONS_READ)
            hint = did_you_mean(name, {version.name for version in others.items_})
            detail = f"No runtime {name!r} is registered, or all its versions are retired{hint}."
            raise NotFound(404, {"type": "not_found", "detail": detail})
        return await api.read_runtime(current.id)

    async def _serve_calls(
        self,
        stack: AsyncExitStack,
        client: ServiceClient,
        record: RegisteredRuntime | RuntimeView,
        prepared: PreparedRuntime,
    ) -> LocalCalls | None:
        """Serve calls for the author's functions until `stack` is closed."""
        served = local_handlers(
            record.spec,
            prepared.tools,
            prepared.predicates,
            prepared.dispatcher,
            prepared.dispatchers,
            None if prepared.workspace is None else ServedWorkspace(prepared.workspace, client),
        )
        if not served:
            return None
        api = Api(client)
        references = ReferenceCalls(api, record.id, prepared.references)
        tenant = prepared.wire["tenant"]["resourceId"]
        memories = MemoryAddresses(api, tenant, {record.id: record.name})
        calls = LocalCalls(client, served, self._services, references, memories=memories)
        stack.push_async_callback(calls.aclose)
        await calls.start()
        return calls

    async def _connect(self, stack: AsyncExitStack, use: ExitStack) -> ServiceClient:
        """Return a client until `stack` is closed; `use` releases the service that was started for it."""
        tenant = self._tenant
        if self._url is not None and self._api_key is not None:
            client = ServiceClient(self._url, self._api_key, tenant, cell_urls=self._cell_urls)
        else:
            service = await asyncio.to_thread(LocalService.acquire)
            use.callback(service.release)
            stack.push_async_callback(asyncio.to_thread, use.close)
            client = ServiceClient(
                service.url, self._api_key or service.api_key, tenant, ended=service.exit_reason
            )
        stack.push_async_callback(client.aclose)
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
        elif self._record is not None and self._connection is not None:
            spec = self._record.spec
        else:
            return None
        return [declared["name"] for declared in spec.get(part) or ()]

    @property
    def _client(self) -> ServiceClient:
        return OpeningClient(self._ensure_open)

    @property
    def api(self) -> Api:
        """Every operation of the HTTP API as a method, such as `api.list_queries` and `api.read_usage`, in the tenant of
        the runtime.

        Example:
            >>> async def failed(runtime):
            ...     page = await runtime.api.list_queries(status="failed", limit=10)
            ...     return [(query.id, query.error.code) for query in page.items_]
        """
        return Api(self._client)

    async def _ensure_open(self) -> ServiceClient:
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
        return self._registration.id

    @property
    def version(self) -> int:
        """Return its number among the versions of its name."""
        return self._registration.version

    @property
    def spec(self) -> dict[str, Any]:
        """The registered spec, in its wire form."""
        return self._registration.spec

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
            ...     signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
            ...     expected = "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
            ...     signatures = headers["webhook-signature"].split()
            ...     return any(hmac.compare_digest(expected, one) for one in signatures)
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
        await self._ensure_open()
        self._signing_secret = secret = (await self.api.rotate_signing_secret(self.id)).signing_secret
        return secret

    @property
    def url(self) -> str:
        """Return the address of the service."""
        return self._open_client.url

    @property
    def _registration(self) -> RegisteredRuntime | RuntimeView:
        _ = self._open_client  # raises if nothing is registered yet
        assert self._record is not None
        return self._record


async def _warn_of_unknown_version(api: Api) -> None:
    """Warn if the service has a version that this library does not know."""
    try:
        version = (await api.whoami(patience_s=0)).version
    except (PlangateError, AttributeError):  # it is asked again at the next opening
        return
    if not version.startswith(KNOWN_VERSIONS):
        log.warning(
            "the service has version %s, which this library does not know; update the library", version
        )


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
