"""Requests of approvers through the library: what is sent, rejected and returned."""

from __future__ import annotations

import hashlib
from typing import Any

import plangate
import pytest
from plangate import define_runtime, define_specialist

from tests.pure.sdk.fake_service import FakeService, fake_service

SPEC = define_runtime("acme", [define_specialist("helper", "m-1", "You help.")])
ONE = ("POST", "/approvals/apr_1")
MANY = ("POST", "/approvals")
DIGEST = "d" * 64


def decided(service: FakeService) -> None:
    service.answers[ONE] = lambda body: (200, {"id": "apr_1", "status": "approved"})
    service.answers[MANY] = lambda body: (
        200,
        {"approvals": [{"id": one["id"]} for one in body["decisions"]]},
    )


# One decision.


async def test_a_decision_is_sent_as_documented() -> None:
    async with fake_service() as service, service.runtime(SPEC) as runtime:
        decided(service)
        answer = await runtime.respond_to_approval("apr_1", "approve", digest=DIGEST)
        assert answer == {"id": "apr_1", "status": "approved"}
        await runtime.respond_to_approval("apr_1", "revise", "Cheaper.", {"keep": [1]}, digest=DIGEST)
        await runtime.respond_to_approval(
            "apr_1", "approve", digest=DIGEST, args={"cents": 5}, scope="thread"
        )
        await runtime.respond_to_approval("apr_1", "approve", digest=DIGEST, args={})
        assert service.bodies(*ONE) == [
            {"decision": "approve", "digest": DIGEST},
            {"decision": "revise", "feedback": "Cheaper.", "partial": {"keep": [1]}, "digest": DIGEST},
            {"decision": "approve", "digest": DIGEST, "args": {"cents": 5}, "scope": "thread"},
            {"decision": "approve", "digest": DIGEST, "args": {}},
        ]
        assert len({headers["idempotency-key"] for headers in service.headers(*ONE)}) == 4


REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"decision": "maybe"}, ValueError, "a decision is one of approve, reject, revise, not 'maybe'"),
    ({"decision": None}, ValueError, "a decision is one of approve, reject, revise, not None"),
    (
        {"decision": "approve"},
        ValueError,
        "'approve' needs the digest of what was seen: subject = await runtime.approval_subject(id), show subject.value, "
        "and pass digest=subject.digest",
    ),
    *(
        (
            {"decision": decision, "args": {}},
            ValueError,
            f"args take the place of the arguments of a call that is approved: with '{decision}' leave them out, and "
            "say in feedback what should be different",
        )
        for decision in ("reject", "revise")
    ),
    (
        {"decision": "approve", "args": [5]},
        TypeError,
        "args is a mapping of the call's arguments, not a list",
    ),
    (
        {"decision": "approve", "scope": "forever"},
        ValueError,
        "scope is 'thread', or left out to decide this once, not 'forever'",
    ),
    (
        {"decision": "reject", "scope": "thread"},
        ValueError,
        "only an approval is remembered: with 'reject' leave scope out",
    ),
]


@pytest.mark.parametrize(("said", "error", "message"), REFUSED)
async def test_an_invalid_decision_is_rejected_before_sending(
    said: dict[str, Any], error: type[Exception], message: str
) -> None:
    async with fake_service() as service, service.runtime(SPEC) as runtime:
        with pytest.raises(error) as refused:
            await runtime.respond_to_approval("apr_1", **said)
        assert str(refused.value) == message
        with pytest.raises(error) as refused:
            await runtime.respond_to_approvals(
                [{"id": "apr_0", "decision": "reject"}, {"id": "apr_1", **said}]
            )
        assert str(refused.value) == f"decisions[1]: {message}"
        assert service.bodies(*ONE) == service.bodies(*MANY) == []


# Many decisions.


async def test_several_decisions_are_one_request() -> None:
    async with fake_service() as service, service.runtime(SPEC) as runtime:
        decided(service)
        said = [
            {"id": "apr_2", "decision": "approve", "digest": DIGEST, "args": {"cents": 5}, "scope": "thread"},
            {"id": "apr_1", "decision": "reject", "feedback": "No.", "partial": None},
        ]
        assert await runtime.respond_to_approvals(said) == [{"id": "apr_2"}, {"id": "apr_1"}]
        del said[1]["partial"]
        assert service.bodies(*MANY) == [{"decisions": said}]


async def test_an_empty_list_of_decisions_sends_nothing() -> None:
    async with fake_service() as service, service.runtime(SPEC) as runtime:
        assert await runtime.respond_to_approvals([]) == []
        assert service.bodies(*MANY) == []


