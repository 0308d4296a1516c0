"""`GET /metrics`: access, counters, and bounded labels."""

from __future__ import annotations

import re
import threading
import time
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.api.metrics import COUNTED
from app.base.metrics import ModelCallUsage
from app.deployment import Deployment
from app.llm.messages import ModelRequest, TurnDone, Usage
from app.llm.provider import Overloaded
from tests.support import specs
from tests.support.client import eventually, refused
from tests.support.cluster import Cluster
from tests.support.models import thinks
from tests.support.world import World, world

TOKEN = "a-token-for-scraping"
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parsed(text: str) -> Samples:
    """What Prometheus's own parser finds."""
    return {
        (sample.name.removeprefix("plangate_"), tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def read(running: World, **labels: str) -> Samples:
    door = running.http._transport.app.state.metrics  # type: ignore[attr-defined]
    door._counts = None  # as if the last look were long ago
    response = await running.operator().get("/metrics")
    assert response.status_code == 200, response.text
    return parsed(response.text)


def of(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, tuple(sorted(labels.items()))]


# -- who may read it


async def test_the_operator_key_reads_metrics(plangate: World) -> None:
    response = await plangate.operator().get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


async def test_a_tenant_key_cannot_read_metrics(plangate: World) -> None:
    for key in (await plangate.key("admin"), await plangate.key("read")):
        problem = refused(await key.get("/metrics"), 403, "forbidden")
        assert problem["detail"] == (
            "These metrics cover all tenants: send the token of "
            "PLANGATE_METRICS_TOKEN, or the operator's key."
        )


@pytest.mark.parametrize(
    "sent", [None, "Bearer", "Bearer ", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN, "Bearer ÿ"]
)
async def test_metrics_require_the_token_or_the_operator_key(
    cluster: Cluster, site: Deployment, sent: str | None
) -> None:
    async with world(site, cluster.operator_key, started=False, metrics_token=TOKEN) as running:
        headers = {} if sent is None else {"authorization": sent.encode("latin-1")}
        response = await running.http.get("/metrics", headers=headers)  # type: ignore[arg-type]
        problem = refused(response, 401, "unauthenticated")
        assert problem["detail"] == (
            "Send the token of PLANGATE_METRICS_TOKEN, or the operator's key, as `Authorization: Bearer ...`."
        )
        assert response.headers["www-authenticate"] == "Bearer"


async def test_the_metrics_token_reads_only_metrics(cluster: Cluster, site: Deployment) -> None:
    async with world(site, cluster.operator_key, metrics_token=TOKEN) as running:
        headers = {"authorization": f"Bearer {TOKEN}", "plangate-tenant": "acme"}
        assert (await running.http.get("/metrics", headers=headers)).status_code == 200
        refused(await running.http.get("/queries", headers=headers), 401, "unauthenticated")


async def test_an_empty_metrics_token_is_no_token(plangate: World) -> None:
    refused(await plangate.http.get("/metrics", headers={"authorization": "Bearer "}), 401, "unauthenticated")


async def test_the_token_reads_metrics_during_a_database_outage(cluster: Cluster, site: Deployment) -> None:
    async with world(site, cluster.operator_key, metrics_token=TOKEN) as running:
        headers = {"authorization": f"Bearer {TOKEN}"}
        there = parsed((await running.http.get("/metrics", headers=headers)).text)
        assert of(there, "database_up") == 1

        running.faults.fail("operator_counts")
        running.http._transport.app.state.metrics._counts = None  # type: ignore[attr-defined]
        gone = parsed((await running.http.get("/metrics", headers=headers)).text)
    assert of(gone, "database_up") == 0
    assert ("approvals_pending", ()) not in gone, "what nobody knows is not 0"
    assert of(gone, "slots") == 16


# -- what it counts


async def test_a_blocked_event_loop_is_counted(cluster: Cluster, site: Deployment) -> None:
    """By every process that serves or works, from its start to its end."""
    async with world(site, cluster.operator_key, loop_blocked_ms=10) as running:
        time.sleep(0.1)  # noqa: ASYNC251 - the loop is to be blocked

        async def counted() -> Any:
            found = await read(running)
            return found if of(found, "loop_blocked_total") else None

        found = await eventually(counted, "the watchdog's timer runs")
        assert of(found, "loop_lag_seconds_sum") >= 0.05
    assert not any(thread.name == "loop-watchdog" for thread in threading.enumerate())


async def test_waiting_queries_are_counted_across_tenants(idle: World) -> None:
    for tenant in ("acme", "other"):
        caller = idle.operator(tenant)
        await caller.register(specs.mock(tenant=tenant))
        await caller.submit()
    found = await read(idle)
    assert of(found, "queries", status="queued") == 2
    assert of(found, "queries", status="running") == 0
    assert of(found, "queue_oldest_seconds") > 0
    assert of(found, "slots") == 0
    for name in COUNTED.keys() - {"queries", "queries_waiting", "queue_oldest_seconds", "client_calls"}:
        assert of(found, name) == 0, name


async def test_pending_approvals_and_calls_are_counted(plangate: World) -> None:
    api = plangate.api
    await api.register(specs.scripted(specs.tool("pay", approval="always"), specs.tool("find")))
    gated = await api.submit(specs.script(("pay", {"n": 1})))
    await api.until(gated["id"], "waiting", "approval")
    called = await api.submit(specs.script(("find", {"n": 1})))
    await api.until(called["id"], "waiting", "client_call")
    found = await read(plangate)
    assert of(found, "queries_waiting", reason="approval") == 1
    assert of(found, "queries_waiting", reason="client_call") == 1
    assert of(found, "approvals_pending") == 1
    assert of(found, "approvals_oldest_seconds") > 0
    assert of(found, "client_calls", status="open") == 1
    assert of(found, "client_calls_oldest_seconds") > 0
    await api.claim("find")
    later = await read(plangate)
    assert of(later, "client_calls", status="open") == 0
    assert of(later, "client_calls", status="claimed") == 1


async def test_the_work_of_a_process_is_counted(plangate: World) -> None:
    api = plangate.api
    await api.register(specs.scripted(specs.tool("find")))
    done = await api.submit(specs.script(("find", {"n": 1})))
    await api.serve("find", {"found": 1})
    await api.ended(done["id"])
    failed = await api.submit(specs.script(("find", {"n": 1})))
    await api.serve("find", error="no")
    await api.ended(failed["id"])
    left = await api.submit(specs.script(("find", {"n": 1})))
    await api.claim("find")
    await api.do(f"/queries/{left['id']}/cancel")
    found = await read(plangate)
    assert of(found, "work_ended_total", kind="query", status="succeeded") == 2
    assert of(found, "work_ended_total", kind="query", status="cancelled") == 1
    assert of(found, "work_ended_total", kind="tool_call", status="failed") == 1
    assert of(found, "calls_total", transport="client", purpose="tool", outcome="done") == 1
    assert of(found, "calls_total", transport="client", purpose="tool", outcome="error") == 1
    assert of(found, "model_calls_total", provider="scripted", status="succeeded") == 5
    assert of(found, "model_call_seconds_count", provider="scripted") == 5
    assert of(found, "journal_commit_seconds_count") > 5
    assert of(found, "journal_entries_total") >= of(found, "journal_commit_seconds_count")
    assert of(found, "pool_wait_seconds_count") > 20
    assert of(found, "pool_connections") == 6
    assert of(found, "leases_lost_total") == 0


async def test_an_expired_lease_is_counted_by_both_processes(plangate: World, second: World) -> None:
    api = plangate.api
    first, other = plangate.services.worker, second.services.worker
    slots, other.slots = other.slots, 0  # the first takes the query
    await api.register(specs.scripted(specs.tool("find")))
    await api.submit(specs.script(("find", {"n": 1})))
    await api.claim("find")
    first.slots, other.slots = 0, slots  # and does not take it back
    expire = "UPDATE queries SET lease_expires_at = now() - interval '1 s' WHERE lease_owner = $1 RETURNING 1"

    async def taken() -> bool:
        await plangate.value(expire, first.owner)
        other.on_notify("")  # it looks now: soon the query parks, and has no lease then
        counts = [
            of(await read(w), name)
            for w in (plangate, second)
            for name in ("leases_expired_total", "leases_lost_total")
        ]
        return sum(counts) > 1

    await eventually(taken, "taken over and noticed")


async def test_model_usage_is_counted_by_provider(plangate: World) -> None:
    metrics = plangate.services.metrics
    metrics.count_model_call(
        ModelCallUsage("anthropic", "succeeded", 1.5, 2, {"input": 10, "cache_read": 0}, 0.5)
    )
    metrics.count_model_call(ModelCallUsage("anthropic", "failed", 0.5, 6, {"input": 1, "output": 2}, None))
    found = await read(plangate)
    assert of(found, "model_tokens_total", provider="anthropic", type="input") == 11
    assert of(found, "model_tokens_total", provider="anthropic", type="output") == 2
    assert of(found, "model_cost_usd_total", provider="anthropic") == 0.5
    assert of(found, "model_calls_unpriced_total", provider="anthropic") == 1
    assert of(found, "model_attempts_total", provider="anthropic") == 8
    assert of(found, "model_call_seconds_bucket", provider="anthropic", le="2.5") == 2


async def test_usage_of_a_canceled_call_is_counted(plangate: World) -> None:
    api = plangate.api
    await api.register(specs.spec(specs.agent(model={"id": "gpt-4o-mini", "provider": "openai"})))

    def busy(_: ModelRequest) -> TurnDone:
        raise Overloaded("busy", retry_after_s=300, usage=Usage(1_000_000))

    thinks(plangate, busy, kind="openai")
    query = (await api.submit())["id"]

    async def repeated() -> Any:
        return await api.events(query, "step-retry") or None

    await eventually(repeated, "the call is repeated")
    await api.do(f"/queries/{query}/cancel")
    found = await read(plangate)
    assert of(found, "work_ended_total", kind="model_call", status="cancelled") == 1
    assert of(found, "model_calls_total", provider="openai", status="cancelled") == 1
    assert of(found, "model_attempts_total", provider="openai") == 2
    assert of(found, "model_tokens_total", provider="openai", type="input") == 1_000_000
    assert round(of(found, "model_cost_usd_total", provider="openai"), 6) == 0.15


async def test_no_label_has_a_value_chosen_by_a_tenant(plangate: World) -> None:
    words = ("zebra", "walrus", "otter")
    tenant, tool, agent = words
    await plangate.tenant(tenant)
    api = plangate.operator(tenant)
    held = specs.agent(agent, tools=[tool], model="walrus-model")
    await api.register(specs.scripted(specs.tool(tool), agents=[held], tenant=tenant, name="otter-line"))
    query = await api.submit(specs.script((tool, {"n": 1}), ("zebra-made-up", {})), runtime="otter-line")
    await api.serve(tool, {"found": 1})
    await api.ended(query["id"])
    text = (await plangate.operator().get("/metrics")).text
    assert not re.findall("|".join(words), text)


async def test_asking_often_costs_the_database_little(plangate: World) -> None:
    counts = plangate.faults.probe("operator_counts")
    for _ in range(20):
        await plangate.operator().get("/metrics")
    assert counts.count == 1


async def test_the_operator_counts_return_only_numbers(plangate: World) -> None:
    await plangate.api.register(specs.mock())
    query = await plangate.api.run()
    rows = await plangate.sql("SELECT * FROM operator_counts()", tenant="other")
    assert query["id"] not in repr(rows)
    assert {r["name"] for r in rows} <= COUNTED.keys()
