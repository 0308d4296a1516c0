"""A query that is parked, survives kill -9 and continues in another process is one trace at a real receiver."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest

from app.base import traces
from tests.processes.acceptance import specs
from tests.processes.acceptance.house import House, eventually
from tests.processes.acceptance.verdict import judge
from tests.support.otlp import OtlpReceiver

RECORDS = "SELECT id, parent_id, kind, status FROM work_records WHERE query_id = $1"
TOKEN = "a-token-for-scraping"


@pytest.fixture(scope="module")
def collector() -> Iterator[OtlpReceiver]:
    made = OtlpReceiver()
    yield made
    made.close()


@pytest.fixture(scope="module")
def traced(collector: OtlpReceiver) -> Iterator[House]:
    made = House(lease_s=2, worker_port=0, metrics_token=TOKEN, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url)
    try:
        made.serve()
        yield made
    finally:
        made.close()


@pytest.mark.long
def test_a_query_is_one_trace_through_parking_and_kill(traced: House, collector: OtlpReceiver) -> None:
    ledger = traced.ledger()
    reader = traced.start(traced.register(specs.notices()), specs.plan_and_execute())
    reader.wait_type("query-status", to="waiting")
    traced.restart()
    ledger.hold()
    traced.user(ledger, "actions", lease_ms=60_000)
    traced.approve(reader)
    eventually(lambda: ledger.lines("arrivals"), "the actions have arrived")
    traced.restart()
    ledger.let_go()
    reader.wait_end()
    judge(traced, reader, ledger)
    traced.end_users()

    records = {r["id"]: r for r in traced.sql(RECORDS, reader.query_id)}
    spans = collector.wait(reader.query_id, len(records))
    assert {s.trace for s in spans} == {f"{traces.trace_id(reader.query_id):032x}"}
    by_work: dict[str, set[tuple[str, str, int, int]]] = {}
    for span in spans:
        told = (span.span, span.parent, span.start_ns, span.end_ns)
        by_work.setdefault(span.attributes["plangate.work.id"], set()).add(told)
    assert by_work.keys() == records.keys()
    for work_id, told in by_work.items():
        assert len(told) == 1, "said twice perhaps, but never in two ways"
        ((span, parent, _, _),) = told
        assert span == f"{traces.span_id(work_id):016x}"
        above = records[work_id]["parent_id"]
        assert parent == ("" if above is None else f"{traces.span_id(above):016x}")


def test_a_missing_receiver_is_harmless(traced: House, collector: OtlpReceiver) -> None:
    collector.hold()
    try:
        reader = traced.start(traced.register(specs.talker("echo", {"kind": "mock"})), "hi", agent="talker")
        assert reader.wait_end()["type"] == "finish"
        assert traced.service is not None
        assert traced.service.stop() < 10
    finally:
        collector.let_go()
        traced.serve()


def test_a_worker_serves_metrics_on_its_port(traced: House) -> None:
    worker = traced.worker()
    found = eventually(
        lambda: re.search(r"Its numbers are on (http://\S+)/metrics", worker.log.read_text("utf-8")),
        "its address",
    )
    url = found[1]
    assert httpx.get(f"{url}/healthz").json() == {"status": "ok"}
    assert httpx.get(f"{url}/readyz").json()["status"] == "ready"
    assert httpx.get(f"{url}/metrics").status_code == 401
    text = httpx.get(f"{url}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}).text
    assert "\nplangate_slots 64.0\n" in text
    assert httpx.get(f"{url}/queries").status_code == 404
    assert worker.stop() < 10
