"""Opening and closing: a spec is registered, and its author's functions are served, for as long as it is open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from plangate.authoring.dispatchers import ActionDispatcher
from plangate.authoring.predicates import PredicateFunction
from plangate.authoring.tools import DefinedTool
from plangate.client import ServiceClient, path
from plangate.context import ReferenceCalls
from plangate.errors import PlangateError
from plangate.handlers import local_handlers
from plangate.local_calls import LocalCalls
from plangate.local_service import LocalService
from plangate.spec.models import ReferenceSpec
from plangate.thread_state import MemoryAddresses
from plangate.workspace.directory import DirectoryWorkspace
from plangate.workspace.serving import ServedWorkspace

EventHook = Callable[[dict[str, Any]], Any]


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


class RuntimeSession:
    """A spec that is registered while it is open. Verbs are in `ApprovalMethods` and `Runtime`."""

    def __init__(
        self,
        prepared: PreparedRuntime,
        url: str | None,
        api_key: str | None,
        services: Mapping[str, Any],
        hooks: Mapping[str, EventHook],
    ) -> None:
        self._prepared = prepared
        self._url = url
        self._api_key = api_key
        self._services = services
        self._hooks = hooks
        self._resources: AsyncExitStack | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connection: ServiceClient | None = None
        self._record: dict[str, Any] = {}
        self._signing_secret: str | None = None

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
        if held is not None:
            await held.aclose()

    async def _open(self) -> Self:
        if self._resources is not None:
            return self
        async with AsyncExitStack() as held:
            client = await self._connect(held)
            record = await client.request("POST", "/runtimes", self._prepared.wire)
            self._signing_secret = record.pop("signingSecret", None) or self._signing_secret
            prepared = self._prepared
            served = local_handlers(
                record["spec"],
                prepared.tools,
                prepared.predicates,
                prepared.dispatcher,
                prepared.dispatchers,
                None if prepared.workspace is None else ServedWorkspace(prepared.workspace, client),
            )
            if served:
                references = ReferenceCalls(client, record["id"], prepared.references)
                tenant = prepared.wire["tenant"]["resourceId"]
                memories = MemoryAddresses(client, tenant, {record["id"]: record["name"]})
                calls = LocalCalls(client, served, self._services, references, memories=memories)
                held.push_async_callback(calls.aclose)
                await calls.start()
            self._connection, self._record = client, record
            self._loop = asyncio.get_running_loop()
            self._resources = held.pop_all()
        return self

    async def _connect(self, held: AsyncExitStack) -> ServiceClient:
        tenant = self._prepared.wire["tenant"]["resourceId"]
        if self._url is not None and self._api_key is not None:
            client = ServiceClient(self._url, self._api_key, tenant)
        else:
            service = await asyncio.to_thread(LocalService.acquire)
            held.push_async_callback(asyncio.to_thread, service.release)
            client = ServiceClient(
                service.url, self._api_key or service.api_key, tenant, ended=service.exit_reason
            )
        held.push_async_callback(client.aclose)
        return client

    @property
    def _client(self) -> ServiceClient:
        if self._connection is None:
            raise PlangateError(
                "the runtime is not open: use `async with create_runtime(...) as runtime`, or "
                "`runtime = await create_runtime(...)` and `await runtime.aclose()` at the end"
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
        answer = await self._client.request("POST", path("runtimes", self.id, "signing-secret"))
        secret: str = answer["signingSecret"]
        self._signing_secret = secret
        return secret

    @property
    def url(self) -> str:
        """Return the address of the service."""
        return self._client.url

    @property
    def _registration(self) -> dict[str, Any]:
        _ = self._client  # says so where nothing is registered yet
        return self._record


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