@pytest.mark.parametrize(
    ("decisions", "error", "message"),
    [
        (
            {"id": "apr_1", "decision": "approve"},
            TypeError,
            "decisions is a list of mappings with id and decision, not a dict",
        ),
        (None, TypeError, "decisions is a list of mappings with id and decision, not None"),
        (["apr_1"], TypeError, "decisions[0]: a mapping with id and decision is wanted, not a str"),
        (
            [{"decision": "approve"}],
            ValueError,
            "decisions[0]: it has no 'id': give that of the approval, such as 'apr_...'",
        ),
        (
            [{"id": "apr_1"}],
            ValueError,
            "decisions[0]: a decision is one of approve, reject, revise, not None",
        ),
        (
            [{"id": "apr_1", "decision": "approve", "digets": DIGEST}],
            ValueError,
            "decisions[0]: unknown field 'digets' in a decision; did you mean 'digest'?",
        ),
        (
            [{"id": "apr_1", "decision": "reject"}, {"id": "apr_1", "decision": "reject"}],
            ValueError,
            "decisions[1]: apr_1 is decided twice: an approval has one decision",
        ),
    ],
)
async def test_invalid_decisions_are_rejected_before_sending(
    decisions: Any, error: type[Exception], message: str
) -> None:
    async with fake_service() as service, service.runtime(SPEC) as runtime:
        with pytest.raises(error) as refused:
            await runtime.respond_to_approvals(decisions)
        assert str(refused.value) == message
        assert service.bodies(*MANY) == []


# Reading.


async def test_inbox_and_grants_send_their_filters() -> None:
    async with fake_service() as service, service.runtime(SPEC) as runtime:
        page = {"items": [{"id": "x"}], "nextCursor": None}
        for where in ("/approvals", "/grants"):
            service.answers[("GET", where)] = lambda body: (200, page)
        asked = len(service.searched)
        assert await runtime.approvals() == [{"id": "x"}]
        await runtime.approvals(None, query_id="qry_1", limit=3)
        await runtime.grants()
        await runtime.grants(agent="clerk", tool="send", active=None, limit=3)
        await runtime.grants(active=False)
        assert service.searched[asked:] == [
            {"status": "pending", "limit": "50"},
            {"queryId": "qry_1", "limit": "3"},
            {"active": "true", "limit": "50"},
            {"agent": "clerk", "tool": "send", "limit": "3"},
            {"active": "false", "limit": "50"},
        ]
        with pytest.raises(ValueError, match=r"^unknown approval status 'open'; known are approved, "):
            await runtime.approvals("open")  # type: ignore[arg-type]


async def test_lists_follow_all_pages() -> None:
    async with fake_service() as service, service.runtime(SPEC) as runtime:

        def page(body: Any) -> tuple[int, Any]:
            wanted = service.searched[-1]
            first = int(wanted.get("cursor", 0))
            ids = range(first, first + int(wanted["limit"]))
            more = str(ids[-1] + 1) if ids[-1] < 1_199 else None
            return 200, {"items": [{"id": n} for n in ids if n < 1_200], "nextCursor": more}

        service.answers[("GET", "/approvals")] = page
        asked = len(service.searched)
        found = await runtime.approvals(limit=1_100)
        assert [one["id"] for one in found] == list(range(1_100))
        assert [one["limit"] for one in service.searched[asked:]] == ["500", "500", "100"]
        assert len(await runtime.approvals(limit=9_999)) == 1_200
        assert await runtime.approvals(limit=0) == []


async def test_the_subject_and_the_end_of_a_grant() -> None:
    async with fake_service() as service, service.runtime(SPEC) as runtime:
        service.answers[("GET", "/approvals/apr_1/subject")] = lambda body: (200, {"args": {"cents": 5}})
        service.answers[("DELETE", "/grants/grt_1")] = lambda body: (200, {"id": "grt_1", "active": False})
        subject = await runtime.approval_subject("apr_1")
        assert (subject.data, subject.value) == (b'{"args": {"cents": 5}}', {"args": {"cents": 5}})
        assert subject.digest == hashlib.sha256(subject.data).hexdigest()
        assert await runtime.revoke_grant("grt_1") == {"id": "grt_1", "active": False}
        for ask in (runtime.approval_subject, runtime.revoke_grant):
            with pytest.raises(plangate.NotFound):
                await ask("other")
            with pytest.raises(ValueError, match="is not an id"):
                await ask("..")
