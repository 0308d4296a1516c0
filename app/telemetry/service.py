"""Export spans of ended work in the background, without delaying the work.

What cannot be exported is counted and dropped: a full queue, a collector that does not respond, a record that
cannot be read. Work never waits for any of it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from app.base.errors import Unavailable
from app.base.logs.structured import structlog
from app.base.metrics import Metrics
from app.base.postgres.database import Database
from app.base.threads import run_in_thread
from app.journal.ended_work import EndedWork
from app.telemetry import store
from app.telemetry.spans import Count, EndedRecord, Span, span_from_record

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SpanLimits:
    """Bounds on the reporter's queue and its waits."""

    queued_records: int = 10_000
    """More than these are dropped. So are more queries taken over."""
    batch_records: int = 200
    outage_pause_s: float = 1.0
    """Time between attempts during an outage."""
    close_timeout_s: float = 1.5
    takeover_window_s: float = 60.0
    """Records of a query taken over that ended within this time are exported again."""


class Exporter(Protocol):
    """The destination of spans. `export` returns at once; `close` may block and sends what is left."""

    def export(self, span: Span) -> None: ...

    def close(self) -> None: ...


class QueuedRecord(NamedTuple):
    """A record to export. `is_repeat`: by the process that took its query over from the one that ended it."""

    tenant: str
    id: str
    is_repeat: bool


class SpanReporter:
    """The span exporter of a process, created only if an exporter is configured."""

    def __init__(
        self,
        db: Database,
        build: Callable[[], Exporter],
        metrics: Metrics,
        *,
        content: bool,
        limits: SpanLimits | None = None,
    ) -> None:
        self.limits = limits or SpanLimits()
        self._db = db
        self._build = build
        self._exporter: Exporter | None = None
        self._metrics = metrics
        self._content = content
        self._queue: deque[QueuedRecord] = deque()
        self._takeovers: deque[tuple[str, str]] = deque()  # queries taken over
        self._has_work = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start exporting. If the exporter cannot be built, log that and continue without it."""
        try:
            self._exporter = self._build()
        except ModuleNotFoundError as error:
            log.warning("telemetry.not_installed", error=error)
        except Exception:
            log.exception("telemetry.not_started")
        else:
            self._task = asyncio.create_task(self._run(self._exporter), name="telemetry-spans")

    def enqueue(self, tenant: str, work: Sequence[EndedWork]) -> None:
        """Queue records that have ended durably. More than `limits.queued_records` are dropped."""
        if self._exporter is None:
            return
        for one in work:
            if one.kind == "host":  # belongs to no query and so to no trace
                continue
            if len(self._queue) >= self.limits.queued_records:
                self._metrics.spans.labels("dropped").inc()
                continue
            self._queue.append(QueuedRecord(tenant, one.id, is_repeat=False))
        self._wake()

    def enqueue_takeover(self, tenant: str, query_id: str) -> None:
        """Queue a query taken over from a crashed process: its latest records are exported again, with the
        same ids."""
        if self._exporter is not None and len(self._takeovers) < self.limits.queued_records:
            self._takeovers.append((tenant, query_id))
            self._wake()

    def _wake(self) -> None:
        self._has_work.set()
        self._is_idle.clear()

    async def aclose(self) -> None:
        """Export what is queued, for a moment only."""
        if self._task is None or self._exporter is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.limits.close_timeout_s):
                await self._is_idle.wait()
                await run_in_thread(self._exporter.close)
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _run(self, exporter: Exporter) -> None:
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            while self._takeovers or self._queue:
                try:
                    await self._export_next(exporter)
                except Unavailable:
                    await asyncio.sleep(self.limits.outage_pause_s)
                except Exception:
                    log.exception("telemetry.failed")
            self._is_idle.set()

    async def _export_next(self, exporter: Exporter) -> None:
        if self._takeovers:
            tenant, query_id = self._takeovers.popleft()
            try:
                async with self._db.transaction(tenant) as tx:
                    ids = await store.recently_ended(
                        tx, query_id=query_id, within_s=self.limits.takeover_window_s
                    )
            except Unavailable:
                self._takeovers.appendleft((tenant, query_id))
                raise
            self._queue.extend(QueuedRecord(tenant, id, is_repeat=True) for id in ids)
            return
        tenant, _, again = self._queue[0]
        batch: list[str] = []
        while (
            self._queue and self._queue[0][::2] == (tenant, again) and len(batch) < self.limits.batch_records
        ):
            batch.append(self._queue.popleft().id)
        try:
            async with self._db.transaction(tenant) as tx:
                records = await store.ended_records(tx, work_ids=batch, content=self._content)
        except Unavailable:
            self._queue.extendleft(QueuedRecord(tenant, id, again) for id in reversed(batch))
            raise
        except Exception:
            self._metrics.spans.labels("failed").inc(len(batch))
            raise
        for record in records:
            self._export_record(exporter, tenant, record, again)

    def _export_record(self, exporter: Exporter, tenant: str, record: EndedRecord, is_repeat: bool) -> None:
        try:
            exporter.export(
                replace(span_from_record(tenant, record, content=self._content), is_repeat=is_repeat)
            )
        except Exception:
            self._metrics.spans.labels("failed").inc()
            log.exception("telemetry.span_failed")
        else:
            self._metrics.spans.labels("made").inc()


async def count_waiting_work(db: Database) -> list[Count]:
    """Return what waits, of all tenants together."""
    return await store.counts(db)
