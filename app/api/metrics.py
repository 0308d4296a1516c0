"""`GET /metrics`: the numbers of this process and, of the whole installation, what waits, as Prometheus reads them."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Callable, Iterator
from typing import Annotated, Final

from fastapi import FastAPI, Request, Response, Security
from fastapi.security import HTTPAuthorizationCredentials
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from app.assembly import Services
from app.base.errors import Forbidden, Unauthenticated, Unavailable
from app.base.metrics import NAMESPACE
from app.telemetry.service import count_waiting_work
from app.telemetry.spans import Count
from app.tenancy.http import OPERATOR_SCOPE, bearer, host_of

COUNTS_TTL_S: Final = 5.0  # so that asking often costs the database little
COUNTED: Final = {
    "queries": (
        "Queries that are queued or running; plangate_queries_waiting counts the others by reason.",
        "status",
    ),
    "queries_waiting": ("Queries that wait for something, by what they wait for.", "reason"),
    "queries_overdue": (
        "Queries at work whose lease has run out: their process is gone, and nobody took over yet.",
        "",
    ),
    "queue_oldest_seconds": ("How long the query that is queued longest has waited; 0 where none is.", ""),
    "approvals_pending": ("Approvals that wait for a person.", ""),
    "approvals_oldest_seconds": (
        "How long the approval that waits longest has waited; 0 where none does.",
        "",
    ),
    "client_calls": ("Calls for processes of users: open until one claims them, then claimed.", "status"),
    "client_calls_oldest_seconds": (
        "How long the call that is open longest has waited; 0 where none is.",
        "",
    ),
}
"""What the database counts, for all tenants together: what it means, and the name of its label."""

OWN: Final[dict[str, tuple[str, Callable[[Services], float]]]] = {
    "slots": ("Queries that this process may work on at once.", lambda s: s.worker.slots),
    "child_processes": (
        "Running child processes of this process.",
        lambda s: 0 if s.children is None else s.children.count,
    ),
    "slots_busy": ("Queries that this process works on.", lambda s: s.worker.busy),
    "pool_connections": (
        "Database connections that this process may have.",
        lambda s: s.db.connection_counts()[0],
    ),
    "pool_connections_busy": (
        "Database connections of this process that are in use.",
        lambda s: s.db.connection_counts()[1],
    ),
    "model_streams": ("Open streams of model calls.", lambda s: s.providers.traffic.open_streams),
    "dns_lookups": ("DNS lookups in progress for tenants.", lambda s: s.lookups.in_use),
    "mcp_lists": ("MCP servers that are being asked for their tools.", lambda s: s.mcp_pinning.in_use),
    "journal_pending_bytes": ("Text of models that is not durable yet.", lambda s: s.journal.pending_bytes),
    "unknown_keys_remembered": (
        "Unknown API keys that this process remembers.",
        lambda s: len(s.tenancy.unknown_keys),
    ),
    "streams": (
        "Open streams of events and of calls in this process.",
        lambda s: s.streams.open_streams.count,
    ),
    "stream_reads_waiting": (
        "Streams that wait to read the database; PLANGATE_STREAM_READS do so at once.",
        lambda s: s.streams.reads.waiting_count,
    ),
    "large_event_bytes": (
        "Bytes of the copies of large events that streams of this process share.",
        lambda s: s.streams.shared_bytes,
    ),
}
"""The state of this process when the metrics are read."""
DATABASE_UP: Final = (
    "Whether the database answered within the last seconds; at 0, metrics from the database are missing."
)
DATABASE_WRITABLE: Final = (
    "1 if the database took a write at the last check, else 0. Checked only while /readyz or /metrics is "
    "requested."
)

Counts = list[Count]


class MetricsEndpoint:
    """The route `/metrics` and its access rule."""

    def __init__(self, services: Services, token: str | None) -> None:
        self._services = services
        self._token = token
        self._counts: tuple[float, Counts] | None = None
        self._lock = asyncio.Lock()

    async def allow(self, request: Request) -> None:
        """Allow the operator: by the token for this route, which needs no database, or by the operator's key."""
        authorization = request.headers.get("authorization", "")
        if self._token is not None and hmac.compare_digest(
            authorization.encode(), f"Bearer {self._token}".encode()
        ):
            return
        try:
            caller = await self._services.tenancy.authenticate_key(authorization, host_of(request))
        except Unauthenticated as error:
            raise Unauthenticated(
                "Send the token of PLANGATE_METRICS_TOKEN, or the operator's key, as `Authorization: Bearer ...`."
            ) from error
        if not (caller.has_operator_key and caller.has_scope("admin")):
            raise Forbidden(
                "These metrics cover all tenants: send the token of "
                "PLANGATE_METRICS_TOKEN, or the operator's key."
            )

    async def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        counts = await self._load_counts()
        registry = CollectorRegistry()
        writable = counts is not None and await self._services.health.accepts_writes()
        registry.register(_LiveMetrics(self._services, counts, writable=writable))
        return generate_latest(self._services.metrics.registry) + generate_latest(registry)

    async def _load_counts(self) -> Counts | None:
        """Return the counts of the installation, or None while the database is unreachable."""
        async with self._lock:
            now = time.monotonic()
            if self._counts is None or now - self._counts[0] >= COUNTS_TTL_S:
                try:
                    self._counts = (now, await count_waiting_work(self._services.db))
                except Unavailable:
                    self._counts = None
            return None if self._counts is None else self._counts[1]


class _LiveMetrics:
    """Yield the gauges, which are read when the metrics are."""

    def __init__(self, services: Services, counts: Counts | None, *, writable: bool) -> None:
        self._services = services
        self._counts = counts
        self._writable = writable

    def collect(self) -> Iterator[Metric]:
        for name, (text, now) in OWN.items():
            yield GaugeMetricFamily(f"{NAMESPACE}_{name}", text, now(self._services))
        up = int(self._counts is not None)
        yield GaugeMetricFamily(f"{NAMESPACE}_database_up", DATABASE_UP, up)
        yield GaugeMetricFamily(f"{NAMESPACE}_database_writable", DATABASE_WRITABLE, int(self._writable))
        if self._counts is None:
            return
        for name, (text, label) in COUNTED.items():
            rows = [(count.label, count.value) for count in self._counts if count.name == name]
            family = GaugeMetricFamily(f"{NAMESPACE}_{name}", text, labels=[label] if label else [])
            for label_value, value in rows or ([] if label else [("", 0.0)]):
                family.add_metric([label_value] if label else [], value)
            yield family


async def _operator(
    request: Request, _credentials: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)]
) -> MetricsEndpoint:
    endpoint: MetricsEndpoint = request.app.state.metrics
    await endpoint.allow(request)
    return endpoint


def install(api: FastAPI) -> None:
    """Add the route. The application's `state.metrics` is a MetricsEndpoint."""

    @api.get(
        "/metrics",
        tags=["operations"],
        summary="The numbers of this process and what waits, for Prometheus",
        description="Or the token of `PLANGATE_METRICS_TOKEN`. Keys of tenants cannot read them.",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
        response_description="The text format of Prometheus.",
    )
    async def read_metrics(
        endpoint: Annotated[MetricsEndpoint, Security(_operator, scopes=[OPERATOR_SCOPE])],
    ) -> Response:
        return Response(await endpoint.text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)
