"""The metrics that this process counts itself and serves at `GET /metrics`.

Label values come from this service only: kinds, statuses, transports. Nothing that a tenant can choose
(tenants, agents, tools, models) is a label, because the number of values would be unbounded. Counts from the
database are in app/telemetry/store.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

NAMESPACE: Final = "plangate"
LATENCY_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
MODEL_CALL_BUCKETS_S: Final = (0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 600)


@dataclass(frozen=True, slots=True)
class ModelCallUsage:
    """Duration, attempts, tokens and cost of a finished model call. `cost_usd` is None if the price is
    unknown."""

    provider: str
    status: str
    seconds: float
    attempts: int
    tokens: dict[str, int]
    cost_usd: float | None


class Metrics:
    """The instruments of a process. Using one takes a few hundred nanoseconds, cheap enough for the hot
    path."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._children: dict[tuple[Any, ...], Any] = {}

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, namespace=NAMESPACE, registry=self.registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(name, text, namespace=NAMESPACE, registry=self.registry)

        def seconds(
            name: str, text: str, *labels: str, buckets: tuple[float, ...] = LATENCY_BUCKETS_S
        ) -> Histogram:
            return Histogram(name, text, labels, namespace=NAMESPACE, registry=self.registry, buckets=buckets)

        provider = ("provider",)
        self.work_ended = counter("work_ended", "Work records that ended here.", "kind", "status")
        self.model_calls = counter("model_calls", "Model calls that ended here.", "provider", "status")
        self.model_attempts = counter(
            "model_attempts", "Attempts of the model calls that ended here.", *provider
        )
        self.model_seconds = seconds(
            "model_call_seconds",
            "How long model calls took, all their attempts together.",
            *provider,
            buckets=MODEL_CALL_BUCKETS_S,
        )
        self.model_tokens = counter(
            "model_tokens", "Tokens of model calls that ended here.", "provider", "type"
        )
        self.model_cost = counter(
            "model_cost_usd", "What model calls cost, in US dollars, where the price is known.", *provider
        )
        self.model_unpriced = counter(
            "model_calls_unpriced", "Model calls that used tokens whose price is not known.", *provider
        )
        self.model_stream_wait = seconds(
            "model_stream_wait_seconds",
            "How long model calls waited for a free stream (PLANGATE_MODEL_STREAMS).",
        )
        self.model_stream_bytes = counter("model_stream_bytes", "Bytes that providers sent.")
        self.model_stream_throttled = counter(
            "model_stream_throttled_seconds",
            "How long provider streams were slowed down to keep to the rate of their tenant.",
        )
        self.model_streams_ended = counter(
            "model_streams_ended", "Model streams that were ended because a provider sent too much.", "bound"
        )
        self.calls = counter(
            "calls", "Outgoing calls that came to an end.", "transport", "purpose", "outcome"
        )
        self.dns_wait = seconds("dns_wait_seconds", "How long DNS lookups waited for their tenant's share.")
        self.mcp_lists_rejected = counter(
            "mcp_lists_rejected", "Requests refused because their tenant had used its share of MCP listings."
        )
        self.leases_lost = counter(
            "leases_lost", "Queries that this process had to stop working on: taken over, or ended by others."
        )
        self.leases_expired = counter(
            "leases_expired", "Queries taken over after the lease of another process had run out."
        )
        self.process_deaths = counter(
            "process_deaths", "Deaths of other processes that this process detected."
        )
        self.child_deaths = counter("child_deaths", "Deaths of this process's own child processes.")
        self.queries_set_aside = counter(
            "queries_set_aside", "Queries that failed because they killed their processes."
        )
        self.journal_commit = seconds(
            "journal_commit_seconds", "How long a batch of the journal took to commit."
        )
        self.journal_entries = counter("journal_entries", "Entries that the journal committed.")
        self.journal_outages = counter("journal_outages", "Commits of the journal that found no database.")
        self.readers_dropped = counter(
            "readers_dropped", "HTTP connections aborted because the client stopped reading.", "reason"
        )
        self.streams_rejected = counter(
            "streams_rejected",
            "Streams refused because their tenant or key had reached its maximum.",
            "limit",
        )
        self.bytes_in_flight = Gauge(
            "connections_bytes_in_flight",
            "Bytes of responses that clients have not acknowledged, in this process's buffers or sent.",
            namespace=NAMESPACE,
            registry=self.registry,
        )
        self.pool_wait = seconds("pool_wait_seconds", "How long work waited for a database connection.")
        self.recovery_needed = gauge(
            "recovery_needed",
            "1 while work is stopped until `plangate recover`, because a promotion may have lost commits.",
        )
        self.database_unavailable = counter(
            "database_unavailable", "Uses of the database that failed because it could not be reached."
        )
        self.spans = counter("telemetry_spans", "Spans, by what became of them in this process.", "outcome")
        self.unknown_keys = counter(
            "unknown_keys", "Requests with an unknown API key, by outcome.", "outcome"
        )
        self.connections = gauge("connections", "Open client connections.")
        self.connections_max = gauge("connections_max", "The maximum number of open client connections.")
        self.connections_rejected = counter(
            "connections_rejected",
            "Connections refused because the process or the peer had reached its maximum.",
            "reason",
        )
        self.connections_closed = counter(
            "connections_closed",
            "Connections that the service closed: too slow, too large, or idle in a full process.",
            "reason",
        )
        self.loop_lag = seconds(
            "loop_lag_seconds", "How late the event loop ran a timer.", buckets=(*LATENCY_BUCKETS_S, 10, 30)
        )
        self.loop_blocked = counter(
            "loop_blocked", "Times that the event loop was late by PLANGATE_LOOP_BLOCKED_MS or more."
        )

    def count_work_record(self, kind: str, status: str) -> None:
        """Count a work record that has ended."""
        self._labeled(self.work_ended, kind, status).inc()

    def count_model_call(self, usage: ModelCallUsage) -> None:
        """Count a model call that has ended."""
        count = self._labeled
        count(self.model_calls, usage.provider, usage.status).inc()
        count(self.model_attempts, usage.provider).inc(usage.attempts)
        count(self.model_seconds, usage.provider).observe(usage.seconds)
        for type_, tokens in usage.tokens.items():
            if tokens:
                count(self.model_tokens, usage.provider, type_).inc(tokens)
        if usage.cost_usd is not None:
            count(self.model_cost, usage.provider).inc(usage.cost_usd)
        elif any(usage.tokens.values()):
            count(self.model_unpriced, usage.provider).inc()

    def _labeled(self, instrument: Any, *labels: str) -> Any:
        """Return the instrument with these labels, cached because looking it up costs as much as five
        increments."""
        child = self._children.get((instrument, *labels))
        if child is None:
            child = self._children[instrument, *labels] = instrument.labels(*labels)
        return child
