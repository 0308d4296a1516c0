"""The transport `http`: a call is POSTed, signed, to an address in the spec.

The receiver verifies the signature (Standard Webhooks: `webhook-id`, `webhook-timestamp`, `webhook-signature`),
remembers the `Idempotency-Key`, which is the same for every attempt, and answers 2xx with `{"output": ...}` or
`{"error": "..."}`; no body means no output. The status decides what follows. After a 4xx, the call had no effect.
After a 425, a 429 or a 503 with `Retry-After`, it may be repeated. After a 408 or another 5xx the outcome is unknown,
because a proxy may send these after the application acted.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import httpx2
import orjson
from plangate.spec.transports import HttpTransport

from app.base.clock import retry_after_s
from app.base.egress import egress_client
from app.base.egress_policy import EgressDenied, EgressPolicy, requests_of
from app.base.errors import Malformed, NotFound, TooLarge
from app.base.json import strict_json
from app.base.json.offload import offload
from app.base.json.parsing import Parser
from app.base.traces import traceparent
from app.runtimes.signing import SigningSecrets
from app.tenancy.secrets import Secrets
from app.tools.models import MAX_RESULT_BYTES, Attempt, NotDelivered, OutcomeUnknown
from app.tools.results import Answer, ToolError, ToolResult
from app.tools.transports.headers import SecretMissing, resolve_headers, with_redacted_errors

CONNECT_S = 5.0
MAX_ERROR_CHARS = 2_000
MAX_PROBLEM_BYTES = 64 * 1024  # of an error response that is parsed as JSON
ASKS_TO_TRY_AGAIN = frozenset({425, 429})  # and a 503 that says when
TIMED_OUT = 408
SENDS_ON_AFTERWARDS = frozenset({302, 303})  # often sent after a POST that succeeded
SAYS_ERROR = ("error", "detail", "message", "title")


class HttpSender:
    def __init__(
        self, policy: EgressPolicy, secrets: Secrets, signing: SigningSecrets, *, traced: bool = False
    ) -> None:
        """`traced`: calls carry the trace context of their span."""
        self._traced = traced
        self._secrets = secrets
        self._signing = signing
        self._parser = Parser()
        # The receiver may close a kept connection as the request leaves, and then it is unknown whether the request
        # arrived. So calls that must not be repeated get a new connection.
        self._keepalive = egress_client(policy, max_response_bytes=MAX_RESULT_BYTES)
        self._fresh = egress_client(policy, max_response_bytes=MAX_RESULT_BYTES, keep_alive=False)

    async def send(self, attempt: Attempt) -> ToolResult:
        transport = attempt.call.transport
        assert isinstance(transport, HttpTransport)
        body = await offload(strict_json.dumps, _body(attempt))
        try:
            headers = await self._headers(attempt, transport, body)
        except (SecretMissing, NotFound) as error:
            return ToolError(str(error), had_no_effect=True)
        with requests_of(attempt.tenant):
            return await with_redacted_errors(
                self._post(attempt, transport, headers, body), transport.headers, headers
            )

    async def _post(
        self, attempt: Attempt, transport: HttpTransport, headers: dict[str, str], body: bytes
    ) -> ToolResult:
        leaving = _SendObserver(attempt)
        client = self._keepalive if attempt.call.replay == "safe" else self._fresh
        timeout = httpx2.Timeout(attempt.timeout_s, connect=min(CONNECT_S, attempt.timeout_s), pool=None)
        try:
            async with asyncio.timeout(attempt.timeout_s):
                response = await client.post(
                    transport.url,
                    content=body,
                    headers=headers,
                    timeout=timeout,
                    extensions={"trace": leaving.trace},
                )
        except EgressDenied as error:
            if leaving.began:
                raise OutcomeUnknown(f"its address answered, but {error.why}.") from error
            return ToolError(f"Nothing was sent. {error}", had_no_effect=True)
        except _DeadlinePassed as error:
            raise NotDelivered(
                "Nothing was sent: the deadline of the call passed before the service could send it."
            ) from error
        except (TimeoutError, httpx2.HTTPError) as error:
            raise self._connection_lost(attempt, leaving, error) from error
        if 200 <= response.status_code < 300:
            return await self._output(attempt.call.name, response)
        return _outcome_of_error(attempt.call.name, response)

    async def _headers(self, attempt: Attempt, transport: HttpTransport, body: bytes) -> dict[str, str]:
        now = datetime.now(UTC)
        id = attempt.call.work_id
        return {
            **await resolve_headers(self._secrets, attempt.tenant, transport.headers),
            "content-type": "application/json",
            "user-agent": "plangate",
            "idempotency-key": attempt.call.idempotency_key,
            "webhook-id": id,
            **({"traceparent": traceparent(attempt.call.query_id, id)} if self._traced else {}),
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": await self._signing.signature(
                attempt.tenant, attempt.runtime_name, attempt.secret, id, now, body
            ),
        }

    async def _output(self, name: str, response: httpx2.Response) -> ToolResult:
        if not response.content.strip():
            return Answer()
        must = 'A 2xx response must have the JSON body {"output": ...} or {"error": "..."}, or no body.'
        try:
            answer = await self._parser.parse(response.content)
        except (Malformed, TooLarge) as error:
            return ToolError(f"{name} ran, but its answer cannot be read. {error} {must}")
        if isinstance(answer, dict) and set(answer) == {"output"}:
            return Answer(answer["output"])
        if isinstance(answer, dict) and set(answer) == {"error"} and isinstance(answer["error"], str):
            return ToolError(answer["error"][:MAX_ERROR_CHARS] or "it failed without a word")
        return ToolError(f"{name} ran, but its answer is not as agreed. {must}")

    def _connection_lost(self, attempt: Attempt, leaving: _SendObserver, error: Exception) -> Exception:
        what = (
            "no answer in time" if isinstance(error, TimeoutError | httpx2.TimeoutException) else "no answer"
        )
        why = str(error) or type(error).__name__
        if leaving.began:
            return OutcomeUnknown(f"{what} came from its address after the call had left ({why}).")
        return NotDelivered(f"{attempt.call.name} cannot be reached, nothing was sent: {why}")

    async def aclose(self) -> None:
        await self._keepalive.aclose()
        await self._fresh.aclose()


class _DeadlinePassed(Exception):
    """The right to send has expired."""


class _SendObserver:
    """Observes when the first byte of a request leaves."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self.began = False

    async def trace(self, event: str, _info: dict[str, Any]) -> None:
        if event.endswith(".send_request_headers.started"):
            if not self._attempt.may_send():
                raise _DeadlinePassed
            self.began = True


