"""The transport `mcp` against a server that fails in every way."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest
import pytest_asyncio
from plangate.spec.transports import Headers, McpTransport, SecretRef

from app.base.egress_policy import EgressPolicy
from app.tenancy.secrets import Secrets
from app.tools.models import (
    MAX_RESULT_BYTES,
    Attempt,
    NotDelivered,
    OutcomeUnknown,
    OutgoingCall,
)
from app.tools.results import Answer, ToolError, ToolResult
from app.tools.transports.headers import SecretMissing
from app.tools.transports.mcp.sender import McpSender
from app.tools.transports.mcp.wire import LIST_BYTES, MAX_LINES, MAX_RESUMES, SessionFailed
from tests.support.mcp import ADD, STREAM_TYPE, Asked, FakeMcp, Reply, error, event, fake_mcp, result, text

DIGEST = "303a8cc5cb6ea22b2b4e1d249451f463827e7a2ef9ed392fbb892ea79cbbf028"


class KeptSecrets:
    """The secrets of a tenant."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    async def read(self, tenant: str, name: str) -> str | None:
        return self.values.get(name)


@pytest_asyncio.fixture
async def server() -> AsyncIterator[FakeMcp]:
    async with fake_mcp() as running:
        yield running


@pytest.fixture
def secrets() -> KeptSecrets:
    return KeptSecrets()


@pytest_asyncio.fixture
async def sender(secrets: KeptSecrets) -> AsyncIterator[McpSender]:
    made = McpSender(EgressPolicy.from_hosts(["127.0.0.1"]), cast(Secrets, secrets))
    yield made
    await made.aclose()


def attempt(
    server: FakeMcp,
    *,
    may_send: Callable[[], bool] = lambda: True,
    timeout_ms: int = 20_000,
    digest: str | None = None,
    headers: Headers | None = None,
) -> Attempt:
    transport = McpTransport(url=server.url, headers=headers or {}, definition_digest=digest)
    call = OutgoingCall("wrk_1", "qry_1", "tool", "add", "", b"", "never", timeout_ms, transport, "key-1")
    return Attempt("acme", "default", call, {"args": {"n": 1}, "context": {}}, 1, may_send)


async def sent(sender: McpSender, server: FakeMcp, **parts: Any) -> ToolResult:
    """What became of a call of the tool as it is defined now."""
    if "digest" not in parts:
        tools = await sender.tools("acme", server.url, {}, 10)
        parts["digest"] = tools[0].digest()
        server.seen.clear()
    return await sender.send(attempt(server, **parts))


def on_call(server: FakeMcp, reply: Reply) -> None:
    server.on["tools/call"] = lambda asked: reply


async def test_the_digest_of_a_definition_is_stable(sender: McpSender, server: FakeMcp) -> None:
    (tool,) = await sender.tools("acme", server.url, {}, 10)
    assert tool.digest() == DIGEST
    server.tools = [{**ADD, "title": "Add", "_meta": {"a": 1}, "icons": []}]
    (tool,) = await sender.tools("acme", server.url, {}, 10)
    assert tool.digest() == DIGEST, "what a person or a program is shown beside it is not its definition"


# -- before the call leaves ------------------------------------------------------------------------------------


async def test_nothing_is_sent_after_the_send_deadline(sender: McpSender, server: FakeMcp) -> None:
    with pytest.raises(NotDelivered, match=r"^Nothing was sent: the deadline of the call passed"):
        await sent(sender, server, may_send=lambda: False)
    assert server.rpcs()[-2:] == ["tools/list", "DELETE"]


async def test_the_send_deadline_is_checked_at_the_last_moment(sender: McpSender, server: FakeMcp) -> None:
    seen_then: list[str] = []

    def may_send() -> bool:
        seen_then.extend(server.rpcs())
        return True

    assert await sent(sender, server, may_send=may_send) == Answer("done")
    assert seen_then == ["server/discover", "initialize", "notifications/initialized", "tools/list"]


