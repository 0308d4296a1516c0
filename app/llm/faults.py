"""Map vendors' responses and connection errors to provider faults, for all vendors.

This module never imports a vendor's SDK: it distinguishes SDK exceptions by status, by the codes in the error
body, and by class names, which each vendor's file lists.
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Mapping
from typing import Any, Final

import anyio
import httpx2
import pydantic

from app.base.clock import retry_after_s
from app.base.egress_policy import EgressDenied
from app.llm.eventstream import InvalidFrame
from app.llm.messages import Usage
from app.llm.provider import (
    BrokenTurn,
    ContextOverflow,
    NotAuthorized,
    Overloaded,
    ProviderFault,
    RateLimited,
    RequestRejected,
    ServerFault,
    TooMuchSent,
    Unreachable,
)

MAX_MESSAGE_CHARS: Final = 500
"""Maximum characters of a vendor's message in a fault."""

STATUS_FAULTS: Final[Mapping[int, type[ProviderFault]]] = {
    400: RequestRejected,
    401: NotAuthorized,
    402: RequestRejected,
    403: NotAuthorized,
    404: RequestRejected,
    408: Unreachable,
    409: Overloaded,  # a lock at the vendor timed out; the SDKs would retry it too
    412: RequestRejected,
    413: RequestRejected,
    422: RequestRejected,
    424: ServerFault,  # Bedrock: the model itself failed
    429: RateLimited,
    431: RequestRejected,
    499: Unreachable,
    500: ServerFault,
    501: ServerFault,
    502: ServerFault,
    503: Overloaded,
    504: ServerFault,
    529: Overloaded,
}

KIND_FAULTS: Final[Mapping[str, type[ProviderFault]]] = {
    # Anthropic, `error.type`
    "invalid_request_error": RequestRejected,
    "authentication_error": NotAuthorized,
    "permission_error": NotAuthorized,
    "billing_error": RequestRejected,
    "not_found_error": RequestRejected,
    "request_too_large": RequestRejected,
    "rate_limit_error": RateLimited,
    "timeout_error": Unreachable,
    "api_error": ServerFault,
    "overloaded_error": Overloaded,
    "conflict_error": Overloaded,
    # OpenAI and servers compatible with it, `error.type` or `error.code`
    "server_error": ServerFault,
    "internal_error": ServerFault,
    "rate_limit_exceeded": RateLimited,
    "tokens": RateLimited,
    "requests": RateLimited,
    "service_unavailable": Overloaded,
    "engine_overloaded": Overloaded,
    "context_length_exceeded": ContextOverflow,
    "invalid_api_key": NotAuthorized,
    # Bedrock, the name of an exception in the stream
    "internalServerException": ServerFault,
    "modelStreamErrorException": ServerFault,
    "modelTimeoutException": Unreachable,
    "serviceUnavailableException": Overloaded,
    "throttlingException": RateLimited,
    "validationException": RequestRejected,
}

BUDGET_CODES: Final = frozenset(
    {"insufficient_quota", "enforced_spend_limit_reached", "contract_spend_limit_reached"}
)
"""Codes of 429 responses for which waiting does not help: a budget at the vendor is used up."""

_OVERFLOW = re.compile(
    r"prompt is too long|context[ _-]?length|context window|maximum context|exceeds? (the )?(available )?context"
    r"|input is too long|too many (input )?tokens|input token count",
    re.IGNORECASE,
)

CONNECTION_ERRORS: Final = (
    httpx2.HTTPError,
    httpx2.StreamError,
    OSError,
    anyio.EndOfStream,
    EgressDenied,
)
"""Errors of broken or refused connections. httpx2 does not wrap TLS errors, which are OSErrors."""

CHUNK_ERRORS: Final = (
    json.JSONDecodeError,
    UnicodeDecodeError,
    pydantic.ValidationError,
    RecursionError,
    InvalidFrame,
)
"""Errors of malformed chunks."""


def fault_from_sdk(
    error: Exception, classes: Mapping[str, type[ProviderFault] | None], usage: Usage | None = None
) -> ProviderFault:
    """Return the fault for an exception of an SDK.

    Use its class if `classes`, the vendor's table, has an entry for it; else the response that it carries (an
    error in the middle of a stream has a body, and status 200 or none); else its cause.
    """
    fault = classes.get(type(error).__name__)
    if fault is not None and fault is not Unreachable:
        return fault(clip_message(str(error)), usage=usage)
    status, body = getattr(error, "status_code", None), getattr(error, "body", None)
    if status is None and not body:
        return fault_from_connection(error, usage)
    kind, code, message = parse_error_body(body)
    response = getattr(error, "response", None)
    return fault_from_status(
        status or 200,
        kind=kind,
        code=code,
        message=message or str(error),
        headers={} if response is None else response.headers,
        usage=usage,
    )


