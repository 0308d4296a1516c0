"""Hears which work is over, reads its record, and hands the span to the exporter: beside the work, never in its way.

What cannot be told is counted and left: a queue that is full, a collector that does not answer, a record that cannot be
read. Nobody who records work waits for any of it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol

import structlog

from app.base.errors import Unavailable
from app.base.metrics import Metrics
from app.base.postgres.database import Database, EndedWork
from app.base.threads import run_in_thread
from app.telemetry import store
from app.telemetry.spans import Span, span_of

log = structlog.get_logger(__name__)

MAX_WAITING: Final = 10_000
BATCH: Final = 200
PAUSE_S: Final = 1.0  # while the database is away
CLOSE_WITHIN_S: Final = 1.5
LATELY_S: Final = 60.0


class Exporter(Protocol):
    """Where spans go. `export` returns at once; `close` may block and sends what is left."""

    def export(self, span: Span) -> None: ...

    def close(self) -> None: ...


class Waiting(NamedTuple):
    """A record that is to be told. `again`: by the process that took its query over from the one that ended it."""

    tenant: str
    id: str
    again: bool


class Spans:
    """One a process, and only where an exporter is configured."""

    def __init__(
        self, db: Database, build: Callable[[], Exporter], metrics: Metrics, *, content: bool
    ) -> None:
        self._db = db
        self._build = build
        self._exporter: Exporter | None = None
        self._metrics = metrics
        self._content = content
        self._waiting: deque[Waiting] = deque()
        self._again: deque[tuple[str, str]] = deque()  # queries taken over
        self._heard = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Where the exporter cannot be built the service goes on without it, and says so."""
        try:
            self._exporter = self._build()
        except ModuleNotFoundError as error:
            log.warning("telemetry.not_installed", error=error)
        except Exception:
            log.exception("telemetry.not_started")
        else:
            self._task = asyncio.create_task(self._run(self._exporter), name="telemetry-spans")

    def ended(self, tenant: str, work: Sequence[EndedWork]) -> None:
        """These records are over, durably. Only remembers them; more than `MAX_WAITING` are dropped."""
        if self._exporter is None:
            return
        for one in work:
            if one.kind == "host":  # belongs to no query, so to no trace
                continue
            if len(self._waiting) >= MAX_WAITING:
                self._metrics.spans.labels("dropped").inc()
                continue
            self._waiting.append(Waiting(tenant, one.id, again=False))
        self._wake()

    def taken_over(self, tenant: str, query_id: str) -> None:
        """The process before this one went without a word: what it ended last is told again, under the same ids."""
        if self._exporter is not None and len(self._again) < MAX_WAITING:
            self._again.append((tenant, query_id))
            self._wake()

    def _wake(self) -> None:
        self._heard.set()
        self._idle.clear()

    async def aclose(self) -> None:
        """Tells what is known, for a moment and no longer."""
        if self._task is None or self._exporter is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_WITHIN_S):
                await self._idle.wait()
                await run_in_thread(self._exporter.close)
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _run(self, exporter: Exporter) -> None:
        while True:
            await self._heard.wait()
            self._heard.clear()
            while self._again or self._waiting:
                try:
                    await self._tell(exporter)
                except Unavailable:
                    await asyncio.sleep(PAUSE_S)
                except Exception:
                    log.exception("telemetry.failed")
            self._idle.set()

    async def _tell(self, exporter: Exporter) -> None:
        if self._again:
            tenant, query_id = self._again.popleft()
            try:
                async with self._db.transaction(tenant) as tx:
                    found = await store.ended_lately(tx, query_id, LATELY_S)
            except Unavailable:
                self._again.appendleft((tenant, query_id))
                raise
            self._waiting.extend(Waiting(tenant, row["id"], again=True) for row in found)
            return
        tenant, _, again = self._waiting[0]
        ids: list[str] = []
        while self._waiting and self._waiting[0][::2] == (tenant, again) and len(ids) < BATCH:
            ids.append(self._waiting.popleft().id)
        try:
            async with self._db.transaction(tenant) as tx:
                rows = await store.ended(tx, ids, content=self._content)
        except Unavailable:
            self._waiting.extendleft(Waiting(tenant, id, again) for id in reversed(ids))
            raise
        except Exception:
            self._metrics.spans.labels("failed").inc(len(ids))
            raise
        for row in rows:
            self._told(exporter, tenant, row, again)

    def _told(self, exporter: Exporter, tenant: str, row: Any, again: bool) -> None:
        try:
            exporter.export(replace(span_of(tenant, row, content=self._content), again=again))
        except Exception:
            self._metrics.spans.labels("failed").inc()
            log.exception("telemetry.span_failed")
        else:
            self._metrics.spans.labels("made").inc()