def hang(asked: Asked) -> Reply:
    return Reply(end="hang")


@pytest.mark.parametrize(
    ("method", "reply", "why"),
    [
        ("initialize", Reply(401, body=b"no key"), "answered 401: no key"),
        ("tools/list", Reply(403, body=b'{"error": {"message": "not you"}}'), "answered 403: not you"),
        ("tools/list", Reply(body=b"<html>"), "answered something other than JSON-RPC"),
        ("tools/list", Reply(end="cut"), "broke the connection"),
        ("tools/list", Reply(headers=STREAM_TYPE, end="cut"), "broke the connection"),
        (
            "initialize",
            Reply(307, {"location": "/elsewhere"}),
            "answered 307, a redirect to /elsewhere; redirects are not followed",
        ),
        (
            "tools/list",
            Reply(302, {"location": "http://10.0.0.1/"}),
            "answered 302, a redirect to http://10.0.0.1/; redirects are not followed",
        ),
        ("tools/list", Reply(body=b" " * (LIST_BYTES + 1)), "answered more than the service reads"),
    ],
)
async def test_an_unusable_server_gets_no_call(
    sender: McpSender, server: FakeMcp, method: str, reply: Reply, why: str
) -> None:
    server.on[method] = lambda asked: reply
    with pytest.raises(NotDelivered) as caught:
        await sent(sender, server, digest=DIGEST)
    assert str(caught.value) == f"Nothing was sent: the server of add {why}."
    assert server.calls == []
    assert "GET" not in server.rpcs()
    with pytest.raises(SessionFailed) as listing:
        await sender.tools("acme", server.url, {}, 10)
    assert str(listing.value) == why


async def test_an_unreachable_server_is_not_delivered(sender: McpSender, server: FakeMcp) -> None:
    await server.stop()
    with pytest.raises(NotDelivered, match=r"^Nothing was sent: the server of add cannot be reached\.$"):
        await sent(sender, server, digest=DIGEST)


async def test_a_forbidden_address_is_not_delivered(secrets: KeptSecrets, server: FakeMcp) -> None:
    strict = McpSender(EgressPolicy.from_hosts([]), cast(Secrets, secrets))
    refused = (
        "Requests to '127.0.0.1' are refused: its address 127.0.0.1 is loopback. The operator can allow the host with "
        "PLANGATE_ALLOW_HOSTS."
    )
    assert await sent(strict, server, digest=DIGEST) == ToolError(
        f"Nothing was sent. {refused}", had_no_effect=True
    )
    with pytest.raises(SessionFailed) as caught:
        await strict.tools("acme", server.url, {}, 10)
    assert str(caught.value) == f"cannot be used: {refused}"
    assert server.seen == []
    await strict.aclose()


async def test_a_silent_server_times_out(sender: McpSender, server: FakeMcp) -> None:
    server.on["tools/list"] = hang
    with pytest.raises(NotDelivered, match=r"^Nothing was sent: the server of add did not answer in time\.$"):
        await sent(sender, server, digest=DIGEST, timeout_ms=200)
    with pytest.raises(SessionFailed, match=r"^did not answer in time$"):
        await sender.tools("acme", server.url, {}, 0.2)


async def test_an_unknown_protocol_version_is_rejected(sender: McpSender, server: FakeMcp) -> None:
    server.version = "1999-12-31"
    with pytest.raises(NotDelivered, match=r"cannot be used: Unsupported protocol version .*1999-12-31\.$"):
        await sent(sender, server, digest=DIGEST)


async def test_endless_lists_end(sender: McpSender, server: FakeMcp) -> None:
    server.on["tools/list"] = lambda asked: result(asked, {"tools": [ADD], "nextCursor": "more"})
    with pytest.raises(SessionFailed, match=r"^lists more than 2000 tools, or on more than 50 pages$"):
        await sender.tools("acme", server.url, {}, 10)
    server.on.clear()
    server.tools = [{"name": f"t{n}", "inputSchema": {"type": "object"}} for n in range(2_001)]
    with pytest.raises(SessionFailed, match=r"^lists more than 2000 tools, or on more than 50 pages$"):
        await sender.tools("acme", server.url, {}, 10)