def _body(attempt: Attempt) -> dict[str, Any]:
    """Return the request body: `{tool, args, context}`, or the actions of an approved plan in the form for
    dispatchers."""
    tool = {"tool": attempt.call.name} if "args" in attempt.request else {}
    return {**tool, **attempt.request, "attempt": attempt.number}


def _outcome_of_error(name: str, response: httpx2.Response) -> ToolResult:
    """Return the result that a response other than 2xx means. Raise NotDelivered or OutcomeUnknown."""
    status = response.status_code
    if 300 <= status < 400:
        where = response.headers.get("location", "nowhere")[:200]
        redirects = f"answered {status}, a redirect to {where}; redirects are not followed."
        if status in SENDS_ON_AFTERWARDS:
            raise OutcomeUnknown(f"its address {redirects}")
        return ToolError(f"{name} {redirects}", had_no_effect=True)
    message = f"{name} answered {status}: {_error_text(response)}"
    if had_no_effect(response):
        raise NotDelivered(message, retry_after_s(response.headers))
    if status >= 500 or status == TIMED_OUT:
        raise OutcomeUnknown(f"its address answered {status}: {_error_text(response)}")
    return ToolError(message, had_no_effect=True)


def had_no_effect(response: httpx2.Response) -> bool:
    """Return whether a response says that the call was not accepted and may be sent again."""
    says_when = response.status_code == 503 and "retry-after" in response.headers
    return says_when or response.status_code in ASKS_TO_TRY_AGAIN


def _error_text(response: httpx2.Response) -> str:
    """Return the error message of a response."""
    text = response.content[: 4 * MAX_ERROR_CHARS].decode("utf-8", "replace").strip()
    try:
        parsed = orjson.loads(response.content) if len(response.content) <= MAX_PROBLEM_BYTES else None
    except orjson.JSONDecodeError:
        parsed = None
    if isinstance(parsed, dict):
        text = next((parsed[k] for k in SAYS_ERROR if isinstance(parsed.get(k), str)), text)
    clean = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    return clean[:MAX_ERROR_CHARS] or "without a word"
