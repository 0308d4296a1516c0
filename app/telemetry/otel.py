"""The OpenTelemetry exporter: the only file that imports the SDK, and itself imported only if configured.

Spans get explicit ids and times. Nothing is global, so spans of libraries in this process go nowhere. The SDK
sends batches from its own threads and drops what its queue cannot hold. The SDK reads all other standard
`OTEL_*` variables: headers, service name, resource, sampler, batches, limits.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.metadata import version
from typing import Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from app.base.metrics import Metrics
from app.telemetry import names
from app.telemetry.spans import Span

SCOPE: Final = "plangate"
SPAN_KINDS: Final = {"internal": SpanKind.INTERNAL, "client": SpanKind.CLIENT}
TRACE_FLAGS: Final = TraceFlags(TraceFlags.SAMPLED | TraceFlags.RANDOM_TRACE_ID)
MAX_BATCH_DELAY_MS: Final = (
    1000  # default of OTEL_BSP_SCHEDULE_DELAY; a killed process loses at most this much
)
DURATION_BUCKETS_S: Final = (
    0.01,
    0.02,
    0.04,
    0.08,
    0.16,
    0.32,
    0.64,
    1.28,
    2.56,
    5.12,
    10.24,
    20.48,
    40.96,
    81.92,
)
TOKEN_BUCKETS: Final = tuple(4.0**n for n in range(14))


class _FixedIds(IdGenerator):
    """Returns the ids of the span that is about to be created."""

    trace = span = 1

    def generate_trace_id(self) -> int:
        return self.trace

    def generate_span_id(self) -> int:
        return self.span

    def is_trace_id_random(self) -> bool:
        return True


class _CountingExporter(SpanExporter):
    """An exporter that counts its outcomes for `/metrics`, which show whether the collector accepts spans."""

    def __init__(self, inner: SpanExporter, metrics: Metrics) -> None:
        self._inner = inner
        self._spans = metrics.spans

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._inner.export(spans)
        outcome = "exported" if result is SpanExportResult.SUCCESS else "not_taken"
        self._spans.labels(outcome).inc(len(spans))
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()


class OpenTelemetry:
    """Exports spans, and the two metrics of the GenAI conventions for model calls."""

    def __init__(self, processor: SpanProcessor, readers: Sequence[MetricReader]) -> None:
        resource = Resource.create(None if _has_service_name() else {"service.name": SCOPE})
        self._ids = _FixedIds()
        self._provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer(SCOPE, version("plangate-server"))
        self._meters = MeterProvider(metric_readers=readers, resource=resource, shutdown_on_exit=False)
        meter = self._meters.get_meter(SCOPE, version("plangate-server"))
        self._seconds = meter.create_histogram(
            names.OPERATION_DURATION,
            "s",
            "GenAI operation duration.",
            explicit_bucket_boundaries_advisory=DURATION_BUCKETS_S,
        )
        self._tokens = meter.create_histogram(
            names.TOKEN_USAGE,
            "{token}",
            "Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=TOKEN_BUCKETS,
        )

    def export(self, span: Span) -> None:
        """Pass a span to the SDK, which sends it later in a batch, or drops it."""
        if not span.is_repeat:
            self._measure(span)
        sampled = self._provider.sampler.should_sample(None, span.trace_id, span.name).decision
        if sampled is not Decision.RECORD_AND_SAMPLE:
            return
        self._ids.trace, self._ids.span = span.trace_id, span.span_id
        context = Context()
        if span.parent_id is not None:
            parent = SpanContext(span.trace_id, span.parent_id, is_remote=True, trace_flags=TRACE_FLAGS)
            context = set_span_in_context(NonRecordingSpan(parent), context)
        links = []
        if span.link is not None:
            links = [
                Link(SpanContext(*span.link, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED)))
            ]
        otel_span = self._tracer.start_span(
            span.name, context, SPAN_KINDS[span.kind], span.attributes, links, start_time=span.start_ns
        )
        if span.error is not None and span.attributes[names.WORK_STATUS] != "cancelled":
            otel_span.set_status(Status(StatusCode.ERROR, span.message))
        otel_span.end(span.end_ns)

    def _measure(self, span: Span) -> None:
        """Record the metrics of a model call. Models that the price table does not know share one label:
        tenants choose them."""
        attributes = span.attributes
        if attributes.get(names.OPERATION) != names.CHAT:
            return
        labels = {
            names.OPERATION: names.CHAT,
            names.PROVIDER: str(attributes[names.PROVIDER]),
            names.REQUEST_MODEL: span.model or names.OTHER,
        }
        failed = {} if span.error is None else {names.ERROR_TYPE: span.error}
        self._seconds.record((span.end_ns - span.start_ns) / 1e9, {**labels, **failed})
        for type_, name in (("input", names.INPUT_TOKENS), ("output", names.OUTPUT_TOKENS)):
            count = attributes[name]
            if isinstance(count, int) and count:
                self._tokens.record(count, {**labels, names.TOKEN_TYPE: type_})

    def close(self) -> None:
        """Send what is left. Blocks as long as the collector makes it wait."""
        self._provider.shutdown()
        self._meters.shutdown()


def build(endpoint: str, metrics: Metrics) -> OpenTelemetry:
    """Build the exporter to an OTLP receiver over HTTP, such as `http://localhost:4318`."""
    base = endpoint.rstrip("/")
    spans = OTLPSpanExporter(_endpoint("TRACES", f"{base}/v1/traces"))
    numbers = OTLPMetricExporter(_endpoint("METRICS", f"{base}/v1/metrics"))
    delay = None if os.environ.get("OTEL_BSP_SCHEDULE_DELAY") else MAX_BATCH_DELAY_MS
    return OpenTelemetry(
        BatchSpanProcessor(_CountingExporter(spans, metrics), schedule_delay_millis=delay),
        [PeriodicExportingMetricReader(numbers)],
    )


def _endpoint(signal: str, otherwise: str) -> str | None:
    """Return `otherwise`, or None if the operator set an endpoint for this signal: then the SDK reads it."""
    return None if os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT") else otherwise


def _has_service_name() -> bool:
    return bool(os.environ.get("OTEL_SERVICE_NAME")) or "service.name=" in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