async def test_tools_on_several_pages(sender: McpSender, server: FakeMcp) -> None:
    def page(asked: Asked) -> Reply:
        n = int(asked.message.get("params", {}).get("cursor", 0))
        tool = {"name": f"t{n}", "inputSchema": {"type": "object"}}
        return result(asked, {"tools": [tool], **({"nextCursor": str(n + 1)} if n < 3 else {})})

    server.on["tools/list"] = page
    found = await sender.tools("acme", server.url, {}, 10)
    assert [tool.name for tool in found] == ["t0", "t1", "t2", "t3"]


async def test_a_definition_that_is_not_json_is_rejected(sender: McpSender, server: FakeMcp) -> None:
    def listing(asked: Asked) -> Reply:
        return Reply(
            body=b'{"jsonrpc":"2.0","id":%d,"result":{"tools":[{"name":"add","inputSchema":'
            b'{"type":"object","maxProperties":1e999}}]}}' % asked.message["id"]
        )

    server.on["tools/list"] = listing
    with pytest.raises(SessionFailed, match=r"^defines 'add' with a definition that is not valid JSON: "):
        await sender.tools("acme", server.url, {}, 10)


async def test_secrets_invalid_in_headers_are_named_and_never_shown(
    sender: McpSender, server: FakeMcp, secrets: KeptSecrets
) -> None:
    headers: Headers = {"authorization": SecretRef(secret="mcp-key")}
    told = "The header 'authorization' takes the secret 'mcp-key', which {}: set it with PUT /secrets/mcp-key. Nothing was sent."
    for value, why in [
        (None, "does not exist"),
        ("sesame\n", "has characters that no header carries"),
        ("sesäme", "has characters that no header carries"),
    ]:
        secrets.values = {"mcp-key": value} if value else {}
        outcome = await sent(sender, server, digest=DIGEST, headers=headers)
        assert outcome == ToolError(told.format(why), had_no_effect=True)
        with pytest.raises(SecretMissing) as caught:
            await sender.tools("acme", server.url, headers, 10)
        assert str(caught.value) == told.format(why)
    assert server.seen == []


# -- after it left ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (Reply(end="cut"), "broke the connection"),
        (Reply(body=b'{"jsonrpc":', end="cut"), "broke the connection"),
        (Reply(headers=STREAM_TYPE, end="cut"), "broke the connection"),
        (Reply(headers=STREAM_TYPE), "broke the connection"),
        (Reply(headers=STREAM_TYPE, body=b"data: {\n\n"), "answered something other than JSON-RPC"),
        (Reply(body=b"<html>"), "answered something other than JSON-RPC"),
        (
            Reply(body=b"ok", headers={"content-type": "text/html"}),
            "answered 200 with the content type 'text/html'",
        ),
        (Reply(202), "answered 202 without an answer"),
        (Reply(500, body=b"oops"), "answered 500: oops"),
        (Reply(502, body=b"\x00"), "answered 502: \N{REPLACEMENT CHARACTER}"),
        (Reply(body=b" " * (MAX_RESULT_BYTES + 1)), "answered more than the service reads"),
        (
            Reply(headers=STREAM_TYPE, body=b": x" * (MAX_RESULT_BYTES // 3 + 1)),
            "answered more than the service reads",
        ),
        (Reply(headers=STREAM_TYPE, body=b":\n" * MAX_LINES + b"\n"), "answered more than the service reads"),
        (
            Reply(
                headers={"content-type": "application/json", "content-encoding": "gzip"},
                body=gzip.compress(b"{}"),
            ),
            "answered, but its answer is compressed, which nobody asked for",
        ),
    ],
)
async def test_an_unreadable_response_is_unknown(
    sender: McpSender, server: FakeMcp, reply: Reply, why: str
) -> None:
    on_call(server, reply)
    with pytest.raises(OutcomeUnknown) as caught:
        await sent(sender, server)
    assert str(caught.value) == f"its server {why}."
    assert len(server.calls) == 1
    assert server.rpcs()[-1] == "DELETE"


