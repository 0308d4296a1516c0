"""The signing secret of http tools: shown once, kept by the runtime that received it."""

from __future__ import annotations

import doctest
from datetime import UTC, datetime
from typing import Any

from plangate import Runtime, define_runtime, define_specialist, define_tool
from standardwebhooks import Webhook

from tests.pure.sdk.fake_service import fake_service

SECRET = "whsec_" + "c2VjcmV0" * 5 + "c2U="
HTTP = {"kind": "http", "url": "https://tools.example.com/look"}
LOOK = define_tool("look", {"id": str}, transport=HTTP)
SPEC = define_runtime("acme", [define_specialist("helper", "m-1", "You look.", tools=[LOOK])])


async def test_the_first_registration_gets_the_secret() -> None:
    async with fake_service() as service:
        service.registered = {"signingSecret": SECRET}
        runtime = service.runtime(SPEC)
        assert runtime.signing_secret is None
        await runtime
        assert runtime.signing_secret == SECRET
        await runtime.aclose()
        service.registered = {}
        async with runtime:  # it is shown once, and not forgotten where it was seen
            assert runtime.signing_secret == SECRET
            assert SECRET not in repr(vars(runtime)["_record"])
        assert runtime.signing_secret == SECRET


async def test_later_registrations_do_not_get_the_secret() -> None:
    async with fake_service() as service, service.runtime(SPEC) as runtime:
        assert runtime.signing_secret is None


async def test_a_rotated_secret_replaces_it() -> None:
    async with fake_service() as service:
        service.registered = {"signingSecret": SECRET}
        other = "whsec_" + "b3RoZXIh" * 5
        where = ("POST", "/runtimes/rt_1/signing-secret")
        service.answers[where] = lambda body: (201, {"runtimeName": "default", "signingSecret": other})
        async with service.runtime(SPEC) as runtime:
            assert await runtime.rotate_signing_secret() == other
            assert runtime.signing_secret == other
        assert runtime.signing_secret == other
        assert len(service.bodies(*where)) == 1
        assert "idempotency-key" in service.headers(*where)[0]  # sent again, it makes no third secret


def test_the_documented_check_follows_standard_webhooks() -> None:
    held: dict[str, Any] = {}
    for example in doctest.DocTestParser().get_examples(Runtime.signing_secret.__doc__ or ""):
        exec(example.source, held)
    body, at = '{"tool":"look","args":{"id":"ü"}}', datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    other = "whsec_" + "b3RoZXIh" * 5
    signed = " ".join(Webhook(secret).sign("msg_1", at, body) for secret in (other, SECRET))
    headers = {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": signed,
    }
    assert held["is_signed"](SECRET, headers, body.encode())
    assert held["is_signed"](other, headers, body.encode())
    assert not held["is_signed"](SECRET, headers, body.encode() + b" ")
    assert not held["is_signed"](SECRET, {**headers, "webhook-id": "msg_2"}, body.encode())
    assert not held["is_signed"]("whsec_" + "bm9uZSEh" * 5, headers, body.encode())