def fault_from_status(
    status: int,
    *,
    kind: str | None,
    code: str | None,
    message: str,
    headers: Mapping[str, str],
    usage: Usage | None = None,
) -> ProviderFault:
    """Return the fault for an error response. `kind` and `code` come from its body.

    A status below 400 is either an error event in a stream that began well, where the codes decide, or a
    redirect, which is never followed.
    """
    clipped = clip_message(message)
    if code in BUDGET_CODES:
        return RequestRejected(f"The budget at the provider is used up: {clipped}", usage=usage)
    limited = any(KIND_FAULTS.get(word or "") is RateLimited for word in (kind, code))
    of_the_prompt = status in (400, 413, 422) or (status < 300 and not limited)
    if of_the_prompt and (code == "context_length_exceeded" or _OVERFLOW.search(message)):
        return ContextOverflow(f"The prompt is larger than the model's window: {clipped}", usage=usage)
    if 300 <= status < 400:
        return RequestRejected(
            f"The provider redirects ({status}). Redirects are not followed; set baseUrl to the final address.",
            usage=usage,
        )
    fault = _fault_type(status, kind, code)
    prefix = f"The provider returned {status}" if status >= 400 else "The provider aborted the stream"
    return fault(f"{prefix}: {clipped}", retry_after_s=retry_after_s(headers), usage=usage)


def _fault_type(status: int, kind: str | None, code: str | None) -> type[ProviderFault]:
    if status >= 400:
        return STATUS_FAULTS.get(status) or (ServerFault if status >= 500 else RequestRejected)
    for word in (code, kind):
        if word is None:
            continue
        if word in KIND_FAULTS:
            return KIND_FAULTS[word]
        if word.isdecimal() and 400 <= int(word[:4]) < 600:
            return _fault_type(int(word[:4]), None, None)
    return ServerFault


def fault_from_connection(error: BaseException, usage: Usage | None = None) -> ProviderFault:
    """Return the fault for an exception without a response, or in the middle of one.

    An EgressDenied among the causes becomes a refusal with its message. Messages of other errors are not
    repeated, because they may contain a header, such as the key.
    """
    for cause in _cause_chain(error):
        if isinstance(cause, EgressDenied | TooMuchSent):
            return RequestRejected(str(cause), usage=usage)
        if isinstance(cause, httpx2.LocalProtocolError | httpx2.UnsupportedProtocol | httpx2.InvalidURL):
            return RequestRejected(
                "The request to the provider is not valid HTTP; check baseUrl and the key.", usage=usage
            )
        if isinstance(cause, httpx2.DecodingError):
            return BrokenTurn("The provider's answer could not be decompressed.", usage=usage)
        if isinstance(cause, httpx2.TimeoutException | TimeoutError):
            return Unreachable(
                f"The provider sent nothing for too long ({type(cause).__name__}).", usage=usage
            )
        if isinstance(cause, ssl.SSLCertVerificationError):
            return Unreachable(
                f"The provider's certificate is not valid: {clip_message(cause.verify_message)}", usage=usage
            )
    return Unreachable(f"The connection to the provider failed ({_deepest_name(error)}).", usage=usage)


def fault_from_chunk(error: Exception, usage: Usage | None = None) -> BrokenTurn:
    """Return the fault for a chunk that cannot be parsed."""
    if isinstance(error, pydantic.ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return BrokenTurn(
            f"A chunk of the provider's stream is malformed: {where}: {first['msg']}", usage=usage
        )
    if isinstance(error, InvalidFrame):
        return BrokenTurn(f"A frame of the provider's stream is malformed: {error}.", usage=usage)
    return BrokenTurn(f"A chunk of the provider's stream is not JSON ({type(error).__name__}).", usage=usage)


def parse_error_body(body: object) -> tuple[str | None, str | None, str | None]:
    """Return `(type, code, message)` of an error body, `{"error": {...}}` or its inner object; None for what
    is missing.

    Anthropic's stable code is at `details.error_code`; OpenAI's `code` may be a number; Google may wrap the
    body in a list; Amazon may write `Message`.
    """
    if isinstance(body, list) and body:
        body = body[0]
    inner: Any = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(inner, dict):
        return None, None, inner if isinstance(inner, str) and inner else None
    details = inner.get("details")
    code = details.get("error_code") if isinstance(details, dict) else inner.get("code")
    kind, message = inner.get("type"), inner.get("message") or inner.get("Message")
    return (
        kind if isinstance(kind, str) else None,
        str(code) if isinstance(code, str | int) else None,
        message if isinstance(message, str) and message else None,
    )


def clip_message(message: str) -> str:
    """Return the message as one line, shortened for display."""
    line = " ".join(message.split())
    return line if len(line) <= MAX_MESSAGE_CHARS else line[: MAX_MESSAGE_CHARS - 1] + "…"


def _cause_chain(error: BaseException) -> list[BaseException]:
    causes: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in causes:
        causes.append(current)
        current = current.__cause__ or current.__context__
    return causes


def _deepest_name(error: BaseException) -> str:
    return type(_cause_chain(error)[-1]).__name__