async def test_a_timeout_is_unknown_and_cancels_the_call(sender: McpSender, server: FakeMcp) -> None:
    server.on["tools/call"] = hang
    with pytest.raises(OutcomeUnknown, match=r"^its server did not answer in time\.$"):
        await sent(sender, server, timeout_ms=2_000)
    assert sorted(server.rpcs()[-2:]) == ["DELETE", "notifications/cancelled"]


async def test_a_canceled_call_sends_a_cancellation(sender: McpSender, server: FakeMcp) -> None:
    server.on["tools/call"] = hang
    task = asyncio.create_task(sent(sender, server))
    await server.called.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(server.rpcs()[-2:]) == ["DELETE", "notifications/cancelled"]


async def test_a_result_that_violates_the_protocol_is_an_error(sender: McpSender, server: FakeMcp) -> None:
    server.answer = {"content": "text"}
    with pytest.raises(OutcomeUnknown, match=r"^its server answered otherwise than the protocol says\.$"):
        await sent(sender, server)


@pytest.mark.parametrize("number", ["1e999", "NaN", "123456789012345678901234567890", '"a\\u0000b"'])
async def test_an_unstorable_result_is_an_error(sender: McpSender, server: FakeMcp, number: str) -> None:
    def answer(asked: Asked) -> Reply:
        body = json.dumps(
            {"jsonrpc": "2.0", "id": asked.message["id"], "result": text("", structuredContent={"n": 0})}
        )
        return Reply(body=body.replace('"n": 0', f'"n": {number}').encode())

    server.on["tools/call"] = answer
    outcome = await sent(sender, server)
    assert isinstance(outcome, ToolError)
    assert outcome.message.startswith("add ran, but its result cannot be kept: ")


# -- answers that say that nothing was done --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (Reply(403, body=b"not you"), "The server of add answered 403: not you."),
        (Reply(400), "The server of add answered 400: without a word."),
        (
            Reply(
                404, body=b'{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}'
            ),
            "The server of add answered 404: Session not found.",
        ),
        (
            Reply(307, {"location": "/mcp/"}),
            "The server of add answered 307, a redirect to /mcp/; redirects are not followed.",
        ),
    ],
)
async def test_a_rejection_is_an_error_for_the_model(
    sender: McpSender, server: FakeMcp, reply: Reply, told: str
) -> None:
    on_call(server, reply)
    assert await sent(sender, server) == ToolError(told, had_no_effect=True)
    assert len(server.calls) == 1


@pytest.mark.parametrize("status", [425, 429, 503])
async def test_a_server_that_asks_to_retry_is_called_again(
    sender: McpSender, server: FakeMcp, status: int
) -> None:
    on_call(server, Reply(status, {"retry-after": "7"}, b"busy"))
    with pytest.raises(NotDelivered) as caught:
        await sent(sender, server)
    assert str(caught.value) == f"The server of add answered {status}: busy."
    assert caught.value.retry_after_s == 7


async def test_errors_of_the_protocol(sender: McpSender, server: FakeMcp) -> None:
    server.on["tools/call"] = lambda asked: error(asked, -32602, "out of stock")
    refused = ToolError("Its server refused the call of add: out of stock")
    assert await sent(sender, server) == refused

    def streamed(asked: Asked) -> Reply:
        body = {
            "jsonrpc": "2.0",
            "id": asked.message["id"],
            "error": {"code": -32602, "message": "out of stock"},
        }
        return Reply(headers=STREAM_TYPE, body=event(body))

    server.on["tools/call"] = streamed
    assert await sent(sender, server) == refused


