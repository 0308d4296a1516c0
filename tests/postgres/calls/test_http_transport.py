"""Tools and dispatchers with the transport `http`: requests, responses, and crashes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from standardwebhooks import Webhook, WebhookVerificationError

from app.assembly import FeatureLimits
from app.calls.dispatch import DispatchLimits
from app.deployment import Deployment
from tests.support import specs
from tests.support.client import Caller, good, inner, output_of, refused
from tests.support.cluster import Cluster
from tests.support.endpoint import Answer, Endpoint, Received, endpoint, error, output
from tests.support.world import World, world

LOOPBACK = {"allow_hosts": ["127.0.0.1"]}


@pytest_asyncio.fixture
async def plangate(cluster: Cluster, site: Deployment) -> AsyncIterator[World]:
    """A process whose operator lets tenants reach loopback."""
    limits = FeatureLimits(dispatch=DispatchLimits(pauses_s=(0.0, 0.0)))
    async with world(site, cluster.operator_key, limits=limits, **LOOPBACK) as running:
        yield running


def http(at: Endpoint | str, path: str = "/call", **parts: Any) -> dict[str, Any]:
    url = at if isinstance(at, str) else at.url + path
    return {"kind": "http", "url": url, **parts}


def spec(at: Endpoint, headers: dict[str, Any] | None = None, **tool: Any) -> dict[str, Any]:
    transport = http(at, **({"headers": headers} if headers else {}))
    return specs.scripted({**specs.tool("add"), "transport": transport, **tool})


ADD = specs.script(("add", {"n": 1}))


async def answered(api: Caller, prompt: str = ADD) -> dict[str, Any]:
    (entry,) = output_of(await api.run(prompt))
    found: dict[str, Any] = entry
    return found


# -- what is sent


async def test_a_call_is_signed_and_has_its_context(api: Caller) -> None:
    async with endpoint(output({"sum": 2})) as at:
        runtime = await api.register(spec(at))
        query = await api.run(ADD)
        assert output_of(query)[0]["result"] == {"sum": 2}
        (sent,) = at.received
        (work,) = [
            w for w in (await api.read(f"/queries/{query['id']}/work"))["items"] if w["kind"] == "tool_call"
        ]
    assert sent.json == {
        "tool": "add",
        "args": {"n": 1},
        "attempt": 1,
        "context": {
            "toolUseId": "scripted-tool-1",
            "workId": work["id"],
            "queryId": query["id"],
            "threadId": query["threadId"],
            "agent": "solo",
            "runtimeId": runtime["id"],
            "resourceId": "acme",
        },
    }
    assert sent.headers["idempotency-key"] == sent.headers["webhook-id"] == work["id"]
    assert sent.headers["content-type"] == "application/json"
    assert runtime["signingSecret"].startswith("whsec_")
    Webhook(runtime["signingSecret"]).verify(sent.body, sent.headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(runtime["signingSecret"]).verify(sent.body + b" ", sent.headers)


async def test_the_signing_secret_is_shown_once_for_all_versions(api: Caller) -> None:
    async with endpoint(output(1)) as at:
        first = await api.register(spec(at))
        assert "signingSecret" not in await api.register(spec(at))
        second = await api.register(spec(at, description="changed"))
        assert (second["version"], "signingSecret" in second) == (2, False)
        assert "signingSecret" not in await api.read(f"/runtimes/{first['id']}")
        await api.run(ADD)
        Webhook(first["signingSecret"]).verify(at.received[0].body, at.received[0].headers)


async def test_after_a_rotation_both_secrets_sign_for_a_day(api: Caller, owner: Any) -> None:
    async with endpoint(output(1)) as at:
        first = await api.register(spec(at))
        new = await api.do(f"/runtimes/{first['id']}/signing-secret")
        assert (new["runtimeName"], new["signingSecret"] == first["signingSecret"]) == ("default", False)
        await api.run(ADD)
        for secret in (first["signingSecret"], new["signingSecret"]):
            Webhook(secret).verify(at.received[0].body, at.received[0].headers)
        await owner.execute("UPDATE signing_secrets SET previous_until = now() - interval '1 s'")
        await api.run(ADD)
        Webhook(new["signingSecret"]).verify(at.received[1].body, at.received[1].headers)
        with pytest.raises(WebhookVerificationError):
            Webhook(first["signingSecret"]).verify(at.received[1].body, at.received[1].headers)


async def test_a_runtime_that_signs_nothing_has_no_secret(api: Caller) -> None:
    runtime = await api.register(specs.scripted(specs.tool("add")))
    assert "signingSecret" not in runtime
    told = refused(await api.post(f"/runtimes/{runtime['id']}/signing-secret"), 404)
    assert told["detail"] == (
        "The runtime 'default' has no signing secret, because no part of it uses the transport http."
    )
    refused(await api.post("/runtimes/rt_none/signing-secret"), 404)


async def test_a_response_with_a_secret_is_not_stored_for_replay(api: Caller) -> None:
    async with endpoint(output(1)) as at:
        key = {"headers": {"idempotency-key": "k1"}}
        first = await api.do("/runtimes", spec(at), **key)
        told = refused(await api.post("/runtimes", spec(at), **key), 409)
        assert first["signingSecret"] not in str(told)
        assert first["id"] in str(told)


async def test_headers_are_literal_or_come_from_secrets(api: Caller) -> None:
    headers = {"x-team": "ops", "authorization": {"secret": "ledger"}}
    async with endpoint(output(1)) as at:
        runtime = await api.register(spec(at, headers))
        assert runtime["spec"]["tools"][0]["transport"]["headers"] == headers
        told = await answered(api)
        assert told["error"] == (
            "The header 'authorization' takes the secret 'ledger', which does not exist: set it with "
            "PUT /secrets/ledger. Nothing was sent."
        )
        assert at.received == []
        good(await api.put("/secrets/ledger", {"value": "Bearer one"}))
        await api.run(ADD)
        good(await api.put("/secrets/ledger", {"value": "Bearer two"}))  # no new version is needed
        await api.run(ADD)
        assert [r.headers["authorization"] for r in at.received] == ["Bearer one", "Bearer two"]
        assert at.received[0].headers["x-team"] == "ops"


async def test_a_secret_of_another_tenant_is_not_found(plangate: World, api: Caller) -> None:
    good(await plangate.other.put("/secrets/ledger", {"value": "theirs"}))
    async with endpoint(output(1)) as at:
        await api.register(spec(at, {"authorization": {"secret": "ledger"}}))
        assert "does not exist" in (await answered(api))["error"]
        assert at.received == []


# -- what the answers mean


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (output([1, {"a": None}]), [1, {"a": None}]),
        (output(None), None),
        (Answer(204), None),
        (Answer(201, b" "), None),
    ],
)
async def test_a_2xx_answer_is_the_result(api: Caller, answer: Answer, result: Any) -> None:
    async with endpoint(answer) as at:
        await api.register(spec(at))
        assert (await answered(api))["result"] == result


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (error("no such order"), "no such order"),
        (
            Answer(body=b"fine"),
            "add ran, but its answer cannot be read. The body is not JSON: ",
        ),
        (
            Answer(body=b'{"result": 1}'),
            'add ran, but its answer is not as agreed. A 2xx response must have the JSON body {"output": ...} '
            'or {"error": "..."}, or no body.',
        ),
        (Answer(404, b'{"detail": "no such order"}'), "add answered 404: no such order"),
        (Answer(401), "add answered 401: without a word"),
        (Answer(422, b"<p>bad\0</p>"), "add answered 422: <p>bad\N{REPLACEMENT CHARACTER}</p>"),
        (
            Answer(307, headers={"location": "http://elsewhere/"}),
            "add answered 307, a redirect to http://elsewhere/; redirects are not followed.",
        ),
    ],
)
@pytest.mark.parametrize("replay", ["safe", "never"])
async def test_an_error_response_is_an_error_for_the_model(
    api: Caller, answer: Answer, told: str, replay: str
) -> None:
    async with endpoint(answer) as at:
        await api.register(spec(at, replay=replay))
        assert (await answered(api))["error"].startswith(told)
        assert len(at.received) == 1


async def test_a_result_that_violates_the_output_schema_is_an_error(api: Caller) -> None:
    async with endpoint(output("three")) as at:
        await api.register(spec(at, outputSchema={"type": "integer"}))
        assert (await answered(api))["error"].startswith(
            "add ran, but its result does not match its outputSchema: /: "
        )


@pytest.mark.parametrize("status", [425, 429, 503])
@pytest.mark.parametrize("replay", ["safe", "never"])
async def test_a_response_without_effect_is_retried(api: Caller, status: int, replay: str) -> None:
    busy = Answer(status, b'{"error": "busy"}', {"retry-after": "0"})
    async with endpoint(busy, output(7)) as at:
        await api.register(spec(at, replay=replay))
        assert (await answered(api))["result"] == 7
        assert [r.json["attempt"] for r in at.received] == [1, 2]
        assert len({r.headers["idempotency-key"] for r in at.received}) == 1
        assert len({r.headers["webhook-id"] for r in at.received}) == 1


async def test_a_call_has_at_most_three_attempts(api: Caller) -> None:
    async with endpoint(Answer(503, b"down", {"retry-after": "0"})) as at:
        await api.register(spec(at))
        assert (await answered(api))["error"] == "add answered 503: down"
        assert len(at.received) == 3


async def test_a_long_retry_after_is_left_to_the_model(api: Caller) -> None:
    async with endpoint(Answer(429, b"slow down", {"retry-after": "3600"})) as at:
        await api.register(spec(at))
        assert (await answered(api))["error"] == "add answered 429: slow down"
        assert len(at.received) == 1


async def test_a_retry_after_beyond_the_query_is_left_to_the_model(api: Caller) -> None:
    async with endpoint(Answer(503, b"starting", {"retry-after": "29"})) as at:
        await api.register({**spec(at), "limits": {"maxDurationMs": 25_000}})
        assert (await answered(api))["error"] == "add answered 503: starting"
        assert len(at.received) == 1


UNCERTAIN = [Answer(500, b"oops"), Answer(408), Answer(503), Answer(502), Answer(504), Answer(cut=True)]
UNCERTAIN += [Answer(status, headers={"location": "http://elsewhere/done"}) for status in (302, 303)]


@pytest.mark.parametrize("answer", UNCERTAIN)
async def test_an_unknown_outcome_is_not_repeated(api: Caller, answer: Answer) -> None:
    async with endpoint(answer) as at:
        await api.register(spec(at))
        query = await api.run(ADD)
        told = output_of(query)[0]["error"]
        assert told.startswith("It is unknown whether add ran: ")
        assert told.endswith("Check before you repeat it.")
        assert len(at.received) == 1
        works = (await api.read(f"/queries/{query['id']}/work"))["items"]
        assert [w["status"] for w in works if w["kind"] == "tool_call"] == ["unknown"]
        (call,) = (await api.read("/tool-calls"))["items"]
        assert (call["sender"], call["status"], call["attempts"]) == ("service", "unknown", 1)


@pytest.mark.parametrize("answer", UNCERTAIN)
async def test_an_unknown_outcome_is_repeated_if_safe(api: Caller, answer: Answer) -> None:
    async with endpoint(answer, output(7)) as at:
        await api.register(spec(at, annotations={"idempotent": True}))
        assert (await answered(api))["result"] == 7
        assert len({r.headers["idempotency-key"] for r in at.received}) == 1


async def test_no_response_within_the_timeout_is_unknown(api: Caller) -> None:
    async with endpoint(Answer(wait=True)) as at:
        await api.register(spec(at, timeoutMs=300))
        assert (await answered(api))["error"].startswith(
            "It is unknown whether add ran: no answer in time came from its address after the call had left"
        )


async def test_an_unreachable_address_is_an_error(api: Caller) -> None:
    async with endpoint(output(1)) as gone:
        described = spec(gone)
    await api.register(described)
    assert (await answered(api))["error"].startswith("add cannot be reached, nothing was sent: ")


async def test_an_endless_response_is_not_read(api: Caller) -> None:
    async with endpoint(Answer(body=b'{"output": "' + b"x" * (17 * 1024 * 1024) + b'"}')) as at:
        await api.register(spec(at))
        assert (await answered(api))["error"].startswith(
            "It is unknown whether add ran: its address answered, but its answer is larger than 16777216 bytes. "
        )


async def test_an_unread_response_leaves_the_action_unknown(api: Caller) -> None:
    async with endpoint(Answer(500, b"half done", {"content-encoding": "gzip"})) as at:
        await api.register(acting(at))
        query = (await api.submit(specs.store_and_execute()))["id"]
        await api.approve(query)
        await api.until(query, "waiting", "outcome_unknown")


async def test_a_response_of_many_arrays_is_rejected(api: Caller) -> None:
    """Each takes many times its text in memory."""
    async with endpoint(Answer(body=b'{"output": [' + b"[]," * 1_000_000 + b"[]]}")) as at:
        await api.register(spec(at))
        assert (await answered(api))["error"].startswith(
            "add ran, but its answer cannot be read. The body may have 1000000 objects and arrays. "
        )


async def test_a_large_result_becomes_a_reference(api: Caller) -> None:
    async with endpoint(output("x" * 70_000)) as at:
        await api.register(spec(at))
        found = (await answered(api))["result"]
        assert found["kind"] == "ToolResult"
        assert found["note"].endswith("pass the handle on, or ask for less: you have no tool that reads it.")


# -- where it may not go


async def test_private_addresses_are_rejected_at_registration(cluster: Cluster, site: Deployment) -> None:
    async with world(site, cluster.operator_key) as strict:
        for url in (
            "http://127.0.0.1:1/",
            "http://169.254.169.254/latest",
            "http://[::1]/",
            "http://0x7f.1/",
        ):
            described = specs.scripted({**specs.tool("add"), "transport": http(url)})
            (flaw,) = refused(await strict.api.post("/runtimes", described), 422)["errors"]
            assert flaw["pointer"] == "/tools/0/transport/url"
            assert "PLANGATE_ALLOW_HOSTS" in flaw["message"]
        described = specs.scripted({**specs.tool("add"), "transport": http("http://xn--a/")})
        (flaw,) = refused(await strict.api.post("/runtimes", described), 422)["errors"]
        assert flaw["message"].endswith("it is not a URL.")
        dispatching = specs.planning(actionDispatcher=http("http://10.0.0.1/"))
        (flaw,) = refused(await strict.api.post("/runtimes", dispatching), 422)["errors"]
        assert flaw["pointer"] == "/actionDispatcher/url"


async def test_a_name_that_resolves_to_an_inner_address_is_rejected(
    cluster: Cluster, site: Deployment
) -> None:
    """What a name resolves to is judged at the connection: the check at the door is only the first."""
    async with world(site, cluster.operator_key, **LOOPBACK) as kind, endpoint(output(1)) as at:
        await kind.api.register(spec(at))
    async with world(site, cluster.operator_key) as strict:  # the operator took the exception back
        told = (await answered(strict.api))["error"]
        assert told.startswith("Nothing was sent. Requests to '127.0.0.1' are refused: ")
        assert at.received == []


# -- plans


def acting(at: Endpoint, **parts: Any) -> dict[str, Any]:
    return specs.planning(actionDispatcher=http(at, **parts))


async def executed(api: Caller) -> dict[str, Any]:
    query = (await api.submit(specs.store_and_execute()))["id"]
    await api.approve(query)
    found: dict[str, Any] = inner(output_of(await api.ended(query))[1])
    return found


async def test_approved_actions_are_posted_with_the_plans_key(api: Caller) -> None:
    async with endpoint(output({"entitiesAffected": 2, "summary": "Done."})) as at:
        runtime = await api.register(acting(at))
        assert (await executed(api))["entitiesAffected"] == 2
        (sent,) = at.received
        plan = (await api.read("/plans"))["items"][0]
    body = sent.json
    assert (body["planId"], body["revision"], body["digest"]) == (plan["id"], 1, plan["digest"])
    assert [a["kind"] for a in body["actions"]] == ["book", "refund"]
    assert (body["resolvedRefs"], body["attempt"], "tool" in body) == ({}, 1, False)
    assert sent.headers["idempotency-key"] == body["idempotencyKey"]
    Webhook(runtime["signingSecret"]).verify(sent.body, sent.headers)


async def test_an_unknown_dispatch_waits_for_a_person_and_retry_has_the_same_key(api: Caller) -> None:
    async with endpoint(Answer(cut=True), output({"entitiesAffected": 2})) as at:
        await api.register(acting(at))
        query = (await api.submit(specs.store_and_execute()))["id"]
        await api.approve(query)
        await api.until(query, "waiting", "outcome_unknown")
        plan = (await api.read("/plans"))["items"][0]
        await api.do(f"/plans/{plan['id']}/actions/0", {"outcome": "retry"})
        found = inner(output_of(await api.ended(query))[1])
        assert (found["status"], found["entitiesAffected"]) == ("executed", 2)
        first, again = at.received
        assert first.headers["idempotency-key"] == again.headers["idempotency-key"]
        assert (first.json["attempt"], again.json["attempt"]) == (1, 2)


async def test_a_busy_retry_leaves_the_first_outcome_unknown(
    api: Caller,
) -> None:
    """What took no effect is the repetition: whether the first one did nobody knows."""
    busy = Answer(503, b"starting", {"Retry-After": "0"})
    async with endpoint(Answer(cut=True), busy, busy, output({"entitiesAffected": 2})) as at:
        await api.register(acting(at, replay="safe"))
        query = (await api.submit(specs.store_and_execute()))["id"]
        await api.approve(query)
        await api.until(query, "waiting", "outcome_unknown")
        plan = (await api.read("/plans"))["items"][0]
        assert (plan["status"], len(at.received)) == ("executing", 3)
        await api.do(f"/plans/{plan['id']}/actions/0", {"outcome": "retry"})
        assert inner(output_of(await api.ended(query))[1])["status"] == "executed"
        assert len({r.headers["idempotency-key"] for r in at.received}) == 1


async def test_an_error_of_a_retry_does_not_resolve_the_first_attempt(api: Caller) -> None:
    """As endpoints say it that know the idempotency key, while the first one is under way."""
    busy = Answer(409, b'{"error": "a call with this key is under way"}')
    async with endpoint(Answer(504), busy) as at:
        await api.register(acting(at, replay="safe"))
        query = (await api.submit(specs.store_and_execute()))["id"]
        await api.approve(query)
        await api.until(query, "waiting", "outcome_unknown")
        assert len(at.received) == 2
        plan = (await api.read("/plans"))["items"][0]
        error = (await api.read(f"/plans/{plan['id']}/actions"))["items"][0]["error"]
        assert error["message"].endswith("Then: actions answered 409: a call with this key is under way")


async def test_an_unsent_action_waits_for_a_process(plangate: World, api: Caller, owner: Any) -> None:
    """Nobody has to claim it: only a call of the transport `client` lapses."""
    async with endpoint(Answer(cut=True)) as at:
        await api.register(acting(at))
        query = (await api.submit(specs.store_and_execute()))["id"]
        await api.approve(query)
        await api.until(query, "waiting", "outcome_unknown")
        await owner.execute(
            "UPDATE outgoing_calls SET status = 'open', attempts = 0, claim_before = claim_before - interval '2 h'"
        )
        await plangate.services.calls.lapse_due()
        assert [c["status"] for c in (await api.read("/tool-calls"))["items"]] == ["open"]


async def test_an_error_of_the_dispatcher_fails_the_plan(api: Caller) -> None:
    async with endpoint(Answer(409, b'{"error": "the seat is taken"}')) as at:
        await api.register(acting(at))
        found = await executed(api)
        assert found["status"] == "failed"
        assert found["actions"][0]["error"] == {
            "code": "dispatch_failed",
            "message": "actions answered 409: the seat is taken",
        }


async def test_actions_through_a_declared_tool_reach_its_address(api: Caller) -> None:
    async with endpoint(output({"entitiesAffected": 1})) as at:
        described = specs.planning(
            actionDispatcher={"kind": "tool", "tool": "carry"},
            tools=[{"name": "carry", "inputSchema": {"type": "object"}, "transport": http(at)}],
        )
        await api.register(described)
        assert (await executed(api))["entitiesAffected"] == 2
        assert [r.json["tool"] for r in at.received] == ["carry", "carry"]
        assert {"seat": "12A"} in [r.json["args"] for r in at.received]


# -- what a crash leaves


@contextlib.asynccontextmanager
async def interrupted(
    cluster: Cluster, site: Deployment, at: Endpoint, described: dict[str, Any]
) -> AsyncIterator[Caller]:
    """The API of a process that took over after the first one ended while a call was on its way."""
    async with world(site, cluster.operator_key, **LOOPBACK) as first:
        await first.api.register(described)
        query = await first.api.submit(ADD)
        await at.came.wait()
        assert query["id"]
    async with world(site, cluster.operator_key, **LOOPBACK) as next_:
        yield next_.api


@pytest.mark.parametrize(("replay", "sent"), [("never", 1), ("safe", 2)])
async def test_a_call_in_flight_when_its_process_ends(
    cluster: Cluster, site: Deployment, replay: str, sent: int
) -> None:
    async with (
        endpoint(Answer(wait=True), output(7)) as at,
        interrupted(cluster, site, at, spec(at, replay=replay)) as api,
    ):
        query = (await api.read("/queries"))["items"][0]["id"]
        (entry,) = output_of(await api.ended(query))
        assert len(at.received) == sent
        assert len({r.headers["idempotency-key"] for r in at.received}) == 1
        if replay == "safe":
            assert (entry["result"], at.received[1].json["attempt"]) == (7, 2)
        else:
            assert entry["error"].startswith("It is unknown whether add ran: ")


async def test_cancelling_ends_the_request_with_an_unknown_outcome(api: Caller) -> None:
    async with endpoint(Answer(wait=True)) as at:
        await api.register(spec(at))
        query = await api.submit(ADD)
        await at.came.wait()
        cancelled = await api.do(f"/queries/{query['id']}/cancel")
        assert cancelled["status"] == "cancelled"
        (call,) = (await api.read("/tool-calls"))["items"]
        assert call["status"] == "unknown"


async def test_clients_cannot_claim_calls_that_the_service_sends(api: Caller) -> None:
    async with endpoint(Answer(wait=True)) as at:
        await api.register(spec(at))
        query = await api.submit(ADD)
        await at.came.wait()
        assert (await api.do("/tool-calls/claim", {"tools": [{"name": "add"}]}))["calls"] == []
        await api.do(f"/queries/{query['id']}/cancel")


def slow_start(received: Received) -> Answer:
    return output(received.json["args"]["n"])


async def test_parallel_calls_each_have_their_own_key(api: Caller) -> None:
    async with endpoint(slow_start) as at:
        await api.register(spec(at))
        query = await api.run(specs.script(("add", {"n": 1}), ("add", {"n": 2})))
        assert [e["result"] for e in output_of(query)] == [1, 2]
        assert len({r.headers["idempotency-key"] for r in at.received}) == 2
