"""Serving calls in the user's process: claimed from the service, run, kept alive, answered."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import random
import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import httpx

from plangate.api.calls import Api
from plangate.api.models import ActionCall, PredicateCall, ToolCall, ToolVersion
from plangate.artifacts import Artifacts, CallArtifacts
from plangate.authoring.arguments import Handler, describe_type
from plangate.client import (
    MAX_PAUSE_S,
    REQUEST_PATIENCE_S,
    ServiceClient,
    is_transient,
)
from plangate.context import (
    Bridge,
    CallContext,
    IdempotencyKeys,
    Progress,
    ReferenceCalls,
    References,
    to_jsonable,
)
from plangate.errors import ApiError, PlangateError
from plangate.files import CallFiles, Files
from plangate.handler_calls import dispatch_fields, error_text, sanitize_error
from plangate.handlers import LocalHandler
from plangate.thread_state import Memory, MemoryAddresses, MemoryCalls, State, StateCalls

log = logging.getLogger("plangate")

ClaimedCall = ToolCall | ActionCall | PredicateCall

MAX_CONCURRENT: Final = 16
LEASE_MS: Final = 30_000
CLOSE_WITHIN_S: Final = 10.0
RELEASE_WITHIN_S: Final = 3.0
MIN_LEASE_MS: Final = 1_000
RESULT_PATIENCE_S: Final = 60.0
"""A claim that could not be kept alive has lapsed by then: what is posted later is evidence at most."""
MAX_NAMES_PER_CLAIM: Final = 500
REJECTED_PAUSE_S: Final = 30.0


def new_claim_token() -> str:
    """Return a random token of 192 bits, which proves that this process claimed a call."""
    return secrets.token_urlsafe(24)


class LocalCalls:
    """Claims calls for the given handlers while it is open, up to a maximum at a time."""

    def __init__(
        self,
        client: ServiceClient,
        handlers: Sequence[LocalHandler],
        services: Mapping[str, Any],
        references: ReferenceCalls,
        *,
        memories: MemoryAddresses | None = None,
        max_concurrent: int = MAX_CONCURRENT,
        lease_ms: int = LEASE_MS,
    ) -> None:
        self._client = client
        self._api = Api(client)
        self._handlers = {(one.name, one.digest): one.handler for one in handlers}
        self._services = services
        self._references = references
        self._memories = memories
        self._max = max_concurrent
        self._lease_ms = lease_ms
        self._pool = ThreadPoolExecutor(max_concurrent, thread_name_prefix="plangate-call")
        self._hint = asyncio.Event()
        self._running: set[asyncio.Task[None]] = set()
        self._listen_task: asyncio.Task[None] | None = None
        self._claim_task: asyncio.Task[Any] | None = None
        self._closing = False
        self._claim_token = new_claim_token()
        self._outage_logged = False

    async def start(self) -> None:
        """Claim the calls that are open, then listen for more. On cancellation, `aclose` releases what was claimed.

        Raises:
            ApiError: if the key may not serve these calls.
            ServiceUnavailable: if the service does not answer.
        """
        first = self._claim_and_start(self._max, REQUEST_PATIENCE_S)
        self._claim_task = asyncio.create_task(first, name="plangate-claim")
        await asyncio.shield(self._claim_task)
        self._hint.set()
        self._listen_task = asyncio.create_task(self._listen(), name="plangate-listen")
        self._claim_task = asyncio.create_task(self._claim_on_hints(), name="plangate-claim")

    def stop(self) -> None:
        """Stop claiming. Calls that run are finished."""
        self._closing = True
        self._hint.set()
        if self._listen_task is not None:
            self._listen_task.cancel()

    async def aclose(self) -> None:
        """Stop claiming, release the calls that have not started, and wait for those that have.

        A call that still runs then is canceled and gets no result, since its effects are unknown. A
        cancellation ends the wait.
        """
        self.stop()
        try:
            if self._claim_task is not None:
                await asyncio.wait({self._claim_task}, timeout=CLOSE_WITHIN_S)
            if self._running:
                await asyncio.wait(self._running, timeout=CLOSE_WITHIN_S)
        finally:
            if self._running:
                log.warning(
                    "calls still run and are cut off: %d; each is made again where its replay is safe, else its "
                    "outcome is unknown",
                    len(self._running),
                )
            left = [
                task for task in (self._listen_task, self._claim_task, *self._running) if task is not None
            ]
            for task in left:
                if not task.cancelling():  # at the end of its event loop everything is canceled at once
                    task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            self._pool.shutdown(wait=False, cancel_futures=True)

    # -- taking ----------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        pause_s = 0.1
        while True:
            longest_s = MAX_PAUSE_S
            try:
                async with self._client.stream("GET", "/tool-calls/stream") as (_, hints):
                    async for _ in hints:
                        pause_s = 0.1
                        self._hint.set()
            except (httpx.TransportError, ApiError) as error:
                longest_s = MAX_PAUSE_S if is_transient(error) else REJECTED_PAUSE_S
                self._log_outage_once(error)
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - spreads callers, no secret
            pause_s = min(pause_s * 2, longest_s)

    async def _claim_on_hints(self) -> None:
        while not self._closing:
            await self._hint.wait()
            self._hint.clear()
            while not self._closing and (free := self._max - len(self._running)) > 0:
                try:
                    claimed = await self._claim_and_start(free, 0)
                except PlangateError as error:
                    self._log_outage_once(error)
                    break
                self._outage_logged = False
                if claimed < free:
                    break

    def _log_outage_once(self, error: Exception) -> None:
        """Report the failure once until a request succeeds; the next hint, or at the latest the next connection, tries again."""
        if not self._outage_logged and not self._closing:
            level = logging.INFO if is_transient(error) else logging.WARNING
            log.log(
                level, "calls of tools cannot be claimed at the moment: %s", error or type(error).__name__
            )
        self._outage_logged = True

    async def _claim_and_start(self, limit: int, patience_s: float) -> int:
        """Claim at most `limit` open calls, start them, and return how many there were."""
        names = [ToolVersion(name=name, definitionDigest=digest) for name, digest in self._handlers]
        claimed = 0
        for at in range(0, len(names), MAX_NAMES_PER_CLAIM):
            if claimed < limit:
                calls = await self._claim(names[at : at + MAX_NAMES_PER_CLAIM], limit - claimed, patience_s)
                for call in calls:
                    self._start_call(call)
                claimed += len(calls)
        return claimed

    async def _claim(self, names: list[ToolVersion], limit: int, patience_s: float) -> list[ClaimedCall]:
        response = await self._api.claim_tool_call(
            tools=names,
            max=limit,
            lease_ms=self._lease_ms,
            claim_token=self._claim_token,
            once=True,
            patience_s=patience_s,
        )
        # The token is kept until a response came: after a lost one, it gives the same calls again.
        self._claim_token = new_claim_token()
        return response.calls

    def _start_call(self, call: Mapping[str, Any]) -> None:
        task = asyncio.create_task(self._run_call(call), name=f"plangate-call-{call['workId']}")
        self._running.add(task)
        task.add_done_callback(self._on_call_done)

    def _on_call_done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if len(self._running) == self._max - 1:
            self._hint.set()
        if not task.cancelled() and task.exception() is not None:
            log.error("a call ended in a way it should not", exc_info=task.exception())

    # -- one call --------------------------------------------------------------------------------------------

    async def _run_call(self, call: Mapping[str, Any]) -> None:
        if self._closing:
            await self._release(call)
            return
        alive = asyncio.create_task(self._renew_claim(call), name=f"plangate-renew-{call['workId']}")
        try:
            await self._post_result(call, await self._call_handler(call))
        except asyncio.CancelledError:
            alive.cancel()
            await self._abandon(call)
            raise
        finally:
            alive.cancel()
            await asyncio.gather(alive, return_exceptions=True)

    async def _call_handler(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """`{"output"}` or `{"error"}` of the handler, whatever it does."""
        bridge = Bridge(asyncio.get_running_loop())
        handler = self._handlers[(call["name"], call["definitionDigest"])]
        payload = call["args"] if "args" in call else call["actions"]
        try:
            result = await self._invoke(handler, payload, self._context(call, bridge))
            return {
                "output": _predicate_result(call, result)
                if call["purpose"] == "predicate"
                else to_jsonable(result)
            }
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return self._error_result(call, error)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the model learns of every failure
            return self._error_result(call, error)
        finally:
            await bridge.drain()

    async def _invoke(self, handler: Handler, payload: Any, ctx: Any) -> Any:
        if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
            getattr(handler, "__call__", None)  # noqa: B004 - asks what kind of call it is, not whether
        ):
            return await handler(payload, ctx)
        work = partial(contextvars.copy_context().run, _capture, handler, payload, ctx)
        result, error = await asyncio.get_running_loop().run_in_executor(self._pool, work)
        if error is not None:
            raise error
        return await result if inspect.isawaitable(result) else result

    def _context(self, call: Mapping[str, Any], bridge: Bridge) -> CallContext | dict[str, Any]:
        """Return the `ctx` of a call. The `ctx` of a predicate is data, the same as for a CEL expression."""
        if call["purpose"] == "predicate":
            return dict(call["predicate"])
        work_id, context = call["workId"], call.get("context") or {}
        progress = Progress(self._api, work_id, call["claimToken"], bridge)
        thread_id = context.get("threadId")
        fields = {
            "tool_use_id": context.get("toolUseId") or work_id,
            "work_id": work_id,
            "query_id": call["queryId"],
            "thread_id": thread_id,
            "agent": context.get("agent"),
            "runtime_id": context.get("runtimeId"),
            "resource_id": context.get("resourceId"),
            "references": References(self._references.for_call(work_id), bridge),
            "progress": progress,
            "emit": progress.emit,
        }
        api = Api(self._client, IdempotencyKeys(work_id).next_key)
        if thread_id is not None:
            artifacts = Artifacts(api, work_id)
            fields["artifacts"] = CallArtifacts(artifacts, thread_id, bridge)
            fields["files"] = CallFiles(Files(api, thread_id, artifacts), bridge)
            fields["state"] = State(StateCalls(api, thread_id, work_id), bridge)
        runtime_id = context.get("runtimeId")
        if runtime_id is not None and self._memories is not None:
            memory = MemoryCalls(api, self._memories, runtime_id, work_id)
            fields["memory"] = Memory(memory, bridge)
        if call["purpose"] == "action":
            fields |= dispatch_fields(call)
        return CallContext(fields, self._services)

    def _error_result(self, call: Mapping[str, Any], error: BaseException) -> dict[str, Any]:
        log.warning("the handler of %s failed", call["name"], exc_info=error)
        return {"error": error_text(error)}

    async def _renew_claim(self, call: Mapping[str, Any]) -> None:
        """Renew the claim while the handler runs and its result is being posted, through outages too."""
        beat_s = self._lease_ms / 3000
        pause_s = beat_s
        while True:
            await asyncio.sleep(pause_s)
            try:
                await self._heartbeat(call, self._lease_ms, beat_s)
                pause_s = beat_s
            except ApiError as error:
                if not is_transient(error):
                    log.warning("the claim on a call of %s is lost: %s", call["name"], error)
                    return
            except PlangateError:
                pause_s = min(1.0, beat_s)

    async def _post_result(self, call: Mapping[str, Any], outcome: dict[str, Any]) -> None:
        try:
            response = await self._api.post_tool_result(
                call["workId"],
                claim_token=call["claimToken"],
                **outcome,
                once=True,
                patience_s=RESULT_PATIENCE_S,
            )
        except (ValueError, ApiError) as error:
            refused = not isinstance(error, ApiError) or error.status in (400, 413, 422)
            if "output" in outcome and refused:
                message = f"{call['name']} ran, but its result cannot be used: {error}"
                await self._post_result(call, {"error": sanitize_error(message)})
                return
            log.warning("the result of %s was not accepted: %s", call["name"], error)
        except PlangateError as error:
            log.warning("the result of %s could not be posted: %s", call["name"], error)
        else:
            if not response.adopted:
                log.warning("the result of %s came too late; it is kept as evidence", call["name"])

    async def _release(self, call: Mapping[str, Any]) -> None:
        try:
            await self._api.release_tool_call(
                call["workId"],
                claim_token=call["claimToken"],
                once=True,
                patience_s=RELEASE_WITHIN_S,
                timeout_s=RELEASE_WITHIN_S,
            )
        except PlangateError as error:
            log.warning("a call of %s could not be released: %s", call["name"], error)

    async def _abandon(self, call: Mapping[str, Any]) -> None:
        """Shorten the lease of a call that gets no result, so that the claim lapses now and `replay` decides."""
        try:
            await self._heartbeat(call, MIN_LEASE_MS, RELEASE_WITHIN_S)
        except PlangateError as error:
            log.debug("the claim on a call of %s lapses with its lease: %s", call["name"], error)

    async def _heartbeat(self, call: Mapping[str, Any], lease_ms: int, timeout_s: float) -> None:
        await self._api.heartbeat_tool_call(
            call["workId"],
            claim_token=call["claimToken"],
            lease_ms=lease_ms,
            once=True,
            patience_s=0,
            timeout_s=timeout_s,
        )


def _capture(handler: Handler, payload: Any, ctx: Any) -> tuple[Any, BaseException | None]:
    """Return the result or the exception as values: a future cannot carry every exception (StopIteration)."""
    try:
        return handler(payload, ctx), None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - raised again where the result is awaited
        return None, error


def _predicate_result(call: Mapping[str, Any], result: Any) -> bool:
    """Return whether the predicate requires an approval. Only a bool counts: a mistake must not let a call pass."""
    if isinstance(result, bool):
        return result
    name = call["name"].removeprefix("predicates.")
    raise TypeError(
        f"the approval predicate {name!r} must return a bool, True where an approval is required, "
        f"not {describe_type(result)}"
    )
