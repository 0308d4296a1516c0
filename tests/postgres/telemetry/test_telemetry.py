"""Spans of real runs: one trace per query; exporting delays nothing and fails nothing."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, cast

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from app.assembly import exporter_of
from app.base import traces
from app.base.errors import Unavailable
from app.base.ids import with_prefix
from app.base.metrics import Metrics
from app.base.postgres.database import Database, Tx
from app.deployment import Deployment
from app.journal.ended_work import EndedWork
from app.settings import Settings
from app.telemetry.otel import OpenTelemetry
from app.telemetry.service import SpanLimits, SpanReporter
from app.telemetry.spans import Span
from tests.support import specs
from tests.support.client import eventually
from tests.support.cluster import Cluster
from tests.support.endpoint import endpoint, output
from tests.support.models import says, thinks
from tests.support.otlp import OtlpReceiver, values
from tests.support.world import World, world

SECRET = "sk-hostile-4711"


@dataclass
class Told:
    """A process that exports into memory, as the SDK has it."""

    world: World
    exporter: InMemorySpanExporter
    reader: InMemoryMetricReader

    async def spans(self, query_id: str, *names: str) -> dict[str, ReadableSpan]:
        """The spans of a query by their names, once these are there."""

        async def there() -> Any:
            trace = traces.trace_id(query_id)
            found = {s.name: s for s in self.exporter.get_finished_spans() if s.context.trace_id == trace}
            return found if set(names) <= found.keys() else None

        found: dict[str, ReadableSpan] = await eventually(there, f"spans {names} of {query_id}")
        return found


@contextlib.asynccontextmanager
async def telling(cluster: Cluster, site: Deployment, **settings: Any) -> AsyncIterator[Told]:
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()

    def build() -> OpenTelemetry:
        return OpenTelemetry(SimpleSpanProcessor(exporter), [reader])

    async with world(site, cluster.operator_key, exporter=build, **settings) as running:
        yield Told(running, exporter, reader)


@pytest.fixture
async def told(cluster: Cluster, site: Deployment) -> AsyncIterator[Told]:
    async with telling(cluster, site) as found:
        yield found


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    made = OtlpReceiver()
    yield made
    made.close()


def durations(told: Told) -> list[Any]:
    data: Any = told.reader.get_metrics_data()
    scopes = [s for r in data.resource_metrics for s in r.scope_metrics] if data else []
    metrics = {m.name: m for s in scopes for m in s.metrics}
    found = metrics.get("gen_ai.client.operation.duration")
    return list(found.data.data_points) if found else []


def measured(told: Told) -> int:
    """How many calls to models this process measured."""
    return sum(point.count for point in durations(told))


def of_work(span: ReadableSpan) -> str:
    assert span.attributes is not None
    return str(span.attributes["plangate.work.id"])


# -- what is told


async def test_a_run_is_one_trace_and_each_piece_of_work_a_span(told: Told) -> None:
    api = told.world.api
    await api.register(specs.scripted(specs.tool("find")))
    query = await api.submit(specs.script(("find", {"n": 1})))
    await api.serve("find", {"found": 7})
    await api.ended(query["id"])
    spans = await told.spans(
        query["id"], "invoke_workflow default", "invoke_agent solo", "chat m", "execute_tool find"
    )
    root, agent = spans["invoke_workflow default"], spans["invoke_agent solo"]
    assert root.parent is None
    assert of_work(root) == with_prefix("wrk_", query["id"])
    for child, parent in ((agent, root), (spans["chat m"], agent), (spans["execute_tool find"], agent)):
        assert child.parent is not None and parent.context is not None
        assert child.parent.span_id == parent.context.span_id
    records = {r["id"]: r for r in (await api.read(f"/queries/{query['id']}/work"))["items"]}
    for span in told.exporter.get_finished_spans():
        record = records.pop(of_work(span))
        assert span.context.span_id == traces.span_id(record["id"])
        assert span.attributes is not None
        assert span.attributes["plangate.work.kind"] == record["kind"]
    assert not records, "every record has its span"


async def test_spans_have_no_content_by_default(told: Told) -> None:
    api = told.world.api
    tool = specs.tool("find", inputSchema={"type": "object"})
    await api.register(specs.scripted(tool))
    calls = [("find", {"key": SECRET}), (f"tool-{SECRET}", {})]
    query = await api.submit(specs.script(*calls), metadata={"note": SECRET})
    await api.serve("find", error=f"failed with {SECRET}")
    await api.ended(query["id"])
    await told.spans(query["id"], "invoke_workflow default", "execute_tool find", "execute_tool _OTHER")
    for span in told.exporter.get_finished_spans():
        assert SECRET not in span.to_json()


async def test_text_that_postgres_cannot_store_does_not_lose_a_span(told: Told) -> None:
    await told.world.api.register(specs.mock())
    thinks(told.world, lambda _: says('a\0b, "stopReason":"tool_use"} and \u00e9'))
    query = await told.world.api.run()
    spans = await told.spans(query["id"], "invoke_workflow default", "invoke_agent solo", "chat m")
    attributes = spans["chat m"].attributes
    assert attributes is not None
    assert attributes["gen_ai.response.finish_reasons"] == ("stop",)


async def test_content_is_on_spans_if_the_operator_enables_it(cluster: Cluster, site: Deployment) -> None:
    async with telling(cluster, site, telemetry_content=True) as told:
        api = told.world.api
        await api.register(specs.scripted(specs.tool("find")))
        query = await api.submit(specs.script(("find", {"n": 1})))
        await api.serve("find", {"found": 7})
        await api.ended(query["id"])
        spans = await told.spans(
            query["id"], "invoke_agent solo", "execute_tool find", "invoke_workflow default"
        )
        tool = spans["execute_tool find"].attributes
        assert tool is not None
        assert tool["gen_ai.tool.call.arguments"] == '{"n":1}'
        assert tool["gen_ai.tool.call.result"] == '{"found":7}'
        for name in ("invoke_agent solo", "invoke_workflow default"):
            attributes = spans[name].attributes
            assert attributes is not None
            assert "find" in str(attributes["gen_ai.input.messages"])
            assert "gen_ai.output.messages" in attributes


async def test_a_plan_has_spans_down_to_its_actions(told: Told) -> None:
    api = told.world.api
    await api.register(specs.planning())
    query = await api.submit(specs.store_and_execute())
    await api.approve(query["id"])
    await api.serve("actions", {"entitiesAffected": 2})
    await api.ended(query["id"])
    spans = await told.spans(
        query["id"], "action actions", "plan_execution Routing", "invoke_workflow default"
    )
    action, execution = spans["action actions"], spans["plan_execution Routing"]
    assert action.parent is not None and execution.context is not None
    assert action.parent.span_id == execution.context.span_id


async def test_canceled_work_ends_its_spans(told: Told) -> None:
    api = told.world.api
    await api.register(specs.scripted(specs.tool("find")))
    query = await api.submit(specs.script(("find", {"n": 1})))
    await api.claim("find")
    await api.do(f"/queries/{query['id']}/cancel")
    spans = await told.spans(query["id"], "invoke_workflow default", "invoke_agent solo", "execute_tool find")
    for span in spans.values():
        assert span.attributes is not None
        if span.name != "chat m":
            assert span.attributes["plangate.work.status"] == "cancelled"
            assert span.status.status_code is StatusCode.UNSET


async def test_failed_work_has_its_code_on_the_span(told: Told) -> None:
    api = told.world.api
    await api.register(
        specs.spec(
            specs.agent(maxTurns=1, tools=["find"]), tools=[specs.tool("find")], interpreter="scripted"
        )
    )
    query = await api.submit(specs.script(("find", {"n": 1})))
    await api.serve("find", {"found": 7})
    ended = await api.ended(query["id"])
    assert ended["status"] == "failed"
    spans = await told.spans(query["id"], "invoke_workflow default", "invoke_agent solo")
    root = spans["invoke_workflow default"]
    assert root.attributes is not None
    assert root.attributes["error.type"] == ended["error"]["code"]
    assert (root.status.status_code, root.status.description) == (StatusCode.ERROR, None)


async def test_model_call_metrics_have_bounded_labels(told: Told) -> None:
    api = told.world.api
    await api.register(specs.mock("five words are said here"))
    query = await api.run()
    await told.spans(query["id"], "chat m")
    (duration,) = durations(told)
    assert duration.count == measured(told) == 1
    assert dict(duration.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "mock",
        "gen_ai.request.model": "_OTHER",
    }


# -- whoever ends it


async def test_a_query_across_processes_is_one_trace(cluster: Cluster, site: Deployment) -> None:
    async with telling(cluster, site) as first:
        api = first.world.api
        await api.register(specs.scripted(specs.tool("find", approval="always")))
        query = await api.submit(specs.script(("find", {"n": 1})))
        await api.until(query["id"], "waiting", "approval")
        begun = await first.spans(query["id"], "chat m")
    async with telling(cluster, site) as second:
        api = second.world.api
        await api.approve(query["id"])
        await api.serve("find", {"found": 7})
        await api.ended(query["id"])
        ended = await second.spans(
            query["id"], "invoke_workflow default", "invoke_agent solo", "execute_tool find"
        )
    chat, agent = begun["chat m"], ended["invoke_agent solo"]
    assert chat.parent is not None and agent.context is not None
    assert chat.parent.span_id == agent.context.span_id
    assert chat.context.trace_id == agent.context.trace_id


async def test_spans_of_a_killed_process_are_exported_again_with_the_same_ids(
    cluster: Cluster, site: Deployment
) -> None:
    async with telling(cluster, site) as first:
        api = first.world.api
        await api.register(specs.scripted(specs.tool("find")))
        query = await api.submit(specs.script(("find", {"n": 1})))
        await api.claim("find")
        spans = await first.spans(query["id"], "chat m")
        worker = first.world.services.worker
        (running,) = worker._running.values()
        worker._running.clear()  # gone: it works no more, and gives nothing back
        assert running.task is not None
        running.task.cancel()
        await asyncio.wait([running.task])
        await first.world.value(
            "UPDATE queries SET lease_expires_at = now() - interval '1 s', crashes = 0 WHERE id = $1 RETURNING 1",
            query["id"],
        )
        async with telling(cluster, site) as second:
            again = await second.spans(query["id"], "chat m")
            assert again["chat m"].context == spans["chat m"].context
            assert again["chat m"].to_json() == spans["chat m"].to_json()
            assert (measured(first), measured(second)) == (1, 0), "a call is measured where it ended"
            await second.world.api.do(f"/queries/{query['id']}/cancel")


# -- never in the way


class Broken:
    """An exporter that takes nothing, and whose end waits for a collector that is gone."""

    def __init__(self) -> None:
        self.asked = 0
        self.let_go = threading.Event()
        self.closed = False

    def export(self, span: Span) -> None:
        self.asked += 1
        raise RuntimeError(f"no {SECRET}")

    def close(self) -> None:
        self.let_go.wait(60)
        self.closed = True


async def test_a_failing_exporter_affects_nothing(cluster: Cluster, site: Deployment) -> None:
    broken = Broken()
    async with world(site, cluster.operator_key, exporter=lambda: broken) as running:
        await running.api.register(specs.mock())
        assert (await running.api.run())["status"] == "succeeded"

        async def counted() -> bool:
            return running.services.metrics.spans.labels("failed")._value.get() == 3

        await eventually(counted, "three spans failed")
        assert broken.asked == 3
    assert not broken.closed, "the process has left without waiting for it"
    broken.let_go.set()


async def test_a_process_runs_without_a_broken_exporter(cluster: Cluster, site: Deployment) -> None:
    def missing() -> Any:
        raise ModuleNotFoundError("No module named 'opentelemetry.sdk'")

    async with world(site, cluster.operator_key, exporter=missing) as running:
        await running.api.register(specs.mock())
        assert (await running.api.run())["status"] == "succeeded"
        spans = running.services.spans
        assert spans is not None
        assert not spans._queue, "nothing is kept for nobody"


class FaultyDatabase:
    """A database whose first transactions fail, as during an outage."""

    def __init__(self, db: Database, outages: int) -> None:
        self._db = db
        self.outages = outages

    def transaction(self, tenant: str) -> contextlib.AbstractAsyncContextManager[Tx]:
        if self.outages:
            self.outages -= 1
            raise Unavailable("The database cannot be reached; try again in a moment.")
        return self._db.transaction(tenant)


async def test_records_that_ended_during_an_outage_are_exported_once(
    cluster: Cluster, site: Deployment
) -> None:
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    async with world(site, cluster.operator_key) as running:
        await running.api.register(specs.mock())
        query = await running.api.run()
        work = (await running.api.read(f"/queries/{query['id']}/work"))["items"]
        database = FaultyDatabase(running.services.db, outages=2)
        spans = SpanReporter(
            cast(Database, database),
            lambda: OpenTelemetry(SimpleSpanProcessor(exporter), [reader]),
            Metrics(),
            content=False,
            limits=SpanLimits(outage_pause_s=0.01),
        )
        spans.start()
        spans.enqueue("acme", [EndedWork(w["id"], w["kind"], w["status"]) for w in work])
        told = Told(running, exporter, reader)
        await told.spans(query["id"], "chat m", "invoke_agent solo", "invoke_workflow default")
        assert database.outages == 0
        assert (len(exporter.get_finished_spans()), measured(told)) == (3, 1)
        await spans.aclose()


async def test_more_than_can_wait_is_dropped_and_counted(cluster: Cluster, site: Deployment) -> None:
    async with telling(cluster, site) as told:
        spans, metrics = told.world.services.spans, told.world.services.metrics
        assert spans is not None
        await told.world.api.register(specs.mock())
        query = await told.world.api.run()
        await told.spans(query["id"], "invoke_workflow default")
        work = (await told.world.api.read(f"/queries/{query['id']}/work"))["items"]
        spans.limits = SpanLimits(queued_records=2)
        ended = [EndedWork(w["id"], w["kind"], w["status"]) for w in work] * 2
        spans.enqueue("acme", ended)
        assert metrics.spans.labels("dropped")._value.get() == len(ended) - 2


def test_an_empty_endpoint_disables_export(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    assert exporter_of(Settings(), Metrics()) is None


# -- a real receiver


async def test_a_collector_gets_spans_and_metrics_as_otlp(
    cluster: Cluster, site: Deployment, receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-collector-key=abc")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    async with world(site, cluster.operator_key, OTEL_EXPORTER_OTLP_ENDPOINT=f"{receiver.url}/") as running:
        await running.api.register(specs.mock())
        query = await running.api.run()
        spans = await asyncio.to_thread(receiver.wait, query["id"], 3)
    assert {s.name for s in spans} == {"invoke_workflow default", "invoke_agent solo", "chat m"}
    assert {s.trace for s in spans} == {f"{traces.trace_id(query['id']):032x}"}
    assert {s.resource["service.name"] for s in spans} == {"plangate"}
    assert {s.resource["deployment.environment.name"] for s in spans} == {"test"}
    assert all({k.lower(): v for k, v in h.items()}["x-collector-key"] == "abc" for h in receiver.headers)
    (duration,) = receiver.metrics[
        "gen_ai.client.operation.duration"
    ].histogram.data_points  # sent on leaving
    assert (duration.count, values(duration.attributes)["gen_ai.provider.name"]) == (1, "mock")


async def test_a_failing_collector_does_not_affect_queries(
    cluster: Cluster, site: Deployment, receiver: OtlpReceiver
) -> None:
    receiver.hold()
    async with world(site, cluster.operator_key, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url) as running:
        await running.api.register(specs.mock())
        assert (await running.api.run())["status"] == "succeeded"
        assert await asyncio.to_thread(receiver.came.wait, 30), "it was asked"
        assert (await running.api.run())["status"] == "succeeded"
        receiver.status = 400
        receiver.let_go()

        async def refused() -> bool:
            return running.services.metrics.spans.labels("not_taken")._value.get() >= 3

        await eventually(refused, "spans that the collector did not take are counted", 30)
        assert (await running.api.run())["status"] == "succeeded"


async def test_sampling_keeps_or_drops_whole_traces(
    cluster: Cluster, site: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    async with telling(cluster, site) as told:
        await told.world.api.register(specs.mock())
        queries = [await told.world.api.run() for _ in range(24)]

        async def all_made() -> bool:
            return told.world.services.metrics.spans.labels("made")._value.get() == 3 * len(queries)

        await eventually(all_made, "every record was looked at")
        counts = {
            q["id"]: sum(
                s.context.trace_id == traces.trace_id(q["id"]) for s in told.exporter.get_finished_spans()
            )
            for q in queries
        }
    assert set(counts.values()) == {0, 3}


# -- traces of others


async def test_a_query_links_to_the_callers_span(told: Told) -> None:
    api = told.world.api
    await api.register(specs.mock())
    caller = (0xABCDEF << 64, 0x123456)
    header = f"00-{caller[0]:032x}-{caller[1]:016x}-01"
    accepted = await api.do("/queries", {"prompt": "hi"}, headers={"traceparent": header})
    await api.ended(accepted["id"])
    root = (await told.spans(accepted["id"], "invoke_workflow default"))["invoke_workflow default"]
    assert [(x.context.trace_id, x.context.span_id) for x in root.links] == [caller]
    assert root.parent is None, "the caller's trace is not the query's: nobody writes into another's"


@pytest.mark.parametrize("header", ["nonsense", SECRET, "00-" + "0" * 32 + "-" + "0" * 16 + "-00"])
async def test_an_invalid_traceparent_is_ignored(told: Told, header: str) -> None:
    api = told.world.api
    await api.register(specs.mock())
    accepted = await api.do("/queries", {"prompt": "hi"}, headers={"traceparent": header})
    await api.ended(accepted["id"])
    root = (await told.spans(accepted["id"], "invoke_workflow default"))["invoke_workflow default"]
    assert not root.links
    (row,) = await told.world.sql("SELECT request FROM queries WHERE id = $1", accepted["id"])
    assert b"traceparent" not in row["request"]


async def test_an_http_call_carries_its_span(cluster: Cluster, site: Deployment) -> None:
    async with endpoint(output({"found": 1}), output({"found": 1})) as there:
        tool = specs.tool("find", transport={"kind": "http", "url": f"{there.url}/find"})
        async with telling(cluster, site, allow_hosts=there.url.removeprefix("http://")) as told:
            await told.world.api.register(specs.scripted(tool))
            query = await told.world.api.run(specs.script(("find", {"n": 1})))
            span = (await told.spans(query["id"], "execute_tool find"))["execute_tool find"]
            sent = there.received[0].headers["traceparent"]
            assert sent == f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-01"
        async with world(site, cluster.operator_key, allow_hosts=there.url.removeprefix("http://")) as silent:
            await silent.api.run(specs.script(("find", {"n": 1})))
            assert "traceparent" not in there.received[1].headers, "no span stands behind it"
