"""The exporter: spans of the SDK, and no import without configuration."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from app.base import traces
from app.base.ids import new_id, with_prefix
from app.base.metrics import Metrics
from app.telemetry.otel import OpenTelemetry, build
from app.telemetry.spans import span_from_record
from tests.pure.telemetry.test_spans import BEGAN, QUERY, record_of

ROOT = Path(__file__).parents[3]


@pytest.fixture
def memory() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def reader() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture
def exporter(memory: InMemorySpanExporter, reader: InMemoryMetricReader) -> OpenTelemetry:
    return OpenTelemetry(SimpleSpanProcessor(memory), [reader])


def test_spans_have_the_ids_and_times_of_their_records(
    exporter: OpenTelemetry, memory: InMemorySpanExporter
) -> None:
    caller = (0xABC, 0xDEF)
    records = [
        record_of(
            "query",
            id=with_prefix("wrk_", QUERY),
            parent_id=None,
            traceparent=f"00-{caller[0]:032x}-{caller[1]:016x}-01",
        ),
        record_of("model_call", model="m", provider="openai"),
    ]
    for record in records:
        exporter.export(span_from_record("acme", record, content=False))
    root, call = memory.get_finished_spans()
    assert root.context.trace_id == call.context.trace_id == traces.trace_id(QUERY)
    assert [s.context.span_id for s in (root, call)] == [traces.span_id(r.id) for r in records]
    assert root.parent is None
    assert call.parent is not None
    assert call.parent.span_id == root.context.span_id
    assert [(link.context.trace_id, link.context.span_id) for link in root.links] == [caller]
    assert (root.kind, call.kind) == (SpanKind.INTERNAL, SpanKind.CLIENT)
    assert root.start_time == int(BEGAN.timestamp() * 1_000_000) * 1000
    assert root.end_time is not None
    assert root.end_time - root.start_time == timedelta(seconds=2) / timedelta(microseconds=1) * 1000


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("succeeded", StatusCode.UNSET),
        ("failed", StatusCode.ERROR),
        ("unknown", StatusCode.ERROR),
        ("cancelled", StatusCode.UNSET),
    ],
)
def test_failed_work_is_an_error_span_and_canceled_work_is_not(
    exporter: OpenTelemetry, memory: InMemorySpanExporter, status: str, code: StatusCode
) -> None:
    exporter.export(span_from_record("acme", record_of(status=status), content=False))
    (span,) = memory.get_finished_spans()
    assert (span.status.status_code, span.status.description) == (code, None)


def test_tokens_are_measured_by_type_and_only_known_models_by_name(
    exporter: OpenTelemetry, reader: InMemoryMetricReader
) -> None:
    used = {"provider": "anthropic", "input_tokens": 10, "output_tokens": 3}
    known = "claude-sonnet-4-5"
    priced = {"price_date": "2026-11-21 table", **used}
    # The second is a name that the table knows by how it begins; the third has a price by what its vendor says that answered.
    for model in (known, f"{known}-{new_id('own_')}"):
        exporter.export(
            span_from_record("acme", record_of("model_call", model=model, **priced), content=False)
        )
    for parts in (priced, used):
        exporter.export(
            span_from_record("acme", record_of("model_call", model=new_id("own_"), **parts), content=False)
        )
    exporter.export(span_from_record("acme", record_of("agent", **used), content=False))
    data: Any = reader.get_metrics_data()
    metrics = {m.name: m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics}
    points = metrics["gen_ai.client.token.usage"].data.data_points
    found = {(p.attributes["gen_ai.request.model"], p.attributes["gen_ai.token.type"]): p.sum for p in points}
    assert found == {(m, t): n for m in (known, "_OTHER") for t, n in (("input", 20), ("output", 6))}


def test_no_global_tracer_provider_is_set(exporter: OpenTelemetry, memory: InMemorySpanExporter) -> None:
    with trace.get_tracer("some library").start_as_current_span("of a library"):
        pass
    assert not memory.get_finished_spans()


def test_exporter_threads_do_not_delay_shutdown() -> None:
    before = set(threading.enumerate())
    made = build("http://127.0.0.1:9", Metrics())
    try:
        added = set(threading.enumerate()) - before
        assert added
        assert all(t.daemon for t in added)
    finally:
        made.close()