@pytest.mark.parametrize("code", [-32603, -32000, 1])
async def test_an_internal_error_leaves_the_outcome_unknown(
    sender: McpSender, server: FakeMcp, code: int
) -> None:
    server.on["tools/call"] = lambda asked: error(asked, code, "out of stock")
    with pytest.raises(OutcomeUnknown) as caught:
        await sent(sender, server)
    assert str(caught.value) == "its server answered: out of stock."


# -- streams that end early, and farewells ---------------------------------------------------------------------


async def test_a_stream_that_ended_early_is_resumed(sender: McpSender, server: FakeMcp) -> None:
    asked_first: list[Asked] = []

    def begin(asked: Asked) -> Reply:
        asked_first.append(asked)
        return Reply(headers=STREAM_TYPE, body=b"retry: 1\n" + event(None, id="e1"))

    def go_on(asked: Asked) -> Reply:
        answer = {"jsonrpc": "2.0", "id": asked_first[0].message["id"], "result": text("after all")}
        return Reply(headers=STREAM_TYPE, body=event(answer, id="e2"))

    server.on |= {"tools/call": begin, "GET": go_on}
    assert await sent(sender, server) == Answer("after all")
    assert [a.headers["last-event-id"] for a in server.seen if a.method == "GET"] == ["e1"]


async def test_a_stream_that_never_continues_is_abandoned(sender: McpSender, server: FakeMcp) -> None:
    again = Reply(headers=STREAM_TYPE, body=b"retry: 0\n" + event(None, id="e1"))
    on_call(server, again)
    server.on["GET"] = lambda asked: again
    with pytest.raises(OutcomeUnknown, match=r"^its server broke the connection\.$"):
        await sent(sender, server)
    assert server.rpcs().count("GET") <= MAX_RESUMES


async def test_a_stream_is_resumed_only_at_its_own_server(sender: McpSender, server: FakeMcp) -> None:
    on_call(server, Reply(headers=STREAM_TYPE, body=b"retry: 1\n" + event(None, id="e1")))
    server.on["GET"] = lambda asked: Reply(307, {"location": "/elsewhere"})
    with pytest.raises(OutcomeUnknown, match=r"^its server broke the connection\.$"):
        await sent(sender, server)
    assert server.rpcs().count("GET") == 2, "the SDK goes back twice"


async def test_closing_a_session_does_not_wait(sender: McpSender, server: FakeMcp) -> None:
    server.on["DELETE"] = hang
    assert await sent(sender, server) == Answer("done")
    server.on["DELETE"] = lambda asked: Reply(500)
    assert await sent(sender, server) == Answer("done")


async def test_server_requests_are_declined(sender: McpSender, server: FakeMcp) -> None:
    def asks(asked: Asked) -> Reply:
        sampling = {"messages": [], "maxTokens": 5}
        wishes = [
            {"jsonrpc": "2.0", "id": "s", "method": "sampling/createMessage", "params": sampling},
            {"jsonrpc": "2.0", "id": "r", "method": "roots/list"},
            {
                "jsonrpc": "2.0",
                "id": "e",
                "method": "elicitation/create",
                "params": {
                    "message": "Your password?",
                    "requestedSchema": {"type": "object", "properties": {}},
                },
            },
        ]
        return Reply(headers=STREAM_TYPE, body=b"".join(event(w) for w in wishes), end="hang")

    server.on["tools/call"] = asks
    with pytest.raises(OutcomeUnknown):
        await sent(sender, server, timeout_ms=2_000)
    answers = {a.message["id"]: a.message for a in server.seen if a.message.get("id") in ("s", "r", "e")}
    assert {id: a["error"]["message"] for id, a in answers.items()} == {
        "s": "Sampling not supported",
        "r": "List roots not supported",
        "e": "Elicitation not supported",
    }
    (hello,) = [a.message["params"] for a in server.seen if a.rpc == "initialize"]
    assert hello["capabilities"] == {}
